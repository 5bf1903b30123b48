"""Inspection of a data directory without a broker: its contents, and whether they are sound.

All files are opened read-only and without the lock, so a directory may be inspected while a broker
uses it. Its live end then changes meanwhile: an incomplete batch is reported as such, and the
report tells whether a process held the lock.

`inspect_disk` reads every byte and verifies every checksum: of batches, of the ranges of an
index, of whole files in the manifest, of journal groups, of snapshots. It yields its findings file
by file; `verified` sums them up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError, DirectoryInUseError
from dragoman.limits import BATCH_HEADER_BYTES
from dragoman.log.batch import WALKED_PREFIX_BYTES
from dragoman.log.directory import LOCK_FILE, PARTITIONS
from dragoman.log.index import SparseIndex, load_index
from dragoman.log.journal import DIRECTORY, MARK_FILE, JournalReader, read_mark, seed_of
from dragoman.log.manifest import NAME as MANIFEST
from dragoman.log.manifest import Manifest, SegmentEntry, decode_manifest
from dragoman.log.node import NODE_FILE, NodeState, has_data, read_node_state
from dragoman.log.producer_file import NAME as PRODUCERS
from dragoman.log.producer_file import decode_producers
from dragoman.log.salvage import Bad, Sound, read_batches
from dragoman.log.segment import Segment, parse_segment_name
from dragoman.world import Disk, read_whole


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
    #: Whether the manifest lists it: complete, synced and never appended to again.
    is_listed: bool


class ProducersFound(msgspec.Struct, frozen=True, kw_only=True, tag="producers"):
    path: str
    offset: int
    producers: int
    aborted: int


class Problem(msgspec.Struct, frozen=True, kw_only=True, tag="problem"):
    """A defect in a file; `position` is the first bad byte known."""

    path: str
    position: int
    reason: str
    #: Whether it is damage. If not, it may be a write in progress, now or when the power went.
    is_damage: bool = True
    #: Whether the file could not be read at all.
    is_unread: bool = False


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

    @property
    def damaged_files(self) -> int:
        return len({each.path for each in self.problems if each.is_damage and not each.is_unread})

    @property
    def unread_files(self) -> int:
        return len({each.path for each in self.problems if each.is_unread})


def inspect_disk(disk: Disk, *, is_quick: bool = False) -> Iterator[Finding]:
    """All findings in a data directory, with damage. Raises `FormatError`.

    `is_quick`: of segments only the presence and the size are checked.
    """
    is_in_use = _is_in_use(disk)
    try:
        node = read_node_state(disk)
    except FileNotFoundError:
        reason = "missing: not a data directory"
        if has_data(disk):
            reason = "the file is missing, although there is data: `dragoman log adopt` makes one"
        yield Problem(path=NODE_FILE, position=0, reason=reason)
        return
    except CorruptionError as error:
        yield _problem(error)
        return
    except OSError as error:
        yield _unread(NODE_FILE, error)
        return
    yield NodeFound(
        path=NODE_FILE,
        directory_id=node.directory_id,
        incarnation=node.incarnation,
        durability=node.durability.value,
        is_clean=node.is_clean,
        is_in_use=is_in_use,
    )
    try:
        yield from _journal(disk, node, is_in_use)
    except OSError as error:
        yield _unread(DIRECTORY, error)
    try:
        names = disk.names(PARTITIONS)
    except OSError as error:
        yield _unread(PARTITIONS, error)
        return
    for name in names:
        directory = f"{PARTITIONS}/{name}"
        try:
            yield from _Partition(disk, directory, node, is_in_use, is_quick).findings()
        except OSError as error:
            yield _unread(directory, error)


def _unread(path: str, error: OSError) -> Problem:
    reason = f"cannot be read: {error.strerror or error}"
    return Problem(path=path, position=0, reason=reason, is_unread=True)


def verified(findings: Iterator[Finding]) -> Verification:
    problems: list[Problem] = []
    files = bytes_read = 0
    is_in_use = False
    lacking: set[str] = set()
    for found in findings:
        match found:
            case Problem():
                problems.append(found)
                lacking.add(found.path)
            case NodeFound():
                is_in_use = found.is_in_use
            case SegmentFound() | GroupFound():
                bytes_read += found.size
        if not isinstance(found, Problem | GroupFound):
            files += 1
            lacking.discard(found.path)
    files += len(lacking)
    return Verification(problems=problems, files=files, bytes_read=bytes_read, is_in_use=is_in_use)


def _is_in_use(disk: Disk) -> bool:
    if not disk.exists(LOCK_FILE):
        return False
    try:
        disk.lock(LOCK_FILE).release()
    except DirectoryInUseError:
        return True
    except OSError:
        # Without write permission the lock cannot be tested: the directory counts as unused.
        return False
    return False


def _problem(error: CorruptionError, *, is_damage: bool = True) -> Problem:
    return Problem(
        path=error.path, position=error.position, reason=error.reason, is_damage=is_damage
    )


def _journal(disk: Disk, node: NodeState, is_in_use: bool) -> Iterator[Finding]:
    mark = read_mark(disk)
    acknowledged = 0
    if mark is not None and mark.directory_id == node.directory_id:
        acknowledged = mark.sequence
    elif node.has_mark and not node.is_clean:
        reason = "missing or damaged: the end of the journal may be incomplete"
        yield Problem(path=MARK_FILE, position=0, reason=reason)
    # A running node acknowledges further groups meanwhile.
    acknowledged = 0 if is_in_use else acknowledged
    reader = JournalReader(disk, seed_of(node.directory_id), node.sequence, acknowledged)
    for group in reader.groups:
        yield GroupFound(
            path=group.path,
            position=group.position,
            size=group.size,
            sequence=group.sequence,
            entries=group.entry_count,
        )
    for damage in reader.damage:
        # A journal file that is reused while it is being read looks the same.
        yield Problem(
            path=damage.path,
            position=damage.position,
            reason=f"groups {damage.first_sequence} to {damage.last_sequence} were acknowledged "
            "and are missing or damaged",
            is_damage=not is_in_use,
        )


class _Partition:
    def __init__(
        self, disk: Disk, directory: str, node: NodeState, is_in_use: bool, is_quick: bool
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._node = node
        self._is_in_use = is_in_use
        self._is_quick = is_quick

    def findings(self) -> Iterator[Finding]:
        names = self._disk.names(self._directory)
        manifest: Manifest | None = None
        if MANIFEST in names:
            path = f"{self._directory}/{MANIFEST}"
            try:
                manifest = decode_manifest(read_whole(self._disk, path), path)
                if self._number() and manifest.identity.partition_id != self._number():
                    raise CorruptionError(path, 0, "manifest of another partition")
                yield self._partition_found(path, manifest)
            except CorruptionError as error:
                yield _problem(error)
            except OSError as error:
                yield _unread(path, error)
        elif any(name.endswith(".idx") for name in names):
            # Indexes are written after the manifest.
            path = f"{self._directory}/{MANIFEST}"
            yield Problem(path=path, position=0, reason="the file is missing")
        if PRODUCERS in names:
            yield self._producers(f"{self._directory}/{PRODUCERS}", manifest)
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
            segment = Segment(self._directory, *key)
            if key in found:
                read = self._size if self._is_quick else self._segment
                try:
                    yield from read(*key, listed.get(key))
                except OSError as error:
                    yield _unread(segment.log_path, error)
            else:
                yield Problem(path=segment.log_path, position=0, reason="the file is missing")

    def _number(self) -> int:
        """The partition's id from the name of its directory."""
        number = self._directory.rpartition("/")[2].partition("-")[0]
        return int(number) if number.isdecimal() else 0

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

    def _producers(self, path: str, manifest: Manifest | None) -> Finding:
        number = manifest.identity.partition_id if manifest is not None else self._number()
        try:
            found = decode_producers(read_whole(self._disk, path), path, number)
        except CorruptionError as error:
            return _problem(error)
        except OSError as error:
            return _unread(path, error)
        return ProducersFound(
            path=path,
            offset=found.offset,
            producers=len(found.states),
            aborted=len(found.states.aborted()),
        )

    def _size(self, base: int, generation: int, entry: SegmentEntry | None) -> Iterator[Finding]:
        """Compare a segment's size with its manifest, and repeat what is known about damage."""
        segment = Segment(self._directory, base, generation)
        file = self._disk.open(segment.log_path, "read")
        try:
            size = file.size()
        finally:
            file.close()
        if entry is not None and size < entry.size:
            reason = f"{size} of {entry.size} bytes are there"
            yield Problem(path=segment.log_path, position=size, reason=reason)
        for first, next_good, position in self._known(entry):
            reason = f"offsets {first} to {next_good - 1} are known to be damaged"
            yield Problem(path=segment.log_path, position=position, reason=reason)

    def _segment(self, base: int, generation: int, entry: SegmentEntry | None) -> Iterator[Finding]:
        segment = Segment(self._directory, base, generation)
        index, indexed, flaw = self._index(segment)
        if flaw >= 0:
            reason = "the index fails its checksum; the segment is read instead"
            yield Problem(
                path=segment.index_path,
                position=flaw,
                reason=reason,
                is_damage=not self._is_in_use,
            )
        file = self._disk.open(segment.log_path, "read")
        try:
            size = file.size()
            end = min(size, entry.size) if entry is not None else size
            if entry is not None and size < entry.size:
                reason = f"{size} of {entry.size} bytes are there"
                yield Problem(path=segment.log_path, position=size, reason=reason)
            walk = _Walk(segment, index, indexed, end, base)
            known = self._known(entry)
            for first, next_good, position in known:
                reason = f"offsets {first} to {next_good - 1} are known to be damaged"
                yield Problem(path=segment.log_path, position=position, reason=reason)
            for found in read_batches(file, 0, end, base, walk.borders):
                at = walk.next_offset
                problem = walk.take(found)
                is_known = any(first <= at < next_good for first, next_good, _ in known)
                if problem is not None and not is_known:
                    yield self._judged(problem, entry, indexed)
            expected = walk.checksum
            if entry is not None and not entry.is_damaged and size >= entry.size:
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

    def _known(self, entry: SegmentEntry | None) -> tuple[tuple[int, int, int], ...]:
        return entry.damage + entry.unreadable if entry is not None else ()

    def _judged(self, problem: Problem, entry: SegmentEntry | None, indexed: int) -> Problem:
        """The problem, as damage only where bytes were synced: others may be incomplete writes."""
        is_known_synced = entry is not None or problem.position < indexed
        return msgspec.structs.replace(problem, is_damage=is_known_synced)

    def _index(self, segment: Segment) -> tuple[SparseIndex, int, int]:
        """(index, bytes of the segment it covers, its own first bad byte or -1)."""
        if not self._disk.exists(segment.index_path):
            return SparseIndex(), 0, -1
        data = read_whole(self._disk, segment.index_path)
        index, checkpoint, good = load_index(data, segment.tag)
        flaw = good if good < len(data) else -1
        return index, checkpoint.position if checkpoint else 0, flaw


class _Walk:
    """Counts batches, and verifies the headers of each range with the check in the index."""

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
        """Skip the check of the range with the bad batch."""
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
            kind = "unread" if found.is_unread else kind
            return f"{found.path} at byte {found.position}: {kind}: {found.reason}"
