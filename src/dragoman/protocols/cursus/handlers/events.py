"""Event sourcing: APPEND_STREAM, STREAM_VERSION, READ_STREAM, SAVE_SNAPSHOT, READ_SNAPSHOT.

An event stream consists of the records of one key, in a topic created with `event_sourcing=true`.
Versions of events increase by one. An in-memory index, of eight bytes per event, maps versions to
offsets; it is built from the log when a partition's streams are first used. Appends to a stream are
serialized, so that one of two appends with the same version is refused. `state.py` stores
snapshots.
"""

from __future__ import annotations

from array import array
from functools import partial
from itertools import islice
from typing import Final

import msgspec

from dragoman.broker.accumulator import placed
from dragoman.broker.keyed_lock import KeyedLock
from dragoman.broker.local_reader import LocalReader
from dragoman.errors import DragomanError
from dragoman.limits import (
    CURSUS_EVENTS_MAX,
    CURSUS_PUSH_BYTES,
    CURSUS_TURN_BYTES_MAX,
    INTERNAL_RECORDS_PER_SLICE,
)
from dragoman.log.batch import Record
from dragoman.outcome import Outcome, ignore, pause, start
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.constants import SENT_FRAME_BYTES_MAX
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import policy_of
from dragoman.protocols.cursus.handlers.records import aggregate_version, record_of, sent_batch
from dragoman.protocols.cursus.handlers.service import CursusService
from dragoman.protocols.cursus.handlers.session import Call, batch_frame
from dragoman.protocols.cursus.handlers.state import StoredSnapshot
from dragoman.protocols.cursus.messages import Message
from dragoman.replication.replica import Replica
from dragoman.security.access import Operation

#: Maximum size of keys and payloads, which leaves space in the frame for the other fields.
_STREAM_BYTES_MAX: Final = SENT_FRAME_BYTES_MAX - (1 << 20)


class _Events:
    """A stream: its first known version, and the offsets of that version and all later ones."""

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
        #: Serializes the appends to each stream.
        self.lock = KeyedLock()
        self._scheduler = service.scheduler
        self._streams: dict[bytes, _Events] = {}
        #: The index covers all records below this offset.
        self._next_offset = replica.log.log_start_offset
        self._count = 0
        #: Commands that wait for the current scan of the log.
        self._waiting: list[Outcome[None]] = []

    async def current(self) -> None:
        """Return when the index covers every event in the log."""
        while True:
            if self._count > CURSUS_EVENTS_MAX:
                raise Refusal('command_failed reason="the partition has too many events"')
            if self._next_offset >= self.replica.log.high_watermark:
                return
            # Events may be appended during the scan.
            await self._scanned()

    async def _scanned(self) -> None:
        """Wait for a scan, which concurrent commands share. They resume in order of arrival."""
        scanned: Outcome[None] = Outcome()
        self._waiting.append(scanned)
        if len(self._waiting) == 1:
            start(self._scan()).then(self._finish_scan)
        await scanned

    async def _scan(self) -> None:
        log = self.replica.log
        end = log.high_watermark
        records = log.iterate(max(self._next_offset, log.log_start_offset), end)
        while True:
            count = 0
            for record in islice(records, INTERNAL_RECORDS_PER_SLICE):
                version = aggregate_version(record)
                if version:
                    self.add(record.key or b"", version, record.offset)
                count += 1
            if count < INTERNAL_RECORDS_PER_SLICE:
                break
            await pause(self._scheduler, 0)
        self._next_offset = max(self._next_offset, end)

    def _finish_scan(self, error: DragomanError | None) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.acknowledge(error)

    def add(self, key: bytes, version: int, offset: int) -> None:
        """Add a durable event. Does nothing unless it is the next version."""
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


class EventStore:
    def __init__(self, service: CursusService) -> None:
        self._service = service
        self._indexes: dict[int, StreamIndex] = {}
        start(self._forget_snapshots()).then(ignore)

    def index(self, replica: Replica) -> StreamIndex:
        partition_id = replica.metadata.partition_id
        found = self._indexes.get(partition_id)
        if found is None:
            gone = [each for each, index in self._indexes.items() if index.replica.log.is_removed]
            for each in gone:
                del self._indexes[each]
            found = self._indexes[partition_id] = StreamIndex(self._service, replica)
        return found

    async def _forget_snapshots(self) -> None:
        """Delete the snapshots of topics that were deleted."""
        state, image = self._service.state, self._service.broker.image
        await state.loaded()
        for topic_id, key in list(state.snapshots):
            if bytes.fromhex(topic_id) not in image.topics_by_id:
                start(state.put_snapshot(topic_id, key, None)).then(ignore)


class _Stream:
    """The stream that a command names. Raises `Refusal`."""

    def __init__(self, call: Call, operation: Operation) -> None:
        name, key = call.require("topic"), call.require("key")
        self.key = key
        self.key_bytes = key.encode()
        session = call.session
        find = session.topic_to_write if operation is Operation.WRITE else session.topic_to_read
        topic = self.topic = find(name)
        if not policy_of(topic).is_event_sourced:
            raise Refusal(f"event_sourcing_not_enabled topic={name}")
        self.partition = codec.fnv1a_64(self.key_bytes) % len(topic.partitions)
        service = call.service
        store = service.part(EventStore, lambda: EventStore(service))
        self.index = store.index(service.replica(topic, self.partition))
        self._state = service.state

    @property
    def version(self) -> int:
        return self.index.version(self.key_bytes)

    async def current(self) -> None:
        """Return when the snapshots are loaded and the index is up to date."""
        await self._state.loaded()
        await self.index.current()

    def snapshot(self) -> StoredSnapshot | None:
        return self._state.read_snapshot(self.topic.topic_id.hex(), self.key)

    async def save_snapshot(self, snapshot: StoredSnapshot) -> None:
        await self._state.put_snapshot(self.topic.topic_id.hex(), self.key, snapshot)


async def handle_append_stream(call: Call) -> None:
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
    await stream.current()
    async with index.lock.take(stream.key_bytes):
        if version != stream.version + 1:
            raise Refusal(f"version_conflict current={stream.version} expected={version}")
        record = record_of(message, broker.clock.wall_ms())
        offset = await placed(partial(broker.accumulator.add, index.replica, record))
        index.add(stream.key_bytes, version, offset)
    call.ok(f"version={version} offset={offset} partition={stream.partition}")


async def handle_stream_version(call: Call) -> None:
    stream = _Stream(call, Operation.READ)
    await stream.current()
    call.ok(f"version={stream.version}")


async def handle_read_stream(call: Call) -> None:
    """Reply with two frames: a head in JSON, and the events. An error is one frame of JSON."""
    stream = _Stream(call, Operation.READ)
    since = call.number("from_version", 1)
    await stream.current()
    snapshot = stream.snapshot()
    if snapshot is not None and snapshot.version >= since:
        since = snapshot.version + 1
    else:
        snapshot = None
    reader = _EventReader(stream, stream.index.since(stream.key_bytes, since))
    while not reader.read_more():
        await pause(call.service.scheduler, 0)
    # The client may have lost the right in the meantime.
    call.session.check_access(Operation.READ, stream.topic)
    head: dict[str, object] = {
        "status": "OK",
        "topic": stream.topic.name,
        "key": stream.key,
        "partition": stream.partition,
        "count": len(reader.events),
    }
    if snapshot is not None:
        head["snapshot"] = snapshot
    events = batch_frame(sent_batch(stream.topic.name, stream.partition, reader.events))
    call.place.reply(codec.frame(msgspec.json.encode(head)), events)


class _EventReader:
    """Reads the events of a stream, one slice per loop turn."""

    def __init__(self, stream: _Stream, offsets: list[int]) -> None:
        self._stream = stream
        #: Offsets of the events still to read, the last one first.
        self._offsets = offsets[::-1]
        self.events: list[Record] = []
        self._size = 0
        self._tail = LocalReader(stream.index.replica, 0, lambda: None, committed_only=False)

    def read_more(self) -> bool:
        """Read a slice. Returns whether it was the last one."""
        room = CURSUS_TURN_BYTES_MAX
        while self._offsets and room > 0:
            room -= self._read()
        return not self._offsets

    def _read(self) -> int:
        """Read some more events. Returns how many bytes were scanned."""
        wanted = self._offsets
        if self._tail.offset != wanted[-1]:
            self._tail.seek(wanted[-1])
        scanned = 1
        for record in self._tail.read(CURSUS_PUSH_BYTES, INTERNAL_RECORDS_PER_SLICE):
            size = len(record.value or b"") + len(record.key or b"")
            scanned += size
            while wanted and wanted[-1] < record.offset:
                # Compaction has removed the event.
                wanted.pop()
            if wanted and wanted[-1] == record.offset:
                wanted.pop()
                self.events.append(record)
                self._size += size
        if self._size > _STREAM_BYTES_MAX:
            stream = self._stream
            raise Refusal(f"stream_too_large topic={stream.topic.name} key={stream.key}")
        return scanned


async def handle_save_snapshot(call: Call) -> None:
    stream = _Stream(call, Operation.WRITE)
    version = call.number("version")
    try:
        payload = call.message().decode()
    except UnicodeDecodeError:
        raise Refusal('invalid_message reason="a snapshot is UTF-8 text"') from None
    await stream.current()
    current = stream.version
    if version > current:
        text = f"snapshot_version_exceeds_stream version={version} current={current}"
        raise Refusal(text)
    await stream.save_snapshot(StoredSnapshot(version, payload))
    call.ok(f"version={version} partition={stream.partition}")


async def handle_read_snapshot(call: Call) -> None:
    stream = _Stream(call, Operation.READ)
    await stream.current()
    call.ok(f"snapshot={msgspec.json.encode(stream.snapshot()).decode()}")
