"""The modules that pass continuations, by the path that needs them, each with the reason.

A coroutine costs two to three microseconds and a callback a tenth of that: these paths run for
every batch, every request of a consumer or every member of a group, and all else awaits outcomes.
"""

from __future__ import annotations

from typing import Final

#: ARCHITECTURE.md names the same paths.
HOT_PATHS: Final[dict[str, dict[str, str]]] = {
    "produce": {
        "dragoman.broker.accumulator": "one callback per record of a batch",
        "dragoman.broker.leader_queues": "the same records, where another node leads",
        "dragoman.protocols.cursus.handlers.producers": "sequence numbers of each publish",
        "dragoman.protocols.cursus.handlers.publish": "one reply per publish",
        "dragoman.protocols.cursus.handlers.relayed": "a publish that another node leads",
        "dragoman.protocols.kafka.handlers.produce": "one result per partition of a request",
        "dragoman.protocols.minibroker.handlers.requests": "one reply per record",
        "dragoman.protocols.mlog.handlers.produce": "one reply per record",
        "dragoman.replication.replica": "what waits until its offset is stable or committed",
    },
    "fetch": {
        "dragoman.broker.fetch": "a fetch that waits for data",
        "dragoman.broker.grants": "what ends it when its client may no longer read",
    },
    "heartbeats": {
        "dragoman.broker.groups.consumer.group": "the heartbeats of KIP-848 carry everything",
        "dragoman.broker.groups.registry": "every request of a member passes the table",
        "dragoman.protocols.kafka.handlers.consumer_groups": "the reply to such a heartbeat",
    },
    "join and sync": {
        "dragoman.broker.groups.classic": "a rebalance answers thousands of joins in one turn",
        "dragoman.broker.groups.consumer.classic_members": "joins in a group of both protocols",
        "dragoman.broker.groups.consumer.unstored": "joins and heartbeats wait for its writes",
        "dragoman.broker.groups.waits": "a parked join or sync",
        "dragoman.broker.groups.rebalance": "a generation that syncs wait for",
        "dragoman.broker.groups.remote_members": "a join whose coordinator is another node",
        "dragoman.protocols.kafka.handlers.groups": "the replies to joins and syncs",
        "dragoman.protocols.minibroker.handlers.subscriptions": "the reply to a subscription",
    },
    "offset commits on the coordinator": {
        "dragoman.broker.groups.coordinator": "consumers commit with every poll",
        "dragoman.broker.internal_topic": "the records of those commits",
        "dragoman.protocols.cursus.handlers.groups": "the reply to a commit",
        "dragoman.protocols.kafka.handlers.offsets": "the reply to a commit",
    },
    "replication": {
        "dragoman.broker.cluster_node": "the fetches of this node as a follower",
        "dragoman.net.peer_connections": "the connections on which followers fetch",
        "dragoman.peers": "a follower's fetch as a request of a node",
        "dragoman.replication.fetch_server": "the leader's answers to those fetches",
        "dragoman.replication.ports": "the port of those fetches",
        "dragoman.replication.replication": "the leader's side of that port",
    },
    "the disk": {
        "dragoman.log.directory": "jobs of the log that the flusher does",
        "dragoman.log.flusher": "answers of the process that syncs files",
        "dragoman.log.group_commit": "a group of batches that is being synced",
        "dragoman.offline": "the disk port, for repairs",
        "dragoman.testing.sim.background": "the disk port, on virtual time",
        "dragoman.world": "the disk port",
    },
}
#: Where callbacks become outcomes or futures.
BRIDGES: Final[dict[str, str]] = {
    "dragoman.net.future": "an outcome becomes a future of asyncio",
    "dragoman.outcome": "a callback becomes an outcome, and an outcome calls back",
}
