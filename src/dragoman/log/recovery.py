"""Bringing a partition back from its files and the journal, whatever happened to them.

What is trusted, in this order: the manifest, for the rolled segments it lists; the journal, for
everything since its checkpoint; the files themselves, batch by batch, for the rest.

1. Load the manifest. Without a sound one, every segment file is read from end to end.
2. Take in segment files that it does not list: those behind its last segment are the live end of
   the log, the others are left-overs of retention, compaction or truncation.
3. Replay the journal's entries in order. Writing bytes where they are already is harmless.
4. Read the live segments from the last checkpoint of their index, checking every batch.
5. Load the producer snapshot and bring it up to the log's end.

A bad batch is *torn* when nothing says that it was ever acknowledged: behind the journal's last
entry, or (without a journal) behind the last sync. A torn end is cut off. Anything else is damage:
the file stays as it is, the offsets concerned are noted in the manifest and refused to readers, the
segment is closed, and the log goes on behind it. All of it is logged.
"""

from __future__ import annotations

import logging
from bisect import bisect_right

from crc32c import crc32c

from dragoman.errors import CorruptionError
from dragoman.limits import DAMAGE_RANGES_MAX
from dragoman.log.batch import UNCHECKED_PREFIX_BYTES, WALK, BatchHeader
from dragoman.log.index import Checkpoint, SparseIndex, load_index
from dragoman.log.journal import EntryKind, EntryRef, JournalDamage, read_entry
from dragoman.log.manifest import NAME as MANIFEST
from dragoman.log.manifest import Manifest, SegmentEntry, decode_manifest
from dragoman.log.partition import PartitionLog
from dragoman.log.producers import ProducerStates, load_snapshot
from dragoman.log.segment import Segment, parse_segment_name, scan
from dragoman.world import Disk, File, read_whole, replace_file

PRODUCERS_NAME = "producers.snapshot"
QUARANTINE = "quarantine"
log = logging.getLogger("dragoman.log")


def open_partition(partition: PartitionLog, entries: list[EntryRef]) -> None:
    """Fill a fresh `PartitionLog` from its directory and what the journal holds for it."""
    disk = partition.store.disk
    names = disk.names(partition.directory)
    if not names and not entries:
        return
    manifest = _load_manifest(partition) if names else None
    opening = _Opening(partition, manifest)
    opening.adopt_files(names)
    for entry in entries:
        opening.replay(entry)
    opening.read_live_segments()
    opening.finish()
    load_producers(partition, opening.producers_hint())


def _load_manifest(partition: PartitionLog) -> Manifest | None:
    disk = partition.store.disk
    path = f"{partition.directory}/{MANIFEST}"
    if not disk.exists(path):
        return None
    try:
        return decode_manifest(read_whole(disk, path), path)
    except CorruptionError as error:
        log.error("%s; every segment is read instead", error)
        disk.rename(path, f"{path}.damaged")
        return None


class _Opening:
    """The state of one partition while it is being opened."""

    def __init__(self, partition: PartitionLog, manifest: Manifest | None) -> None:
        self._partition = partition
        self._store = partition.store
        self._disk = partition.store.disk
        self._manifest = manifest
        #: Segments whose content is taken from the manifest, in order.
        self._listed: list[Segment] = []
        #: Segments that are read, by (base, generation).
        self._live: dict[tuple[int, int], Segment] = {}
        #: First and last byte that the journal wrote, by live segment.
        self._replayed: dict[Segment, tuple[int, int]] = {}
        #: Batch borders known from the journal, by live segment: places to go on after damage.
        self._borders: dict[Segment, list[int]] = {}
        self._log_end_floor = 0
        self._log_start = 0
        self._checkpoint_of_last: Checkpoint | None = None
        if manifest is not None:
            self._log_start = manifest.log_start_offset
            self._log_end_floor = max(manifest.log_start_offset, _listed_end(manifest))
            partition.next_generation = manifest.next_generation
            partition.epochs.load(list(manifest.epochs))
            for entry in manifest.segments:
                self._listed.append(self._listed_segment(entry))

    def _listed_segment(self, entry: SegmentEntry) -> Segment:
        segment = Segment(self._partition.directory, entry.base_offset, entry.generation)
        segment.next_offset = entry.next_offset
        segment.size = segment.written = entry.size
        segment.checksum = entry.checksum
        segment.max_timestamp = entry.max_timestamp
        segment.created_ms = entry.created_ms
        segment.has_gaps = entry.has_gaps
        segment.damage = entry.damage
        segment.is_rolled = True
        return segment

    # ---- step 2: files

    def adopt_files(self, names: list[str]) -> None:
        listed = {(each.base_offset, each.generation): each for each in self._listed}
        found = sorted(key for name in names if (key := parse_segment_name(name)) is not None)
        live: dict[int, int] = {}
        for base, generation in found:
            self._partition.next_generation = max(self._partition.next_generation, generation + 1)
            if (base, generation) in listed:
                continue
            if self._is_left_over(base, generation):
                self._discard(base, generation)
            else:
                if base in live:
                    # Only a truncation makes a second file for one base; the later one holds.
                    self._discard(base, live[base])
                live[base] = generation
        for base, generation in live.items():
            self._adopt(base, generation)
        for name in names:
            if name.endswith((".new", ".compacting")):
                self._disk.remove(f"{self._partition.directory}/{name}")

    def _check_listed(self) -> None:
        """Every listed file is there and whole. Only now: a replayed truncation shortens some."""
        for segment in self._listed:
            size = 0
            if self._disk.exists(segment.log_path):
                size = self._store.files.get(segment.log_path).size()
            if size < segment.size:
                log.error(
                    "%s has %d of %d bytes: offsets %d to %d are lost in part",
                    segment.log_path,
                    size,
                    segment.size,
                    segment.base_offset,
                    segment.next_offset - 1,
                )
                self._note_shortened(segment, size)

    def _note_shortened(self, segment: Segment, size: int) -> None:
        """A listed file that lost its end: keep what is whole, refuse the rest."""
        end, next_offset = 0, segment.base_offset
        if size:
            file = self._store.files.get(segment.log_path)
            try:
                for at, header, _ in scan(file, segment.log_path, 0, size):
                    end, next_offset = at + header.size, header.last_offset + 1
            except CorruptionError:
                pass
        else:
            self._store.files.get_or_create(segment.log_path)
        segment.size = segment.written = end
        segment.damage = (*segment.damage, (next_offset, segment.next_offset, end))
        self._partition.manifest_changed = True

    def _is_left_over(self, base: int, generation: int) -> bool:
        manifest = self._manifest
        if manifest is None:
            return False
        if base < manifest.log_start_offset and generation < manifest.next_generation:
            return not self._spans_log_start(base)
        return base < _listed_end(manifest)

    def _spans_log_start(self, base: int) -> bool:
        """Whether this is the live segment that the log start lies in."""
        manifest = self._manifest
        assert manifest is not None
        return base >= _listed_end(manifest)

    def _discard(self, base: int, generation: int) -> None:
        segment = Segment(self._partition.directory, base, generation)
        if self._manifest is not None and generation >= self._manifest.next_generation:
            # Newer than the manifest, yet inside what it lists: nothing we do leaves this behind.
            log.error("%s is not accounted for; kept in %s/", segment.log_path, QUARANTINE)
            self._disk.make_directory(QUARANTINE)
            kept = segment.log_path.replace("/", "_")
            self._disk.rename(segment.log_path, f"{QUARANTINE}/{kept}")
        else:
            log.info("%s is left over; removed", segment.log_path)
            self._disk.remove(segment.log_path)
        self._disk.remove(segment.index_path)

    def _adopt(self, base: int, generation: int) -> Segment:
        segment = Segment(self._partition.directory, base, generation)
        segment.size = segment.written = self._store.files.get(segment.log_path).size()
        self._live[base, generation] = segment
        return segment

    # ---- step 3: journal

    def replay(self, entry: EntryRef) -> None:
        match entry.kind:
            case EntryKind.APPEND:
                self._replay_append(entry)
            case EntryKind.TRUNCATE:
                self._replay_truncation(entry)
            case EntryKind.LOG_START:
                offset = int.from_bytes(read_entry(self._disk, entry), "little")
                self._log_start = max(self._log_start, offset)
            case EntryKind.EPOCH:
                data = read_entry(self._disk, entry)
                epoch = int.from_bytes(data[:4], "little")
                if epoch > self._partition.epochs.latest:
                    self._partition.epochs.assign(epoch, int.from_bytes(data[4:], "little"))
        self._partition.manifest_changed = True

    def _replay_append(self, entry: EntryRef) -> None:
        key = (entry.base_offset, entry.generation)
        segment = self._live.get(key)
        if segment is None:
            if self._is_covered(entry):
                return
            segment = self._create(entry)
        data = read_entry(self._disk, entry)
        end = entry.position + len(data)
        if entry.position > segment.size:
            log.error(
                "%s: bytes %d to %d were in a damaged journal group",
                segment.log_path,
                segment.size,
                entry.position - 1,
            )
        self._store.files.get(segment.log_path).write([data], entry.position)
        segment.size = segment.written = max(segment.size, end)
        first, last = self._replayed.get(segment, (entry.position, end))
        self._replayed[segment] = (min(first, entry.position), max(last, end))
        self._borders.setdefault(segment, []).append(entry.position)

    def _is_covered(self, entry: EntryRef) -> bool:
        """Whether the manifest already speaks for the segment that this entry wrote to."""
        manifest = self._manifest
        if manifest is None:
            return False
        if entry.base_offset < self._log_start and entry.base_offset < _listed_end(manifest):
            return True
        return entry.base_offset < self._end_of_listed()

    def _end_of_listed(self) -> int:
        return self._listed[-1].next_offset if self._listed else 0

    def _create(self, entry: EntryRef) -> Segment:
        for base, generation in [key for key in self._live if key[0] == entry.base_offset]:
            # Another generation with this base: an earlier truncation removed it.
            if generation < entry.generation:
                self._remove_live(base, generation)
        segment = Segment(self._partition.directory, entry.base_offset, entry.generation)
        self._store.files.get_or_create(segment.log_path)
        self._live[entry.base_offset, entry.generation] = segment
        after = max(self._partition.next_generation, entry.generation + 1)
        self._partition.next_generation = after
        return segment

    def _remove_live(self, base: int, generation: int) -> None:
        segment = self._live.pop((base, generation))
        self._store.remove_segment_files(segment)
        self._replayed.pop(segment, None)
        self._borders.pop(segment, None)

    def _replay_truncation(self, entry: EntryRef) -> None:
        next_offset = int.from_bytes(read_entry(self._disk, entry), "little")
        is_news = self._manifest is None or entry.sequence > self._manifest.sequence
        for base, generation in [key for key in self._live if key[0] > entry.base_offset]:
            self._remove_live(base, generation)
        if is_news:
            self._cut_listed(entry.base_offset)
            self._log_end_floor = min(self._log_end_floor, next_offset)
        self._partition.epochs.truncate(next_offset)
        segment = self._live.get((entry.base_offset, entry.generation))
        if segment is None or segment.size <= entry.position:
            return
        self._store.files.get(segment.log_path).truncate(entry.position)
        self._store.files.forget(segment.index_path)
        self._disk.remove(segment.index_path)
        segment.size = segment.written = entry.position
        first, last = self._replayed.get(segment, (entry.position, entry.position))
        self._replayed[segment] = (min(first, entry.position), min(last, entry.position))
        borders = self._borders.get(segment, [])
        self._borders[segment] = [each for each in borders if each < entry.position]

    def _cut_listed(self, base_offset: int) -> None:
        """The truncation reached into rolled segments: the last one left is live again."""
        while self._listed and self._listed[-1].base_offset >= max(base_offset, 0):
            segment = self._listed.pop()
            if segment.base_offset == base_offset:
                segment.is_rolled = False
                segment.damage = ()
                self._live[segment.base_offset, segment.generation] = segment
                return
            self._store.remove_segment_files(segment)

    # ---- step 4: reading

    def read_live_segments(self) -> None:
        partition = self._partition
        self._check_listed()
        partition.segments = self._listed
        partition.rebuild_bases()
        live = sorted(self._live.values(), key=lambda each: each.base_offset)
        for number, segment in enumerate(live):
            is_last = number == len(live) - 1
            self._read_live(segment, is_last)
            if segment.size == 0 and not segment.damage:
                partition.unsynced = [each for each in partition.unsynced if each is not segment]
                self._remove_live(segment.base_offset, segment.generation)
            elif is_last and not segment.damage:
                partition.active = segment
            else:
                partition.add_rolled(segment)
            if segment.size or segment.damage:
                self._log_end_floor = max(self._log_end_floor, segment.next_offset)

    def _read_live(self, segment: Segment, is_last: bool) -> None:
        index, checkpoint = self._load_index(segment)
        segment.index = index
        segment.created_ms = self._store.clock.wall_ms()
        segment.next_offset = segment.base_offset
        clean = self._manifest.clean_end if self._manifest else None
        key = (segment.base_offset, segment.generation)
        if clean is not None and (clean.base_offset, clean.generation) == key:
            segment.created_ms = clean.created_ms
            segment.has_gaps = clean.has_gaps
            self._partition.clean_size = clean.size
        start = 0
        synced_end = checkpoint.position if checkpoint else 0
        if checkpoint is not None:
            start = self._resume(segment, index, checkpoint)
            if is_last:
                self._checkpoint_of_last = checkpoint
        trusted = synced_end
        if segment in self._replayed:
            trusted = max(trusted, self._replayed[segment][1])
        size = segment.size
        borders = self._borders.get(segment, [])
        _LiveReader(self._partition, segment, borders, trusted, synced_end).read(start)
        if segment in self._replayed or synced_end != size or segment.size != size:
            self._partition.unsynced.append(segment)

    def _load_index(self, segment: Segment) -> tuple[SparseIndex, Checkpoint | None]:
        if not self._disk.exists(segment.index_path):
            return SparseIndex(), None
        data = read_whole(self._disk, segment.index_path)
        index, checkpoint, good = load_index(data)
        first_replayed = self._replayed.get(segment, (segment.size, 0))[0]
        if checkpoint is None or checkpoint.position > max(segment.size, first_replayed):
            self._store.files.forget(segment.index_path)
            self._disk.remove(segment.index_path)
            return SparseIndex(), None
        if good < len(data):
            self._store.files.get(segment.index_path).truncate(good)
        return index, checkpoint

    def _resume(self, segment: Segment, index: SparseIndex, checkpoint: Checkpoint) -> int:
        """Where to begin reading; the segment's running values are set to what holds there.

        The last range in the index has no recorded end, so it is read again. If the journal wrote
        below the checkpoint, reading begins there.
        """
        position = checkpoint.position
        if segment in self._replayed:
            position = min(position, self._replayed[segment][0])
        start = index.position_before(max(position, 1))
        index.drop_from(start)
        index.saved_entries = min(index.saved_entries, len(index))
        segment.max_timestamp = index.max_timestamp
        segment.checksum = checkpoint.checksum
        if start:
            segment.next_offset = _offset_at(self._store.files.get(segment.log_path), start)
        return start

    def finish(self) -> None:
        partition = self._partition
        partition.log_start_offset = self._log_start
        if partition.segments and self._manifest is None:
            partition.log_start_offset = max(self._log_start, partition.segments[0].base_offset)
        elif self._manifest is None and partition.active is not None:
            partition.log_start_offset = max(self._log_start, partition.active.base_offset)
        end = max(self._log_end_floor, self._log_start)
        partition.log_end_offset = partition.stable_end = partition.high_watermark = end
        partition.epochs.truncate_above(end)
        while partition.segments and partition.segments[0].next_offset <= self._log_start:
            partition.drop_first_segment()
        if self._manifest is None:
            partition.manifest_changed = True
        self._store.after_open(partition)

    def producers_hint(self) -> int | None:
        """An offset below which there is surely no producer state; None when that is not known."""
        if self._checkpoint_of_last is not None and not self._checkpoint_of_last.has_producers:
            return self._checkpoint_of_last.next_offset
        if self._manifest is not None and self._manifest.producers_offset < 0:
            return self._manifest.log_end_offset
        return None


class _LiveReader:
    """Reads a segment's batches into its index, and decides what a bad one means."""

    def __init__(
        self,
        partition: PartitionLog,
        segment: Segment,
        borders: list[int],
        trusted: int,
        checksum_end: int,
    ) -> None:
        self._partition = partition
        self._segment = segment
        self._borders = sorted(set(borders))
        #: Below this, everything was acknowledged (or synced): bad bytes are damage.
        self._trusted = trusted
        #: The segment's running checksum already covers everything below this.
        self._checksum_end = checksum_end

    def read(self, start: int) -> None:
        segment = self._segment
        file = self._partition.store.files.get(segment.log_path)
        position = start
        while position < segment.size:
            try:
                for at, header, batch in scan(file, segment.log_path, position, segment.size):
                    if header.base_offset < segment.next_offset:
                        reason = f"offset {header.base_offset} after {segment.next_offset - 1}"
                        raise CorruptionError(segment.log_path, at, reason)
                    self._take(at, header, batch)
                    position = at + header.size
                return
            except CorruptionError as error:
                position = max(position, error.position)
                if position >= self._trusted and self._resume_point(position) is None:
                    self._cut(position)
                    return
                position = self._step_over(position, error)

    def _take(self, at: int, header: BatchHeader, batch: memoryview) -> None:
        segment = self._segment
        index = segment.index
        assert index is not None
        if at and header.base_offset > segment.next_offset:
            segment.has_gaps = True
        relative = header.base_offset - segment.base_offset
        interval = self._partition.config.index_interval_bytes
        prefix = batch[:UNCHECKED_PREFIX_BYTES]
        index.add(relative, at, prefix, header.max_timestamp, interval)
        if at >= self._checksum_end:
            segment.checksum = crc32c(batch, segment.checksum)
        segment.max_timestamp = max(segment.max_timestamp, header.max_timestamp)
        segment.next_offset = header.last_offset + 1
        if header.leader_epoch > self._partition.epochs.latest:
            self._partition.epochs.assign(header.leader_epoch, header.base_offset)

    def _cut(self, position: int) -> None:
        segment = self._segment
        log.warning(
            "%s: %d bytes behind the last acknowledged batch were torn; cut at %d",
            segment.log_path,
            segment.size - position,
            position,
        )
        self._partition.store.files.get(segment.log_path).truncate(position)
        segment.size = segment.written = position

    def _resume_point(self, position: int) -> int | None:
        at = bisect_right(self._borders, position)
        return self._borders[at] if at < len(self._borders) else None

    def _step_over(self, position: int, error: CorruptionError) -> int:
        """Note the damage and say where to go on: at a border the journal knows, or at the end."""
        segment = self._segment
        assert segment.index is not None
        segment.index.seal()
        resume = self._resume_point(position)
        first = segment.next_offset
        if resume is None or len(segment.damage) >= DAMAGE_RANGES_MAX:
            resume = segment.size
            next_good = max(first + 1, self._known_end())
        else:
            file = self._partition.store.files.get(segment.log_path)
            next_good = max(first + 1, _offset_at(file, resume))
        log.error("%s; offsets %d to %d are not served", error, first, next_good - 1)
        segment.damage = (*segment.damage, (first, next_good, position))
        segment.next_offset = next_good
        self._partition.manifest_changed = True
        return resume

    def _known_end(self) -> int:
        """The highest offset that anything says was reached."""
        manifest_end = self._partition.log_end_offset
        return max(manifest_end, self._segment.next_offset)


# ---- indexes of rolled segments


def load_segment_index(disk: Disk, partition: PartitionLog, segment: Segment) -> SparseIndex:
    """The index of a segment that is not read at start; rebuilt from the batches if need be."""
    if disk.exists(segment.index_path):
        index, checkpoint, _ = load_index(read_whole(disk, segment.index_path))
        if checkpoint is not None and checkpoint.position == segment.size:
            return index
    log.warning("%s is missing or damaged; built again", segment.index_path)
    index = SparseIndex()
    interval = partition.config.index_interval_bytes
    file = partition.store.files.get(segment.log_path)
    end, next_offset = 0, segment.base_offset
    try:
        for at, header, batch in scan(file, segment.log_path, 0, segment.written):
            relative = header.base_offset - segment.base_offset
            prefix = batch[:UNCHECKED_PREFIX_BYTES]
            index.add(relative, at, prefix, header.max_timestamp, interval)
            end, next_offset = at + header.size, header.last_offset + 1
    except CorruptionError as error:
        log.error("%s", error)
    if end < segment.size and not segment.damage:
        segment.damage = ((next_offset, segment.next_offset, end),)
        partition.manifest_changed = True
        partition.store.manifest_due(partition)
    index.seal()
    if end == segment.size:
        has_producers = partition.producers is not None
        checkpoint = Checkpoint(
            end, next_offset, segment.checksum, segment.max_timestamp, has_producers
        )
        replace_file(disk, segment.index_path, index.unsaved_block(checkpoint))
    index.saved_entries = len(index)
    return index


# ---- producers


def load_producers(partition: PartitionLog, none_below: int | None) -> None:
    """Snapshot plus the batches after it. `none_below`: no producer wrote before that offset."""
    states, offset = _load_snapshot(partition)
    if states is None:
        offset = none_below if none_below is not None else partition.log_start_offset
    elif none_below is not None and none_below > offset:
        offset = none_below
    partition.producers = states
    for segment in partition.all_segments():
        if segment.next_offset > offset:
            _note_segment(partition, segment, offset)
    if partition.producers is not None:
        partition.producers.drop_below(partition.log_start_offset)
        partition.producers.settle(partition.high_watermark)


def _load_snapshot(partition: PartitionLog) -> tuple[ProducerStates | None, int]:
    disk = partition.store.disk
    path = f"{partition.directory}/{PRODUCERS_NAME}"
    if not disk.exists(path):
        return None, 0
    try:
        states, offset = load_snapshot(read_whole(disk, path), path)
    except CorruptionError as error:
        log.error("%s; producer state is rebuilt from the log", error)
        return None, 0
    if offset > partition.log_end_offset:
        log.warning("%s is ahead of the log; producer state is rebuilt from the log", path)
        return None, 0
    return states, offset


def _note_segment(partition: PartitionLog, segment: Segment, offset: int) -> None:
    file = partition.store.files.get(segment.log_path)
    position = partition.index_of(segment).position_at_or_before(
        max(0, offset - segment.base_offset)
    )
    try:
        for _, header, batch in scan(
            file, segment.log_path, position, segment.written, verify=False
        ):
            if header.base_offset >= offset:
                partition.note_producer(header, batch)
    except CorruptionError:
        # Known damage: what producers wrote there cannot be told any more.
        return


# ---- small helpers


def _listed_end(manifest: Manifest) -> int:
    return manifest.segments[-1].next_offset if manifest.segments else 0


def _offset_at(file: File, position: int) -> int:
    base, _, _ = WALK.unpack(file.read(WALK.size, position))
    return int(base)


def keep_damaged_journal(disk: Disk, damage: list[JournalDamage]) -> None:
    """Put copies of damaged journal files aside, for whoever has to find out what was in them."""
    disk.make_directory(QUARANTINE)
    for each in damage:
        log.error("journal: %s; a copy is kept in %s/", each, QUARANTINE)
        if not disk.exists(each.path):
            continue
        kept = each.path.replace("/", "_")
        replace_file(disk, f"{QUARANTINE}/{kept}", read_whole(disk, each.path))
