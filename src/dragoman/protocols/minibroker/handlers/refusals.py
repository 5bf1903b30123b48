"""Which of the documented texts an exception becomes; others speak for themselves."""

# ruff: noqa: N818

from __future__ import annotations

from dragoman.broker.errors import NotLeader
from dragoman.errors import BrokerError, DragomanError
from dragoman.protocols.minibroker import codec, errors
from dragoman.protocols.minibroker.messages import Failed


class Refused(BrokerError):
    """Its message is the text that the client is told."""


def refusal(error: DragomanError) -> bytes:
    """The frame that says why."""
    reason = errors.not_leader() if isinstance(error, NotLeader) else str(error)
    return codec.encode(Failed(reason=errors.fitting(reason)))
