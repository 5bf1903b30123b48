"""Partitions, their leaders and followers, and the quorum of the metadata.

A node counts under-replicated partitions where it leads them, so that the sum over all nodes is
that of the cluster. Every node counts the partitions without a leader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dragoman.cluster.metadata import NO_LEADER
from dragoman.cluster.raft_quorum.quorum import RaftQuorum
from dragoman.telemetry.catalogue import Stats

if TYPE_CHECKING:
    from dragoman.api.node_ports import NodeBroker

#: Partitions that are looked at between two pauses.
_AT_ONCE = 1000


def replica_stats(broker: NodeBroker) -> Iterator[Stats]:
    yield from _partitions(broker)
    yield from _followers(broker)
    image, quorum = broker.image, broker.quorum
    found: dict[str, int] = {
        "fenced_nodes": len(image.fenced),
        "moving_partitions": len(image.moving),
        "partition_leader_changes_total": image.leader_changes,
        "in_sync_changes_total": image.in_sync_changes,
        "is_controller": int(quorum.is_leading),
        "metadata_term": quorum.term,
        "metadata_version": quorum.version,
        "metadata_leader_changes_total": broker.cluster.metadata_leader_changes,
    }
    if isinstance(quorum, RaftQuorum):
        found["metadata_committed_offset"] = quorum.committed_end
    yield found


def _partitions(broker: NodeBroker) -> Iterator[Stats]:
    node_id = broker.node_id
    held = led = under_replicated = offline = 0
    for number, each in enumerate(list(broker.image.partitions.values())):
        held += node_id in each.replicas
        offline += each.leader == NO_LEADER
        if each.leader == node_id:
            led += 1
            under_replicated += each.is_under_replicated
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield {}
    yield {
        "replicas": held,
        "leader_partitions": led,
        "under_replicated_partitions": under_replicated,
        "offline_partitions": offline,
    }


def _followers(broker: NodeBroker) -> Iterator[Stats]:
    """How far followers are behind the partitions that this node leads, at most."""
    lags: dict[tuple[str, ...], int] = {}
    for number, leading in enumerate(broker.cluster.replication.led()):
        end = leading.replica.log.log_end_offset
        for node, follower in leading.followers.items():
            labels = (str(node),)
            lags[labels] = max(lags.get(labels, 0), end - max(follower.stable_end, 0))
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield {}
    yield {"replica_lag_records": lags}
