"""The four codecs of a record batch, over one library.

Only code that needs the records uses it: compaction, search by time, internal topics, recompression
and reads of other protocols. Kafka's produce and fetch paths pass compressed bytes through.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum

import cramjam

from dragoman.errors import DecodeError, EncodeError, OversizedBatchError
from dragoman.limits import DECOMPRESSED_BATCH_BYTES_MAX
from dragoman.types import Buffer


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


#: Java and librdkafka wrap snappy in blocks behind this header; raw snappy occurs too.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_XERIAL_BLOCK_BYTES = 32 << 10


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(
                cramjam.gzip.compress(data, level if level is not None and level >= 0 else 6)
            )
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return bytes(cramjam.lz4.compress(data, level if level is not None else 1))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level if level is not None else 3))


def decompress(codec: int, data: Buffer, bytes_max: int | None = None) -> bytes:
    """The plain records. Raises `DecodeError` for damaged input, and `OversizedBatchError` for
    output past the bound, which is `DECOMPRESSED_BATCH_BYTES_MAX` unless another one is given.
    """
    if bytes_max is None:
        bytes_max = DECOMPRESSED_BATCH_BYTES_MAX
    try:
        match codec:
            case Codec.NONE:
                return bytes(data)
            case Codec.GZIP:
                hint = int.from_bytes(bytes(memoryview(data)[-4:]), "little")
                return _bounded(cramjam.gzip.decompress_into, data, bytes_max, hint)
            case Codec.SNAPPY:
                return _decompress_snappy(data, bytes_max)
            case Codec.LZ4:
                return _bounded(cramjam.lz4.decompress_into, data, bytes_max)
            case Codec.ZSTD:
                return _bounded(cramjam.zstd.decompress_into, data, bytes_max)
            case _:
                raise DecodeError(f"unknown compression codec {codec}")
    except cramjam.DecompressionError as error:
        raise DecodeError(f"bad {Codec(codec).name.lower()} data: {error}") from None


def _bounded(
    decompress_into: Callable[[Buffer, bytearray], int],
    data: Buffer,
    bytes_max: int,
    hint: int = 0,
) -> bytes:
    """Decompress into a buffer of known size, so that a small input cannot take unbounded memory.

    The buffer starts at a guess, or at the size that the data claims, and grows while it is too
    small. The library reports that only in the text of its error, which a test checks.
    """
    room = min(bytes_max, max(8 * len(data) + (4 << 10), hint))
    while True:
        output = bytearray(room)
        try:
            size = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise
            if room == bytes_max:
                raise OversizedBatchError(f"batch decompresses to more than {room} bytes") from None
            room = min(bytes_max, 4 * room)
        else:
            with memoryview(output) as view:
                return bytes(view[:size])


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_MAGIC, struct.pack(">ii", 1, 1)]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(struct.pack(">i", len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    total = 0
    for block in _snappy_blocks(memoryview(data)):
        part = _snappy_block(block, total, bytes_max)
        total += len(part)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def snappy_sizes(data: Buffer) -> Iterator[int]:
    """The decompressed size that each block claims. Raises `DecodeError`."""
    try:
        for block in _snappy_blocks(memoryview(data)):
            yield cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise DecodeError(f"bad snappy data: {error}") from None


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    """Raw blocks; without a Xerial header, all data is one block. Raises `DecodeError`."""
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield view
        return
    position = _XERIAL_HEADER_BYTES
    while position < len(view):
        if len(view) - position < 4:
            raise DecodeError("snappy block length is cut off")
        (size,) = struct.unpack_from(">i", view, position)
        position += 4
        if not 0 < size <= len(view) - position:
            raise DecodeError(f"snappy block of {size} bytes in {len(view) - position}")
        yield view[position : position + size]
        position += size


def _snappy_block(block: memoryview, before: int, bytes_max: int) -> bytes:
    """Decompress one raw block. Its claimed size is checked before memory is allocated."""
    size = cramjam.snappy.decompress_raw_len(block)
    if before + size > bytes_max:
        raise OversizedBatchError(f"batch decompresses to more than {bytes_max} bytes")
    return bytes(cramjam.snappy.decompress_raw(block))


def codec_by_name(name: str) -> Codec:
    """`none`, `uncompressed`, `gzip`, `snappy`, `lz4` or `zstd`, as in `compression.type`."""
    if name == "uncompressed":
        return Codec.NONE
    try:
        return Codec[name.upper()]
    except KeyError:
        raise EncodeError(f"unknown compression {name!r}") from None
