"""Handlers of RocketMQ requests. The docstrings of modules name the codes that they handle.

- A session matches responses to requests by number, in both directions. Most handlers are
  coroutines that return the answer; sends and pulls call back.
- Nodes send each other requests on behalf of their clients (`rpc.py`).
- Requests are about messages (send, retries, transactions, pull, queries), members of groups,
  offsets, topics and routes, the name server, and the administration of groups and brokers.
- State that is the same on all nodes (configurations of groups, key/value configuration) is in a
  global table.
- One table maps exceptions to response codes (`refusals.py`).
"""
