"""Event sourcing: APPEND_STREAM, STREAM_VERSION, READ_STREAM, SAVE_SNAPSHOT, READ_SNAPSHOT.

An event stream is the records of one key in a topic made with `event_sourcing=true`; its events
carry versions that rise by one. Which stream has which versions at which offsets is an index in
memory, eight bytes an event, read out of the log when a partition's streams are first used. Appends
to one stream go one after the other, so that of two with the same version one is refused.
Snapshots are kept in `state.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from dragoman.broker.replica import Replica
from dragoman.broker.tailing import Tail
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
from dragoman.limits import (
    CURSUS_EVENTS_MAX,
    CURSUS_PUSH_BYTES,
    CURSUS_TURN_BYTES_MAX,
    INTERNAL_RECORDS_PER_SLICE,
)
from dragoman.log.batch import Record
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.constants import SENT_FRAME_BYTES_MAX
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import check_access, policy_of
from dragoman.protocols.cursus.handlers.publish import writable
from dragoman.protocols.cursus.handlers.records import aggregate_version, record_of, sent_batch
from dragoman.protocols.cursus.handlers.refusals import refusal_text
from dragoman.protocols.cursus.handlers.session import Call, batch_frame
from dragoman.protocols.cursus.handlers.state import StoredSnapshot
from dragoman.protocols.cursus.messages import Message
from dragoman.security.authorizer import Operation

if TYPE_CHECKING:
    from dragoman.protocols.cursus.handlers.service import CursusService

_Refuse: TypeAlias = Callable[[DragomanError], None]
#: Room in a frame for what surrounds keys and payloads.
_STREAM_BYTES_MAX: Final = SENT_FRAME_BYTES_MAX - (1 << 20)


class _Events:
    """One stream: its first version that is known, and the offsets of that and all later ones."""

    __slots__ = ("first_version", "offsets")

    def __init__(self, first_version: int) -> None:
        self.first_version = first_version
        self.offsets = array("q")

    @property
    def version(self) -> int:
        return self.first_version + len(self.offsets) - 1

    def since(self, version: int) -> list[int]:
        return self.offsets[max(0, version - self.first_version) :].tolist()


class StreamIndex:
    """The streams of one partition."""

    def __init__(self, service: CursusService, replica: Replica) -> None:
        self.replica = replica
        self._scheduler = service.scheduler
        self._streams: dict[bytes, _Events] = {}
        self._next_offset = replica.log.log_start_offset
        self._count = 0
        self._waiting: list[tuple[Callable[[], None], _Refuse]] = []
        #: Streams with an append under way, and who waits to append next.
        self._appending: dict[bytes, list[Callable[[], None]]] = {}

    def when_current(self, then: Callable[[], None], refuse: _Refuse) -> None:
        """Call `then` when everything in the log has been looked at, or `refuse`."""
        if self._count > CURSUS_EVENTS_MAX:
            refuse(Refusal('command_failed reason="the partition has too many events"'))
            return
        self._waiting.append((then, refuse))
        if len(self._waiting) == 1:
            log = self.replica.log
            start = max(self._next_offset, log.log_start_offset)
            self._look(log.iterate(start, log.high_watermark), log.high_watermark)

    def _look(self, records: Iterator[Record], end: int) -> None:
        for _ in range(INTERNAL_RECORDS_PER_SLICE):
            try:
                record = next(records, None)
            except DragomanError as error:
                # Deleted meanwhile, or damaged: the next command looks again.
                waiting, self._waiting = self._waiting, []
                for _then, refuse in waiting:
                    refuse(error)
                return
            if record is None:
                self._next_offset = max(self._next_offset, end)
                waiting, self._waiting = self._waiting, []
                for then, _refuse in waiting:
                    then()
                return
            version = aggregate_version(record)
            if version:
                self.add(record.key or b"", version, record.offset)
        self._scheduler.call_soon(self._look, records, end)

    def add(self, key: bytes, version: int, offset: int) -> None:
        """An event that is durable; one that is known, or does not follow, changes nothing."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Events(version)
        if version == stream.version + 1:
            stream.offsets.append(offset)
            self._count += 1

    def version(self, key: bytes) -> int:
        stream = self._streams.get(key)
        return 0 if stream is None else stream.version

    def since(self, key: bytes, version: int) -> list[int]:
        stream = self._streams.get(key)
        start = self.replica.log.log_start_offset
        return [] if stream is None else [each for each in stream.since(version) if each >= start]

    # ---- one append at a time

    def begin(self, key: bytes, append: Callable[[], None]) -> None:
        waiting = self._appending.get(key)
        if waiting is not None:
            waiting.append(append)
        else:
            self._appending[key] = []
            append()

    def end(self, key: bytes) -> None:
        waiting = self._appending[key]
        if waiting:
            waiting.pop(0)()
        else:
            del self._appending[key]


class EventStore:
    def __init__(self, service: CursusService) -> None:
        self._service = service
        self._indexes: dict[int, StreamIndex] = {}
        service.state.when_loaded(self._forget_snapshots)

    def index(self, replica: Replica) -> StreamIndex:
        partition_id = replica.metadata.partition_id
        found = self._indexes.get(partition_id)
        if found is None:
            gone = [each for each, index in self._indexes.items() if index.replica.log.is_removed]
            for each in gone:
                del self._indexes[each]
            found = self._indexes[partition_id] = StreamIndex(self._service, replica)
        return found

    def _forget_snapshots(self) -> None:
        """Those of topics that were deleted."""
        state, topics = self._service.state, self._service.broker.image.topics_by_id
        for topic_id, key in list(state.snapshots):
            if bytes.fromhex(topic_id) not in topics:
                state.put_snapshot(topic_id, key, None, lambda _offset, _error: None)


class _Stream:
    """The stream that a command names. Raises `Refusal`."""

    def __init__(self, call: Call, operation: Operation) -> None:
        word = call.command.word
        name = call.require("topic", f"missing_topic command={word}")
        self.key = call.require("key", f"missing_key command={word}")
        self.key_bytes = self.key.encode()
        self.topic: TopicMetadata = call.service.topic(name)
        if operation is Operation.WRITE:
            writable(call.session, name)
        else:
            check_access(call, operation, self.topic)
        if not policy_of(self.topic).is_event_sourced:
            raise Refusal(f"event_sourcing_not_enabled topic={name}")
        self.topic_id = self.topic.topic_id.hex()
        self.partition = codec.fnv1a_64(self.key_bytes) % len(self.topic.partitions)
        self.index = call.service.events.index(call.service.replica(self.topic, self.partition))


def handle_append(call: Call) -> None:
    stream = _Stream(call, Operation.WRITE)
    version = call.number("version")
    schema_version = call.number("schema_version", 1)
    if schema_version >> 32:
        raise Refusal("invalid_schema_version")
    if call.command.message is None:
        raise Refusal("missing_message command=APPEND_STREAM")
    message = Message(
        producer_id=call.get("producerId"),
        key=stream.key_bytes,
        payload=call.command.message,
        event_type=call.get("event_type"),
        schema_version=schema_version,
        aggregate_version=version,
        metadata=call.get("metadata"),
    )
    index, broker = stream.index, call.service.broker

    def append() -> None:
        current = index.version(stream.key_bytes)
        if version != current + 1:
            call.refuse(Refusal(f"version_conflict current={current} expected={version}"))
            index.end(stream.key_bytes)
            return
        broker.gatherer.add(index.replica, record_of(message, broker.clock.wall_ms()), placed)

    def placed(offset: int, error: DragomanError | None) -> None:
        if error is not None:
            call.refuse(error)
        else:
            index.add(stream.key_bytes, version, offset)
            call.ok(f"version={version} offset={offset} partition={stream.partition}")
        index.end(stream.key_bytes)

    index.when_current(lambda: index.begin(stream.key_bytes, append), call.refuse)


def handle_version(call: Call) -> None:
    stream = _Stream(call, Operation.READ)
    stream.index.when_current(
        lambda: call.ok(f"version={stream.index.version(stream.key_bytes)}"), call.refuse
    )


def handle_read(call: Call) -> None:
    """Two frames: what there is, as JSON, and the events. An error is one frame of JSON."""
    try:
        stream = _Stream(call, Operation.READ)
        from_version = call.number("from_version", 1)
        read = _Read(call, stream, from_version)
        refuse = partial(_refuse_read, call)
        call.service.state.when_loaded(lambda: stream.index.when_current(read.start, refuse))
    except DragomanError as error:
        _refuse_read(call, error)


def _refuse_read(call: Call, error: DragomanError) -> None:
    text = refusal_text(error, call.service.address_of)
    call.json(msgspec.json.encode({"error": text, "status": "ERROR"}))


class _Read:
    """One READ_STREAM under way, a slice per loop turn."""

    def __init__(self, call: Call, stream: _Stream, from_version: int) -> None:
        self._call = call
        self._stream = stream
        self._from_version = from_version
        self._snapshot: StoredSnapshot | None = None
        self._offsets: list[int] = []
        self._found: list[Record] = []
        self._size = 0
        self._tail = Tail(stream.index.replica, 0, lambda: None, committed_only=False)

    def start(self) -> None:
        stream, state = self._stream, self._call.service.state
        snapshot = state.read_snapshot(stream.topic_id, stream.key)
        since = self._from_version
        if snapshot is not None and snapshot.version >= since:
            self._snapshot = snapshot
            since = snapshot.version + 1
        self._offsets = stream.index.since(stream.key_bytes, since)[::-1]
        self._go_on()

    def _go_on(self) -> None:
        try:
            room = CURSUS_TURN_BYTES_MAX
            while self._offsets and room > 0:
                room -= self._take()
        except DragomanError as error:
            _refuse_read(self._call, error)
            return
        if self._offsets:
            self._call.service.scheduler.call_soon(self._go_on)
        else:
            self._answer()

    def _take(self) -> int:
        """Some more events; how many bytes were looked at for them."""
        wanted = self._offsets
        if self._tail.offset != wanted[-1]:
            self._tail.seek(wanted[-1])
        looked_at = 1
        for record in self._tail.read(CURSUS_PUSH_BYTES, INTERNAL_RECORDS_PER_SLICE):
            size = len(record.value or b"") + len(record.key or b"")
            looked_at += size
            while wanted and wanted[-1] < record.offset:
                # Compaction has taken it.
                wanted.pop()
            if wanted and wanted[-1] == record.offset:
                wanted.pop()
                self._found.append(record)
                self._size += size
        if self._size > _STREAM_BYTES_MAX:
            raise Refusal(
                f"stream_too_large topic={self._stream.topic.name} key={self._stream.key}"
            )
        return looked_at

    def _answer(self) -> None:
        stream = self._stream
        head: dict[str, object] = {
            "status": "OK",
            "topic": stream.topic.name,
            "key": stream.key,
            "partition": stream.partition,
            "count": len(self._found),
        }
        if self._snapshot is not None:
            head["snapshot"] = self._snapshot
        try:
            events = batch_frame(sent_batch(stream.topic.name, stream.partition, self._found))
        except DragomanError as error:
            _refuse_read(self._call, error)
            return
        self._call.place.reply(codec.frame(msgspec.json.encode(head)), events)


def handle_save_snapshot(call: Call) -> None:
    stream = _Stream(call, Operation.WRITE)
    version = call.number("version")
    if call.command.message is None:
        raise Refusal("missing_message command=SAVE_SNAPSHOT")
    try:
        payload = call.command.message.decode()
    except UnicodeDecodeError:
        raise Refusal('invalid_message reason="a snapshot is UTF-8 text"') from None

    def placed(_offset: int, error: DragomanError | None) -> None:
        if error is not None:
            call.refuse(error)
        else:
            call.ok(f"version={version} partition={stream.partition}")

    def save() -> None:
        current = stream.index.version(stream.key_bytes)
        if version > current:
            text = f"snapshot_version_exceeds_stream version={version} current={current}"
            call.refuse(Refusal(text))
            return
        state = call.service.state
        state.put_snapshot(stream.topic_id, stream.key, StoredSnapshot(version, payload), placed)

    call.service.state.when_loaded(lambda: stream.index.when_current(save, call.refuse))


def handle_read_snapshot(call: Call) -> None:
    stream = _Stream(call, Operation.READ)

    def answer() -> None:
        found = call.service.state.read_snapshot(stream.topic_id, stream.key)
        call.ok(f"snapshot={msgspec.json.encode(found).decode()}")

    call.service.state.when_loaded(answer)
