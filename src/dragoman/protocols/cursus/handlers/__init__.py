"""Handlers of Cursus commands: request, call of the broker, reply.

A session answers in the order of requests. There are families for negotiation, topics, publishing,
consuming and streaming, groups and offsets, transactions, event sourcing, and the cluster. Producer
state and snapshots of event streams are kept in followed internal topics. One table maps exceptions
to the texts of the original.
"""
