"""The server's side of a connection, shared by all protocols.

`OrderedSession` is for protocols that match replies by order: replies are sent in the order of the
requests. `MatchedSession` is for protocols that match replies by number: replies are sent when they
are ready. A protocol subclasses one of them and implements how a request begins (`received`).

Both bound the memory that a peer can occupy:

- A complete frame is charged to the node's memory budget and waits in the backlog until its request
  may begin. No request begins while the peer does not take its replies (back-pressure).
- Past a number of unanswered requests the connection is not read; reading resumes when half of
  them are answered.
- A connection that closes returns all its bytes to the budget.

A peer that has closed its half of the connection still gets the replies that are due. The caller of
a connection and its login are in `caller_session.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import ClassVar, Protocol

from dragoman.broker.throttles import Limit
from dragoman.errors import DecodeError, RemoteProtocolError
from dragoman.framing import FrameReader
from dragoman.limits import (
    READ_AHEAD_REQUESTS_MAX,
    SEND_BUFFER_BYTES_MAX,
    UNANSWERED_REQUESTS_MAX,
)
from dragoman.net import connection_log
from dragoman.net.channel import Channel, Reason
from dragoman.net.requests import RequestCounter
from dragoman.protocols.caller_session import CallerSession, ServiceT_co
from dragoman.protocols.service import Core, Service
from dragoman.security.access import ANONYMOUS, Caller
from dragoman.types import Buffer
from dragoman.world import Handle


class _Session(CallerSession[ServiceT_co]):
    """The backlog and the quotas, whatever the order of replies."""

    __slots__ = (
        "_backlog",
        "_budget",
        "_is_beginning",
        "_is_full",
        "_mute",
        "_throttles",
        "_unanswered",
        "arrived_at",
        "get_buffer",
    )

    #: Its name in the log.
    protocol: ClassVar[str] = ""
    #: With more unanswered requests than this, reading the connection pauses.
    unanswered_max: ClassVar[int]
    #: Whether every byte counts for the quotas of the client; else the protocol counts its own.
    counts_bytes: ClassVar[bool] = True

    def __init__(self, channel: Channel, reader: FrameReader, service: ServiceT_co) -> None:
        super().__init__(channel, reader, service)
        self.get_buffer = reader.get_buffer
        self._budget = service.budget
        #: Complete frames whose requests have not begun.
        self._backlog: deque[bytearray] = deque()
        self._is_beginning = False
        #: Requests that count against `unanswered_max`.
        self._unanswered = 0
        #: Whether reading is paused because of too many unanswered requests.
        self._is_full = False
        #: The time of the last read, from which the time of a request is counted.
        self.arrived_at = 0.0
        self._throttles = service.broker.throttles
        #: Runs while the client is throttled.
        self._mute: Handle | None = None
        if self._throttles.is_on and not self._throttles.may_connect(self.caller.host):
            channel.complain("too many connections from this address")
            channel.close()
        if self.caller.principal != ANONYMOUS:
            service.broker.logins.opened(self)

    # ---- for the protocol

    def on_writable(self) -> None:
        """Called when the peer accepts data again, after `can_send` was false."""

    def on_ended(self) -> None:
        """Called when the peer has closed its half: answer parked requests at once, and push
        nothing more.
        """

    def on_closed(self) -> None:
        """Called when the connection is gone."""

    def note_failure(
        self,
        number: int | None,
        api: object,
        client: str | None,
        code: object,
        text: str,
    ) -> None:
        """A request was answered with an error: a line at the level debug."""
        connection_log.failed(
            self.channel.name,
            number,
            protocol=self.protocol,
            api=api,
            client=client,
            user=self.caller.name,
            code=code,
            text=text,
        )

    @property
    def can_send(self) -> bool:
        """Whether the peer accepts data, and is not throttled. If not, `on_writable` is called when
        it is so again.
        """
        channel = self.channel
        return channel.is_writable and self._mute is None and not channel.is_closing

    # ---- quotas

    @property
    def is_throttled(self) -> bool:
        return self._mute is not None

    def throttle(self, seconds: float) -> None:
        """Neither read, nor begin requests, nor push for a time: the client has exceeded a
        quota. The latest time counts.
        """
        if seconds <= 0 or self.channel.is_closing:
            return
        if self._mute is not None:
            self._mute.cancel()
        self.channel.pause(Reason.THROTTLED)
        self._mute = self.service.broker.scheduler.call_later(seconds, self._unmute)

    @property
    def counted_caller(self) -> Caller:
        """The caller for whose quotas the bytes of the connection count."""
        return self.caller

    def _unmute(self) -> None:
        self._mute = None
        self.channel.unpause(Reason.THROTTLED)
        self._resume()
        self.on_writable()

    def _count(self, limit: Limit, buffers: Iterable[Buffer]) -> None:
        """Count bytes of a protocol whose bytes all count."""
        size = sum(map(len, buffers))
        self.throttle(self._throttles.bytes_s(limit, self.counted_caller, "", size))

    # ---- from the channel

    @property
    def pending_bytes(self) -> int:
        return self._reader.pending_bytes

    def ended(self) -> None:
        self.on_ended()

    def closed(self) -> None:
        self._drop_backlog()
        if self._mute is not None:
            self._mute.cancel()
        # Releases the buffers now, because the session may be part of a reference cycle, which is
        # collected late.
        self._reader.forget()
        self.login_awaited()
        self.service.broker.logins.closed(self)
        self.on_closed()

    # ---- the backlog

    def _begin_backlog(self) -> None:
        """Begin requests of the backlog as far as allowed. Raises `RemoteProtocolError`."""
        raise NotImplementedError

    def _accept(self, frames: Sequence[bytearray]) -> None:
        """Charge frames to the budget, and begin requests as far as allowed. Raises
        `RemoteProtocolError`.
        """
        self._budget.take(sum(map(len, frames)))
        self._backlog.extend(frames)
        self._begin()
        if self._throttles.is_on and self.counts_bytes:
            self._count(Limit.PRODUCED, frames)

    def _begin(self) -> None:
        if self._is_beginning:
            # A request that was answered at once has re-entered this method; the outer loop
            # continues.
            return
        self._is_beginning = True
        try:
            self._begin_backlog()
        except RemoteProtocolError:
            # The connection is being closed: no further request begins.
            self._drop_backlog()
            raise
        finally:
            self._is_beginning = False
        if self._unanswered > self.unanswered_max:
            self._is_full = True
            self.channel.pause(Reason.READ_AHEAD)

    def _resume(self) -> None:
        """Begin requests on behalf of a caller other than the channel, which does not handle
        errors.
        """
        try:
            self._begin()
        except RemoteProtocolError as error:
            self.channel.complain(error)
            self.channel.close()
        if self._is_full:
            self._read_on()

    def _read_on(self) -> None:
        if self._unanswered <= self.unanswered_max // 2:
            self._is_full = False
            self.channel.unpause(Reason.READ_AHEAD)

    @property
    def _backlog_bytes(self) -> int:
        return sum(map(len, self._backlog))

    def _drop_backlog(self) -> None:
        self._budget.give_back(self._backlog_bytes)
        self._backlog.clear()


class Waiting(Protocol):
    """An entry in the queue of replies: a request, or several requests with one reply."""

    @property
    def is_done(self) -> bool:
        """Whether the reply is ready, so that the entry leaves the queue as soon as it is at the
        head.
        """
        ...

    @property
    def size(self) -> int:
        """Bytes to return to the node's memory budget when the entry leaves."""
        ...

    @property
    def count(self) -> int:
        """The number of requests."""
        ...

    @property
    def counter(self) -> RequestCounter:
        """Where the requests are counted."""
        ...

    @property
    def arrived_at(self) -> float:
        """`arrived_at` of the session when the requests began."""
        ...

    def take_reply(self) -> Sequence[Buffer]:
        """The buffers to send when the entry leaves; empty for a request without a reply."""
        ...

    def drop(self) -> None:
        """Called when the connection has closed, so that the reply will not be sent."""
        ...


class Place:
    """A request's place in the queue of replies."""

    __slots__ = ("_answer", "_session", "arrived_at", "counter", "is_done", "size")

    count = 1

    def __init__(self, session: OrderedSession[Service[Core]], size: int) -> None:
        self._session = session
        self._answer: Sequence[Buffer] = ()
        self.is_done = False
        self.size = size
        self.arrived_at = session.arrived_at
        #: Set by the session once it knows what the request is.
        self.counter = session.service.requests.unknown

    def parked(self) -> None:
        """Note that the request waits for records, so that its time says nothing about the node."""
        self.counter = self.counter.parked

    def reply(self, *buffers: Buffer) -> None:
        """Answer the request; without buffers if it has no reply. A second answer is dropped."""
        if not self.is_done:
            self.is_done = True
            self._answer = buffers
            self._session.answered(self, sum(map(len, buffers)))

    def take_reply(self) -> Sequence[Buffer]:
        answer, self._answer = self._answer, ()
        return answer

    def drop(self) -> None:
        self.is_done = True


class OrderedSession(_Session[ServiceT_co]):
    """A session whose replies are sent in the order of the requests.

    Each request takes a place in the queue of replies. Its answer may be ready at once or after a
    sync, and is sent when all earlier answers have been sent. Answers that become ready in the same
    loop turn, which are many after a sync, are sent in one write at the end of the turn. A protocol
    may delay a request until earlier ones are answered (`may_begin`). Pushes bypass the queue, so
    that a reply never waits behind queued pushes.
    """

    __slots__ = ("_answer_bytes", "_is_flushed_soon", "_monotonic", "_queue")

    unanswered_max = READ_AHEAD_REQUESTS_MAX

    def __init__(self, channel: Channel, reader: FrameReader, service: ServiceT_co) -> None:
        super().__init__(channel, reader, service)
        self._monotonic = service.monotonic
        self._queue: deque[Waiting] = deque()
        self._is_flushed_soon = False
        #: Bytes of the answers that are ready and still queued.
        self._answer_bytes = 0

    # ---- for the protocol

    def received(self, frame: bytearray, place: Place) -> None:
        """Begin a request. `RemoteProtocolError` closes the connection without a reply."""
        raise NotImplementedError

    def may_begin(self, frame: bytearray) -> bool:  # noqa: ARG002
        """Whether the next request may begin now. Called again after each reply that is sent."""
        return True

    @property
    def has_unanswered(self) -> bool:
        return bool(self._queue)

    @property
    def unanswered(self) -> int:
        """Number of requests that have begun and whose replies have not been sent."""
        return len(self._queue)

    def push(self, *buffers: Buffer) -> None:
        """Send data that answers no request, after the replies that are ready."""
        if self._is_flushed_soon:
            self._send_completed()
        self.channel.send(list(buffers))
        if self._throttles.is_on and self.counts_bytes:
            self._count(Limit.CONSUMED, buffers)

    def close(self) -> None:
        """Send the replies that are due, then close; requests not begun are dropped."""
        self._drop_backlog()
        self.channel.close()

    # ---- from the channel

    @property
    def waiting_bytes(self) -> int:
        return sum(each.size for each in self._queue if each.is_done) + self._backlog_bytes

    def buffer_updated(self, count: int) -> None:
        try:
            frames = self._reader.buffer_updated(count)
        except DecodeError as error:
            raise self._unreadable(error) from None
        self.arrived_at = self._monotonic()
        self._unanswered += len(frames)
        self._accept(frames)

    def writable(self) -> None:
        self._resume()
        self.on_writable()

    @property
    def is_due(self) -> bool:
        return bool(self._queue or self._backlog)

    def closed(self) -> None:
        for waiting in self._queue:
            waiting.counter.dropped += waiting.count
            waiting.drop()
            self._budget.give_back(waiting.size)
        self._queue.clear()
        super().closed()

    # ---- the queue of replies

    def _begin_backlog(self) -> None:
        backlog, channel, queue = self._backlog, self.channel, self._queue
        while backlog and channel.is_writable and self._mute is None and not channel.is_closing:
            if not self.may_begin(backlog[0]):
                if not (queue and queue[0].is_done):
                    break
                self._send_completed()
                continue
            frame = backlog.popleft()
            place = Place(self, len(frame))
            queue.append(place)
            self.received(frame, place)

    def answered(self, place: Place, size: int) -> None:
        """Called when the answer of a place is ready; `size` is its size in bytes."""
        place.size += size
        self._budget.take(size)
        self._answer_bytes += size
        if self._answer_bytes >= SEND_BUFFER_BYTES_MAX:
            # The send buffer is full: only the transport knows whether the peer accepts more.
            self.flush()
        elif not self._is_flushed_soon and self._queue[0].is_done:
            self._is_flushed_soon = True
            self.channel.flush_soon(self)

    def flush(self) -> None:
        """Send every reply that has reached the head of the queue."""
        self._is_flushed_soon = False
        self._send_completed()
        if self._backlog and not self._is_beginning:
            self._resume()
        if self._is_full:
            self._read_on()
        if self.channel.is_ended:
            self.channel.close_if_answered()

    def _send_completed(self) -> None:
        queue = self._queue
        out: list[Buffer] = []
        freed = self._answer_bytes = 0
        now = 0.0
        while queue and queue[0].is_done:
            first = queue.popleft()
            out += first.take_reply()
            freed += first.size
            count = first.count
            self._unanswered -= count
            # `RequestCounter.answered`, without a call for each reply.
            now = now or self._monotonic()
            seconds, times = now - first.arrived_at, first.counter.seconds
            times.counts[int(seconds * 1e6).bit_length()] += count
            times.total += seconds * count
        if out:
            self.channel.send(out)
            if self._throttles.is_on and self.counts_bytes:
                self._count(Limit.CONSUMED, out)
        self._budget.give_back(freed)


class MatchedSession(_Session[ServiceT_co]):
    """A session whose requests carry numbers, so that replies are sent when ready, in any order.

    A protocol checks `can_send` before it builds a large reply or push.
    """

    __slots__ = ("_held", "_is_closed")

    unanswered_max = UNANSWERED_REQUESTS_MAX

    def __init__(self, channel: Channel, reader: FrameReader, service: ServiceT_co) -> None:
        super().__init__(channel, reader, service)
        #: Bytes of the node's memory budget that unanswered requests hold.
        self._held = 0
        self._is_closed = False

    # ---- for the protocol

    def received(self, frame: bytearray) -> None:
        """Begin a request. `RemoteProtocolError` closes the connection without a reply."""
        raise NotImplementedError

    def may_begin(self) -> bool:
        """Whether requests may begin now. After a change from false to true, call `resume`."""
        return True

    def pause_reading(self) -> None:
        """Read no more until `resume` or a reply."""
        self._is_full = True
        self.channel.pause(Reason.READ_AHEAD)

    def resume(self) -> None:
        """Begin requests that were not allowed to begin."""
        self._resume()

    def _read_on(self) -> None:
        if self.may_begin():
            super()._read_on()

    def begun(self, size: int) -> None:
        """Note that a request of `size` bytes begins. It will be `finished`."""
        self._unanswered += 1
        self._held += size
        self._budget.take(size)

    def finished(self, size: int) -> None:
        """Note that a request of `size` bytes is answered, or needs no answer."""
        if self._is_closed:
            return
        self._unanswered -= 1
        self._held -= size
        self._budget.give_back(size)
        if self._is_full:
            self._read_on()
        if self.channel.is_ended:
            # At the end of the turn, when the reply has been sent.
            self.channel.flush_soon(self)

    def flush(self) -> None:
        self.channel.close_if_answered()

    def send(self, *buffers: Buffer) -> None:
        self.channel.send(buffers)
        if self._throttles.is_on and self.counts_bytes:
            self._count(Limit.CONSUMED, buffers)

    # ---- from the channel

    @property
    def waiting_bytes(self) -> int:
        return self._held + self._backlog_bytes

    def buffer_updated(self, count: int) -> None:
        try:
            frames = self._reader.buffer_updated(count)
        except DecodeError as error:
            raise self._unreadable(error) from None
        self.arrived_at = self.service.monotonic()
        self._accept(frames)

    def writable(self) -> None:
        self.on_writable()
        self._resume()

    @property
    def is_due(self) -> bool:
        return bool(self._unanswered or self._backlog)

    def closed(self) -> None:
        self._budget.give_back(self._held)
        self._held = self._unanswered = 0
        self._is_closed = True
        super().closed()

    def _begin_backlog(self) -> None:
        backlog = self._backlog
        while backlog and self.can_send and self.may_begin():
            frame = backlog.popleft()
            self._budget.give_back(len(frame))
            self.received(frame)
