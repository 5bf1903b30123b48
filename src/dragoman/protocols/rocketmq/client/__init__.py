"""The RocketMQ client; `dragoman.client.rocketmq` has its public names.

- Producers: ordinary, ordered, delayed, transactional, and request/reply.
- Push consumers, concurrent or in order; pull consumers; broadcasting.
- Members of a group compute the allocation of queues themselves and keep heartbeats going.
- Offsets are stored at the brokers, or with each consumer.
- Routes come from name servers; connections carry requests in both directions.
- Administration is a table of operations (`operations.py`).
- There are classes for asyncio and for blocking code.
"""
