"""Recovery of a partition from its files and the journal, after a clean stop, a crash or damage.

Trusted are, in this order: the manifest, for the rolled segments it lists; the journal, for
everything since its checkpoint; the files themselves, batch by batch, for the rest.

1. Load the manifest, and apply newer truncations in the journal to its list. Without a sound
   manifest, every segment file is read from end to end.
2. Adopt segment files that it does not list: those from `live_offset` on are the live end of the
   log, the others are left over from retention, compaction or truncation.
3. Replay the journal's appends. Writing bytes where they are already is harmless, and bytes that a
   later truncation removed are not written.
4. Read the live segments from the last checkpoint of their index. Every batch is checked, and that
   each begins where the one before ends.
5. Load the producer snapshot and apply the batches behind it.

A bad batch in a segment that has a journal is *damage*: the journal would have repaired a torn one.
Without a journal, a bad batch behind the last sync was torn. A torn end is cut off and logged.
Damage stays: the manifest records its offsets, readers are refused them, the segment is rolled.
"""

from __future__ import annotations

import logging

from dragoman.errors import CorruptionError
from dragoman.log.damage import new_damage
from dragoman.log.directory import QUARANTINE
from dragoman.log.epochs import EpochHistory
from dragoman.log.index import Checkpoint, SparseIndex, load_index
from dragoman.log.journal import EntryKind, EntryRef, read_entry
from dragoman.log.live_reader import NO_LIMIT, LiveReader
from dragoman.log.manifest import NAME as MANIFEST
from dragoman.log.manifest import Manifest, decode_manifest
from dragoman.log.partition import PartitionLog
from dragoman.log.producer_file import NAME as PRODUCERS
from dragoman.log.producer_file import Believed, load_producers
from dragoman.log.salvage import keep_whole_part, shorten_index
from dragoman.log.segment import (
    Segment,
    checksum_of,
    date_writes,
    listed_segment,
    parse_segment_name,
)
from dragoman.log.truncations import RESTART, Truncation, read_truncation
from dragoman.world import read_whole

log = logging.getLogger("dragoman.log")


def open_partition(
    partition: PartitionLog, entries: list[EntryRef], *, is_shared: bool = False
) -> None:
    """Fill a new `PartitionLog` from its directory and its entries of the journal.

    `is_shared`: with replicas on other nodes, the high watermark begins at the last known one.
    """
    disk = partition.store.directory.disk
    names = disk.names(partition.directory)
    if not names and not entries:
        return
    opening = _Opening(partition, entries)
    opening.adopt_files(names)
    opening.replay_appends()
    opening.read_live_segments()
    opening.set_marks()
    opening.look_for_known_damage()
    if is_shared:
        opening.lower_watermark()
    partition.has_producer_file = disk.exists(f"{partition.directory}/{PRODUCERS}")
    partition.producer_file_end = 0
    load_producers(partition, opening.believed())
    opening.drop_deleted()
    opening.note_stale_indexes()


class _Opening:
    """The state of one partition while it is being opened."""

    def __init__(self, partition: PartitionLog, entries: list[EntryRef]) -> None:
        self.partition = partition
        self._directory = partition.store.directory
        self._disk = self._directory.disk
        self._report = partition.report
        self._entries = entries
        #: Whether the manifest is damaged, or is missing although there was one.
        self._lost_manifest = False
        self._manifest = self._load_manifest()
        self._truncations = [
            read_truncation(self._disk, each) for each in entries if each.kind is EntryKind.TRUNCATE
        ]
        #: Segments whose content is taken from the manifest, in order.
        self._listed: list[Segment] = []
        #: Segments that are read, by (base, generation).
        self._live: dict[tuple[int, int], Segment] = {}
        #: First byte that the replay wrote, by live segment.
        self._replayed_from: dict[Segment, int] = {}
        #: Batch borders known from the journal, by live segment: reading resumes at them.
        self._borders: dict[Segment, list[int]] = {}
        #: The truncation that set a segment's end.
        self._cuts: dict[Segment, Truncation] = {}
        #: Offset after the bytes that were synced and are missing, by live segment.
        self._lost_ends: dict[Segment, int] = {}
        #: Bytes at the beginning of a live segment's file that may be another file's.
        self._distrusted: dict[Segment, int] = {}
        #: Size of a live segment's file before anything was replayed into it.
        self._found_sizes: dict[Segment, int] = {}
        #: Offset that the log reached at least, according to an index whose segment is missing.
        self._known_end = 0
        #: `PartitionLog.stale_indexes`.
        self._stale_indexes: list[str] = []
        #: (epoch, first offset) from the manifest, the journal and the batches read.
        self._epochs: list[tuple[int, int]] = []
        self._live_offset = 0
        self._last_checkpoint: Checkpoint | None = None
        self._has_holes = False
        if self._manifest is not None:
            self._begin_with(self._manifest)
        self._begin_with_entries()

    def _load_manifest(self) -> Manifest | None:
        path = f"{self.partition.directory}/{MANIFEST}"
        if not self._disk.exists(path):
            # Indexes are written after the manifest.
            if any(name.endswith(".idx") for name in self._disk.names(self.partition.directory)):
                self._report(f"{path} is missing; every segment is read instead")
                self._lost_manifest = True
            return None
        try:
            manifest = decode_manifest(read_whole(self._disk, path), path)
            if manifest.identity.partition_id != self.partition.identity.partition_id:
                other = f"{manifest.identity.topic}-{manifest.identity.partition}"
                raise CorruptionError(path, 0, f"manifest of another partition ({other})")
        except CorruptionError as error:
            self._report(f"{error}; every segment is read instead")
            self._lost_manifest = True
            return None
        return manifest

    # ---- step 1: the manifest, and what the journal says about more than bytes

    def _begin_with(self, manifest: Manifest) -> None:
        partition = self.partition
        partition.log_start_offset = manifest.log_start_offset
        partition.next_generation = manifest.next_generation
        partition.first_generation = manifest.first_generation
        partition.cleaned_offset = manifest.cleaned_offset
        partition.saved_live_offset = manifest.live_offset
        self._live_offset = manifest.live_offset
        self._epochs = list(manifest.epochs)
        self._listed = [listed_segment(partition.directory, entry) for entry in manifest.segments]
        latest = self._directory.clock.wall_ms()
        if manifest.clean_end is not None:
            latest = min(latest, manifest.clean_end.created_ms)
        date_writes(self._listed, latest)
        for truncation in self._truncations:
            if truncation.sequence > manifest.sequence:
                self._cut_list(truncation)

    def _cut_list(self, truncation: Truncation) -> None:
        """Apply a truncation to the list of segments. The last one that stays is read again."""
        end = truncation.next_offset
        self._epochs = [each for each in self._epochs if not truncation.ends_before(each[1])]
        self._live_offset = end if truncation.is_restart else min(self._live_offset, end)
        self.partition.cleaned_offset = min(self.partition.cleaned_offset, end)
        self.partition.saved_live_offset = min(self.partition.saved_live_offset, end)
        for key in [each for each in self._live if truncation.removes(*each)]:
            self._directory.remove_segment_files(self._live.pop(key))
        while self._listed and self._listed[-1].base_offset > truncation.base_offset:
            self._directory.remove_segment_files(self._listed.pop())
        if self._listed and self._listed[-1].next_offset > end:
            segment = self._listed.pop()
            segment.is_rolled = False
            segment.damage = segment.unreadable = ()
            self._disk.remove(segment.index_path)
            self._cuts[segment] = truncation
            self._live[segment.base_offset, segment.generation] = segment
            self._live_offset = min(self._live_offset, segment.base_offset)
            if self._disk.exists(segment.log_path):
                size = self._directory.files.get(segment.log_path).size()
                segment.size = segment.written = min(size, segment.size)
                self._found_sizes[segment] = segment.size
            else:
                segment.size = segment.written = 0
                self._directory.files.get_or_create(segment.log_path)

    def _begin_with_entries(self) -> None:
        partition = self.partition
        manifest = self._manifest

        def is_new(sequence: int) -> bool:
            """Whether the manifest is older than this journal group."""
            return manifest is None or sequence > manifest.sequence

        for entry in self._entries:
            if entry.kind is EntryKind.APPEND:
                after = max(partition.next_generation, entry.generation + 1)
                partition.next_generation = after
                continue
            partition.manifest_version += 1
            data = read_entry(self._disk, entry)
            if entry.kind is EntryKind.LOG_START and is_new(entry.sequence):
                offset = int.from_bytes(data, "little")
                partition.log_start_offset = max(partition.log_start_offset, offset)
            elif entry.kind is EntryKind.EPOCH:
                start = int.from_bytes(data[4:], "little")
                if not self._is_cut(entry.sequence, start):
                    self._epochs.append((int.from_bytes(data[:4], "little"), start))
            elif is_new(entry.sequence) and entry.base_offset < 0 and entry.position == RESTART:
                partition.log_start_offset = int.from_bytes(data[:8], "little")
        for truncation in self._truncations:
            after = max(partition.next_generation, truncation.next_generation)
            partition.next_generation = after
            if truncation.is_restart:
                first = max(partition.first_generation, truncation.next_generation)
                partition.first_generation = first

    def _is_cut(self, sequence: int, offset: int) -> bool:
        return any(
            each.sequence > sequence and each.ends_before(offset) for each in self._truncations
        )

    # ---- step 2: files

    def adopt_files(self, names: list[str]) -> None:
        partition = self.partition
        if self._manifest is not None and not self._directory.was_clean:
            # A killed process may have renamed the manifest without syncing the directory. Files
            # that it no longer lists must not be removed before the rename is durable.
            self._disk.sync_directory(partition.directory)
        listed = {(each.base_offset, each.generation) for each in self._listed}
        found = sorted(key for name in names if (key := parse_segment_name(name)) is not None)
        by_base: dict[int, int] = {}
        for base, generation in found:
            partition.next_generation = max(partition.next_generation, generation + 1)
            if (base, generation) in listed or (base, generation) in self._live:
                continue
            is_old = generation < partition.first_generation
            if is_old or any(each.removes(base, generation) for each in self._truncations):
                self._discard(base, generation)
            elif self._manifest is not None and base < self._live_offset:
                self._discard_left_over(base, generation)
            else:
                if base in by_base:
                    # In ascending order, the later generation is the valid one.
                    self._discard(base, by_base[base])
                by_base[base] = generation
        for base, generation in by_base.items():
            self._adopt(base, generation)
        self._remove_litter(names, {f"{base:020d}.{each}" for base, each in found})

    def _remove_litter(self, names: list[str], logs: set[str]) -> None:
        for name in names:
            path = f"{self.partition.directory}/{name}"
            is_lonely = name.endswith(".idx") and name.removesuffix(".idx") not in logs
            if is_lonely and self._learns_from(name):
                self._stale_indexes.append(path)
            elif is_lonely or name.endswith((".new", ".compacting")):
                self._disk.remove(path)

    def _learns_from(self, name: str) -> bool:
        """Whether an index without its segment says how far the log was synced."""
        key = parse_segment_name(name.removesuffix(".idx") + ".log")
        if key is None or self._lost_manifest:
            return False
        is_ours = (
            key[0] >= self._live_offset
            and key[1] >= self.partition.first_generation
            and not any(each.removes(*key) or each.cuts(*key) for each in self._truncations)
        )
        if not is_ours:
            return False
        path = f"{self.partition.directory}/{name}"
        tag = Segment(self.partition.directory, *key).tag
        _, checkpoint, _ = load_index(read_whole(self._disk, path), tag)
        if checkpoint is None:
            return False
        self._known_end = max(self._known_end, checkpoint.next_offset)
        return True

    def _discard(self, base: int, generation: int) -> None:
        segment = Segment(self.partition.directory, base, generation)
        log.info("%s is left over; removed", segment.log_path)
        self._directory.remove_segment_files(segment)

    def _discard_left_over(self, base: int, generation: int) -> None:
        manifest = self._manifest
        assert manifest is not None
        is_compacted = any(each.base_offset == base for each in manifest.segments)
        if generation < manifest.next_generation or is_compacted:
            self._discard(base, generation)
            return
        # Newer than the manifest, yet within the offsets it lists: no crash leaves such a file.
        segment = Segment(self.partition.directory, base, generation)
        self._report(f"{segment.log_path} is not accounted for; kept in {QUARANTINE}/")
        self._directory.quarantine(segment)
        self._disk.remove(segment.index_path)

    def _adopt(self, base: int, generation: int) -> None:
        segment = Segment(self.partition.directory, base, generation)
        segment.size = segment.written = self._directory.files.get(segment.log_path).size()
        self._live[base, generation] = segment
        for truncation in self._truncations:
            if truncation.cuts(base, generation):
                # The index may be from before the truncation.
                self._directory.files.forget(segment.index_path)
                self._disk.remove(segment.index_path)
                self._cuts[segment] = truncation
                if segment.size > truncation.position:
                    self._directory.files.get(segment.log_path).truncate(truncation.position)
                    segment.size = segment.written = truncation.position
        self._found_sizes[segment] = segment.size

    # ---- step 3: the journal's appends

    def replay_appends(self) -> None:
        for entry in self._entries:
            is_undone = any(each.undoes(entry) for each in self._truncations)
            if entry.kind is EntryKind.APPEND and not is_undone:
                self._replay(entry)

    def _replay(self, entry: EntryRef) -> None:
        key = (entry.base_offset, entry.generation)
        segment = self._live.get(key)
        if segment is None:
            if self._manifest is not None and entry.base_offset < self._live_offset:
                return
            segment = Segment(self.partition.directory, *key)
            self._directory.files.get_or_create(segment.log_path)
            self._live[key] = segment
        data = read_entry(self._disk, entry)
        for truncation in self._truncations:
            if truncation.sequence > entry.sequence and truncation.cuts(*key):
                data = data[: truncation.position - entry.position]
        self._directory.files.get(segment.log_path).write([data], entry.position)
        segment.size = segment.written = max(segment.size, entry.position + len(data))
        first = self._replayed_from.get(segment, entry.position)
        self._replayed_from[segment] = min(first, entry.position)
        self._borders.setdefault(segment, []).append(entry.position)

    # ---- step 4: reading

    def read_live_segments(self) -> None:
        partition = self.partition
        self._check_listed()
        partition.segments = self._listed
        partition.rebuild_bases()
        live = self._live_in_order()
        expected = -1 if self._lost_manifest else self._live_offset
        for number, segment in enumerate(live):
            has_hole = segment.base_offset > expected >= 0
            if has_hole and segment.base_offset <= partition.log_start_offset:
                # All missing records were deleted.
                self._has_holes = True
            elif has_hole and not self._step_over_hole(segment, expected):
                self._discard_all(live[number:])
                break
            following = live[number + 1] if number + 1 < len(live) else None
            is_torn = self._read_live(segment, following)
            self._place(segment, following)
            expected = segment.next_offset
            if is_torn and following is not None:
                self._discard_all(live[number + 1 :])
                break

    def _live_in_order(self) -> list[Segment]:
        """Live segments by base. One with an older generation than the one before it was removed by
        a truncation that is no longer in the journal."""
        result: list[Segment] = []
        for segment in sorted(self._live.values(), key=lambda each: each.base_offset):
            newest = max((each.generation for each in result), default=-1)
            if segment.generation < newest and not self._lost_manifest:
                self._report(f"{segment.log_path} is older than the segment before it; dropped")
                self._discard_all([segment])
            else:
                result.append(segment)
        return result

    def _step_over_hole(self, segment: Segment, expected: int) -> bool:
        """Handle a segment that does not begin where the one before ends. False: remove it."""
        if not self._directory.trusts_segment_ends:
            log.warning("%s does not follow what was kept; removed", segment.log_path)
            return False
        if not self._lost_manifest:
            first, last = expected, segment.base_offset - 1
            self._report(f"{segment.log_path}: offsets {first} to {last} before it are missing")
            segment.damage = ((expected, segment.base_offset, 0),)
        return True

    def _discard_all(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            del self._live[segment.base_offset, segment.generation]
            self._directory.remove_segment_files(segment)
            self.partition.manifest_version += 1

    def _place(self, segment: Segment, following: Segment | None) -> None:
        """Add a segment that was read to the partition."""
        partition = self.partition
        if segment.size == 0 and not segment.damage:
            del self._live[segment.base_offset, segment.generation]
            self._directory.remove_segment_files(segment)
        elif following is None and not segment.damage and segment not in self._cuts:
            partition.active = segment
        else:
            partition.add_rolled(segment)

    def _read_live(self, segment: Segment, following: Segment | None) -> bool:
        """Read a live segment. True when it was torn: later segments are discarded."""
        index, checkpoint = self._load_index(segment)
        segment.index = index
        segment.created_ms = segment.written_ms = self._directory.clock.wall_ms()
        segment.next_offset = segment.base_offset
        segment.checksum, segment.max_timestamp = 0, -1
        synced_end = checkpoint.position if checkpoint else 0
        clean = self._manifest.clean_end if self._manifest else None
        key = (segment.base_offset, segment.generation)
        if clean is not None and (clean.base_offset, clean.generation) == key:
            segment.created_ms = clean.created_ms
            if clean.written_ms >= 0:
                segment.written_ms = clean.written_ms
            segment.has_gaps = clean.has_gaps
            self.partition.clean_size = clean.size
        start = self._resume(segment, index, checkpoint) if checkpoint is not None else 0
        if self._lost_manifest and start:
            # The epochs that were in the manifest are read from the batches.
            start, segment.next_offset = 0, segment.base_offset
        if following is None:
            self._last_checkpoint = checkpoint
        size = segment.size
        limit = following.base_offset if following is not None else NO_LIMIT
        cut = self._cuts.get(segment)
        if cut is not None:
            limit = min(limit, cut.next_offset)
        trusted = NO_LIMIT if self._directory.trusts_segment_ends else synced_end
        reader = LiveReader(
            self.partition,
            segment,
            self._epochs,
            limit_offset=limit,
            lost_end=self._lost_ends.get(segment, 0),
            trusted=trusted,
            indexed=synced_end,
            distrusted=self._distrusted.get(segment, 0),
        )
        if self._manifest is not None and self._directory.trusts_segment_ends:
            # The journal keeps an epoch until it is in a manifest: batches that the journal no
            # longer holds belong to known epochs.
            first = self._replayed_from.get(segment, segment.size)
            reader.expect_epochs(EpochHistory.of(self._epochs), first)
        reader.read(start, sorted(set(self._borders.get(segment, []))))
        if cut is not None and segment.size == cut.position:
            # The log start may lie behind the last batch that stayed.
            segment.next_offset = max(segment.next_offset, cut.next_offset)
        if segment in self._replayed_from or synced_end != size or segment.size != size:
            self.partition.unsynced.append(segment)
        if segment.damage:
            file = self._directory.files.get(segment.log_path)
            segment.checksum = checksum_of(file, segment.size)
        return reader.is_torn

    def _load_index(self, segment: Segment) -> tuple[SparseIndex, Checkpoint | None]:
        if not self._disk.exists(segment.index_path):
            return SparseIndex(), None
        data = read_whole(self._disk, segment.index_path)
        index, checkpoint, good = load_index(data, segment.tag)
        # The size before the replay: appends replayed behind the end of a shortened file leave a
        # hole of zeros.
        size = self._found_sizes.get(segment, 0)
        if checkpoint is not None and checkpoint.position > size:
            self._report(f"{segment.log_path} has {size} bytes, {checkpoint.position} were synced")
            self._lost_ends[segment] = checkpoint.next_offset
            self._stale_indexes.append(segment.index_path)
            return self._shortened_index(segment, index, checkpoint, size)
        if checkpoint is None or not index.begins_with_segment:
            if good < len(data):
                log.warning("%s is damaged; the segment is read instead", segment.index_path)
            self._directory.files.forget(segment.index_path)
            self._disk.remove(segment.index_path)
            return SparseIndex(), None
        if good < len(data):
            self._directory.files.get(segment.index_path).truncate(good)
        return index, checkpoint

    def _shortened_index(
        self, segment: Segment, index: SparseIndex, checkpoint: Checkpoint, size: int
    ) -> tuple[SparseIndex, Checkpoint | None]:
        """The verified part of an index whose segment has lost its end."""
        file = self._directory.files.get(segment.log_path)
        left = shorten_index(file, segment, index, checkpoint, size)
        if left is None:
            # The file may be any: batches of another partition are sound, too.
            self._distrusted[segment] = size
            return SparseIndex(), None
        return index, left

    def _resume(self, segment: Segment, index: SparseIndex, checkpoint: Checkpoint) -> int:
        """Byte at which reading begins; the segment's running values are set accordingly.

        Replayed bytes are always read, from the border of a range.
        """
        segment.has_gaps = segment.has_gaps or checkpoint.has_gaps
        segment.checksum = checkpoint.checksum
        segment.max_timestamp = checkpoint.max_timestamp
        segment.next_offset = checkpoint.next_offset
        first = self._replayed_from.get(segment, checkpoint.position)
        if first >= checkpoint.position:
            return checkpoint.position
        begin = index.range_at(index.range_at_position(first), checkpoint.position)
        segment.next_offset = segment.base_offset + begin.first
        return begin.start

    # ---- marks

    def set_marks(self) -> None:
        partition = self.partition
        segments = partition.all_segments()
        if any(each.lost for each in segments):
            partition.is_damaged = True
        if self._lost_manifest and segments:
            first = segments[0].base_offset
            partition.log_start_offset = max(partition.log_start_offset, first)
        end = max(self._live_offset, segments[-1].next_offset if segments else 0)
        end = self._keep_offsets(end)
        if end < partition.log_start_offset:
            # In os mode, records may be lost that had been deleted just before.
            end = partition.log_start_offset
            self._has_holes = True
            if partition.active is not None:
                partition.add_rolled(partition.active)
                partition.active = None
        partition.log_end_offset = partition.stable_end = partition.high_watermark = end
        self._settle_epochs(end)
        if self._manifest is None or self._manifest.log_end_offset > end:
            partition.manifest_version += 1

    def look_for_known_damage(self) -> None:
        """Look again where readers have met damage that may be in no manifest. Places of removed
        files and of damage that manifests list are forgotten, and those that the replay mended.
        """
        partition = self.partition
        segments = {each.log_path: each for each in partition.all_segments()}
        forgotten = []
        for place in self._directory.damaged_places_of(partition.identity.partition_id):
            segment = segments.get(place.path)
            error = CorruptionError(place.path, place.position, "damage found earlier")
            if segment is not None and new_damage(partition, error) is not None:
                partition.is_damaged = True
                partition.manifest_version += 1
            else:
                forgotten.append(place)
        self._directory.remove_damaged_places(forgotten)

    def _keep_offsets(self, end: int) -> int:
        """The log's end, or the highest one known: lost offsets are never assigned again."""
        known = self._known_end
        manifest = self._manifest
        if manifest is not None:
            newer = [each for each in self._truncations if each.sequence > manifest.sequence]
            known = max(known, manifest.log_end_offset)
            known = min([known, *(each.next_offset for each in newer)])
        partition = self.partition
        # Records missing below the log's start were deleted.
        is_whole = known <= max(end, partition.log_start_offset)
        if is_whole or not self._directory.trusts_segment_ends:
            return end
        if partition.active is not None:
            partition.add_rolled(partition.active)
            partition.active = None
        segment = Segment(partition.directory, end, partition.next_generation)
        partition.next_generation += 1
        segment.next_offset = known
        segment.created_ms = self._directory.clock.wall_ms()
        segment.damage = ((end, known, 0),)
        segment.index = SparseIndex()
        self._directory.files.get_or_create(segment.log_path)
        partition.unsynced.append(segment)
        partition.add_rolled(segment)
        self._report(
            f"{partition.directory}: offsets {end} to {known - 1} at the end are missing, "
            "with the file that held them"
        )
        return known

    def lower_watermark(self) -> None:
        partition = self.partition
        known = self._manifest.high_watermark if self._manifest is not None else 0
        known = max(known, partition.log_start_offset)
        partition.high_watermark = min(partition.high_watermark, known)

    def drop_deleted(self) -> None:
        """Remove segments below the log start, which were kept to read their producers."""
        partition = self.partition
        start = partition.log_start_offset
        while partition.segments and partition.segments[0].next_offset <= start:
            partition.drop_first_segment()

    def note_stale_indexes(self) -> None:
        partition = self.partition
        if partition.is_manifest_due:
            partition.stale_indexes = tuple(self._stale_indexes)
            return
        for path in self._stale_indexes:
            self._directory.remove_file(path)

    def _settle_epochs(self, end: int) -> None:
        """Merge the epochs of all sources into one history."""
        epochs = self.partition.epochs
        self._epochs = [each for each in self._epochs if each[1] <= end]
        epochs.load(EpochHistory.of(self._epochs).entries())
        manifest = self._manifest
        if manifest is None or tuple(epochs.entries()) != manifest.epochs:
            self.partition.manifest_version += 1

    def believed(self) -> Believed:
        none_below: int | None = None
        manifest = self._manifest
        if self._last_checkpoint is not None and not self._last_checkpoint.has_producers:
            none_below = self._last_checkpoint.next_offset
        elif manifest is not None and not manifest.has_producers:
            newer = [each for each in self._truncations if each.sequence > manifest.sequence]
            none_below = min([manifest.log_end_offset, *(each.next_offset for each in newer)])
        return Believed(none_below, tuple(self._truncations), self._has_holes)

    def _check_listed(self) -> None:
        """Check that every listed file has its full size; keep the sound part of a shorter one."""
        for segment in self._listed:
            size = -1
            if self._disk.exists(segment.log_path):
                size = self._directory.files.get(segment.log_path).size()
            if size < segment.size:
                self._report(f"{segment.log_path} has {max(size, 0)} of {segment.size} bytes")
                keep_whole_part(self._directory, segment, size)
                self._stale_indexes.append(segment.index_path)
                self.partition.manifest_version += 1
