"""Single records made into batches: for protocols whose clients send one record at a time.

Records for one partition that arrive in one loop turn become one batch. There is no timer: while a
batch is on its way to the disk the next one gathers by itself, so batches grow with the load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dragoman.broker.errors import InvalidRecord, MessageTooLarge
from dragoman.broker.produce import place
from dragoman.broker.replica import Replica
from dragoman.errors import DragomanError
from dragoman.limits import BATCH_HEADER_BYTES, GATHERED_BATCH_BYTES_MAX
from dragoman.log.batch import Record, build_batch, read_header
from dragoman.world import Clock, Scheduler

#: Told the record's offset once it is as safe as it gets, or why it is not (offset -1).
Placed: TypeAlias = Callable[[int, DragomanError | None], None]
#: Most that a record takes in a batch beside its key, value and headers, and a header beside its
#: name and value: lengths, times and counts.
_RECORD_OVERHEAD_BYTES = 36
_HEADER_OVERHEAD_BYTES = 10


class _Gathering:
    """What one partition has gathered in this turn."""

    __slots__ = ("placed", "records", "size")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.placed: list[Placed] = []
        self.size = BATCH_HEADER_BYTES


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
        config = replica.config
        size = _size_of(record)
        try:
            if size - _RECORD_OVERHEAD_BYTES > config.max_message_bytes:
                raise MessageTooLarge(
                    f"{replica.log.describe()}: record of {size - _RECORD_OVERHEAD_BYTES} bytes, "
                    f"max.message.bytes is {config.max_message_bytes}"
                )
            if record.key is None and config.is_compacted:
                raise InvalidRecord("records of a compacted topic need a key", (0,))
        except DragomanError as error:
            placed(-1, error)
            return
        gathering = self._gathering.get(replica)
        if gathering is not None and gathering.size + size > min(
            GATHERED_BATCH_BYTES_MAX, config.max_message_bytes
        ):
            del self._gathering[replica]
            self._append(replica, gathering)
            gathering = None
        if gathering is None:
            if not self._gathering:
                self._scheduler.call_soon(self._append_all)
            gathering = self._gathering[replica] = _Gathering()
        gathering.records.append(record)
        gathering.placed.append(placed)
        gathering.size += size

    def _append_all(self) -> None:
        gathered, self._gathering = self._gathering, {}
        for replica, gathering in gathered.items():
            self._append(replica, gathering)

    def _append(self, replica: Replica, gathering: _Gathering) -> None:
        batch = memoryview(build_batch(gathering.records))
        try:
            appended = place(replica, batch, read_header(batch), self._clock.wall_ms())
        except DragomanError as error:
            for placed in gathering.placed:
                placed(-1, error)
            return

        def acknowledged(error: DragomanError | None) -> None:
            offset = appended.base_offset
            for placed in gathering.placed:
                placed(offset if error is None else -1, error)
                offset += 1

        replica.when_committed(appended.next_offset, acknowledged)


def _size_of(record: Record) -> int:
    """Bytes that the record takes in a batch, at most."""
    size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, content in record.headers:
        size += _HEADER_OVERHEAD_BYTES + len(name.encode()) + len(content or b"")
    return size
