"""Which of the documented texts an exception becomes; others speak for themselves."""

# ruff: noqa: N818

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dragoman.broker.errors import NotCoordinator, NotLeader
from dragoman.errors import BrokerError, DragomanError, NotControllerError, NotSentError
from dragoman.protocols.minibroker import codec, errors
from dragoman.protocols.minibroker.messages import Failed

#: Host and port of another node, by its number; None when they are not known.
AddressOf: TypeAlias = Callable[[int], tuple[str, int] | None]


class Refused(BrokerError):
    """Its message is the text that the client is told."""


def refusal(error: DragomanError, address_of: AddressOf) -> bytes:
    """The frame that says why; and who leads, or coordinates, in place of this node."""
    reason = str(error)
    if isinstance(error, NotLeader | NotCoordinator):
        leader = address_of(error.leader)
        reason = errors.not_leader("" if leader is None else f"{leader[0]}:{leader[1]}")
    elif isinstance(error, NotSentError | NotControllerError):
        # The leader cannot be reached from here, perhaps from another node. Nothing was done.
        reason = errors.not_leader()
    return codec.encode(Failed(reason=errors.fitting(reason)))
