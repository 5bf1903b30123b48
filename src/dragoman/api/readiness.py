"""Whether a node serves clients, and whether the cluster can change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.cluster.metadata import NO_LEADER
from dragoman.limits import QUORUM_CONTACT_WARNING_S

if TYPE_CHECKING:
    from dragoman.api.node_ports import NodeBroker


def objection(broker: NodeBroker) -> str:
    """Why clients should use other nodes; empty while this one serves them."""
    if broker.is_stopping:
        return "the node is stopping"
    if not broker.is_ready:
        return "the node is starting"
    if broker.store.is_disk_full or not broker.cluster.replication.has_room:
        return "the disk is full"
    return ""


def has_metadata_leader(broker: NodeBroker) -> bool:
    """Whether a leader of the metadata is in reach: without one, nothing of the cluster changes."""
    leader = broker.quorum.leader
    if leader in (NO_LEADER, broker.node_id):
        return leader != NO_LEADER
    return broker.cluster.replication.controller_silence_s <= QUORUM_CONTACT_WARNING_S
