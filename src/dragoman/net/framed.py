"""A connection whose requests come in frames and whose replies leave in the order of the requests.

What the protocols without request numbers have in common. Each request takes a place in line; its
answer may be ready at once or after a sync, and leaves when all before it have left. Answers that
become ready in one loop turn, which after a sync are many, leave the line together at its end. The
line is bounded: past the bound the connection is not read. While the peer does not take what was
sent, requests wait unopened; so they do when the protocol has a request wait for those before it
(`may_begin`). Pushes go beside the line, so that a reply never waits behind queued pushes:
whoever pushes asks `can_push` first and is told by `on_writable` when to go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dragoman.errors import RemoteProtocolError
from dragoman.framing import FrameReader
from dragoman.limits import READ_AHEAD_REQUESTS_MAX, SEND_BUFFER_BYTES_MAX
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel, Reason
from dragoman.types import Buffer

#: With so few unanswered, reading goes on.
_READ_ON_REQUESTS = READ_AHEAD_REQUESTS_MAX // 2


class Place:
    """One request's place in the line of replies."""

    __slots__ = ("_session", "answer", "is_done", "size")

    def __init__(self, session: FramedSession, size: int) -> None:
        self._session = session
        self.answer: Sequence[Buffer] = ()
        self.is_done = False
        #: What this takes of the node's memory budget.
        self.size = size

    def reply(self, *buffers: Buffer) -> None:
        """Answer; nothing at all for a request that has no reply. Late answers are dropped."""
        if not self.is_done:
            self.is_done = True
            self.answer = buffers
            self._session.answered(self, sum(map(len, buffers)))


class FramedSession:
    """The base of a protocol's session: override `received`, and `on_writable`, `on_closed`."""

    def __init__(self, channel: Channel, reader: FrameReader, budget: MemoryBudget) -> None:
        self.channel = channel
        self.get_buffer = reader.get_buffer
        self._reader = reader
        self._budget = budget
        self._line: deque[Place] = deque()
        #: Requests that are not begun: the peer does not take replies, or it is not their turn.
        self._backlog: deque[bytearray] = deque()
        self._is_beginning = False
        #: Requests read and not answered.
        self._ahead = 0
        self._is_flushed_soon = False
        #: Of answers that have not left the line.
        self._answer_bytes = 0

    # ---- for the protocol

    def received(self, frame: bytearray, place: Place) -> None:
        """A request. Raises `RemoteProtocolError` to have the connection closed without a word."""
        raise NotImplementedError

    def may_begin(self, frame: bytearray) -> bool:  # noqa: ARG002
        """Whether this request, the next one, may begin now; asked again after each reply."""
        return True

    def on_writable(self) -> None:
        """The peer takes data again."""

    def on_ended(self) -> None:
        """The peer sends no more: answer what waits for something to happen; push nothing."""

    def on_closed(self) -> None:
        """The connection is gone."""

    @property
    def has_unanswered(self) -> bool:
        return bool(self._line)

    @property
    def unanswered(self) -> int:
        """Requests that have begun and whose replies have not left."""
        return len(self._line)

    @property
    def can_push(self) -> bool:
        return self.channel.is_writable and not self.channel.is_closing

    def push(self, *buffers: Buffer) -> None:
        """Send what answers no request, behind the replies that are ready."""
        if self._is_flushed_soon:
            self._leave_line()
        self.channel.send(list(buffers))

    def close(self) -> None:
        """Send the replies that are due, then close; requests not begun are dropped."""
        self._drop_backlog()
        self.channel.close()

    # ---- from the channel

    @property
    def pending_bytes(self) -> int:
        return self._reader.pending_bytes

    @property
    def waiting_bytes(self) -> int:
        answers = sum(len(each) for place in self._line for each in place.answer)
        return answers + sum(map(len, self._backlog))

    def buffer_updated(self, count: int) -> None:
        self._take_in(self._reader.buffer_updated(count))

    def receive(self, data: Buffer) -> None:
        """The same for bytes that were read elsewhere."""
        self._take_in(self._reader.receive(data))

    def _take_in(self, frames: list[bytearray]) -> None:
        self._ahead += len(frames)
        self._budget.take(sum(map(len, frames)))
        self._backlog.extend(frames)
        self._begin_all()
        if self._ahead > READ_AHEAD_REQUESTS_MAX:
            self.channel.pause(Reason.READ_AHEAD)

    def writable(self) -> None:
        self._go_on()
        self.on_writable()

    def ended(self) -> None:
        self.on_ended()

    @property
    def is_due(self) -> bool:
        return bool(self._line or self._backlog)

    def closed(self) -> None:
        for place in self._line:
            place.is_done = True
            self._budget.give_back(place.size)
        self._line.clear()
        self._drop_backlog()
        # Sessions may be parts of cycles, which the collector takes its time to find.
        self._reader.forget()
        self.on_closed()

    def _drop_backlog(self) -> None:
        self._budget.give_back(sum(map(len, self._backlog)))
        self._backlog.clear()

    def _begin_all(self) -> None:
        if self._is_beginning:
            # A request that is answered at once calls back here: the loop below goes on by itself.
            return
        backlog, channel, line = self._backlog, self.channel, self._line
        self._is_beginning = True
        try:
            while backlog and channel.is_writable and not channel.is_closing:
                if not self.may_begin(backlog[0]):
                    if not (line and line[0].is_done):
                        break
                    self._leave_line()
                    continue
                frame = backlog.popleft()
                place = Place(self, len(frame))
                line.append(place)
                self.received(frame, place)
        finally:
            self._is_beginning = False

    def _go_on(self) -> None:
        """Begin requests outside of the channel's own call, which would see to their faults."""
        try:
            self._begin_all()
        except RemoteProtocolError as error:
            self.channel.complain(error)
            self.channel.close()
        self._read_on()

    def answered(self, place: Place, size: int) -> None:
        """The place has its answer, of this size, and leaves with all that are ready before it."""
        self.hold(place, size)
        self._answer_bytes += size
        if self._answer_bytes >= SEND_BUFFER_BYTES_MAX:
            # Enough for one piece; and only the transport can tell whether the peer takes it.
            self.flush()
        elif not self._is_flushed_soon and self._line[0].is_done:
            self._is_flushed_soon = True
            self.channel.flush_soon(self)

    def hold(self, place: Place, size: int) -> None:
        """Count memory that goes when the place is left."""
        place.size += size
        self._budget.take(size)

    def flush(self) -> None:
        """Send every reply that has reached the head of the line."""
        self._is_flushed_soon = False
        self._leave_line()
        if self._backlog and not self._is_beginning:
            self._go_on()
        self._read_on()
        if self.channel.is_ended:
            self.channel.close_if_answered()

    def _leave_line(self) -> None:
        line = self._line
        out: list[Buffer] = []
        freed = self._answer_bytes = 0
        while line and line[0].is_done:
            first = line.popleft()
            out += first.answer
            first.answer = ()
            freed += first.size
            self._ahead -= 1
        if out:
            self.channel.send(out)
        self._budget.give_back(freed)

    def _read_on(self) -> None:
        if self._ahead <= _READ_ON_REQUESTS:
            self.channel.unpause(Reason.READ_AHEAD)
