"""LIST_CLUSTER, CLUSTER_STATUS and ELECT_LEADER.

The fields are those of broker 0.1.0, in its order. `addr` is a node's address for other nodes, and
`client_addr` its address for this client. `committed_hwm` is the high watermark of this node's own
replica, 0 for a partition without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from dragoman.cluster.metadata import PartitionMetadata
from dragoman.limits import CURSUS_STATUS_PARTITIONS_MAX
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.groups import NEVER, go_time
from dragoman.protocols.cursus.handlers.policy import is_expressible
from dragoman.protocols.cursus.handlers.session import Call
from dragoman.security.access import CLUSTER_NAME, Operation, Resource

_ACTIVE: Final = "active"


def handle_list_cluster(call: Call) -> None:
    _require_cluster(call, "distribution_not_enabled")
    brokers = [
        {"id": str(node), "addr": _peer_address(call, node)}
        | _client_address(call, node)
        | {"status": _status(call, node), "last_seen": _last_seen(call, node)}
        for node in sorted(call.service.broker.image.nodes)
    ]
    call.ok(f"brokers={msgspec.json.encode(brokers).decode()}")


def handle_cluster_status(call: Call) -> None:
    _require_cluster(call, "distribution_required command=CLUSTER_STATUS")
    broker = call.service.broker
    image = broker.image
    if len(image.partitions) > CURSUS_STATUS_PARTITIONS_MAX:
        reason = f"the cluster has more than {CURSUS_STATUS_PARTITIONS_MAX} partitions"
        raise Refusal(f"marshal_cluster_status_failed reason={quoted(reason)}")
    nodes = sorted(image.nodes)
    active = sum(_status(call, node) == _ACTIVE for node in nodes)
    held = {each.metadata.partition_id: each.log.high_watermark for each in broker.partitions}
    partitions = [
        _partition(call, partition, held)
        for name, topic in sorted(image.topics.items())
        if is_expressible(name)
        for partition in topic.partitions
    ]
    status = {
        "raft_leader": _peer_address(call, broker.quorum.leader),
        "broker_count": len(nodes),
        "active_brokers": active,
        "inactive_brokers": len(nodes) - active,
        "partition_count": len(partitions),
        "leaderless_partitions": sum(not each["leader_available"] for each in partitions),
        "under_replicated_partitions": sum(bool(each["under_replicated"]) for each in partitions),
        "brokers": [
            {
                "id": str(node),
                "status": _status(call, node),
                "addr": _peer_address(call, node),
            }
            | _client_address(call, node)
            for node in nodes
        ],
        "partitions": partitions,
    }
    call.ok(f"cluster={msgspec.json.encode(status).decode()}")


def handle_elect_leader(call: Call) -> None:
    """Check the command, then refuse it: the cluster elects its leaders itself."""
    _require_cluster(call, "distribution_required command=ELECT_LEADER", Operation.ALTER)
    topic = call.require("topic")
    partition = call.number("partition", refusal="invalid_partition command=ELECT_LEADER")
    node = call.require("broker")
    known = call.service.broker.image.topics.get(topic)
    if known is None or partition >= len(known.partitions):
        raise Refusal(f"partition_not_found topic={topic} partition={partition}")
    reason = quoted("the cluster elects leaders itself; see dragoman cluster elect")
    where = f"topic={topic} partition={partition} broker={node}"
    raise Refusal(f"leader_election_rejected {where} reason={reason}")


def _require_cluster(call: Call, refusal: str, operation: Operation = Operation.DESCRIBE) -> None:
    """Authorize an operation on the cluster. Raises `Refusal`, also on a single node."""
    call.authorize(operation, Resource.CLUSTER, CLUSTER_NAME)
    if len(call.service.broker.image.nodes) == 1:
        raise Refusal(refusal)


def _status(call: Call, node: int) -> str:
    image = call.service.broker.image
    return _ACTIVE if node in image.registrations and node not in image.fenced else "inactive"


def _last_seen(call: Call, node: int) -> str:
    """The current time for a node with a live session; unknown for any other node."""
    is_active = _status(call, node) == _ACTIVE
    return go_time(call.service.broker.clock.wall_ms()) if is_active else NEVER


def _peer_address(call: Call, node: int) -> str:
    registered = call.service.broker.image.registrations.get(node)
    return "" if registered is None else registered.addresses.get("peer", "")


def _client_address(call: Call, node: int) -> dict[str, str]:
    """The field with a node's address for clients, omitted as in the original if unknown."""
    address = call.address_of(node)
    return {"client_addr": address} if address else {}


def _partition(
    call: Call, partition: PartitionMetadata, held: Mapping[int, int]
) -> dict[str, object]:
    name = partition.topic.name
    is_led = partition.leader >= 0 and _status(call, partition.leader) == _ACTIVE
    return {
        "key": f"{name}-{partition.index}",
        "topic": name,
        "partition": partition.index,
        "leader": str(partition.leader) if partition.leader >= 0 else "",
        "leader_epoch": partition.leader_epoch,
        "replicas": list(map(str, partition.replicas)),
        "isr": list(map(str, partition.in_sync)),
        "committed_hwm": held.get(partition.partition_id, 0),
        "leader_available": is_led,
        "under_replicated": len(partition.in_sync) < len(partition.replicas),
    }
