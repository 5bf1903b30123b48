"""One Kafka connection: requests in, replies out, strictly in the order of the requests.

Requests are worked on as they come, so a slow one (a parked fetch, a durable produce) does not keep
the next from starting; but its reply holds back all later ones. Each request gets a place in line;
replies leave from the head of the line. The line is bounded: past the bound the connection is not
read. While the peer does not take replies, requests wait unopened.

Produce requests like earlier ones do not get a `Call` each: see `express.py`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from dragoman.broker.replica import Replica
from dragoman.errors import DragomanError, EncodeError, RemoteProtocolError
from dragoman.framing import Scratch
from dragoman.limits import KAFKA_REQUESTS_PER_TURN_MAX, READ_AHEAD_REQUESTS_MAX
from dragoman.net.channel import Channel, Reason
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka.connection import Request, ServerConnection
from dragoman.protocols.kafka.constants import is_accepted
from dragoman.protocols.kafka.errors import OversizedMessageError
from dragoman.protocols.kafka.handlers.express import Express, Run
from dragoman.protocols.kafka.handlers.refusals import refusal_of
from dragoman.protocols.kafka.messages import Message
from dragoman.security.authorizer import ANONYMOUS, Principal
from dragoman.types import Buffer

if TYPE_CHECKING:
    from dragoman.protocols.kafka.handlers.service import KafkaService

AnyMessage = TypeVar("AnyMessage", bound=Message)


class Call:
    """One request and its place in the line of replies."""

    __slots__ = ("_on_drop", "_on_end", "_reply", "is_done", "request", "session", "size")

    def __init__(self, session: KafkaSession, request: Request) -> None:
        self.session = session
        self.request = request
        #: What this takes of the node's memory budget.
        self.size = len(request.frame)
        self.is_done = False
        self._reply: list[Buffer] | None = None
        self._on_drop: Callable[[], None] | None = None
        self._on_end: Callable[[], None] | None = None

    @property
    def version(self) -> int:
        return self.request.version

    @property
    def service(self) -> KafkaService:
        return self.session.service

    def decode(self, kind: type[AnyMessage]) -> AnyMessage:
        """The request, as the message that its handler serves."""
        message = self.request.decode()
        assert isinstance(message, kind)
        return message

    def reply(self, message: Message) -> None:
        request = self.request
        self.reply_raw(codec.encode_response(message, request.version, request.correlation_id))

    def reply_raw(self, buffers: list[Buffer]) -> None:
        assert not self.is_done
        self.is_done = True
        self._reply = buffers
        self._on_drop = self._on_end = None
        self.session.worked_on(self)
        self.session.flush()
        if self._reply is not None:
            # It waits behind an earlier request, and its memory with it.
            held = sum(map(len, buffers))
            self.size += held
            self.service.budget.take(held)

    def finish_silently(self) -> None:
        """This request has no reply (Produce with acks=0)."""
        assert not self.is_done
        self.is_done = True
        self.session.flush()

    def fail(self, error: DragomanError) -> None:
        """There is no reply to this request that would tell its error: close the connection."""
        self.session.fail(self, error)

    def is_wanted(self) -> bool:
        """Whether the reply is still awaited."""
        return not self.is_done

    def on_drop(self, forget: Callable[[], None]) -> None:
        """What to do when the connection goes before the reply is ready."""
        self._on_drop = forget

    def on_end(self, answer: Callable[[], None]) -> None:
        """How to answer at once a request that waits for something to happen: its client sends no
        more, and shall not wait for it.
        """
        if self.session.channel.is_ended:
            answer()
        else:
            self._on_end = answer

    def end(self) -> None:
        if not self.is_done and self._on_end is not None:
            self._on_end()

    def drop(self) -> None:
        if not self.is_done and self._on_drop is not None:
            self._on_drop()
        self.is_done = True

    def take_reply(self) -> list[Buffer] | None:
        reply, self._reply = self._reply, None
        return reply

    @property
    def count(self) -> int:
        return 1


Handler: TypeAlias = Callable[[Call], None]
#: What has a place in the line of replies.
Waiting: TypeAlias = Call | Run


class KafkaSession:
    __slots__ = (
        "_ahead",
        "_backlog",
        "_connection",
        "_express",
        "_handlers",
        "_is_beginning",
        "_line",
        "_worked_on",
        "channel",
        "get_buffer",
        "principal",
        "service",
    )

    def __init__(
        self,
        channel: Channel,
        service: KafkaService,
        handlers: Mapping[int, Handler],
        scratch: Scratch,
    ) -> None:
        self.channel = channel
        self.service = service
        self.principal: Principal = ANONYMOUS
        self._handlers = handlers
        maximum = service.broker.settings.socket_request_max_bytes
        self._connection = ServerConnection(maximum, scratch)
        self.get_buffer = self._connection.get_buffer
        self._line: deque[Waiting] = deque()
        #: Requests that are not begun: the peer does not take replies, enough were begun in this
        #: loop turn, or one before them is being worked on.
        self._backlog: deque[bytearray] = deque()
        #: Whether requests of the backlog, which are in no line then, are being begun.
        self._is_beginning = False
        #: Requests read and not answered.
        self._ahead = 0
        self._express: Express | None = None
        #: The request whose answer is being worked out in slices.
        self._worked_on: Call | None = None

    # ---- from the channel

    @property
    def pending_bytes(self) -> int:
        return self._connection.pending_bytes

    @property
    def waiting_bytes(self) -> int:
        done = sum(each.size for each in self._line if each.is_done)
        return done + sum(map(len, self._backlog))

    def buffer_updated(self, count: int) -> None:
        frames = self._connection.frames(count)
        self._ahead += len(frames)
        if self._backlog or not self.channel.is_writable:
            self._put_off(frames)
        else:
            self._begin_all(frames)
        if self._ahead > READ_AHEAD_REQUESTS_MAX:
            self.channel.pause(Reason.READ_AHEAD)

    def writable(self) -> None:
        self._begin_backlog()

    def _next_turn(self) -> None:
        if self.channel.is_writable and not self.channel.is_closing and self._worked_on is None:
            self._begin_backlog()

    def _begin_backlog(self) -> None:
        frames = self._take_backlog()
        self._is_beginning = True
        try:
            self._begin_all(frames)
        except RemoteProtocolError as error:
            self.channel.complain(error)
            self.channel.close()
        finally:
            self._is_beginning = False
        self._read_on()
        if self.channel.is_ended:
            self.channel.close_if_answered()

    def _begin_all(self, frames: Sequence[bytearray]) -> None:
        at = begun = 0
        while at < len(frames) and not self.channel.is_closing:
            if not self.channel.is_writable or self._worked_on is not None:
                # What was answered so far is more than the peer takes at once, or it takes long.
                self._put_off(frames[at:])
                return
            if begun == KAFKA_REQUESTS_PER_TURN_MAX:
                self._put_off(frames[at:])
                self.service.broker.scheduler.call_soon(self._next_turn)
                return
            taken = self._express.take(frames, at) if self._express is not None else None
            if taken is not None:
                at += taken.count
            else:
                self._begin(self._connection.request(frames[at]))
                begun += 1
                at += 1

    def ended(self) -> None:
        for waiting in list(self._line):
            if isinstance(waiting, Call):
                waiting.end()

    @property
    def is_due(self) -> bool:
        return bool(self._line or self._backlog or self._is_beginning)

    def _put_off(self, frames: Sequence[bytearray]) -> None:
        self._backlog.extend(frames)
        self.service.budget.take(sum(map(len, frames)))

    def _take_backlog(self) -> list[bytearray]:
        frames = list(self._backlog)
        self._backlog.clear()
        self.service.budget.give_back(sum(map(len, frames)))
        return frames

    def closed(self) -> None:
        for waiting in self._line:
            waiting.drop()
            self.service.budget.give_back(waiting.size)
        self._line.clear()
        self._take_backlog()
        # Sessions may be parts of cycles, which the collector takes its time to find.
        self._connection.forget()

    # ---- requests

    def _begin(self, request: Request) -> None:
        handler = self._handlers.get(request.api_key)
        if handler is None or not is_accepted(request.api_key, request.version):
            handler = self.service.refuse_version(request)
        call = Call(self, request)
        self.enter(call)
        try:
            handler(call)
        except (RemoteProtocolError, EncodeError) as error:
            self.fail(call, error)

    def fail(self, call: Call, error: DragomanError) -> None:
        """Close the connection of a request that cannot be answered. One that was too large to be
        decoded is answered where the protocol can say so.
        """
        refusal = None
        if isinstance(error, OversizedMessageError):
            refusal = refusal_of(call.request.api_key, call.version, error)
        if refusal is not None:
            self.channel.complain(_said(call.request, error), doing="refusing a request of")
            call.reply(refusal)
        else:
            # A reply that the version cannot express is our own fault.
            is_theirs = isinstance(error, RemoteProtocolError)
            self._close(logging.INFO if is_theirs else logging.ERROR, call.request, error)

    def working_on(self, call: Call) -> None:
        """Later requests wait until this one has been worked on."""
        self._worked_on = call

    def worked_on(self, call: Call) -> None:
        if self._worked_on is call:
            self._worked_on = None
            if self._backlog:
                self.service.broker.scheduler.call_soon(self._next_turn)

    def enter(self, waiting: Waiting) -> None:
        """Take a place in the line of replies."""
        self.service.budget.take(waiting.size)
        self.service.requests += waiting.count
        self._line.append(waiting)

    def learn(self, request: Request, records: Buffer, replica: Replica) -> None:
        """Requests like this one, which went to one partition, may take the express from now on."""
        if self._express is None:
            self._express = Express(self)
        self._express.learn(request, records, replica)

    def _close(self, level: int, request: Request, error: Exception) -> None:
        self.channel.complain(_said(request, error), level)
        self.channel.close()

    def flush(self) -> None:
        """Send every reply that has reached the head of the line."""
        line = self._line
        while line and line[0].is_done:
            first = line.popleft()
            reply = first.take_reply()
            if reply is not None:
                self.channel.send(reply)
            self.service.budget.give_back(first.size)
            self._ahead -= first.count
        self._read_on()
        if self.channel.is_ended:
            self.channel.close_if_answered()

    def _read_on(self) -> None:
        if self._ahead <= READ_AHEAD_REQUESTS_MAX // 2:
            self.channel.unpause(Reason.READ_AHEAD)


def _said(request: Request, error: Exception) -> str:
    return f"api key {request.api_key} version {request.version}: {error}"
