"""What Cursus needs on disk beside topics and groups: producers, and snapshots of event streams.

One compacted internal topic of one partition. Keys are JSON arrays that begin with the kind, values
JSON objects. It is read back when it is first needed; producers are kept in memory, of snapshots
only where they are, because they may be large.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from dragoman.broker.broker import Broker
from dragoman.broker.gather import Placed
from dragoman.broker.topics import NewTopic
from dragoman.errors import DragomanError
from dragoman.log.batch import Record
from dragoman.protocols.cursus.handlers.scan import Refuse, Scan, Then

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


_decode_key: Final = msgspec.json.Decoder(list[str]).decode
_decode_producer: Final = msgspec.json.Decoder(StoredProducer).decode
_decode_snapshot: Final = msgspec.json.Decoder(StoredSnapshot).decode


class State:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        broker.topics.reserve(STATE_TOPIC)
        self._is_loaded = False
        self._scan = Scan(broker.scheduler, self._apply)
        #: The longest unused first.
        self.producers: dict[str, StoredProducer] = {}
        #: Offset of the newest, by topic id and key of the stream.
        self.snapshots: dict[tuple[str, str], int] = {}

    def when_loaded(self, then: Then, refuse: Refuse) -> None:
        """Call `then`, now or when everything has been read back, or `refuse`."""
        if self._is_loaded:
            then()
        else:
            self._scan.start(self._records, then, refuse)

    def _records(self) -> Iterator[Record]:
        if STATE_TOPIC in self._broker.image.topics:
            stored = self._broker.find(STATE_TOPIC, 0).log
            yield from stored.iterate(stored.log_start_offset, stored.high_watermark)
        self._is_loaded = True

    def _apply(self, record: Record) -> None:
        assert record.key is not None
        kind, *name = _decode_key(record.key)
        if kind == _PRODUCER:
            self.producers.pop(name[0], None)
            if record.value is not None:
                self.producers[name[0]] = _decode_producer(record.value)
        elif kind == _SNAPSHOT:
            self.snapshots.pop((name[0], name[1]), None)
            if record.value is not None:
                self.snapshots[name[0], name[1]] = record.offset

    # ---- changes

    def put_producer(self, name: str, stored: StoredProducer | None, done: Placed) -> None:
        self._put([_PRODUCER, name], stored, done)

    def put_snapshot(
        self, topic_id: str, key: str, stored: StoredSnapshot | None, done: Placed
    ) -> None:
        self._put([_SNAPSHOT, topic_id, key], stored, done)

    def read_snapshot(self, topic_id: str, key: str) -> StoredSnapshot | None:
        offset = self.snapshots.get((topic_id, key))
        if offset is None:
            return None
        stored = self._broker.find(STATE_TOPIC, 0).log
        record = next(stored.iterate(offset, stored.high_watermark))
        assert record.offset == offset, "a snapshot is not where it was written"
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
