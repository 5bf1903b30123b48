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
    NotLeader,
    Overloaded,
    ProducerFenced,
    ShuttingDown,
    TransactionCoordinatorLoading,
    TransactionError,
)
from dragoman.errors import DragomanError, EncodeError
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal

#: Host and port of another node, by its number; None when it is not known.
AddressOf: TypeAlias = Callable[[int], tuple[str, int] | None]

#: The code for each reason that has one of its own, without further fields.
_CODES: Final[tuple[tuple[type[DragomanError], str], ...]] = (
    (CoordinatorLoading, "coordinator_not_available"),
    (CoordinatorNotAvailable, "coordinator_not_available"),
    (ShuttingDown, "coordinator_not_available"),
    (TransactionCoordinatorLoading, "transaction_manager_not_available"),
    (Overloaded, "router_not_available"),
    (GroupNotFound, "group_not_found"),
    (InvalidPartitions, "invalid_partitions"),
    (ProducerFenced, "producer_fenced"),
    (TransactionError, "transaction_commit_failed"),
    (MessageTooLarge, "broker_error"),
    (EncodeError, "command_failed"),
)


def refusal_text(error: DragomanError, address_of: AddressOf) -> str:
    """What follows `ERROR: `."""
    match error:
        case Refusal():
            return error.text
        case NotLeader():
            return "NOT_LEADER" + _at(error.leader, address_of, " LEADER_IS {}:{}")
        case NotCoordinator():
            return "NOT_COORDINATOR"
    for kind, code in _CODES:
        if isinstance(error, kind):
            return f"{code} reason={quoted(str(error))}"
    return f"command_failed reason={quoted(str(error))}"


def _at(node: int, address_of: AddressOf, form: str) -> str:
    address = address_of(node)
    return "" if address is None else form.format(*address)
