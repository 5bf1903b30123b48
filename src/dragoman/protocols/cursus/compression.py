"""Compressed frames: which codec, by the first bytes, and a registry to which users may add.

Nothing on the wire says whether a frame is compressed. The published clients compress batches and
send commands plain, so each frame is looked at by itself. Replies are never compressed. Raw snappy
has no first bytes of its own: it is tried on what is no request otherwise (`raw_snappy`).
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
    #: First bytes of everything that `compress` gives.
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
#: Of all that are registered: most frames are plain, and seen to be so at once.
_FIRST_BYTES: set[int] = set()


def register(compressor: Compressor) -> None:
    """Replaces one of the same name. Raises `EncodeError` when its first bytes cannot be told."""
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
    """Raises `EncodeError` for a name that nobody registered."""
    if name == "none":
        return data
    compressor = _REGISTERED.get(name)
    if compressor is None:
        raise EncodeError(f"unknown compression {name!r}; known: none, {', '.join(_REGISTERED)}")
    return compressor.compress(data)


def plain(frame: Buffer) -> Buffer:
    """The frame as it was before it was compressed, if it was. Raises `DecodeError`."""
    if not frame or frame[0] not in _FIRST_BYTES:
        return frame
    head = bytes(frame[:16])
    for compressor in _REGISTERED.values():
        if head.startswith(compressor.magic):
            return compressor.decompress(frame, DECOMPRESSED_BYTES_MAX)
    return frame


def raw_snappy(frame: Buffer) -> bytes | None:
    try:
        return compression.decompress(Codec.SNAPPY, frame, DECOMPRESSED_BYTES_MAX)
    except DecodeError:
        return None
