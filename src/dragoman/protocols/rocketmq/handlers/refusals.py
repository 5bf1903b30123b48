"""Which of RocketMQ's response codes an exception becomes; no other place turns one into a number.

What the original has a code and a remark for is raised as `Refused` where it is found; what the
broker raises keeps its own text.
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
    """A refusal in RocketMQ's own terms."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


#: The first that fits counts; what is not named is 1 (SYSTEM_ERROR).
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
    # Producers try another broker on 14, and come back.
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
