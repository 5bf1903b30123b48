"""Sinks of a pipeline: topics, Delta tables and PostgreSQL.

Each sink applies a micro-batch once, however often it receives it: the broker, the Delta log or a
row of the same database transaction records the last batch of its owner.
"""
