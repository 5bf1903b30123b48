"""The response codes of exceptions: the only place where an exception becomes a code.

Refusals that the original has a code and a remark for are raised as `Refused`. Errors of the broker
core keep their own text.
"""

from __future__ import annotations

from typing import Final

from dragoman.broker import errors as broker
from dragoman.errors import (
    BrokerError,
    ClusterError,
    ConfigError,
    DecodeError,
    DiskFullError,
    DragomanError,
    OffsetOutOfRangeError,
)
from dragoman.protocols.rocketmq.constants import Response


class Refused(BrokerError):  # noqa: N818
    """A refusal with RocketMQ's code and remark."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


#: The code of the first class that matches; other errors are 1 (SYSTEM_ERROR).
_CODES: Final[tuple[tuple[type[DragomanError], Response], ...]] = (
    (broker.UnknownTopic, Response.TOPIC_NOT_EXIST),
    (broker.NotAuthorized, Response.NO_PERMISSION),
    (broker.MessageTooLarge, Response.MESSAGE_ILLEGAL),
    (broker.InvalidRecord, Response.MESSAGE_ILLEGAL),
    (broker.InvalidTimestamp, Response.MESSAGE_ILLEGAL),
    (broker.InvalidTopicName, Response.INVALID_PARAMETER),
    (broker.InvalidPartitions, Response.INVALID_PARAMETER),
    (broker.InvalidConfig, Response.INVALID_PARAMETER),
    (broker.InvalidGroupId, Response.INVALID_PARAMETER),
    # The original has no code for a group whose members use another protocol.
    (broker.ForeignGroup, Response.SYSTEM_ERROR),
    # Producers try another broker after code 14.
    (broker.NotLeader, Response.SERVICE_NOT_AVAILABLE),
    (broker.NotEnoughReplicas, Response.SERVICE_NOT_AVAILABLE),
    (broker.ReplicaDamaged, Response.SERVICE_NOT_AVAILABLE),
    (broker.ShuttingDown, Response.SERVICE_NOT_AVAILABLE),
    (DiskFullError, Response.SERVICE_NOT_AVAILABLE),
    (broker.CoordinatorLoading, Response.SYSTEM_BUSY),
    (broker.CoordinatorNotAvailable, Response.SYSTEM_BUSY),
    (broker.NotCoordinator, Response.SYSTEM_BUSY),
    (broker.Overloaded, Response.SYSTEM_BUSY),
    (ClusterError, Response.SYSTEM_BUSY),
    (OffsetOutOfRangeError, Response.PULL_OFFSET_MOVED),
    (ConfigError, Response.INVALID_PARAMETER),
    (DecodeError, Response.SYSTEM_ERROR),
)


def refusal(error: DragomanError) -> tuple[int, str]:
    """Code and remark."""
    if isinstance(error, Refused):
        return error.number, str(error)
    for kind, number in _CODES:
        if isinstance(error, kind):
            return number, str(error)
    return Response.SYSTEM_ERROR, str(error)
