"""An mlog connection, whose replies are sent in the order of the requests.

A FetchStream may wait for records. Later requests begin when it has been answered, so that their
replies need not be kept in memory.

Only this module converts a handler's errors to mlog's codes and texts. Where the original has a
specific text, a handler raises `Refused`; errors of the broker keep their texts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias

from dragoman.broker import errors as broker
from dragoman.broker.local_reader import LocalReader
from dragoman.errors import (
    BrokerError,
    ClusterError,
    DragomanError,
    EncodeError,
    OffsetOutOfRangeError,
    RemoteProtocolError,
)
from dragoman.net import connection_log
from dragoman.net.channel import Channel
from dragoman.outcome import start
from dragoman.protocols.mlog.codec import encode_frame
from dragoman.protocols.mlog.connection import Connection, Role
from dragoman.protocols.mlog.constants import PAYLOAD_BYTES_MAX, Encoding
from dragoman.protocols.mlog.errors import (
    ANONYMOUS_REFUSED_TEXT,
    CATCH_UP_TEXT,
    NOT_LEADER_TEXT,
    ErrorCode,
)
from dragoman.protocols.mlog.handlers.service import REQUESTS, MlogService
from dragoman.protocols.mlog.messages import Message, RPCError
from dragoman.protocols.service import handlers_by_name
from dragoman.protocols.session import OrderedSession, Place


class Refused(BrokerError):  # noqa: N818
    """A refusal with a code and a text of mlog."""

    def __init__(self, number: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.number = number


#: Error codes by exception type. The first match applies; any other error is 0 (Unknown).
_CODES: Final[tuple[tuple[type[DragomanError], ErrorCode], ...]] = (
    (broker.UnknownTopic, ErrorCode.TOPIC_NOT_FOUND),
    (broker.NotLeader, ErrorCode.NOT_TOPIC_LEADER),
    (broker.TopicExists, ErrorCode.TOPIC_EXISTS),
    (broker.InvalidReplicationFactor, ErrorCode.NOT_ENOUGH_NODES),
    (broker.NotEnoughReplicas, ErrorCode.NOT_ENOUGH_NODES),
    (broker.RequestTimedOut, ErrorCode.TIMEOUT_CATCH_UP),
    # On code 11, clients look up the leader and retry, as they should after these errors.
    (broker.ShuttingDown, ErrorCode.RAFT_LEADER_UNAVAILABLE),
    (broker.CoordinatorLoading, ErrorCode.RAFT_LEADER_UNAVAILABLE),
    (broker.CoordinatorNotAvailable, ErrorCode.RAFT_LEADER_UNAVAILABLE),
    (broker.NotCoordinator, ErrorCode.RAFT_LEADER_UNAVAILABLE),
    # The cluster has no quorum, or its leader does not answer.
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


# Looked up once, because the lookup of enumeration members is slow.
_JSON = Encoding.JSON
#: Raises `DragomanError` to refuse. A handler that must wait returns a coroutine.
Handler: TypeAlias = "Callable[[MlogSession, Any, Place], Coroutine[object, None, None] | None]"
HANDLERS: Final[dict[type[Message], Handler]] = handlers_by_name(__package__, REQUESTS)


class MlogSession(OrderedSession[MlogService]):
    protocol = "mlog"

    def __init__(self, channel: Channel, service: MlogService) -> None:
        self._connection = Connection(Role.SERVER, service.scratch)
        super().__init__(channel, self._connection.reader, service)
        #: The reader of the last fetch, where most clients continue.
        self.reading: LocalReader | None = None
        #: Cancels the request that blocks the later ones, if there is one.
        self._stop_waiting: Callable[[], None] | None = None
        #: Answers that request with the records that are available.
        self._answer_now: Callable[[], None] | None = None
        if self.must_log_in:
            self.await_login(PAYLOAD_BYTES_MAX)

    def may_begin(self, frame: bytearray) -> bool:  # noqa: ARG002
        return self._stop_waiting is None

    def received(self, frame: bytearray, place: Place) -> None:
        request = self._connection.receive(frame)
        place.counter = self.service.requests[type(request)]
        handler = HANDLERS.get(type(request))
        if self.must_log_in:
            # The protocol has no login: only a certificate or an address could name the client.
            self.refused_anonymous()
            self.channel.complain(ANONYMOUS_REFUSED_TEXT)
            self.fail(place, Refused(ErrorCode.UNKNOWN, ANONYMOUS_REFUSED_TEXT))
            self.close()
            return
        try:
            if handler is None:
                name = type(request).__name__
                raise Refused(ErrorCode.UNKNOWN, f"a server does not take {name}")
            waiting = handler(self, request, place)
        except RemoteProtocolError:
            raise
        except DragomanError as error:
            self.fail(place, error)
        else:
            if waiting is not None:
                start(waiting).then(partial(self._finished, place))

    def _finished(self, place: Place, result: DragomanError | None) -> None:
        """Called when a handler's coroutine has replied, or raised the error to reply with."""
        if result is not None:
            self.fail(place, result)

    @property
    def encoding(self) -> Encoding:
        return self._connection.encoding or _JSON

    def reply(self, place: Place, message: Message) -> None:
        encoding = self.encoding
        try:
            frame = encode_frame(message, encoding)
        except EncodeError as error:
            # Other protocols can write a record that exceeds the bound of a message.
            failure = RPCError(code=ErrorCode.UNKNOWN, message=str(error))
            frame = encode_frame(failure, encoding)
        place.reply(frame)

    def fail(self, place: Place, error: DragomanError) -> None:
        refused = refusal(error)
        place.counter.failed(refused.code)
        if connection_log.is_on():
            self.note_failure(None, "", None, ErrorCode(refused.code).name, refused.message)
        self.reply(place, refused)

    # ---- one request that waits

    def wait(self, stop: Callable[[], None], answer: Callable[[], None] | None = None) -> None:
        """Begin no further request until `end_wait`. `stop` is called when the connection closes,
        `answer` when the client has closed its half.
        """
        assert self._stop_waiting is None
        self._stop_waiting, self._answer_now = stop, answer

    def end_wait(self) -> None:
        """Let the next request begin, after the reply that follows now."""
        self._stop_waiting = self._answer_now = None

    def on_ended(self) -> None:
        if self._answer_now is not None:
            self._answer_now()

    def on_closed(self) -> None:
        stop, self._stop_waiting = self._stop_waiting, None
        if stop is not None:
            stop()
        if self.reading is not None:
            self.reading.close()
