"""What Cursus needs on disk beside topics and groups: producers, and snapshots of event streams.

One compacted internal topic of one partition. Keys are JSON arrays that begin with the kind, values
JSON objects. It is read back when it is first needed; producers are kept in memory, of snapshots
only where they are, because they may be large.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from dragoman.broker.broker import Broker
from dragoman.broker.gather import Placed
from dragoman.broker.topics import NewTopic
from dragoman.errors import DragomanError
from dragoman.limits import INTERNAL_RECORDS_PER_SLICE
from dragoman.log.batch import Record

log = logging.getLogger("dragoman.cursus")
STATE_TOPIC: Final = "__cursus_state"
_PRODUCER: Final = "producer"
_SNAPSHOT: Final = "snapshot"


class StoredProducer(msgspec.Struct, frozen=True):
    """The newest epoch of a producer, and the producer id that its records carry in the log."""

    epoch: int
    internal_id: int


class StoredSnapshot(msgspec.Struct, frozen=True):
    version: int
    payload: str


class SnapshotPlace(msgspec.Struct, frozen=True, gc=False):
    version: int
    offset: int


_decode_key: Final = msgspec.json.Decoder(list[str]).decode
_decode_producer: Final = msgspec.json.Decoder(StoredProducer).decode
_decode_snapshot: Final = msgspec.json.Decoder(StoredSnapshot).decode


class State:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._is_loaded = False
        self._waiting: list[Callable[[], None]] = []
        #: The longest unused first.
        self.producers: dict[str, StoredProducer] = {}
        #: By topic id and key of the stream.
        self.snapshots: dict[tuple[str, str], SnapshotPlace] = {}

    def when_loaded(self, then: Callable[[], None]) -> None:
        """Call `then`, now or when everything has been read back."""
        if self._is_loaded:
            then()
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            self._load(self._records())

    def _load(self, records: Iterator[Record]) -> None:
        for _ in range(INTERNAL_RECORDS_PER_SLICE):
            record = next(records, None)
            if record is None:
                self._is_loaded = True
                waiting, self._waiting = self._waiting, []
                for each in waiting:
                    each()
                return
            self._apply(record)
        self._broker.scheduler.call_soon(self._load, records)

    def _records(self) -> Iterator[Record]:
        if STATE_TOPIC in self._broker.image.topics:
            stored = self._broker.find(STATE_TOPIC, 0).log
            yield from stored.iterate(stored.log_start_offset, stored.high_watermark)

    def _apply(self, record: Record) -> None:
        assert record.key is not None
        kind, *name = _decode_key(record.key)
        if kind == _PRODUCER:
            self.producers.pop(name[0], None)
            if record.value is not None:
                self.producers[name[0]] = _decode_producer(record.value)
        elif kind == _SNAPSHOT:
            place = (name[0], name[1])
            self.snapshots.pop(place, None)
            if record.value is not None:
                version = _decode_snapshot(record.value).version
                self.snapshots[place] = SnapshotPlace(version, record.offset)

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
        stored = self._broker.find(STATE_TOPIC, 0).log
        record = next(stored.iterate(place.offset, stored.high_watermark))
        assert record.offset == place.offset, "a snapshot is not where it was written"
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
                return
            broker.gatherer.add(broker.find(STATE_TOPIC, 0), record, placed)

        def placed(offset: int, error: DragomanError | None) -> None:
            if error is None:
                self._apply(msgspec.structs.replace(record, offset=offset))
            done(offset, error)

        new = NewTopic(
            name=STATE_TOPIC,
            partition_count=1,
            config={"cleanup.policy": "compact", "segment.bytes": str(64 << 20)},
            is_internal=True,
        )
        broker.ensure_topic(new, ready)
