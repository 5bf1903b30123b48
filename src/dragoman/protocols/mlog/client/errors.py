"""Errors of the server's replies.

    ClientError
      MlogError                 the server refused; `number` is mlog's code
        TopicNotFoundError      3                                             retriable
        NotLeaderError          4, 11: another node leads, or none yet        retriable
        NoDataError             6: there is no record at this offset
        CommitRefusedError      7
        TopicExistsError        12
        TooFewNodesError        13
        AckModeError            15
        CatchUpTimeoutError     16: appended, but not on all replicas in time

`client_core.errors` has the errors of connections.
"""

from __future__ import annotations

from typing import Final

from dragoman.client_core.errors import ClientError
from dragoman.protocols.mlog.errors import ErrorCode
from dragoman.protocols.mlog.messages import RPCError


class MlogError(ClientError):
    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


class TopicNotFoundError(MlogError):
    retriable = True


class NotLeaderError(MlogError):
    retriable = True


class NoDataError(MlogError): ...


class CommitRefusedError(MlogError): ...


class TopicExistsError(MlogError): ...


class TooFewNodesError(MlogError): ...


class AckModeError(MlogError): ...


class CatchUpTimeoutError(MlogError):
    is_ambiguous = True


_CLASSES: Final[dict[int, type[MlogError]]] = {
    ErrorCode.TOPIC_NOT_FOUND: TopicNotFoundError,
    ErrorCode.NOT_TOPIC_LEADER: NotLeaderError,
    ErrorCode.RAFT_LEADER_UNAVAILABLE: NotLeaderError,
    ErrorCode.READ_OFFSET: NoDataError,
    ErrorCode.COMMIT_OFFSET: CommitRefusedError,
    ErrorCode.TOPIC_EXISTS: TopicExistsError,
    ErrorCode.NOT_ENOUGH_NODES: TooFewNodesError,
    ErrorCode.INVALID_ACK_MODE: AckModeError,
    ErrorCode.TIMEOUT_CATCH_UP: CatchUpTimeoutError,
}


def error_of(reply: RPCError) -> MlogError:
    return _CLASSES.get(reply.code, MlogError)(reply.code, reply.message)
