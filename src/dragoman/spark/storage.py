"""Reads a data directory as a log, without its broker.

Only *stable* bytes are read: segments that the partition's manifest lists, up to its high watermark
and, for read-committed readers, its last stable offset. Later records are in files or only in the
journal, and only the broker knows which of them are committed. `node.json` records whether the
broker stopped cleanly, which makes all records stable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from dragoman.checksum import crc32c
from dragoman.client.kafka import TopicPartition
from dragoman.errors import ConfigError, CorruptionError
from dragoman.limits import SCAN_CHUNK_BYTES, SPARK_READ_BYTES
from dragoman.log.batch import (
    LENGTH_PREFIX_BYTES,
    WALK,
    WALKED_PREFIX_BYTES,
    batches,
    iterate_records,
)
from dragoman.log.directory import PARTITIONS
from dragoman.log.index import SparseIndex, load_index
from dragoman.log.manifest import NAME, Manifest, SegmentEntry, decode_manifest
from dragoman.log.node import NODE_FILE, read_node_state
from dragoman.log.segment import Segment
from dragoman.log.segment_reader import walk_range
from dragoman.operating_system import RealDisk
from dragoman.spark.offsets import Offsets, Topic


class StoredPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets of a partition that one segment file covers; some may have no record."""

    directory: str
    base_offset: int
    next_offset: int
    generation: int
    size: int
    checksum: int
    has_gaps: bool
    start: int
    end: int
    #: (producer id, first offset, offset of the marker)
    aborted: tuple[tuple[int, int, int], ...] = ()

    @property
    def segment(self) -> Segment:
        segment = Segment(self.directory, self.base_offset, self.generation)
        segment.size, segment.has_gaps = self.size, self.has_gaps
        return segment

    @property
    def log_path(self) -> str:
        return self.segment.log_path

    @property
    def index_path(self) -> str:
        return self.segment.index_path


class StoredPartition:
    """One partition according to its manifest."""

    def __init__(self, directory: str, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest
        last = () if manifest.clean_end is None else (manifest.clean_end,)
        self._entries: tuple[SegmentEntry, ...] = manifest.segments + last

    @property
    def start(self) -> int:
        return self.manifest.log_start_offset

    def end(self, *, committed_only: bool) -> int:
        listed = self._entries[-1].next_offset if self._entries else self.start
        limit = min(listed, self.manifest.high_watermark)
        if committed_only:
            limit = min(limit, self.manifest.last_stable_offset)
        return max(limit, self.start)

    def pieces(self, start: int, end: int, *, committed_only: bool) -> list[StoredPiece]:
        """Files for the stable and undamaged offsets from `start` to `end`."""
        end = min(end, self.end(committed_only=committed_only))
        found: list[StoredPiece] = []
        # Compaction may remove a whole segment, so the next one covers its offsets as well.
        covered = self.start
        for entry in self._entries:
            first, covered = max(covered, start), entry.next_offset
            last = min(entry.next_offset, end)
            if first < last and not entry.is_damaged:
                found.append(self._piece(entry, first, last))
        return found

    def _piece(self, entry: SegmentEntry, start: int, end: int) -> StoredPiece:
        return StoredPiece(
            directory=self.directory,
            base_offset=entry.base_offset,
            next_offset=entry.next_offset,
            generation=entry.generation,
            size=entry.size,
            checksum=entry.checksum,
            has_gaps=entry.has_gaps,
            start=start,
            end=end,
            aborted=tuple(each for each in entry.aborted if each[1] < end and each[2] >= start),
        )

    def bytes_between(self, start: int, end: int) -> int:
        """Bytes of the files for these offsets, rounded to ranges of the index."""
        return sum(
            _position(piece, piece.end) - _position(piece, piece.start)
            for piece in self.pieces(start, end, committed_only=False)
        )

    def offset_after(self, start: int, end: int, size: int) -> int:
        """The highest index range boundary up to which there are at most `size` bytes."""
        for piece in self.pieces(start, end, committed_only=False):
            first, last = _position(piece, piece.start), _position(piece, piece.end)
            if last - first > size:
                with open(piece.log_path, "rb") as file:
                    index = _usable_index(piece, file.fileno())
                number = index.range_at_position(first + size)
                return piece.base_offset + index.range_at(number, piece.size).first
            size -= last - first
        return end

    def offset_at(self, timestamp: int, *, committed_only: bool) -> int | None:
        """The offset of the first stable record at or after a time, or None."""
        end = self.end(committed_only=committed_only)
        for entry in self._entries:
            start = max(self.start, entry.base_offset)
            if entry.max_timestamp < timestamp or entry.is_damaged or start >= end:
                continue
            piece = self._piece(entry, start, min(end, entry.next_offset))
            found = _offset_in(piece, timestamp)
            if found is not None:
                return found
        return None


def _offset_in(piece: StoredPiece, timestamp: int) -> int | None:
    for data, _ in read_piece(piece, since=timestamp):
        for header, batch in batches(data):
            if header.is_control or header.record_timestamp < timestamp:
                continue
            for record in iterate_records(batch, header):
                if record.timestamp >= timestamp and piece.start <= record.offset < piece.end:
                    return record.offset
    return None


class StoredLog:
    """The `Log` of a data directory."""

    def __init__(self, path: str, *, committed_only: bool) -> None:
        self.root = os.path.abspath(path)
        self._committed_only = committed_only
        #: Directories by partition, which never change.
        self._directories: dict[TopicPartition, str] = {}
        if not self.is_at(path):
            raise ConfigError(f"path: {path} is not the data directory of a broker")

    @staticmethod
    def is_at(path: str) -> bool:
        return os.path.isfile(f"{path}/{NODE_FILE}") and os.access(f"{path}/{NODE_FILE}", os.R_OK)

    def is_complete(self) -> bool:
        """Whether every acknowledged record is stable, because the broker stopped cleanly."""
        return read_node_state(RealDisk(self.root)).is_clean

    def partitions(self) -> dict[TopicPartition, StoredPartition]:
        found = {}
        for name in RealDisk(self.root).names(PARTITIONS):
            held = _read_partition(f"{self.root}/{PARTITIONS}/{name}")
            if held is not None:
                identity = held.manifest.identity
                if not identity.topic_id:
                    # The cluster's metadata, with passwords of captured databases, is not a topic.
                    continue
                where = TopicPartition(identity.topic, identity.partition)
                self._directories[where] = held.directory
                found[where] = held
        return found

    def partition(self, where: TopicPartition, topic_id: str) -> StoredPartition | None:
        """The partition, if this directory has it under the same topic id."""
        held = self._held(where)
        return held if held is not None and held.manifest.identity.topic_id == topic_id else None

    def _held(self, where: TopicPartition) -> StoredPartition | None:
        directory = self._directories.get(where)
        held = None if directory is None else _read_partition(directory)
        if held is None:
            # The partition may be newer than the listing, or recreated under the same name.
            held = self.partitions().get(where)
        return held

    def _some(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, StoredPartition]:
        found = {where: self._held(where) for where in partitions}
        return {where: held for where, held in found.items() if held is not None}

    def topics(self, names: Sequence[str] = ()) -> dict[str, Topic]:
        found: dict[str, Topic] = {}
        for where, held in sorted(self.partitions().items()):
            if where.topic not in names if names else is_internal(where.topic):
                continue
            known = found.get(where.topic)
            indexes = (*known.partitions, where.partition) if known else (where.partition,)
            found[where.topic] = Topic(where.topic, held.manifest.identity.topic_id, indexes)
        return found

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {where: held.start for where, held in self._some(partitions).items()}

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {
            where: held.end(committed_only=self._committed_only)
            for where, held in self._some(partitions).items()
        }

    def at_times(self, times: Mapping[TopicPartition, int]) -> Offsets:
        found = {
            where: held.offset_at(times[where], committed_only=self._committed_only)
            for where, held in self._some(times).items()
        }
        return {where: offset for where, offset in found.items() if offset is not None}

    def close(self) -> None:
        """Do nothing, because no file stays open."""


def is_internal(topic: str) -> bool:
    """Whether the topic is one of the broker's own, which Kafka's protocol marks as internal."""
    return topic.startswith("__")


def _read_partition(directory: str) -> StoredPartition | None:
    """Read a manifest. None if no part of the partition is stable yet, or it was just deleted."""
    path = f"{directory}/{NAME}"
    try:
        with open(path, "rb") as file:
            return StoredPartition(directory, decode_manifest(file.read(), path))
    except (FileNotFoundError, NotADirectoryError):
        return None


# ---- bytes


def read_piece(piece: StoredPiece, since: int | None = None) -> Iterator[tuple[memoryview, int]]:
    """Read chunks of whole batches, each with its first offset. Headers are verified, CRCs are not.

    With `since`, leading ranges without records at or after that time are skipped. Raises
    `FileNotFoundError` before the first chunk when the file was deleted, `CorruptionError` for
    damage.
    """
    segment = piece.segment
    with open(segment.log_path, "rb", buffering=0) as file:
        fd = file.fileno()
        index = _usable_index(piece, fd)
        number = index.range_holding(max(0, piece.start - piece.base_offset))
        if since is not None:
            number = max(number, index.range_for_time(since) or 0)
        while number < index.range_count:
            ranges = []
            size = 0
            while number < index.range_count and size < SPARK_READ_BYTES:
                each = index.range_at(number, piece.size)
                if each.start >= piece.size or piece.base_offset + each.first >= piece.end:
                    number = index.range_count
                    break
                ranges.append(each)
                size += each.stop - each.start
                number += 1
            if not ranges:
                return
            data = memoryview(os.pread(fd, size, ranges[0].start))
            if len(data) < size:
                raise CorruptionError(
                    segment.log_path, ranges[0].start + len(data), "file is too short"
                )
            for each in ranges:
                walk_range(data, ranges[0].start, segment, each)
            yield data, piece.base_offset + ranges[0].first


def _position(piece: StoredPiece, offset: int) -> int:
    """The start of the index range that contains the offset; the file's size for later offsets."""
    if offset >= piece.next_offset:
        return piece.size
    if offset <= piece.base_offset:
        return 0
    with open(piece.log_path, "rb") as file:
        index = _usable_index(piece, file.fileno())
    number = index.range_holding(offset - piece.base_offset)
    return index.range_at(number, piece.size).start if number < index.range_count else piece.size


def _usable_index(piece: StoredPiece, fd: int) -> SparseIndex:
    """The index file if it covers the segment, else an index built from the checked bytes.

    After a clean stop and a restart the segment grows together with its index, but the ranges up to
    the manifest's size do not change.
    """
    try:
        with open(piece.index_path, "rb") as file:
            index, checkpoint, _ = load_index(file.read(), piece.segment.tag)
    except FileNotFoundError:
        return _rebuilt_index(piece, fd)
    if checkpoint is None or checkpoint.position < piece.size:
        return _rebuilt_index(piece, fd)
    if checkpoint.position > piece.size:
        number = index.range_at_position(piece.size)
        if index.range_at(number, checkpoint.position).start != piece.size:
            return _rebuilt_index(piece, fd)
        index.cut_to_range(number)
    return index


def _rebuilt_index(piece: StoredPiece, fd: int) -> SparseIndex:
    index = SparseIndex()
    checksum, position, rest = 0, 0, b""
    while position < piece.size:
        data = rest + os.pread(
            fd, min(SCAN_CHUNK_BYTES, piece.size - position - len(rest)), position + len(rest)
        )
        if len(data) == len(rest):
            raise CorruptionError(piece.log_path, position, "file is too short or damaged")
        taken = _add_whole_batches(index, memoryview(data), position, piece)
        checksum = crc32c(data[:taken], checksum)
        position += taken
        rest = data[taken:]
    index.seal()
    if checksum != piece.checksum:
        raise CorruptionError(piece.log_path, 0, "file fails the checksum in its manifest")
    return index


def _add_whole_batches(
    index: SparseIndex, data: memoryview, position: int, piece: StoredPiece
) -> int:
    taken = 0
    while len(data) - taken >= WALK.size:
        base, length, _ = WALK.unpack_from(data, taken)
        size = length + LENGTH_PREFIX_BYTES
        if size < WALK.size or size > len(data) - taken:
            break
        prefix = data[taken : taken + WALKED_PREFIX_BYTES]
        index.add(base - piece.base_offset, position + taken, prefix, -1, SCAN_CHUNK_BYTES)
        taken += size
    return taken
