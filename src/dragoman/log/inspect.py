"""Looking at a data directory without a broker: what is there, and is it sound?

Everything is opened for reading only and without the lock, so a directory may be looked at while a
broker uses it. Then the live end of it moves under our eyes: a batch that is half written is told
as such, and whether somebody held the lock is part of the report.

`inspect_directory` yields what it finds, file by file; `verify_directory` reads every byte and
compares it with every checksum there is: of batches, of the ranges of an index, of whole files in
the manifest, of journal groups, of snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError, DirectoryInUseError
from dragoman.limits import BATCH_HEADER_BYTES
from dragoman.log.batch import WALKED_PREFIX_BYTES
from dragoman.log.checkpoint import PARTITIONS
from dragoman.log.index import SparseIndex, load_index
from dragoman.log.journal import JournalReader
from dragoman.log.manifest import NAME as MANIFEST
from dragoman.log.manifest import Manifest, SegmentEntry, decode_manifest
from dragoman.log.node import NODE_FILE, NodeState, read_node_state
from dragoman.log.producer_file import NAME as PRODUCERS
from dragoman.log.producer_file import decode_producers
from dragoman.log.salvage import Bad, Sound, read_batches
from dragoman.log.segment import Segment, parse_segment_name
from dragoman.log.store import LOCK_FILE
from dragoman.world import Disk, RealDisk, is_directory, read_whole


class NodeFound(msgspec.Struct, frozen=True, kw_only=True, tag="node"):
    path: str
    directory_id: str
    incarnation: int
    durability: str
    is_clean: bool
    #: Whether a process holds the directory right now.
    is_in_use: bool


class GroupFound(msgspec.Struct, frozen=True, kw_only=True, tag="group"):
    """A journal group that the next start would replay."""

    path: str
    position: int
    size: int
    sequence: int
    entries: int


class PartitionFound(msgspec.Struct, frozen=True, kw_only=True, tag="partition"):
    path: str
    topic: str
    partition: int
    partition_id: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    segments: int


class SegmentFound(msgspec.Struct, frozen=True, kw_only=True, tag="segment"):
    path: str
    base_offset: int
    next_offset: int
    size: int
    batches: int
    records: int
    #: Whether the manifest lists it: whole, synced and never appended to again.
    is_listed: bool


class ProducersFound(msgspec.Struct, frozen=True, kw_only=True, tag="producers"):
    path: str
    offset: int
    producers: int
    aborted: int


class Problem(msgspec.Struct, frozen=True, kw_only=True, tag="problem"):
    """Something that is not what it should be; `position` is the first bad byte known."""

    path: str
    position: int
    reason: str
    #: False: it may be a write that is under way, or was when the power went.
    is_damage: bool = True


Finding: TypeAlias = (
    NodeFound | GroupFound | PartitionFound | SegmentFound | ProducersFound | Problem
)


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    problems: list[Problem]
    files: int
    bytes_read: int
    is_in_use: bool

    @property
    def is_sound(self) -> bool:
        return not any(problem.is_damage for problem in self.problems)


def inspect_directory(path: str) -> Iterator[Finding]:
    """Everything in the data directory at `path`, damage included. Raises `FormatError`."""
    if not is_directory(path):
        yield Problem(path=path, position=0, reason="no such directory")
        return
    yield from inspect_disk(RealDisk(path))


def verify_directory(path: str) -> Verification:
    """Read everything and collect what is wrong. Raises `FormatError`."""
    return _verified(inspect_directory(path))


def inspect_disk(disk: Disk) -> Iterator[Finding]:
    is_in_use = _is_in_use(disk)
    try:
        node = read_node_state(disk)
    except FileNotFoundError:
        yield Problem(path=NODE_FILE, position=0, reason="missing: not a data directory")
        return
    except CorruptionError as error:
        yield _problem(error)
        return
    yield NodeFound(
        path=NODE_FILE,
        directory_id=node.directory_id,
        incarnation=node.incarnation,
        durability=node.durability.value,
        is_clean=node.is_clean,
        is_in_use=is_in_use,
    )
    yield from _journal(disk, node, is_in_use)
    for name in disk.names(PARTITIONS):
        yield from _Partition(disk, f"{PARTITIONS}/{name}", node, is_in_use).findings()


def verify_disk(disk: Disk) -> Verification:
    return _verified(inspect_disk(disk))


def _verified(findings: Iterator[Finding]) -> Verification:
    problems: list[Problem] = []
    files = bytes_read = 0
    is_in_use = False
    for found in findings:
        match found:
            case Problem():
                problems.append(found)
            case NodeFound():
                is_in_use = found.is_in_use
            case SegmentFound() | GroupFound():
                bytes_read += found.size
        if not isinstance(found, Problem | GroupFound):
            files += 1
    return Verification(problems=problems, files=files, bytes_read=bytes_read, is_in_use=is_in_use)


def _is_in_use(disk: Disk) -> bool:
    if not disk.exists(LOCK_FILE):
        return False
    try:
        disk.lock(LOCK_FILE).release()
    except DirectoryInUseError:
        return True
    return False


def _problem(error: CorruptionError, *, is_damage: bool = True) -> Problem:
    return Problem(
        path=error.path, position=error.position, reason=error.reason, is_damage=is_damage
    )


def _journal(disk: Disk, node: NodeState, is_in_use: bool) -> Iterator[Finding]:
    reader = JournalReader(disk, int(node.directory_id[:8], 16), node.sequence)
    for group in reader.groups:
        yield GroupFound(
            path=group.path,
            position=group.position,
            size=group.size,
            sequence=group.sequence,
            entries=group.entry_count,
        )
    for damage in reader.damage:
        # A journal file that is used again while it is being read looks the same.
        yield Problem(
            path=damage.path,
            position=damage.position,
            reason=f"groups {damage.first_sequence} to {damage.last_sequence} are damaged",
            is_damage=not is_in_use,
        )


class _Partition:
    def __init__(self, disk: Disk, directory: str, node: NodeState, is_in_use: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._node = node
        self._is_in_use = is_in_use

    def findings(self) -> Iterator[Finding]:
        names = self._disk.names(self._directory)
        manifest: Manifest | None = None
        if MANIFEST in names:
            path = f"{self._directory}/{MANIFEST}"
            try:
                manifest = decode_manifest(read_whole(self._disk, path), path)
                yield self._partition_found(path, manifest)
            except CorruptionError as error:
                yield _problem(error)
        if PRODUCERS in names:
            yield self._producers(f"{self._directory}/{PRODUCERS}")
        listed = {
            (each.base_offset, each.generation): each
            for each in (manifest.segments if manifest else ())
        }
        if manifest is not None and manifest.clean_end is not None and self._node.is_clean:
            listed[manifest.clean_end.base_offset, manifest.clean_end.generation] = (
                manifest.clean_end
            )
        found = {key for name in names if (key := parse_segment_name(name)) is not None}
        for key in sorted(found | set(listed)):
            if key in found:
                yield from self._segment(*key, listed.get(key))
            else:
                segment = Segment(self._directory, *key)
                yield Problem(path=segment.log_path, position=0, reason="the file is missing")

    def _partition_found(self, path: str, manifest: Manifest) -> PartitionFound:
        return PartitionFound(
            path=path,
            topic=manifest.identity.topic,
            partition=manifest.identity.partition,
            partition_id=manifest.identity.partition_id,
            log_start_offset=manifest.log_start_offset,
            log_end_offset=manifest.log_end_offset,
            high_watermark=manifest.high_watermark,
            segments=len(manifest.segments),
        )

    def _producers(self, path: str) -> Finding:
        try:
            found = decode_producers(read_whole(self._disk, path), path)
        except CorruptionError as error:
            return _problem(error)
        return ProducersFound(
            path=path,
            offset=found.offset,
            producers=len(found.states),
            aborted=len(found.states.aborted()),
        )

    def _segment(self, base: int, generation: int, entry: SegmentEntry | None) -> Iterator[Finding]:
        segment = Segment(self._directory, base, generation)
        index, indexed = self._index(segment)
        file = self._disk.open(segment.log_path, "read")
        try:
            size = file.size()
            end = min(size, entry.size) if entry is not None else size
            if entry is not None and size < entry.size:
                reason = f"{size} of {entry.size} bytes are there"
                yield Problem(path=segment.log_path, position=size, reason=reason)
            walk = _Walk(segment, index, indexed, end, base)
            known = {position for _, _, position in entry.damage} if entry else set()
            for found in read_batches(file, 0, end, base, walk.borders):
                problem = walk.take(found)
                if problem is not None and problem.position not in known:
                    yield self._judged(problem, entry, indexed)
            expected = walk.checksum
            if entry is not None and not entry.damage and size >= entry.size:
                expected = entry.checksum
            if walk.checksum != expected and not walk.has_problem:
                reason = "the file is not what its manifest says (checksum)"
                yield Problem(path=segment.log_path, position=0, reason=reason)
        finally:
            file.close()
        yield SegmentFound(
            path=segment.log_path,
            base_offset=base,
            next_offset=walk.next_offset,
            size=end,
            batches=walk.batches,
            records=walk.records,
            is_listed=entry is not None,
        )

    def _judged(self, problem: Problem, entry: SegmentEntry | None, indexed: int) -> Problem:
        """What no sync has covered may be a write that did not get to its end."""
        is_known_synced = entry is not None or problem.position < indexed
        return msgspec.structs.replace(problem, is_damage=is_known_synced)

    def _index(self, segment: Segment) -> tuple[SparseIndex, int]:
        if not self._disk.exists(segment.index_path):
            return SparseIndex(), 0
        index, checkpoint, _ = load_index(read_whole(self._disk, segment.index_path))
        return index, checkpoint.position if checkpoint else 0


class _Walk:
    """Counts batches, and compares the headers of each range with the index's check."""

    def __init__(
        self, segment: Segment, index: SparseIndex, indexed: int, end: int, base: int
    ) -> None:
        self._segment = segment
        count = index.range_count if indexed <= end else 0
        self._ranges = [index.range_at(number, indexed) for number in range(count)]
        self.borders = [each.start for each in self._ranges]
        self._number = 0
        self._check = 0
        self.checksum = 0
        self.batches = self.records = 0
        self.next_offset = base
        self.has_problem = False

    def take(self, found: Sound | Bad) -> Problem | None:
        if isinstance(found, Bad):
            self.has_problem = True
            self._skip_to(found.resume)
            return Problem(
                path=self._segment.log_path, position=found.position, reason=found.reason
            )
        self.batches += 1
        self.records += found.header.record_count
        self.next_offset = found.header.last_offset + 1
        self.checksum = crc32c(found.batch, self.checksum)
        return self._compare(found)

    def _skip_to(self, position: int) -> None:
        """The range with the bad batch cannot be compared any more."""
        self._check = 0
        while self._number < len(self._ranges) and self._ranges[self._number].start < position:
            self._number += 1

    def _compare(self, found: Sound) -> Problem | None:
        if self._number == len(self._ranges) or found.position < self._ranges[self._number].start:
            return None
        each = self._ranges[self._number]
        assert len(found.batch) >= BATCH_HEADER_BYTES
        self._check = crc32c(found.batch[:WALKED_PREFIX_BYTES], self._check)
        if found.position + found.header.size < each.stop:
            return None
        is_right = self._check == each.check
        self._number += 1
        self._check = 0
        if is_right:
            return None
        self.has_problem = True
        reason = "batch headers from here on fail the check of the index"
        return Problem(path=self._segment.log_path, position=each.start, reason=reason)


# ---- for people


def describe(found: Finding) -> str:
    """One line about a finding."""
    match found:
        case NodeFound():
            state = "in use" if found.is_in_use else "clean" if found.is_clean else "not clean"
            return f"{found.path}: {found.directory_id}, {found.durability}, {state}"
        case GroupFound():
            where = f"{found.path} at byte {found.position}"
            return f"{where}: group {found.sequence}, {found.entries} entries, {found.size} bytes"
        case PartitionFound():
            span = f"{found.log_start_offset} to {found.log_end_offset}"
            name = f"{found.topic}-{found.partition}"
            return f"{found.path}: {name}, offsets {span}, {found.segments} closed segments"
        case SegmentFound():
            span = f"{found.base_offset} to {found.next_offset}"
            counts = f"{found.batches} batches, {found.records} records, {found.size} bytes"
            return f"{found.path}: offsets {span}, {counts}"
        case ProducersFound():
            counts = f"{found.producers} producers, {found.aborted} aborted transactions"
            return f"{found.path}: {counts}, true for offset {found.offset}"
        case Problem():
            kind = "damage" if found.is_damage else "unfinished"
            return f"{found.path} at byte {found.position}: {kind}: {found.reason}"
