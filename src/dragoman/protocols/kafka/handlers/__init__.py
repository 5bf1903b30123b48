"""Handlers of Kafka requests: request, call of the broker, reply. Docstrings name API keys.

- A session answers strictly in the order of requests. Produce requests that repeat the shape of an
  earlier one of the connection take a fast path, which decides nothing and falls back.
- Families: produce and fetch with incremental sessions; metadata, topics and partitions; groups of
  both protocols and their offsets; transactions; configurations and quotas; leaders and
  reassignments; administration; client telemetry; staging and publication.
- One table maps exceptions to error codes. Long answers are computed in slices of a loop turn.
"""
