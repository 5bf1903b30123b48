"""Which of mlog's error codes and texts a refusal becomes; no other place turns one into a number.

What the original has a text for is raised as `Refused` where it is found; what the broker raises
keeps its own text.
"""

from __future__ import annotations

from typing import Final

from dragoman.broker import errors as broker
from dragoman.errors import BrokerError, ClusterError, DragomanError, OffsetOutOfRangeError
from dragoman.protocols.mlog.errors import CATCH_UP_TEXT, NOT_LEADER_TEXT, ErrorCode
from dragoman.protocols.mlog.messages import RPCError


class Refused(BrokerError):  # noqa: N818
    """A refusal in mlog's own words."""

    def __init__(self, number: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.number = number


#: The first that fits counts; what is not named is 0 (Unknown).
_CODES: Final[tuple[tuple[type[DragomanError], ErrorCode], ...]] = (
    (broker.UnknownTopic, ErrorCode.TOPIC_NOT_FOUND),
    (broker.NotLeader, ErrorCode.NOT_TOPIC_LEADER),
    (broker.TopicExists, ErrorCode.TOPIC_EXISTS),
    (broker.InvalidReplicationFactor, ErrorCode.NOT_ENOUGH_NODES),
    (broker.NotEnoughReplicas, ErrorCode.NOT_ENOUGH_NODES),
    (broker.RequestTimedOut, ErrorCode.TIMEOUT_CATCH_UP),
    # Clients look for the leader on 11 and come back, which is what these want them to do.
    (broker.ShuttingDown, ErrorCode.RAFT_LEADER_UNAVAILABLE),
    (broker.CoordinatorLoading, ErrorCode.RAFT_LEADER_UNAVAILABLE),
    (broker.CoordinatorNotAvailable, ErrorCode.RAFT_LEADER_UNAVAILABLE),
    (broker.NotCoordinator, ErrorCode.RAFT_LEADER_UNAVAILABLE),
    # Without a quorum, or when the node that decides does not answer.
    (ClusterError, ErrorCode.RAFT_LEADER_UNAVAILABLE),
    (broker.ReplicaDamaged, ErrorCode.RAFT_LEADER_UNAVAILABLE),
    (broker.ForeignGroup, ErrorCode.COMMIT_OFFSET),
    (broker.UnknownMember, ErrorCode.COMMIT_OFFSET),
    (broker.InvalidCommitOffset, ErrorCode.COMMIT_OFFSET),
    (broker.InvalidGroupId, ErrorCode.COMMIT_OFFSET),
    (broker.TooManyOffsets, ErrorCode.COMMIT_OFFSET),
    (broker.TooManyGroups, ErrorCode.COMMIT_OFFSET),
    (OffsetOutOfRangeError, ErrorCode.READ_OFFSET),
)
_TEXTS: Final = {
    ErrorCode.NOT_TOPIC_LEADER: NOT_LEADER_TEXT,
    ErrorCode.TIMEOUT_CATCH_UP: CATCH_UP_TEXT,
}
_PREFIXES: Final = {ErrorCode.COMMIT_OFFSET: "failed to commit offset: "}


def refusal(error: DragomanError) -> RPCError:
    if isinstance(error, Refused):
        return RPCError(code=error.number, message=str(error))
    code = next((number for kind, number in _CODES if isinstance(error, kind)), ErrorCode.UNKNOWN)
    text = _TEXTS.get(code) or _PREFIXES.get(code, "") + str(error)
    return RPCError(code=code, message=text)
