"""Handlers of Cursus commands: request, call of the broker, reply.

A session answers in the order of requests. It starts the coroutine of a handler that waits, and
turns what a handler raises into a reply; one table (`refusals`) maps errors to the texts of the
original. The hot paths (PUBLISH, CONSUME, STREAM, HEARTBEAT, COMMIT) are callbacks.

`topics`, `publish`, `consume`, `streams`, `groups`, `offsets`, `transactions`, `events`, `cluster`
and `negotiation` handle the commands. `producers` gives each message of a producer its place,
`relayed` carries requests to other nodes, `state` keeps producers and snapshots of event streams in
an internal topic, `records` and `policy` map messages and topics to those of the broker.
"""
