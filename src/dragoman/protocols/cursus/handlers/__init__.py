"""Requests of Cursus clients, one module per family: request, broker call, reply."""
