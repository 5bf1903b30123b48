"""Reading from several partitions at once, and waiting when there is too little data.

A fetch is tried at once. If it finds fewer bytes than requested, it parks on its partitions and is
woken by appends, moved watermarks and deletions; nothing polls. To avoid a read at every small
append, a parked fetch adds up the growth of its partitions and reads again only when that may
suffice, or at its time-out. A partition whose end readers cannot see yet (appends in flight to the
disk, an open transaction) may uncover any amount without growing: there, every wake-up reads again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from dragoman.broker.errors import ReplicaDamaged, UnknownTopic
from dragoman.errors import CorruptionError, DragomanError
from dragoman.replication.replica import Replica, not_leader
from dragoman.types import Buffer
from dragoman.world import Handle, Scheduler


class Wanted(NamedTuple):
    """One partition of a fetch. `replica` is None when it was not found; `error` has the reason."""

    replica: Replica | None
    offset: int
    bytes_max: int
    error: DragomanError | None = None
    #: Whether any replica will do, even one behind the leader.
    may_be_copy: bool = False


class Fetched(NamedTuple):
    """The result for one partition; `aborted` is None unless only committed records were
    requested.
    """

    error: DragomanError | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    buffers: list[Buffer]
    size: int
    aborted: list[tuple[int, int]] | None
    #: The offset after the last record.
    next_offset: int = -1


class FetchLimits(NamedTuple):
    bytes_min: int
    bytes_max: int
    wait_s: float
    committed_only: bool
    #: Returns the bytes that may be read at the moment; called before each read.
    room: Callable[[], int] | None = None


Finish: TypeAlias = Callable[[list[Fetched]], None]
_NOTHING: list[Buffer] = []
#: In place of a partition's size when the visible part of it is unknown.
_UNKNOWN = -1


def refused_fetch(error: DragomanError | None) -> Fetched:
    """The result for a partition that the reader does not get to see."""
    return Fetched(error, -1, -1, -1, _NOTHING, 0, None)


def read_all(wanted: Sequence[Wanted], limits: FetchLimits) -> tuple[list[Fetched], int, bool]:
    """(results in order, bytes found, whether a partition has an error).

    The first batch is returned whole, whatever its size, so that no reader gets stuck.
    """
    results: list[Fetched] = []
    total = 0
    has_error = False
    bytes_max = limits.bytes_max
    if limits.room is not None:
        bytes_max = min(bytes_max, limits.room())
    for each in wanted:
        room = min(each.bytes_max, bytes_max - total)
        found = _read_one(each, room, limits.committed_only, is_first=total == 0)
        total += found.size
        has_error = has_error or found.error is not None
        results.append(found)
    return results, total, has_error


def _read_one(wanted: Wanted, room: int, committed_only: bool, is_first: bool) -> Fetched:
    replica = wanted.replica
    if replica is None:
        return refused_fetch(wanted.error)
    log = replica.log
    stable = log.last_stable_offset
    limit = stable if committed_only else log.high_watermark
    aborted: list[tuple[int, int]] | None = None
    buffers, size = _NOTHING, 0
    next_offset = wanted.offset
    error = wanted.error
    if log.is_removed:
        error = UnknownTopic(f"{log.describe()} is gone")
    elif error is None and not (replica.is_led or wanted.may_be_copy):
        error = not_leader(replica.metadata)
    if error is None and wanted.offset == limit >= log.log_start_offset:
        # The end of the log is the most common position.
        aborted = [] if committed_only else None
    elif error is None:
        try:
            if room > 0 or is_first:
                buffers, size, next_offset = log.read(wanted.offset, max(room, 0), limit)
                if size > room and not is_first:
                    buffers, size = _NOTHING, 0
                log.store.directory.stats.fetched_bytes += size
            else:
                log.check_offset(wanted.offset)
        except DragomanError as refused:
            error = refused.with_traceback(None)
            if isinstance(refused, CorruptionError) and replica.is_elsewhere(refused):
                error = ReplicaDamaged(str(refused))
        else:
            if committed_only:
                aborted = []
                if size and log.producers is not None:
                    aborted = [
                        (each.producer_id, each.first_offset)
                        for each in log.producers.aborted_between(wanted.offset, next_offset)
                    ]
    watermark, start = log.high_watermark, log.log_start_offset
    return Fetched(error, watermark, stable, start, buffers, size, aborted, next_offset)


class Fetch:
    """One fetch in progress. Answers exactly once, through `finish`."""

    __slots__ = ("_finish", "_grown", "_limits", "_marks", "_scheduler", "_timer", "_wanted")

    def __init__(
        self,
        scheduler: Scheduler,
        wanted: Sequence[Wanted],
        limits: FetchLimits,
        finish: Finish,
    ) -> None:
        self._scheduler = scheduler
        self._wanted = wanted
        self._limits = limits
        self._finish: Finish | None = finish
        self._timer: Handle | None = None
        self._grown = 0
        self._marks: dict[Replica, int] = {}

    def start(self) -> None:
        results, total, has_error = read_all(self._wanted, self._limits)
        limits = self._limits
        if total >= limits.bytes_min or has_error or limits.wait_s <= 0 or not self._wanted:
            self._answer(results)
            return
        self._grown = total
        if not self._park():
            self._answer(results)
            return
        self._timer = self._scheduler.call_later(limits.wait_s, self._time_is_over)

    def _park(self) -> bool:
        for each in self._wanted:
            if each.replica is not None:
                if not each.replica.park(self):
                    return False
                self._marks[each.replica] = self._mark(each.replica)
        return True

    def _mark(self, replica: Replica) -> int:
        """The size from which the partition's later growth is counted."""
        log = replica.log
        limit = log.last_stable_offset if self._limits.committed_only else log.high_watermark
        return log.appended_bytes if limit == log.log_end_offset else _UNKNOWN

    def data_arrived(self, replica: Replica) -> None:
        """Part of a wake-up: the replica has dropped the fetch, which has to park again if
        needed.
        """
        if self._finish is None:
            return
        mark = self._marks[replica]
        self._grown += replica.log.appended_bytes - mark
        self._marks[replica] = self._mark(replica)
        is_gone = replica.log.is_removed or not replica.is_led
        if mark == _UNKNOWN or self._grown >= self._limits.bytes_min or is_gone:
            self._look_again()
        self._park_again(replica)

    def log_start_moved(self, replica: Replica) -> None:
        """Like `data_arrived`: the position may be gone, which must be reported at once."""
        if self._finish is not None:
            self._look_again()
            self._park_again(replica)

    def _look_again(self) -> None:
        results, total, has_error = read_all(self._wanted, self._limits)
        if total >= self._limits.bytes_min or has_error:
            self._answer(results)
        else:
            # The growth is not visible yet, perhaps because it is above the last stable offset.
            self._grown = total

    def _park_again(self, replica: Replica) -> None:
        if self._finish is not None and not replica.park(self):
            self._time_is_over()

    def _time_is_over(self) -> None:
        if self._finish is not None:
            self._answer(read_all(self._wanted, self._limits)[0])

    def cancel(self) -> None:
        """Drop the fetch without an answer."""
        self._finish = None
        self._unpark()

    def finish_now(self) -> None:
        """Answer with the available data: the node is stopping."""
        self._time_is_over()

    def _answer(self, results: list[Fetched]) -> None:
        finish, self._finish = self._finish, None
        self._unpark()
        if finish is not None:
            finish(results)

    def _unpark(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for replica in self._marks:
            replica.unpark(self)
        self._marks.clear()


class Fetches:
    """The parked fetches of this node."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: dict[Fetch, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, wanted: list[Wanted], limits: FetchLimits, finish: Finish) -> Fetch | None:
        """Read now, or when there is enough; None when the answer was given within the call."""

        def fetched(found: list[Fetched]) -> None:
            self._waiting.pop(fetch, None)
            finish(found)

        fetch = Fetch(self._scheduler, wanted, limits, fetched)
        self._waiting[fetch] = None
        fetch.start()
        return fetch if fetch in self._waiting else None

    def cancel(self, fetch: Fetch) -> None:
        """The client is gone."""
        self._waiting.pop(fetch, None)
        fetch.cancel()

    def finish_all(self) -> None:
        """The node stops: answer every fetch with the available data."""
        for fetch in list(self._waiting):
            fetch.finish_now()
