"""Which of Cursus's error texts an exception becomes; no other place turns one into words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GroupNotFound,
    InvalidPartitions,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    Overloaded,
    ProducerFenced,
    ReplicaDamaged,
    RequestTimedOut,
    ShuttingDown,
    TransactionCoordinatorLoading,
    TransactionError,
)
from dragoman.errors import (
    ClusterError,
    DiskFullError,
    DragomanError,
    NotControllerError,
    NotSentError,
)
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import UNKNOWN_OUTCOME, Refusal

#: Host and port of another node, by its number; None when it is not known.
AddressOf: TypeAlias = Callable[[int], tuple[str, int] | None]

#: The code for each reason that has one of its own, without further fields.
_CODES: Final[tuple[tuple[type[DragomanError], str], ...]] = (
    (CoordinatorLoading, "coordinator_not_available"),
    (CoordinatorNotAvailable, "coordinator_not_available"),
    (ShuttingDown, "coordinator_not_available"),
    (TransactionCoordinatorLoading, "transaction_manager_not_available"),
    (Overloaded, "router_not_available"),
    # What passes when other nodes are back, or lead: clients come again.
    (NotEnoughReplicas, "cluster_not_available"),
    (ReplicaDamaged, "cluster_not_available"),
    (DiskFullError, "cluster_not_available"),
    # Nothing was done: other than below, this may be repeated.
    (NotControllerError, "no_raft_leader"),
    (NotSentError, "cluster_not_available"),
    (RequestTimedOut, UNKNOWN_OUTCOME),
    (ClusterError, UNKNOWN_OUTCOME),
    (GroupNotFound, "group_not_found"),
    (InvalidPartitions, "invalid_partitions"),
    (ProducerFenced, "producer_fenced"),
    (TransactionError, "transaction_commit_failed"),
    (MessageTooLarge, "broker_error"),
)


def refusal_text(error: DragomanError, address_of: AddressOf) -> str:
    """What follows `ERROR: `."""
    match error:
        case Refusal():
            return error.text
        case NotLeader():
            leader = address_of(error.leader)
            return "NOT_LEADER" if leader is None else "NOT_LEADER LEADER_IS {}:{}".format(*leader)
        case NotCoordinator():
            where = address_of(error.leader)
            return "NOT_COORDINATOR" + ("" if where is None else " host={} port={}".format(*where))
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "command_failed")
    return f"{code} reason={quoted(str(error))}"
