"""Handlers of RocketMQ requests: request, call of the broker, reply. Docstrings name request codes.

- A session matches replies by number, in both directions.
- Families: sending, pulling, offsets and locks; heartbeats, membership and assignment; retries,
  delayed and transactional messages; routes and name server; lookup of messages; administration of
  topics, groups, brokers and offsets; progress and runtime figures.
- What is the same on all nodes (group configuration, key/value tables) is a followed topic.
- One table maps exceptions to response codes.
"""
