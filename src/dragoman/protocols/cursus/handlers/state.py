"""What Cursus needs on disk beside topics and groups: producers, and snapshots of event streams.

One compacted internal topic of one partition. Keys are JSON arrays that begin with the kind, values
JSON objects. Every node that needs it reads it from the beginning and then follows it; producers
are kept in memory, of snapshots only where they are, because they may be large. What a node writes
goes to the partition's leader and counts here once it has come back: so all nodes see the same
order, and of two that give one producer an id at the same time the first one counts for both.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.broker.broker import Broker
from dragoman.broker.errors import NotLeader, UnknownTopic
from dragoman.broker.gather import Placed
from dragoman.broker.reading import Ends, Reader, find_ends, open_reader
from dragoman.broker.topics import NewTopic
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError, NotSentError
from dragoman.limits import INTERNAL_RECORDS_PER_SLICE, MLOG_FETCH_BYTES_MAX
from dragoman.log.batch import Record
from dragoman.protocols.cursus.handlers.scan import Refuse, Then

STATE_TOPIC: Final = "__cursus_state"
#: The leader was not reached, or hears a moment later that it is one; nothing was written.
_PASSING: Final = (NotLeader, NotSentError, UnknownTopic)
_TRIES: Final = 50
_RETRY_S: Final = 0.1
_PRODUCER: Final = "producer"
_SNAPSHOT: Final = "snapshot"


class StoredProducer(msgspec.Struct, frozen=True):
    """The newest epoch of a producer, and the producer id that its records carry in the log."""

    epoch: int
    internal_id: int


class StoredSnapshot(msgspec.Struct, frozen=True):
    version: int
    payload: str


_decode_key: Final = msgspec.json.Decoder(list[str]).decode
_decode_producer: Final = msgspec.json.Decoder(StoredProducer).decode
_decode_snapshot: Final = msgspec.json.Decoder(StoredSnapshot).decode


class State:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        broker.topics.reserve(STATE_TOPIC)
        #: Everything below its offset is in memory.
        self._reader: Reader | None = None
        self._is_starting = False
        self._is_reading = False
        #: Until where memory has to go for those who wait; None: to where the topic ends.
        self._waiting: list[tuple[int | None, Then, Refuse]] = []
        #: The longest unused first.
        self.producers: dict[str, StoredProducer] = {}
        #: Offset of the newest, by topic id and key of the stream; where this node has no copy of
        #: the topic, its value.
        self.snapshots: dict[tuple[str, str], int | bytes] = {}

    # ---- reading

    def when_loaded(self, then: Then, refuse: Refuse) -> None:
        """Call `then`, now or when everything has been read back, or `refuse`."""
        if self._partition() is None or (self._reader is not None and not self._waiting):
            then()
        else:
            self._wait(None, then, refuse)

    def _partition(self) -> PartitionMetadata | None:
        topic = self._broker.image.topics.get(STATE_TOPIC)
        return topic.partitions[0] if topic is not None else None

    def _wait(self, end: int | None, then: Then, refuse: Refuse) -> None:
        self._waiting.append((end, then, refuse))
        if self._reader is not None:
            self._take_in()
        elif not self._is_starting:
            self._is_starting = True
            self._find_end()

    def _find_end(self, tries: int = _TRIES) -> None:
        """Where the topic ends: whoever waits for all of it waits for that."""
        partition = self._partition()
        assert partition is not None

        def found(ends: Ends | DragomanError) -> None:
            if isinstance(ends, Ends):
                self._begin(ends.high_watermark)
            elif isinstance(ends, _PASSING) and tries:
                self._broker.scheduler.call_later(_RETRY_S, self._find_end, tries - 1)
            else:
                self._give_up(ends)

        find_ends(self._broker, partition, found)

    def _begin(self, end: int) -> None:
        self._is_starting = False
        partition = self._partition()
        assert partition is not None
        self._waiting = [
            (end if until is None else until, then, refuse) for until, then, refuse in self._waiting
        ]
        self._reader = open_reader(self._broker, partition, 0, self._take_in)
        self._take_in()

    def _give_up(self, error: DragomanError) -> None:
        self._is_starting = False
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        waiting, self._waiting = self._waiting, []
        for _, _, refuse in waiting:
            refuse(error)

    def _take_in(self) -> None:
        """A slice of what has come; those who have waited for it go on."""
        reader = self._reader
        if reader is None or self._is_reading:
            return
        self._is_reading = True
        try:
            found = reader.read(MLOG_FETCH_BYTES_MAX, INTERNAL_RECORDS_PER_SLICE)
            for record in found:
                self._apply(record)
        except DragomanError as error:
            self._give_up(error)
            return
        finally:
            self._is_reading = False
        self._go_on(reader.offset)
        if self._reader is reader:
            if found:
                self._broker.scheduler.call_soon(self._take_in)
            else:
                reader.wait()

    def _go_on(self, reached: int) -> None:
        ready = [each for each in self._waiting if each[0] is not None and each[0] <= reached]
        self._waiting = [each for each in self._waiting if each not in ready]
        for _, then, refuse in ready:
            try:
                then()
            except DragomanError as raised:
                refuse(raised)

    def _apply(self, record: Record) -> None:
        assert record.key is not None
        kind, *name = _decode_key(record.key)
        if kind == _PRODUCER:
            self._apply_producer(name[0], record.value)
        elif kind == _SNAPSHOT:
            self.snapshots.pop((name[0], name[1]), None)
            if record.value is not None:
                place = record.offset if self._has_copy() else record.value
                self.snapshots[name[0], name[1]] = place

    def _apply_producer(self, name: str, value: bytes | None) -> None:
        known = self.producers.pop(name, None)
        if value is None:
            return
        stored = _decode_producer(value)
        if known is not None and known.epoch >= stored.epoch:
            # Another node was faster.
            stored = known
        self.producers[name] = stored

    def _has_copy(self) -> bool:
        partition = self._partition()
        return partition is not None and self._broker.node_id in partition.replicas

    # ---- changes

    def put_producer(self, name: str, stored: StoredProducer | None, done: Placed) -> None:
        self._put([_PRODUCER, name], stored, done)

    def put_snapshot(
        self, topic_id: str, key: str, stored: StoredSnapshot | None, done: Placed
    ) -> None:
        self._put([_SNAPSHOT, topic_id, key], stored, done)

    def read_snapshot(self, topic_id: str, key: str) -> StoredSnapshot | None:
        place = self.snapshots.get((topic_id, key))
        if place is None:
            return None
        if isinstance(place, bytes):
            return _decode_snapshot(place)
        partition = self._partition()
        assert partition is not None
        stored = self._broker.held(partition).log
        record = next(stored.iterate(place, stored.high_watermark))
        assert record.offset == place, "a snapshot is not where it was written"
        assert record.value is not None
        return _decode_snapshot(record.value)

    def _put(
        self, key: list[str], value: StoredProducer | StoredSnapshot | None, done: Placed
    ) -> None:
        """Takes effect when it is durable; `done` comes after that."""
        broker = self._broker
        record = Record(
            key=msgspec.json.encode(key),
            value=None if value is None else msgspec.json.encode(value),
            timestamp=broker.clock.wall_ms(),
        )

        def ready(error: DragomanError | None) -> None:
            if error is not None:
                done(-1, error)
            else:
                partition = self._partition()
                assert partition is not None
                broker.relaying.add(partition, record, placed)

        def placed(offset: int, error: DragomanError | None) -> None:
            if error is not None:
                done(offset, error)
            else:
                self._wait(
                    offset + 1, lambda: done(offset, None), lambda refused: done(-1, refused)
                )

        new = NewTopic(
            name=STATE_TOPIC,
            partition_count=1,
            config={"cleanup.policy": "compact", "segment.bytes": str(64 << 20)},
            is_internal=True,
        )
        broker.ensure_topic(new, ready)
