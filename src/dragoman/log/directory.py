"""The data directory of a node: its open files, its state, and whether it accepts writes.

A failed sync stops the directory for good: the kernel may have dropped the pages, so a second sync
could succeed without the data. A full disk only refuses appends until there is room again. When no
descriptor is left, half of the open segment files are closed; if that does not help, it is treated
like a full disk.

`node.json` (`log/node.py`) is read when the directory is opened and rewritten when it changes. A
lock keeps a second process out.
"""

from __future__ import annotations

import errno
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from dragoman.errors import CorruptionError
from dragoman.histogram import Histogram, Times
from dragoman.limits import DAMAGED_PARTITIONS_MAX, DAMAGED_PLACES_MAX
from dragoman.log.journal import JournalDamage
from dragoman.log.node import (
    FEATURE_LEVEL_MIN,
    NODE_FILE,
    TAGGED_FILES_LEVEL,
    DamagedPlace,
    Durability,
    NodeState,
    has_data,
    node_replacement,
    read_node_state,
    write_node_state,
)
from dragoman.log.segment import Segment
from dragoman.world import (
    OUT_OF_FILES,
    Background,
    BackgroundJob,
    Clock,
    Disk,
    File,
    Random,
    Scheduler,
    parent,
    perform,
    read_whole,
    replace_file,
)

LOCK_FILE = "lock"
PARTITIONS = "partitions"
QUARANTINE = "quarantine"
#: Errors that mean "no room" or "no descriptor": the work is postponed, nothing is lost.
FULL = (errno.ENOSPC, errno.EDQUOT, *OUT_OF_FILES)
log = logging.getLogger("dragoman.log")


#: Bounds of histograms, as lengths in bits.
_BATCHES: Final = (1, 2, 4, 6, 8, 10)
_BYTES: Final = (8, 10, 12, 14, 16, 18, 20, 22, 24)


class StoreStats:
    """Plain counters of a store, for its exporters."""

    __slots__ = (
        "appended_batches",
        "appended_bytes",
        "checkpoint_seconds",
        "committed_bytes",
        "compacted_records",
        "cut_bytes",
        "damage",
        "dirty_bytes",
        "fetched_bytes",
        "flushed_bytes",
        "group_batches",
        "group_bytes",
        "groups",
        "rolls",
        "sync_seconds",
    )

    def __init__(self) -> None:
        self.groups = 0
        #: Bytes of all groups, with the headers of their entries.
        self.committed_bytes = 0
        #: What was appended, counted when its group is closed.
        self.appended_batches = 0
        self.appended_bytes = 0
        self.group_batches = Histogram(_BATCHES)
        self.group_bytes = Histogram(_BYTES)
        #: Bytes of batches that were read for readers.
        self.fetched_bytes = 0
        #: Acknowledged bytes that are in the journal and not yet in their segments.
        self.dirty_bytes = 0
        self.flushed_bytes = 0
        #: Segments that were closed, and records that compaction removed.
        self.rolls = 0
        self.compacted_records = 0
        self.checkpoint_seconds = Times()
        #: Of durable writes to the journal.
        self.sync_seconds = Times()
        #: Findings of damage since the store was opened.
        self.damage = 0
        #: Torn bytes that recovery cut off.
        self.cut_bytes = 0

    @property
    def checkpoints(self) -> int:
        return self.checkpoint_seconds.count


class FileCache:
    """Open segment files: a bounded set, the least recently used closed first.

    Thousands of partitions share a few hundred descriptors. When the operating system has none
    left, half of these are closed and the call is retried.
    """

    def __init__(self, disk: Disk, open_max: int) -> None:
        self._disk = disk
        self._open: OrderedDict[str, File] = OrderedDict()
        self._open_max = open_max

    def __len__(self) -> int:
        return len(self._open)

    @property
    def unopened(self) -> int:
        """How many more files may be opened before one is closed."""
        return max(0, self._open_max - len(self._open))

    def get(self, path: str) -> File:
        """An existing file, open for reading and writing."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        return self._add(path, create=False)

    def create(self, path: str) -> File:
        """A new file, in a directory that is made when missing."""
        return self._add(path, create=True)

    def get_or_create(self, path: str) -> File:
        try:
            return self.get(path)
        except FileNotFoundError:
            return self.create(path)

    def _add(self, path: str, *, create: bool) -> File:
        try:
            file = self._open_file(path, create)
        except OSError as error:
            if error.errno not in OUT_OF_FILES or not self.give_up_half():
                raise
            file = self._open_file(path, create)
        self._open[path] = file
        self._shrink(self._open_max)
        return file

    def _open_file(self, path: str, create: bool) -> File:
        if not create:
            return self._disk.open(path, "write")
        try:
            return self._disk.open(path, "create")
        except FileNotFoundError:
            self._disk.make_directory(parent(path))
            return self._disk.open(path, "create")

    def give_up_half(self) -> bool:
        """Close half of the files to free descriptors. False: none was open."""
        has_any = bool(self._open)
        self._shrink(len(self._open) // 2)
        return has_any

    def _shrink(self, keep: int) -> None:
        while len(self._open) > keep:
            _, file = self._open.popitem(last=False)
            file.close()

    def forget(self, path: str) -> None:
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        self._shrink(0)


def _ignore() -> None:
    return None


def _ignore_error(_: OSError) -> None:
    return None


class DataDirectory:
    def __init__(
        self,
        disk: Disk,
        background: Background,
        scheduler: Scheduler,
        clock: Clock,
        open_segments_max: int,
    ) -> None:
        """Locks the directory. Raises `DirectoryInUseError`, `OSError`."""
        self.disk = disk
        self.scheduler = scheduler
        self.clock = clock
        self.background = background
        self.files = FileCache(disk, open_segments_max)
        self.stats = StoreStats()
        #: Called when a sync has failed.
        self.on_failure: Callable[[OSError], None] = _ignore_error
        #: Called when the directory begins or stops to accept writes.
        self.on_change: Callable[[], None] = _ignore
        self.failure: OSError | None = None
        self.is_closing = False
        self.was_clean = True
        #: Whether segments were written behind a journal, or closed cleanly. Otherwise unreadable
        #: bytes at the end of a segment count as torn, not as damage.
        self.trusts_segment_ends = True
        self._is_full = False
        #: When the disk became full; None once there is room again.
        self._full_since: float | None = None
        self.lock = disk.lock(LOCK_FILE)

    # ---- node.json

    def open_node(self, random: Random, durability: Durability) -> NodeState:
        """The state of the node at this start, not written yet.

        Raises `FormatError`, or `CorruptionError` when `node.json` is missing or damaged.
        """
        self.trusts_segment_ends = durability is Durability.FSYNC
        if not self.disk.exists(NODE_FILE):
            if has_data(self.disk):
                raise CorruptionError(NODE_FILE, 0, "the file is missing, although there is data")
            self.node = NodeState(
                directory_id=random.getrandbits(128).to_bytes(16, "big").hex(),
                incarnation=1,
                durability=durability,
                is_clean=False,
            )
            return self.node
        previous = read_node_state(self.disk)
        self.was_clean = previous.is_clean
        self.trusts_segment_ends = previous.is_clean or previous.durability is Durability.FSYNC
        self.node = msgspec.structs.replace(
            previous,
            incarnation=previous.incarnation + 1,
            is_clean=False,
            feature_level=max(previous.feature_level, FEATURE_LEVEL_MIN),
        )
        return self.node

    def write_node(self) -> None:
        """Write `node.json`. Durable when this returns. Raises `OSError`."""
        write_node_state(self.disk, self.node)

    def keep_node(self) -> bool:
        """Make changes of `node` durable before this returns. False: the disk is full."""
        job = BackgroundJob(replace=(node_replacement(self.node),))
        return self.performed(job, may_be_full=True)

    def use_level(self, level: int) -> None:
        """Raise the feature level: from now on, releases without it refuse the directory."""
        if level > self.node.feature_level:
            self.node.feature_level = level
            self.keep_node()

    @property
    def tags_files(self) -> bool:
        """Whether checksums of indexes and producer state are seeded (`TAGGED_FILES_LEVEL`)."""
        return self.node.feature_level >= TAGGED_FILES_LEVEL

    def tag_of(self, segment: Segment) -> int:
        """The seed of the checksums in a segment's index."""
        return segment.tag if self.tags_files else 0

    def loss_is_known(self) -> None:
        """Note that the cluster knows that this directory lost acknowledged groups."""
        if self.node.has_lost:
            self.node.has_lost = False
            self.keep_node()

    def add_damaged(self, partition_id: int) -> bool:
        """Remember to open a damaged partition at the next start. False: it was remembered before,
        or too many are."""
        known = self.node.damaged
        if partition_id in known or len(known) >= DAMAGED_PARTITIONS_MAX:
            return False
        self.node.damaged = (*known, partition_id)
        return True

    def damaged_places(self) -> tuple[DamagedPlace, ...]:
        return self.node.damaged_places or ()

    def damaged_places_of(self, partition_id: int) -> list[DamagedPlace]:
        return [each for each in self.damaged_places() if each.partition_id == partition_id]

    def add_damaged_place(self, place: DamagedPlace) -> bool:
        """Remember to look for damage in a place at the next start. False: as `add_damaged`."""
        known = self.damaged_places()
        if place in known or len(known) >= DAMAGED_PLACES_MAX:
            return False
        self.node.damaged_places = (*known, place)
        return True

    def remove_damaged_places(self, places: Iterable[DamagedPlace]) -> None:
        gone = set(places)
        left = tuple(each for each in self.damaged_places() if each not in gone)
        self.node.damaged_places = left or msgspec.UNSET

    def remove_damaged(self, partition_id: int) -> None:
        self.node.damaged = tuple(each for each in self.node.damaged if each != partition_id)
        self.remove_damaged_places(self.damaged_places_of(partition_id))

    # ---- accepting writes

    def has_failed(self) -> bool:
        return self.failure is not None

    def fail(self, error: OSError) -> None:
        if not self.has_failed():
            self.failure = error
            self.on_change()
            self.on_failure(error)

    def fail_removed(self, what: str) -> None:
        text = f"{what} was removed or replaced while the node was running"
        self.fail(OSError(errno.ENOENT, f"{text}: nothing more is acknowledged"))

    def abandon(self) -> None:
        """Write nothing from now on, without calling `on_failure`."""
        self.failure = self.failure or OSError(errno.ESHUTDOWN, "abandoned")
        self.on_change()

    @property
    def is_full(self) -> bool:
        """Whether appends are refused until a write succeeds again."""
        return self._is_full

    @is_full.setter
    def is_full(self, value: bool) -> None:
        self._is_full = value
        self.on_change()

    def refuse_appends(self, error: OSError) -> None:
        """Refuse appends because the disk is full or no descriptor is left."""
        self.is_full = True
        if self._full_since is not None:
            return
        self._full_since = self.clock.monotonic()
        reason = "no descriptor is left" if error.errno in OUT_OF_FILES else "the disk is full"
        fields = {
            "why": reason,
            "free_bytes": self.free_bytes(),
            # Acknowledged bytes in the journal, which wait for room in their segments.
            "unwritten_bytes": self.stats.dirty_bytes,
        }
        log.error("appends are refused", extra=fields)

    def free_bytes(self) -> int:
        """Free bytes of the disk; -1 when the system cannot tell."""
        try:
            return self.disk.free_bytes()
        except OSError:
            return -1

    def note_room(self) -> None:
        since = self._full_since
        if since is not None and not self._is_full:
            self._full_since = None
            fields = {
                "ms": round((self.clock.monotonic() - since) * 1000),
                "free_bytes": self.free_bytes(),
            }
            log.warning("appends are accepted again", extra=fields)

    # ---- jobs

    def run_job(self, job: BackgroundJob, done: Callable[[OSError | None], None]) -> None:
        """Submit a job to the background. When that refuses it, perform it before this returns."""
        try:
            self.background.submit(job, done)
        except OSError:
            outcome: OSError | None = None
            try:
                self._perform(job)
            except OSError as error:
                outcome = error
            self.scheduler.call_soon(done, outcome)

    def performed(self, job: BackgroundJob, *, may_be_full: bool) -> bool:
        """Perform a job before this returns. False when it failed.

        A failure stops the directory, except for a missing descriptor or, with `may_be_full`, a
        full disk.
        """
        try:
            self._perform(job)
        except OSError as error:
            if error.errno in (FULL if may_be_full else OUT_OF_FILES):
                self.refuse_appends(error)
            else:
                self.fail(error)
            return False
        return True

    def _perform(self, job: BackgroundJob) -> None:
        """Perform a job, freeing descriptors if clients use all of them. Raises `OSError`."""
        try:
            perform(self.disk, job)
        except OSError as error:
            if error.errno not in OUT_OF_FILES or not self.files.give_up_half():
                raise
            perform(self.disk, job)

    def write_out(self, segment: Segment) -> None:
        """Have the disk begin to write back what the next checkpoint syncs."""
        if self.is_closing:
            return
        start, segment.written_out = segment.written_out, segment.written
        job = BackgroundJob(write_out=((segment.log_path, start, segment.written - start),))
        with suppress(OSError):
            self.background.submit(job, _ignore_outcome)

    # ---- files

    def remove_file(self, path: str) -> None:
        self.files.forget(path)
        self.disk.remove(path)

    def remove_segment_files(self, segment: Segment) -> None:
        self.remove_file(segment.log_path)
        self.remove_file(segment.index_path)

    def remove_directory(self, directory: str) -> None:
        """Remove a directory and its files."""
        for name in self.disk.names(directory):
            self.disk.remove(f"{directory}/{name}")
        try:
            self.disk.remove_directory(directory)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            # A background job is creating a file there. It is done before the next job begins.
            self.run_job(BackgroundJob(), lambda _: self.remove_directory(directory))

    def quarantine(self, segment: Segment) -> None:
        """Move a damaged segment's file to `quarantine/`; its partition continues without it."""
        self.files.forget(segment.log_path)
        if self.disk.exists(segment.log_path):
            self.disk.make_directory(QUARANTINE)
            self.disk.rename(segment.log_path, kept_path(segment.log_path))

    def close_files(self) -> None:
        self.files.close()
        self.lock.release()


def _ignore_outcome(_: OSError | None) -> None:
    return None


def kept_path(path: str) -> str:
    """Path in `quarantine/` of a damaged file."""
    return f"{QUARANTINE}/{path.replace('/', '_')}"


def keep_damaged_journal(disk: Disk, damage: list[JournalDamage]) -> None:
    """Copy damaged journal files to `quarantine/` and log the damage."""
    disk.make_directory(QUARANTINE)
    for each in damage:
        is_there = each.path.endswith(".jnl") and disk.exists(each.path)
        what = f"; a copy is kept in {QUARANTINE}/" if is_there else ""
        log.error("journal: %s%s", each, what)
        if is_there:
            replace_file(disk, kept_path(each.path), read_whole(disk, each.path))
