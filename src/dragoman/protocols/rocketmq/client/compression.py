"""Bodies that clients compress: the broker keeps them as they are, and readers inflate them."""

from __future__ import annotations

import zlib
from typing import Final

from dragoman.errors import DecodeError
from dragoman.limits import ROCKETMQ_CLIENT_INFLATED_BYTES_MAX
from dragoman.log import compression
from dragoman.log.compression import Codec
from dragoman.protocols.rocketmq.constants import COMPRESSION_SHIFT, SysFlag

#: Java's.
_LEVEL: Final = 5


def deflate(body: bytes) -> bytes:
    return zlib.compress(body, _LEVEL)


def inflate(body: bytes, sys_flag: int) -> bytes:
    """The plain body. Raises `DecodeError`, also for one that would become too large."""
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    bytes_max = ROCKETMQ_CLIENT_INFLATED_BYTES_MAX
    match (sys_flag & SysFlag.COMPRESSION_TYPE) >> COMPRESSION_SHIFT:
        case 0 | 3:
            return _inflate_zlib(body, bytes_max)
        case 1:
            return compression.decompress(Codec.LZ4, body, bytes_max)
        case 2:
            return compression.decompress(Codec.ZSTD, body, bytes_max)
        case kind:
            raise DecodeError(f"body in unknown compression {kind}")


def _inflate_zlib(body: bytes, bytes_max: int) -> bytes:
    inflating = zlib.decompressobj()
    try:
        plain = inflating.decompress(body, bytes_max)
        # One that ends exactly at the bound has its check behind it.
        rest = inflating.decompress(inflating.unconsumed_tail, 1)
    except zlib.error as error:
        raise DecodeError(f"bad zlib data: {error}") from None
    if rest:
        raise DecodeError(f"body of more than {bytes_max} bytes when inflated")
    if not inflating.eof:
        raise DecodeError("bad zlib data: it is cut off")
    return plain
