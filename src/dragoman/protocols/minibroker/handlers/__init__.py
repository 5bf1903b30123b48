"""Handlers of minibroker requests, and delivery of records to subscribers.

Publish and commit are answered when they are durable. A subscription reads partitions, for a group
as one of its members. Pushes are small and fair to all partitions, and a window bounds how far they
run ahead of commits.
"""
