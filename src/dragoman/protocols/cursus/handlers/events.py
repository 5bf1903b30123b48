"""Event sourcing: APPEND_STREAM, STREAM_VERSION, READ_STREAM, SAVE_SNAPSHOT, READ_SNAPSHOT.

An event stream is the records of one key in a topic made with `event_sourcing=true`; its events
carry versions that rise by one. Which stream has which versions at which offsets is an index in
memory, eight bytes an event, read out of the log when a partition's streams are first used. Appends
to one stream go one after the other, so that of two with the same version one is refused.
Snapshots are kept in `state.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

import msgspec

from dragoman.broker.gather import Placed
from dragoman.broker.global_table import Refuse, Then
from dragoman.broker.replica import Replica
from dragoman.broker.tailing import Tail
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
from dragoman.protocols.cursus.handlers.policy import policy_of
from dragoman.protocols.cursus.handlers.records import aggregate_version, record_of, sent_batch
from dragoman.protocols.cursus.handlers.scan import Scan
from dragoman.protocols.cursus.handlers.service import CursusService
from dragoman.protocols.cursus.handlers.session import Call, batch_frame
from dragoman.protocols.cursus.handlers.state import StoredSnapshot
from dragoman.protocols.cursus.messages import Message
from dragoman.security.authorizer import Operation

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
        self._scan = Scan(service.scheduler, self._look)
        self._streams: dict[bytes, _Events] = {}
        #: Everything before it is in the index.
        self._next_offset = replica.log.log_start_offset
        self._count = 0
        #: Streams with an append under way, and who waits to append next.
        self._appending: dict[bytes, list[Then]] = {}

    def when_current(self, then: Then, refuse: Refuse) -> None:
        """Call `then` when everything in the log has been looked at, or `refuse`."""
        if self._count > CURSUS_EVENTS_MAX:
            refuse(Refusal('command_failed reason="the partition has too many events"'))
        elif self._next_offset >= self.replica.log.high_watermark:
            then()
        else:
            # More may come while it is looked at.
            self._scan.start(self._new, lambda: self.when_current(then, refuse), refuse)

    def _new(self) -> Iterator[Record]:
        log = self.replica.log
        end = log.high_watermark
        yield from log.iterate(max(self._next_offset, log.log_start_offset), end)
        self._next_offset = max(self._next_offset, end)

    def _look(self, record: Record) -> None:
        version = aggregate_version(record)
        if version:
            self.add(record.key or b"", version, record.offset)

    def add(self, key: bytes, version: int, offset: int) -> None:
        """An event that is durable; one that is known, or does not follow, changes nothing."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Events(version)
        if version == stream.version + 1:
            stream.offsets.append(offset)
            self._count += 1
        if offset == self._next_offset:
            self._next_offset += 1

    def version(self, key: bytes) -> int:
        stream = self._streams.get(key)
        return 0 if stream is None else stream.version

    def since(self, key: bytes, version: int) -> list[int]:
        stream = self._streams.get(key)
        start = self.replica.log.log_start_offset
        return [] if stream is None else [each for each in stream.since(version) if each >= start]

    # ---- one append at a time

    def begin(self, key: bytes, append: Then) -> None:
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
        service.state.when_loaded(self._forget_snapshots, lambda _error: None)

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
        name, key = call.require("topic"), call.require("key")
        self.key = key
        self.key_bytes = key.encode()
        topic = self.topic = call.service.topic(name)
        if operation is Operation.WRITE:
            call.session.topic_to_write(name)
        else:
            call.session.check_access(operation, topic)
        if not policy_of(topic).is_event_sourced:
            raise Refusal(f"event_sourcing_not_enabled topic={name}")
        self.partition = codec.fnv1a_64(self.key_bytes) % len(topic.partitions)
        service = call.service
        store = service.part(EventStore, lambda: EventStore(service))
        self.index = store.index(service.replica(topic, self.partition))
        self._call = call
        self._state = call.service.state

    @property
    def version(self) -> int:
        return self.index.version(self.key_bytes)

    def when_current(self, then: Then) -> None:
        """Go on when index and snapshots are read back, or refuse the command."""
        refuse = self._call.refuse
        self._state.when_loaded(lambda: self.index.when_current(then, refuse), refuse)

    def snapshot(self) -> StoredSnapshot | None:
        return self._state.read_snapshot(self.topic.topic_id.hex(), self.key)

    def save_snapshot(self, snapshot: StoredSnapshot, placed: Placed) -> None:
        self._state.put_snapshot(self.topic.topic_id.hex(), self.key, snapshot, placed)


def handle_append_stream(call: Call) -> None:
    stream = _Stream(call, Operation.WRITE)
    version = call.number("version")
    schema_version = call.number("schema_version", 1)
    if schema_version >> 32:
        raise Refusal("invalid_schema_version")
    message = Message(
        producer_id=call.get("producerId"),
        key=stream.key_bytes,
        payload=call.message(),
        event_type=call.get("event_type"),
        schema_version=schema_version,
        aggregate_version=version,
        metadata=call.get("metadata"),
    )
    index, broker = stream.index, call.service.broker

    def append() -> None:
        if version != stream.version + 1:
            conflict = f"version_conflict current={stream.version} expected={version}"
            placed(-1, Refusal(conflict))
        else:
            broker.gatherer.add(index.replica, record_of(message, broker.clock.wall_ms()), placed)

    def placed(offset: int, error: DragomanError | None) -> None:
        if error is not None:
            call.refuse(error)
        else:
            index.add(stream.key_bytes, version, offset)
            call.ok(f"version={version} offset={offset} partition={stream.partition}")
        index.end(stream.key_bytes)

    stream.when_current(lambda: index.begin(stream.key_bytes, append))


def handle_stream_version(call: Call) -> None:
    stream = _Stream(call, Operation.READ)
    stream.when_current(lambda: call.ok(f"version={stream.version}"))


def handle_read_stream(call: Call) -> None:
    """Two frames: what there is, as JSON, and the events. An error is one frame of JSON."""
    stream = _Stream(call, Operation.READ)
    stream.when_current(_Read(call, stream, call.number("from_version", 1)).start)


class _Read:
    """One READ_STREAM under way, a slice per loop turn."""

    def __init__(self, call: Call, stream: _Stream, from_version: int) -> None:
        self._call = call
        self._stream = stream
        self._from_version = from_version
        self._snapshot: StoredSnapshot | None = None
        #: Where events are that were not read yet, the last one first.
        self._offsets: list[int] = []
        self._found: list[Record] = []
        self._size = 0
        self._tail = Tail(stream.index.replica, 0, lambda: None, committed_only=False)

    def start(self) -> None:
        stream, since = self._stream, self._from_version
        snapshot = stream.snapshot()
        if snapshot is not None and snapshot.version >= since:
            self._snapshot = snapshot
            since = snapshot.version + 1
        self._offsets = stream.index.since(stream.key_bytes, since)[::-1]
        self._call.attempt(self._go_on)

    def _go_on(self) -> None:
        room = CURSUS_TURN_BYTES_MAX
        while self._offsets and room > 0:
            room -= self._take()
        if self._offsets:
            self._call.service.scheduler.call_soon(self._call.attempt, self._go_on)
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
            stream = self._stream
            raise Refusal(f"stream_too_large topic={stream.topic.name} key={stream.key}")
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
        events = batch_frame(sent_batch(stream.topic.name, stream.partition, self._found))
        self._call.place.reply(codec.frame(msgspec.json.encode(head)), events)


def handle_save_snapshot(call: Call) -> None:
    stream = _Stream(call, Operation.WRITE)
    version = call.number("version")
    try:
        payload = call.message().decode()
    except UnicodeDecodeError:
        raise Refusal('invalid_message reason="a snapshot is UTF-8 text"') from None
    answer = call.after(lambda: call.ok(f"version={version} partition={stream.partition}"))

    def save() -> None:
        current = stream.version
        if version > current:
            text = f"snapshot_version_exceeds_stream version={version} current={current}"
            raise Refusal(text)
        stream.save_snapshot(StoredSnapshot(version, payload), lambda _, error: answer(error))

    stream.when_current(lambda: call.attempt(save))


def handle_read_snapshot(call: Call) -> None:
    stream = _Stream(call, Operation.READ)

    def answer() -> None:
        call.ok(f"snapshot={msgspec.json.encode(stream.snapshot()).decode()}")

    stream.when_current(lambda: call.attempt(answer))
