"""Expansion of compressed batches: a bound on the size without expanding, and a cache of results.

Kafka clients get compressed batches as they are. Readers of other protocols need the records, a few
at a time: a batch is expanded once and cached for the reads that follow. Batches that are too large
to expand are cached as such, so that reading one repeatedly costs no more than reading it once.

`expanded_bytes_most` needs no expansion. Every format has its expanded size, or consists of blocks
with a maximum size:

    gzip     the last four bytes are the size (of the last member, modulo 2^32)
    snappy   each block begins with its size
    lz4      blocks of at most 64 KiB to 4 MiB, as the frame's header says
    zstd     the frame's header may have the size; blocks of at most 128 KiB, each behind its length

So a batch that is too large is refused when it is produced, without expanding it. Only a producer
that ends an lz4 or zstd block after each record has many blocks far below the maximum: its batches
are expanded to check them, up to the ratio that such blocks can reach. A false size in a batch is
found when it is read: expansion stops at the bound.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from struct import error as StructError  # noqa: N812
from struct import unpack_from

from dragoman.errors import DecodeError, OversizedBatchError
from dragoman.limits import (
    BATCH_HEADER_BYTES,
    EXPANDED_BATCH_BYTES_MAX,
    EXPANSIONS_BYTES_MAX,
    EXPANSIONS_MAX,
)
from dragoman.log.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    BatchHeader,
    Record,
    parse_records,
    read_varint,
)
from dragoman.log.compression import Codec, decompress, snappy_sizes

#: Bytes to which one byte of each codec expands at most; a byte of zstd may be a whole block.
_RATIOS_MAX = {Codec.GZIP.value: 1032, Codec.SNAPPY.value: 24, Codec.LZ4.value: 256}
_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_BYTES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 128 << 10
#: Skippable frames of lz4 and zstd.
_SKIPPED_MAGIC = 0x184D2A50
#: Blocks and frames that are counted, which takes a few milliseconds. A block may have three bytes,
#: and a batch a million blocks; with more of them, the size is unknown without expanding.
_BLOCKS_MAX = 4096
#: An unknown size, above any bound.
_UNKNOWN_BYTES = 1 << 62
#: Codecs whose blocks may be smaller than the maximum that is assumed for them.
_COUNTED_IN_BLOCKS = (Codec.LZ4.value, Codec.ZSTD.value)
#: Bytes to which one byte of small blocks expands at most: a block has some ten bytes of overhead.
_SMALL_BLOCKS_RATIO_MAX = 64
#: Records between two cached positions in an expanded batch.
_MARK_STEP = 512


def expanded_bytes_max(message_bytes_max: int) -> int:
    """Size to which a batch of a topic with this `max.message.bytes` may expand."""
    return max(EXPANDED_BATCH_BYTES_MAX, message_bytes_max)


def expands_beyond(codec: int, data: memoryview, bytes_max: int) -> bool:
    """Whether compressed records may expand to more than `bytes_max`.

    Most are too few bytes for that, and are not parsed. Malformed data counts as small: readers
    report it.
    """
    if len(data) * _RATIOS_MAX.get(codec, bytes_max) <= bytes_max:
        return False
    try:
        return expanded_bytes_most(codec, data) > bytes_max
    except (StructError, IndexError, KeyError, DecodeError):
        return False


def is_oversized(codec: int, data: memoryview, bytes_max: int) -> bool:
    """Whether a producer's compressed records expand to more than `bytes_max`.

    Where blocks may be smaller than assumed, the data is expanded, at a bounded cost per byte.
    """
    if not expands_beyond(codec, data, bytes_max):
        return False
    if codec not in _COUNTED_IN_BLOCKS:
        return True
    try:
        decompress(codec, data, min(bytes_max, _SMALL_BLOCKS_RATIO_MAX * len(data)))
    except OversizedBatchError:
        return True
    except DecodeError:
        return False
    return False


def expanded_bytes_most(codec: int, data: memoryview) -> int:
    """An upper bound of the expanded size, without expanding; at worst `_UNKNOWN_BYTES`."""
    match codec:
        case Codec.GZIP:
            (size,) = unpack_from("<I", data, len(data) - 4)
            return int(size)
        case Codec.SNAPPY:
            return sum(snappy_sizes(data))
        case Codec.LZ4:
            return _sum_of_frames(data, _LZ4_MAGIC, _lz4_frame)
        case Codec.ZSTD:
            return _sum_of_frames(data, _ZSTD_MAGIC, _zstd_frame)
        case _:
            return len(data)


def _sum_of_frames(
    data: memoryview, magic: int, frame: Callable[[memoryview, int, int], tuple[int, int, int]]
) -> int:
    position = most = 0
    left = _BLOCKS_MAX
    while position < len(data):
        left -= 1
        if left < 0:
            return _UNKNOWN_BYTES
        (found,) = unpack_from("<I", data, position)
        if found == magic:
            size, position, left = frame(data, position + 4, left)
            most += size
        elif found & ~0xF == _SKIPPED_MAGIC:
            (size,) = unpack_from("<I", data, position + 4)
            position += 8 + size
        else:
            raise DecodeError(f"{found:#x} begins no frame")
    return most


def _lz4_frame(data: memoryview, position: int, left: int) -> tuple[int, int, int]:
    """A bound of a frame's expanded size, its end, and how many of `left` blocks remain to be
    counted: negative when the frame was not read to its end.
    """
    flags, blocks = unpack_from("<BB", data, position)
    position += 2
    stated: int | None = None
    if flags & 0x08:
        (stated,) = unpack_from("<Q", data, position)
        position += 8
    # The id of a dictionary, and a checksum of the header.
    position += (4 if flags & 0x01 else 0) + 1
    block_bytes = _LZ4_BLOCK_BYTES[blocks >> 4 & 7]
    checksum_bytes = 4 if flags & 0x10 else 0
    most = 0
    while True:
        (head,) = unpack_from("<I", data, position)
        if not head:
            break
        left -= 1
        if left < 0:
            return _UNKNOWN_BYTES, position, left
        size = head & 0x7FFFFFFF
        most += size if head >> 31 else block_bytes
        position += 4 + size + checksum_bytes
    position += 4 + (4 if flags & 0x04 else 0)
    return most if stated is None else min(stated, most), position, left


def _zstd_frame(data: memoryview, position: int, left: int) -> tuple[int, int, int]:
    """`_lz4_frame` for zstd."""
    descriptor = data[position]
    is_single = descriptor >> 5 & 1
    position += 1 + (0 if is_single else 1) + (0, 1, 2, 4)[descriptor & 3]
    size_bytes = (is_single, 2, 4, 8)[descriptor >> 6]
    stated: int | None = None
    if size_bytes:
        stated = int.from_bytes(data[position : position + size_bytes], "little")
        stated += 256 if size_bytes == 2 else 0
        position += size_bytes
    most = 0
    is_last = False
    while not is_last:
        left -= 1
        if left < 0:
            return _UNKNOWN_BYTES, position, left
        if position + 3 > len(data):
            raise DecodeError("zstd data is cut off")
        head = int.from_bytes(data[position : position + 3], "little")
        is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        # A block is raw, one byte repeated, or compressed.
        most += size if kind < 2 else _ZSTD_BLOCK_BYTES
        position += 3 + (1 if kind == 1 else size)
    position += 4 if descriptor & 4 else 0
    return most if stated is None else min(stated, most), position, left


class Expanded:
    """The records of one batch, decoded one by one, from anywhere."""

    __slots__ = ("_header", "_marks", "_plain", "_times")

    def __init__(self, header: BatchHeader, plain: bytes) -> None:
        self._header = header
        self._plain = plain
        #: Positions of every `_MARK_STEP`-th record, up to the last one that was read.
        self._marks = [0]
        #: The latest timestamp up to each record; computed at the first search by time.
        self._times: array[int] | None = None

    @property
    def size(self) -> int:
        times = 0 if self._times is None else len(self._times)
        return len(self._plain) + 8 * (len(self._marks) + times)

    def records(self, offset: int = 0) -> Iterator[Record]:
        """The records from `offset` on. Raises `DecodeError` at the first malformed one."""
        header = self._header
        skipped = offset - header.base_offset
        if skipped <= 0:
            yield from parse_records(self._plain, header)
        elif header.record_count != header.last_offset_delta + 1:
            # Compaction has removed records, so offsets have gaps.
            found = parse_records(self._plain, header)
            yield from (record for record in found if record.offset >= offset)
        elif skipped < header.record_count:
            yield from parse_records(self._plain, header, self._position(skipped), skipped)

    def first_since(self, timestamp: int, offset: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after a time and at or after an offset."""
        header = self._header
        if (
            header.attributes & LOG_APPEND_TIME
            or header.record_count != header.last_offset_delta + 1
        ):
            for record in self.records(offset):
                if record.timestamp >= timestamp:
                    return record.offset, record.timestamp
            return None
        if self._times is None:
            self._times = self._latest_times()
        index = bisect_left(self._times, timestamp)
        begin = max(header.base_offset + index, offset)
        for record in self.records(begin):
            if record.timestamp >= timestamp:
                return record.offset, record.timestamp
        return None

    def _position(self, index: int) -> int:
        """Position of a record, found from the nearest cached position."""
        plain, marks = self._plain, self._marks
        number = min(index // _MARK_STEP, len(marks) - 1)
        position = marks[number]
        try:
            for at in range(number * _MARK_STEP, index):
                size, position = read_varint(plain, position)
                if size < 0:
                    raise DecodeError(f"record of {size} bytes")
                position += size
                if (at + 1) % _MARK_STEP == 0 and (at + 1) // _MARK_STEP == len(marks):
                    marks.append(position)
        except IndexError:
            raise DecodeError("record is cut off") from None
        return position

    def _latest_times(self) -> array[int]:
        plain, base = self._plain, self._header.base_timestamp
        times = array("q")
        position, latest = 0, -(1 << 62)
        try:
            for _ in range(self._header.record_count):
                size, position = read_varint(plain, position)
                delta, _ = read_varint(plain, position + 1)
                latest = max(latest, base + delta)
                times.append(latest)
                position += size
        except (IndexError, OverflowError):
            raise DecodeError("record is cut off or has no time") from None
        return times


class Expansions:
    """Cache of expanded batches, and of errors of those that are too large. The least recently used
    go first.
    """

    def __init__(
        self, bytes_max: int = EXPANSIONS_BYTES_MAX, count_max: int = EXPANSIONS_MAX
    ) -> None:
        self._bytes_max = bytes_max
        self._count_max = count_max
        self._kept: OrderedDict[Hashable, Expanded | OversizedBatchError] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self.held_bytes = 0
        #: Number of expansions.
        self.count = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(
        self, owner: Hashable, header: BatchHeader, batch: memoryview, bytes_max: int
    ) -> Expanded:
        """The records of a batch of the partition `owner`.

        Raises `DecodeError`, and `OversizedBatchError` when it expands to more than `bytes_max`.
        """
        payload = batch[BATCH_HEADER_BYTES:]
        codec = header.attributes & CODEC_MASK
        if not codec:
            return Expanded(header, bytes(payload))
        key = (owner, header.base_offset, header.crc, header.length, bytes_max)
        known = self._kept.get(key)
        if known is None:
            self.count += 1
            try:
                known = Expanded(header, decompress(codec, payload, bytes_max))
            except OversizedBatchError as error:
                known = error.with_traceback(None)
            self._keep(key, known)
        else:
            self._kept.move_to_end(key)
            self._measure(key, known)
        if isinstance(known, OversizedBatchError):
            raise OversizedBatchError(str(known))
        return known

    def _keep(self, key: Hashable, known: Expanded | OversizedBatchError) -> None:
        self._kept[key] = known
        self._measure(key, known)
        # The newest stays, however large: it is being read.
        while len(self._kept) > 1 and (
            self.held_bytes > self._bytes_max or len(self._kept) > self._count_max
        ):
            oldest, _ = self._kept.popitem(last=False)
            self.held_bytes -= self._sizes.pop(oldest)

    def _measure(self, key: Hashable, known: Expanded | OversizedBatchError) -> None:
        size = known.size if isinstance(known, Expanded) else 0
        self.held_bytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size
