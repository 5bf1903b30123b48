"""State of Cursus in an internal topic: producers, and snapshots of event streams.

Keys of the topic are JSON arrays that begin with a kind, values are JSON objects. Producers are
kept in memory; for snapshots only the offset, because they may be large. If two nodes concurrently
assign an id to the same producer, the first one applies to both.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.broker.global_table import GlobalTables
from dragoman.log.batch import Record

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
    def __init__(self, tables: GlobalTables) -> None:
        self._table = tables.open(STATE_TOPIC, self._apply, self._forget)
        #: Producers by name, least recently used first.
        self.producers: dict[str, StoredProducer] = {}
        #: By topic id and stream key, the offset of the newest snapshot, or its value if this node
        #: has no replica of the topic.
        self.snapshots: dict[tuple[str, str], int | bytes] = {}

    @property
    def is_loaded(self) -> bool:
        return self._table.is_loaded

    async def loaded(self) -> None:
        """Return when the state has been loaded."""
        await self._table.loaded()

    def _forget(self) -> None:
        self.producers.clear()
        self.snapshots.clear()

    def _apply(self, record: Record) -> None:
        assert record.key is not None
        kind, *name = _decode_key(record.key)
        if kind == _PRODUCER:
            self._apply_producer(name[0], record.value)
        elif kind == _SNAPSHOT:
            self.snapshots.pop((name[0], name[1]), None)
            if record.value is not None:
                place = record.offset if self._table.has_copy else record.value
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

    # ---- changes; each returns when it is durable and has taken effect

    async def put_producer(self, name: str, stored: StoredProducer | None) -> None:
        await self._put([_PRODUCER, name], stored)

    async def put_snapshot(self, topic_id: str, key: str, stored: StoredSnapshot | None) -> None:
        await self._put([_SNAPSHOT, topic_id, key], stored)

    def read_snapshot(self, topic_id: str, key: str) -> StoredSnapshot | None:
        place = self.snapshots.get((topic_id, key))
        if place is None:
            return None
        if isinstance(place, bytes):
            return _decode_snapshot(place)
        record = self._table.record_at(place)
        assert record.value is not None
        return _decode_snapshot(record.value)

    async def _put(self, key: list[str], value: StoredProducer | StoredSnapshot | None) -> None:
        encoded = None if value is None else msgspec.json.encode(value)
        await self._table.put(msgspec.json.encode(key), encoded)
