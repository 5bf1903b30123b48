"""One segment: a run of batches in one file, named by base offset and generation.

    00000000000000004096.3.log      batches, back to back, nothing else; the file's size is its end
    00000000000000004096.3.idx      sparse index (`log/index.py`)

A segment is *active* (appended to), then *rolled* (never appended to again). Compaction does not
change a rolled file: it writes another one with the same base and a higher generation. A truncation
shortens the last file that stays and rolls it; later appends go into a new one. So no byte of a
segment file is ever written twice with different content.

The base is the log's end when the segment was started: each segment begins where the one before
ended, whatever offset its first batch has.

`size` counts all bytes appended; `written` those already in the file. Bytes between the two are
dirty: journalled, kept in memory, and written later (`log/write_behind.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError
from dragoman.limits import BATCH_HEADER_BYTES, SCAN_CHUNK_BYTES
from dragoman.log.batch import (
    HEADER,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    UNCHECKED_PREFIX_BYTES,
    BatchHeader,
)
from dragoman.log.index import SparseIndex
from dragoman.log.manifest import SegmentEntry
from dragoman.types import Buffer
from dragoman.world import File


class Segment:
    __slots__ = (
        "base_offset",
        "checksum",
        "created_ms",
        "cuts",
        "damage",
        "directory",
        "generation",
        "has_gaps",
        "index",
        "is_gone",
        "is_rolled",
        "max_timestamp",
        "next_offset",
        "size",
        "unreadable",
        "written",
        "written_ms",
        "written_out",
    )

    def __init__(self, directory: str, base_offset: int, generation: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.generation = generation
        self.next_offset = base_offset
        self.size = 0
        self.written = 0
        #: Bytes of the file that the system was asked to write back.
        self.written_out = 0
        self.checksum = 0
        self.max_timestamp = -1
        self.created_ms = -1
        #: Wall-clock time of the last write to the file; -1 before the first.
        self.written_ms = -1
        #: How often a truncation has shortened it.
        self.cuts = 0
        self.is_rolled = False
        #: Whether retention, compaction or truncation has removed it from the log.
        self.is_gone = False
        #: Whether offsets may have gaps, because of compaction, an import or a copy.
        self.has_gaps = False
        #: In memory while active, loaded on demand once rolled.
        self.index: SparseIndex | None = None
        #: Unreadable offsets that the index leaves out: (first, next good, byte position).
        self.damage: tuple[tuple[int, int, int], ...] = ()
        #: Unreadable ranges, in the same form, that readers found later and the index covers.
        self.unreadable: tuple[tuple[int, int, int], ...] = ()

    @property
    def log_path(self) -> str:
        return f"{self.directory}/{segment_name(self.base_offset, self.generation)}.log"

    @property
    def index_path(self) -> str:
        return f"{self.directory}/{segment_name(self.base_offset, self.generation)}.idx"

    def newest_ms(self, now_ms: int) -> int:
        """Time from which retention and compaction measure age: that of the latest record.

        Records without a timestamp count from their write to the file, and from now while they are
        dirty, that is, appended seconds ago. A maximum of 0 counts as none: earlier releases stored
        it for records of librdkafka without a timestamp.
        """
        if self.max_timestamp > 0:
            return self.max_timestamp
        if self.written < self.size:
            return now_ms
        return max(self.written_ms, self.created_ms)

    @property
    def tag(self) -> int:
        """Seed of the checksums of its index, so that another segment's index is refused."""
        directory = self.directory.rpartition("/")[2]
        return crc32c(f"{directory}/{segment_name(self.base_offset, self.generation)}".encode())

    @property
    def lost(self) -> tuple[tuple[int, int, int], ...]:
        """All unreadable ranges of offsets."""
        return self.damage + self.unreadable if self.unreadable else self.damage

    def __repr__(self) -> str:
        return f"<Segment {self.log_path} {self.base_offset}..{self.next_offset} {self.size} B>"


class Run:
    """Contiguous bytes of one segment that wait to be written.

    While staged, a chunk is a batch; at the commit small ones are joined.
    """

    __slots__ = ("base_offset", "chunks", "position", "segment", "size")

    def __init__(self, segment: Segment, position: int, base_offset: int) -> None:
        self.segment = segment
        self.position = position
        self.base_offset = base_offset
        self.chunks: list[Buffer] = []
        self.size = 0


def segment_name(base_offset: int, generation: int) -> str:
    return f"{base_offset:020d}.{generation}"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """(base offset, generation) of a `.log` file name, or None for any other name."""
    parts = name.split(".")
    if len(parts) != 3 or parts[2] != "log" or len(parts[0]) != 20:
        return None
    if not parts[0].isdecimal() or not parts[1].isdecimal():
        return None
    return int(parts[0]), int(parts[1])


def scan(
    file: File, path: str, start: int, end: int, *, verify: bool = True
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, whole batch) of each batch between two byte positions.

    Raises `CorruptionError` at the first batch that is not sound. Reads in chunks; a batch larger
    than a chunk is read whole.
    """
    position = start
    while position < end:
        data = memoryview(file.read(min(SCAN_CHUNK_BYTES, end - position), position))
        consumed = 0
        while len(data) - consumed >= BATCH_HEADER_BYTES:
            header = _checked_header(data, consumed, path, position + consumed, end)
            stop = consumed + header.size
            if stop > len(data):
                break
            batch = data[consumed:stop]
            if verify and crc32c(batch[UNCHECKED_PREFIX_BYTES:]) != header.crc:
                raise CorruptionError(path, position + consumed, "batch fails its CRC")
            yield position + consumed, header, batch
            consumed = stop
        if consumed == 0:
            consumed = yield from _scan_large(file, path, position, end, verify)
        position += consumed


def _scan_large(
    file: File, path: str, position: int, end: int, verify: bool
) -> Generator[tuple[int, BatchHeader, memoryview], None, int]:
    """Yield one batch that is larger than a chunk; returns its size."""
    head = memoryview(file.read(BATCH_HEADER_BYTES, position))
    if len(head) < BATCH_HEADER_BYTES:
        raise CorruptionError(path, position, "batch header is cut off")
    header = _checked_header(head, 0, path, position, end)
    batch = memoryview(file.read(header.size, position))
    if len(batch) < header.size:
        raise CorruptionError(path, position, "batch is cut off")
    if verify and crc32c(batch[UNCHECKED_PREFIX_BYTES:]) != header.crc:
        raise CorruptionError(path, position, "batch fails its CRC")
    yield position, header, batch
    return header.size


def _checked_header(data: memoryview, at: int, path: str, position: int, end: int) -> BatchHeader:
    header = BatchHeader._make(HEADER.unpack_from(data, at))
    if header.magic != MAGIC or header.length < BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES:
        raise CorruptionError(path, position, "not a batch header")
    if header.last_offset_delta < 0 or header.base_offset < 0:
        raise CorruptionError(path, position, "batch has a negative offset")
    if position + header.size > end:
        raise CorruptionError(path, position, "batch is cut off")
    return header


def checksum_of(file: File, end: int) -> int:
    """CRC-32C of a file's first `end` bytes."""
    checksum = 0
    for position in range(0, end, SCAN_CHUNK_BYTES):
        checksum = crc32c(file.read(min(SCAN_CHUNK_BYTES, end - position), position), checksum)
    return checksum


def listed_segment(directory: str, entry: SegmentEntry) -> Segment:
    """A rolled segment as the manifest lists it."""
    segment = Segment(directory, entry.base_offset, entry.generation)
    segment.next_offset = entry.next_offset
    segment.size = segment.written = entry.size
    segment.checksum = entry.checksum
    segment.max_timestamp = entry.max_timestamp
    segment.created_ms = entry.created_ms
    segment.written_ms = entry.written_ms
    segment.has_gaps = entry.has_gaps
    segment.damage = entry.damage
    segment.unreadable = entry.unreadable
    segment.is_rolled = True
    return segment


def date_writes(segments: list[Segment], latest: int) -> None:
    """Fill in `written_ms` of segments listed by earlier releases, which did not record it.

    It is at most the creation of the next segment; an earlier guess would let retention delete
    records too soon.
    """
    for segment in reversed(segments):
        if segment.written_ms < 0:
            segment.written_ms = latest
        latest = segment.created_ms


def entry_of(segment: Segment, aborted: tuple[tuple[int, int, int], ...]) -> SegmentEntry:
    """A segment's entry in the manifest. `aborted`: (producer, first offset, last offset)."""
    return SegmentEntry(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        generation=segment.generation,
        size=segment.size,
        checksum=segment.checksum,
        max_timestamp=segment.max_timestamp,
        created_ms=segment.created_ms,
        written_ms=segment.written_ms,
        has_gaps=segment.has_gaps,
        aborted=aborted,
        damage=segment.damage,
        unreadable=segment.unreadable,
    )
