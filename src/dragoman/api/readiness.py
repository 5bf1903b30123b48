"""Whether a node serves clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
