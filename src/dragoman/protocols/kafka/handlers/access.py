"""What a client may do: the question to the authorizer, and Kafka's numbers for the answers."""

from __future__ import annotations

from typing import Final

from dragoman.protocols.kafka.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource

#: The one name of the resource that stands for the whole cluster.
CLUSTER_NAME: Final = "kafka-cluster"
#: In place of a set of operations that was not asked for.
NOT_ASKED: Final = -(1 << 31)

#: The bit of each operation.
_BITS: Final[dict[Operation, int]] = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
}


def _operations(words: str) -> tuple[Operation, ...]:
    return tuple(map(Operation, words.split()))


#: What can be done to a resource of each kind at all.
_OPERATIONS: Final = {
    Resource.TOPIC: _operations(
        "read write create delete alter describe describe_configs alter_configs"
    ),
    Resource.GROUP: _operations("read delete describe describe_configs alter_configs"),
    Resource.TRANSACTIONAL_ID: _operations("write describe"),
    Resource.CLUSTER: _operations(
        "create alter describe cluster_action describe_configs alter_configs idempotent_write"
    ),
}


def authorize_cluster(call: Call, operation: Operation) -> None:
    """Raises `ClusterNotAuthorized`."""
    call.session.authorize(operation, Resource.CLUSTER, CLUSTER_NAME)


def allowed_operations(call: Call, resource: Resource, name: str) -> int:
    """All that this client may do to a resource, one bit each (KIP-430)."""
    return sum(
        1 << _BITS[operation]
        for operation in _OPERATIONS[resource]
        if call.session.is_allowed(operation, resource, name)
    )
