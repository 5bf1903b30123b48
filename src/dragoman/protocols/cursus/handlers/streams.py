"""STREAM: a connection that only pushes the records of one partition, as they come.

Nothing is acknowledged; delivery commits nothing. An empty frame every five seconds shows that the
stream lives, whatever else is sent. There is one stream per topic, partition and group: a new one
ends the old one. The last frame says why a stream ends, and at which offset it would continue.
While a reader does not take what is pushed, nothing more is pushed.
"""

from __future__ import annotations

from dragoman.broker.errors import UnknownTopic
from dragoman.broker.local_reader import LocalReader
from dragoman.errors import DragomanError, OffsetOutOfRangeError
from dragoman.limits import CURSUS_PUSH_BYTES, CURSUS_TURN_BYTES_MAX
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.constants import STREAM_CONTROL
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.consume import (
    DEFAULT_GROUP,
    Wanted,
    committed_offsets,
    out_of_range,
    wanted,
)
from dragoman.protocols.cursus.handlers.policy import is_pattern
from dragoman.protocols.cursus.handlers.records import sent_batch
from dragoman.protocols.cursus.handlers.session import Call, CursusSession, batch_frame
from dragoman.world import Handle

KEEP_ALIVE_S = 5.0


async def handle_stream(call: Call) -> None:
    service, default = call.service, DEFAULT_GROUP if call.command.is_positional else ""
    asked = wanted(call, "invalid_stream_syntax", ("topic", "partition"), default)
    if not asked.group or is_pattern(call.get("topic")):
        raise Refusal("invalid_stream_syntax")
    if len(service.streams) >= service.broker.settings.cursus_streams_max:
        raise Refusal('command_failed reason="too many streams"')
    (topic,) = asked.topics
    # A node that does not lead the partition refuses before it asks other nodes.
    service.replica(topic, asked.partition)
    committed = await committed_offsets(service, asked.group, [topic.name], asked.partition)
    if not call.is_closed:
        _begin(call, asked, committed.get(topic.name, asked.offset))


def _begin(call: Call, asked: Wanted, offset: int) -> None:
    service = call.service
    (topic,) = asked.topics
    tail = LocalReader(
        service.replica(topic, asked.partition),
        offset,
        lambda: stream.pump(),
        committed_only=asked.committed_only,
    )
    name = (topic.name, asked.partition, asked.group)
    stream = Stream(call.session, name, asked.count_max, tail)
    call.session.stream = stream
    call.session.release = stream.stop
    call.place.reply()
    service.streams.add(stream)
    stream.start()
    if call.session.channel.is_ended:
        stream.close("stopped")


class Stream:
    def __init__(
        self, session: CursusSession, name: tuple[str, int, str], count_max: int, tail: LocalReader
    ) -> None:
        #: Topic, partition, group.
        self.name = name
        self._session = session
        self._service = session.service
        self._count_max = count_max
        self._tail = tail
        self._timer: Handle | None = None
        self._next_turn: Handle | None = None
        self._is_over = False
        self._sent_at = session.service.scheduler.time()

    def start(self) -> None:
        self._timer = self._service.scheduler.call_later(KEEP_ALIVE_S, self._keep_alive)
        self.pump()

    def pump(self) -> None:
        """Push what there is and the peer takes; then wait for more of either."""
        self._next_turn = None
        pushed = 0
        try:
            while self._session.can_send and not self._is_over:
                records = self._tail.read(CURSUS_PUSH_BYTES, self._count_max)
                if not records:
                    self._tail.wait()
                    return
                try:
                    frame = batch_frame(sent_batch(self.name[0], self.name[1], records))
                except Refusal:
                    self._tail.seek(records[0].offset)
                    raise
                self._session.push(frame)
                self._sent_at = self._service.scheduler.time()
                pushed += len(frame)
                if pushed >= CURSUS_TURN_BYTES_MAX:
                    # Others want their turn, too.
                    self._next_turn = self._service.scheduler.call_soon(self.pump)
                    return
        except OffsetOutOfRangeError:
            self.close("offset_out_of_range", " " + out_of_range(self._tail))
        except UnknownTopic:
            self.close("removed")
        except DragomanError:
            self.close("error")

    def _keep_alive(self) -> None:
        scheduler = self._service.scheduler
        limit_s = self._service.broker.settings.cursus_stream_timeout_ms / 1000
        if scheduler.time() - self._sent_at >= limit_s:
            self.close("timeout")
            return
        if self._session.can_send:
            self._session.push(codec.frame(b""))
        self._timer = scheduler.call_later(KEEP_ALIVE_S, self._keep_alive)

    def close(self, reason: str, more: str = "") -> None:
        """Say why, then end the connection."""
        if self._is_over:
            return
        self.stop()
        text = f"{STREAM_CONTROL} type=CLOSE reason={reason} offset={self._tail.offset}{more}"
        self._session.push(codec.frame(text.encode()))
        self._session.close()

    def stop(self) -> None:
        self._is_over = True
        self._tail.close()
        for handle in (self._timer, self._next_turn):
            if handle is not None:
                handle.cancel()
        self._service.streams.remove(self)
