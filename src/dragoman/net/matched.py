"""A connection whose requests carry numbers: replies leave when they are ready, in any order.

Requests are begun as they arrive. Those that are not answered yet are bounded: past the bound the
connection is not read. While the peer does not take what was sent it is not read either, requests
that have come already wait, and whoever waits to send much asks `can_send` first and is told by
`on_writable`.
"""

from __future__ import annotations

from collections import deque

from dragoman.errors import RemoteProtocolError
from dragoman.framing import FrameReader
from dragoman.limits import UNANSWERED_REQUESTS_MAX
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel, Reason
from dragoman.types import Buffer

#: With so few unanswered, reading goes on.
_READ_ON_REQUESTS = UNANSWERED_REQUESTS_MAX // 2


class MatchedSession:
    """The base of a protocol's session: override `received`, and `on_writable`, `on_closed`."""

    def __init__(self, channel: Channel, reader: FrameReader, budget: MemoryBudget) -> None:
        self.channel = channel
        self.get_buffer = reader.get_buffer
        self._reader = reader
        self._budget = budget
        self._unanswered = 0
        #: Of the node's memory budget, for requests that are not answered.
        self._held = 0
        self._is_closed = False
        #: Frames that came while the peer did not take what was sent.
        self._backlog: deque[bytearray] = deque()

    # ---- for the protocol

    def received(self, frame: bytearray) -> None:
        """A frame. Raises `RemoteProtocolError` to have the connection closed without a word."""
        raise NotImplementedError

    def on_writable(self) -> None:
        """The peer takes data again."""

    def on_ended(self) -> None:
        """The peer sends no more: answer what waits for something to happen."""

    def on_closed(self) -> None:
        """The connection is gone."""

    @property
    def can_send(self) -> bool:
        return self.channel.is_writable and not self.channel.is_closing

    def begun(self, size: int) -> None:
        """A request of so many bytes is to be answered."""
        self._unanswered += 1
        self._held += size
        self._budget.take(size)
        if self._unanswered > UNANSWERED_REQUESTS_MAX:
            self.channel.pause(Reason.READ_AHEAD)

    def finished(self, size: int) -> None:
        """It is answered, or will not be."""
        if self._is_closed:
            return
        self._unanswered -= 1
        self._held -= size
        self._budget.give_back(size)
        if self._unanswered == _READ_ON_REQUESTS:
            self.channel.unpause(Reason.READ_AHEAD)
        if self.channel.is_ended:
            # With the reply, which is on its way when this turn ends.
            self.channel.flush_soon(self)

    def flush(self) -> None:
        self.channel.close_if_answered()

    def send(self, *buffers: Buffer) -> None:
        self.channel.send(buffers)

    # ---- from the channel

    @property
    def pending_bytes(self) -> int:
        return self._reader.pending_bytes

    @property
    def waiting_bytes(self) -> int:
        return self._held + sum(map(len, self._backlog))

    def buffer_updated(self, count: int) -> None:
        self._take_in(self._reader.buffer_updated(count))

    def receive(self, data: Buffer) -> None:
        """The same for bytes that were read elsewhere."""
        self._take_in(self._reader.receive(data))

    def _take_in(self, frames: list[bytearray]) -> None:
        for index, frame in enumerate(frames):
            if self._backlog or not self.can_send:
                left = frames[index:]
                self._budget.take(sum(map(len, left)))
                self._backlog.extend(left)
                return
            self.received(frame)

    def writable(self) -> None:
        self.on_writable()
        try:
            while self._backlog and self.can_send:
                frame = self._backlog.popleft()
                self._budget.give_back(len(frame))
                self.received(frame)
        except RemoteProtocolError as error:
            self.channel.complain(error)
            self.channel.close()

    def ended(self) -> None:
        self.on_ended()

    @property
    def is_due(self) -> bool:
        return bool(self._unanswered or self._backlog)

    def closed(self) -> None:
        self._budget.give_back(self._held + sum(map(len, self._backlog)))
        self._backlog.clear()
        self._held = self._unanswered = 0
        self._is_closed = True
        # Sessions may be parts of cycles, which the collector takes its time to find.
        self._reader.forget()
        self.on_closed()
