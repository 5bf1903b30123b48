"""Single records made into batches: for protocols whose clients send one record at a time.

Records for one partition that arrive in one loop turn become one batch. There is no timer: while a
batch is on its way to the disk the next one gathers by itself, so batches grow with the load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from dragoman.broker.errors import InvalidRecord, MessageTooLarge
from dragoman.broker.produce import place
from dragoman.broker.replica import Replica
from dragoman.config.topics import TopicConfig
from dragoman.errors import DragomanError
from dragoman.limits import BATCH_HEADER_BYTES, GATHERED_BATCH_BYTES_MAX
from dragoman.log.batch import Record, build_batch, read_header
from dragoman.world import Clock, Scheduler

#: Told the (first) record's offset once all are as safe as they get, or why not (offset -1).
Placed: TypeAlias = Callable[[int, DragomanError | None], None]
#: Most that a record takes in a batch beside its key, value and headers, and a header beside its
#: name and value: lengths, times and counts.
_RECORD_OVERHEAD_BYTES = 36
_HEADER_OVERHEAD_BYTES = 10


class _Gathering:
    """What one partition has gathered in this turn."""

    __slots__ = ("needs_keys", "owners", "records", "room")

    def __init__(self, config: TopicConfig) -> None:
        self.records: list[Record] = []
        #: Whom to tell, and how many of the records are theirs.
        self.owners: list[tuple[Placed, int]] = []
        #: Bytes that the batch may still take.
        self.room = room_in_a_batch(config)
        self.needs_keys = config.is_compacted


class Gatherer:
    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._gathering: dict[Replica, _Gathering] = {}

    def add(self, replica: Replica, record: Record, placed: Placed) -> None:
        """Append a record with the others of this turn, in the order of the calls.

        A record that its topic does not allow is refused at once: it must not take along those
        that share its batch.
        """
        size = size_of(record)
        gathering = self._gathering.get(replica)
        # Enough room in a batch that is begun: nothing can be wrong with this record's size.
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
        gathering.records.append(record)
        gathering.owners.append((placed, 1))

    def add_all(self, replica: Replica, records: Sequence[Record], placed: Placed) -> None:
        """Append several with nobody's between them: all or none when they fit into one batch.

        `placed` is told of the first. When one is not allowed, none is appended.
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
            gathering.records += records[first : first + count]
            gathering.owners.append((placed, count))

    def _room_for(self, replica: Replica, size: int) -> _Gathering:
        """The batch that takes so much more; the one that is full is appended."""
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
        """Append what this partition has gathered: for who appends a batch of its own behind it."""
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
            for placed, _ in gathering.owners:
                placed(-1, error)
            return

        def acknowledged(error: DragomanError | None) -> None:
            offset = appended.base_offset
            for placed, count in gathering.owners:
                placed(offset if error is None else -1, error)
                offset += count

        replica.when_committed(appended.next_offset, acknowledged)


class _AllPlaced:
    """Calls back once for records that did not fit into one batch."""

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
    """First, count and size of the records that go into one batch; one at least."""
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
    """Why a topic does not take a record."""
    if size - _RECORD_OVERHEAD_BYTES > config.max_message_bytes:
        return MessageTooLarge(
            f"{where}: record of {size - _RECORD_OVERHEAD_BYTES} bytes, "
            f"max.message.bytes is {config.max_message_bytes}"
        )
    if record.key is None and config.is_compacted:
        return InvalidRecord("records of a compacted topic need a key", (0,))
    return None


def size_of(record: Record) -> int:
    """Bytes that the record takes in a batch, at most."""
    size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    if record.headers:
        for name, content in record.headers:
            name_bytes = len(name) if name.isascii() else len(name.encode())
            size += _HEADER_OVERHEAD_BYTES + name_bytes + len(content or b"")
    return size
