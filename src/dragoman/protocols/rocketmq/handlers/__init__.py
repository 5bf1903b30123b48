"""Requests of RocketMQ clients, one module per family: request, broker call, reply."""
