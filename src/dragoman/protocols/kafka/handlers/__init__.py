"""Requests of Kafka clients, one module per family: request, broker call, reply."""
