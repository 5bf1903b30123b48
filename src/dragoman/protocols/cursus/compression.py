"""Compressed frames: a registry of compressors, recognised by their magic bytes.

No field on the wire says whether a frame is compressed. The published clients compress batches and
not commands, so every frame is examined. Replies are never compressed. Raw snappy has no magic
bytes, so it is tried on frames that are not valid requests (`raw_snappy`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from dragoman.errors import DecodeError, EncodeError
from dragoman.log import compression
from dragoman.log.compression import Codec
from dragoman.protocols.cursus.constants import DECOMPRESSED_BYTES_MAX
from dragoman.types import Buffer


class Compressor(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    #: The first bytes of all output of `compress`.
    magic: bytes
    compress: Callable[[Buffer], bytes]
    #: Raises `DecodeError` for bad input and for output of more than the given size.
    decompress: Callable[[Buffer, int], bytes]


def _builtin(name: str, magic: bytes, codec: Codec) -> Compressor:
    return Compressor(
        name=name,
        magic=magic,
        compress=partial(compression.compress, codec),
        decompress=partial(compression.decompress, codec),
    )


_REGISTERED: dict[str, Compressor] = {}
#: The first byte of each registered magic: a fast check, because most frames are plain.
_FIRST_BYTES: set[int] = set()


def register(compressor: Compressor) -> None:
    """Register a compressor, replacing one of the same name. Raises `EncodeError` for one without a
    name or magic bytes.
    """
    if not compressor.magic or compressor.name == "none":
        raise EncodeError(f"compressor {compressor.name!r} needs a name and first bytes")
    _REGISTERED[compressor.name] = compressor
    _FIRST_BYTES.add(compressor.magic[0])


for _each in (
    _builtin("gzip", b"\x1f\x8b", Codec.GZIP),
    _builtin("snappy", b"\x82SNAPPY\x00", Codec.SNAPPY),
    _builtin("lz4", b"\x04\x22\x4d\x18", Codec.LZ4),
    _builtin("zstd", b"\x28\xb5\x2f\xfd", Codec.ZSTD),
):
    register(_each)


def compress(name: str, data: bytes) -> bytes:
    """Raises `EncodeError` for a name that is not registered."""
    if name == "none":
        return data
    compressor = _REGISTERED.get(name)
    if compressor is None:
        raise EncodeError(f"unknown compression {name!r}; known: none, {', '.join(_REGISTERED)}")
    return compressor.compress(data)


def plain(frame: Buffer, size_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The frame, decompressed if it was compressed. Raises `DecodeError`, also for more bytes."""
    if not frame or frame[0] not in _FIRST_BYTES:
        return frame
    head = bytes(frame[:16])
    for compressor in _REGISTERED.values():
        if head.startswith(compressor.magic):
            return compressor.decompress(frame, size_max)
    return frame


def raw_snappy(frame: Buffer, size_max: int = DECOMPRESSED_BYTES_MAX) -> bytes | None:
    try:
        return compression.decompress(Codec.SNAPPY, frame, size_max)
    except DecodeError:
        return None
