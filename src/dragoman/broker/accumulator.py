"""Batching of single records, for protocols whose clients send one record at a time.

Records for one partition that arrive in one loop turn become one batch. There is no timer: while a
batch is on its way to the disk, the next one accumulates, so batches grow with the load.

Records of one batch may require different acknowledgements: each is answered at its own mark, the
leader's stable end or the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from dragoman.broker.errors import InvalidRecord, MessageTooLarge
from dragoman.broker.produce import place
from dragoman.config.overrides import TopicConfig
from dragoman.errors import DragomanError
from dragoman.limits import BATCH_HEADER_BYTES, GATHERED_BATCH_BYTES_MAX
from dragoman.log.batch import Record, build_batch, read_header
from dragoman.outcome import Outcome
from dragoman.replication.replica import Replica
from dragoman.world import Clock, Scheduler

#: Receives the offset of the (first) record once the records are acknowledged, or -1 and an error.
Placed: TypeAlias = Callable[[int, DragomanError | None], None]
#: Callbacks of a batch, each with the index of its first record in the batch.
_Owners: TypeAlias = list[tuple[Placed, int]]
#: Upper bound of a record's overhead in a batch, without key, value and headers, and of a header's,
#: without name and value.
_RECORD_OVERHEAD_BYTES = 36
_HEADER_OVERHEAD_BYTES = 10


def placed(begin: Callable[[Placed], object]) -> Outcome[int]:
    """The outcome of a function that calls back with an offset. Raises what it raises at once."""
    outcome: Outcome[int] = Outcome()
    begin(lambda offset, error: outcome.settle(offset if error is None else error))
    return outcome


class _Gathering:
    """The records of one partition in this turn."""

    __slots__ = ("needs_keys", "of_all", "of_leader", "records", "room")

    def __init__(self, config: TopicConfig) -> None:
        self.records: list[Record] = []
        #: Callbacks for all in-sync replicas, and callbacks for the leader alone.
        self.of_all: _Owners = []
        self.of_leader: _Owners = []
        #: Bytes left in the batch.
        self.room = room_in_a_batch(config)
        self.needs_keys = config.is_compacted


class RecordAccumulator:
    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._gathering: dict[Replica, _Gathering] = {}

    def add(
        self, replica: Replica, record: Record, placed: Placed, *, is_leader_only: bool = False
    ) -> None:
        """Append a record, batched with the others of this turn, in the order of the calls.

        `is_leader_only`: call back when the record is on this node's stable storage, regardless of
        the followers.

        A record that its topic does not allow is refused at once, so that it does not fail the
        others in the batch.
        """
        size = size_of(record)
        gathering = self._gathering.get(replica)
        # There is enough room in the open batch, so the record's size is valid.
        if (
            gathering is None
            or size > gathering.room
            or (gathering.needs_keys and record.key is None)
        ):
            error = _refusal_at(replica, record, size)
            if error is not None:
                placed(-1, error)
                return
            gathering = self._room_for(replica, size)
        gathering.room -= size
        owners = gathering.of_leader if is_leader_only else gathering.of_all
        owners.append((placed, len(gathering.records)))
        gathering.records.append(record)

    def add_all(
        self,
        replica: Replica,
        records: Sequence[Record],
        placed: Placed,
        *,
        is_leader_only: bool = False,
    ) -> None:
        """Append several records in a row: all or none when they fit into one batch.

        `placed` receives the offset of the first. When one is not allowed, none is appended.
        """
        sizes = list(map(size_of, records))
        for record, size in zip(records, sizes, strict=True):
            error = _refusal_at(replica, record, size)
            if error is not None:
                placed(-1, error)
                return
        parts = list(_parts(sizes, room_in_a_batch(replica.config)))
        if len(parts) > 1:
            placed = _AllPlaced(len(parts), placed)
        for first, count, size in parts:
            gathering = self._room_for(replica, size)
            gathering.room -= size
            owners = gathering.of_leader if is_leader_only else gathering.of_all
            owners.append((placed, len(gathering.records)))
            gathering.records += records[first : first + count]

    def _room_for(self, replica: Replica, size: int) -> _Gathering:
        """The batch with room for this many bytes; a full one is appended."""
        gathering = self._gathering.get(replica)
        if gathering is not None and size > gathering.room:
            del self._gathering[replica]
            self._append(replica, gathering)
            gathering = None
        if gathering is None:
            if not self._gathering:
                self._scheduler.call_soon(self._append_all)
            gathering = self._gathering[replica] = _Gathering(replica.config)
        return gathering

    def flush(self, replica: Replica) -> None:
        """Append the pending batch of this partition, before the caller appends its own."""
        gathering = self._gathering.pop(replica, None)
        if gathering is not None:
            self._append(replica, gathering)

    def _append_all(self) -> None:
        gathered, self._gathering = self._gathering, {}
        for replica, gathering in gathered.items():
            self._append(replica, gathering)

    def _append(self, replica: Replica, gathering: _Gathering) -> None:
        batch = memoryview(build_batch(gathering.records))
        try:
            appended = place(replica, batch, read_header(batch), self._clock.wall_ms())
        except DragomanError as error:
            for placed, _ in (*gathering.of_leader, *gathering.of_all):
                placed(-1, error)
            return
        base, end = appended.base_offset, appended.next_offset
        if gathering.of_leader:
            replica.when_stable(end, partial(_acknowledge, gathering.of_leader, base))
        if gathering.of_all:
            replica.when_committed(end, partial(_acknowledge, gathering.of_all, base))


def _acknowledge(owners: _Owners, base_offset: int, error: DragomanError | None) -> None:
    for placed, index in owners:
        placed(base_offset + index if error is None else -1, error)


class _AllPlaced:
    """Combines the callbacks of records that did not fit into one batch."""

    def __init__(self, parts: int, placed: Placed) -> None:
        self._left = parts
        self._placed = placed
        self._first = -1
        self._error: DragomanError | None = None

    def __call__(self, offset: int, error: DragomanError | None) -> None:
        if self._first < 0:
            self._first = offset
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._placed(-1 if self._error else self._first, self._error)


def room_in_a_batch(config: TopicConfig) -> int:
    return min(GATHERED_BATCH_BYTES_MAX, config.max_message_bytes) - BATCH_HEADER_BYTES


def _parts(sizes: Sequence[int], room: int) -> Iterator[tuple[int, int, int]]:
    """First, count and size of the records that fit into one batch; at least one."""
    first = used = 0
    for index, size in enumerate(sizes):
        if index > first and used + size > room:
            yield first, index - first, used
            first, used = index, 0
        used += size
    yield first, len(sizes) - first, used


def _refusal_at(replica: Replica, record: Record, size: int) -> DragomanError | None:
    return refusal(replica.config, replica.log.describe(), record, size)


def refusal(config: TopicConfig, where: str, record: Record, size: int) -> DragomanError | None:
    """The reason for which a topic refuses a record."""
    if size - _RECORD_OVERHEAD_BYTES > config.max_message_bytes:
        return MessageTooLarge(
            f"{where}: record of {size - _RECORD_OVERHEAD_BYTES} bytes, "
            f"max.message.bytes is {config.max_message_bytes}"
        )
    if record.key is None and config.is_compacted:
        return InvalidRecord("records of a compacted topic need a key", (0,))
    return None


def size_of(record: Record) -> int:
    """An upper bound of the record's size in a batch."""
    size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    if record.headers:
        for name, content in record.headers:
            name_bytes = len(name) if name.isascii() else len(name.encode())
            size += _HEADER_OVERHEAD_BYTES + name_bytes + len(content or b"")
    return size
