"""Handlers of RocketMQ requests, and what connections share. Docstrings name request codes.

- A session matches replies by number, in both directions. A handler of a rare request is a
  coroutine that returns the answer; sends, pulls, heartbeats and commits call back.
- What nodes ask each other for their clients has typed requests and answers (`rpc.py`).
- Families: sending, pulling, offsets and locks; heartbeats, membership and assignment; retries,
  delayed and transactional messages; routes and name server; lookup of messages; administration of
  topics, groups, brokers and offsets; progress and runtime figures.
- What is the same on all nodes (group configuration, key/value tables) is a global table.
- One table maps exceptions to response codes.
"""
