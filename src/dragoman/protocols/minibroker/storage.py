"""The original's segment files (spec, section 11): consecutive records, each with its own CRC.

    | size u32 | offset u64 | key size u16 | key | payload size u32 | payload | CRC-32 u32 |

The first size counts everything after it. The CRC is IEEE's, over everything between the size and
the CRC. Every record is checked. Damage is reported with the position at which valid records
resume.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from mmap import mmap
from typing import Final, NamedTuple, TypeAlias

from dragoman.protocols.minibroker.constants import FRAME_BYTES_MAX, KEY_BYTES_MAX, OFFSET_MAX
from dragoman.types import Buffer

Source: TypeAlias = Buffer | mmap

_HEAD: Final = struct.Struct(">IQH")
_U32: Final = struct.Struct(">I")
_LENGTH_BYTES: Final = 4
#: Offset, key length, payload length and CRC.
_BODY_BYTES_MIN: Final = 18
_BODY_BYTES_MAX: Final = _BODY_BYTES_MIN + KEY_BYTES_MAX + FRAME_BYTES_MAX


class StoredRecord(NamedTuple):
    offset: int
    key: bytes
    payload: bytes
    #: Position of the next record.
    end: int


class Damage(NamedTuple):
    position: int
    reason: str
    #: Position of the next valid record; None when there is none.
    resume: int | None
    #: The file ends inside this record.
    is_cut_off: bool

    @property
    def is_torn(self) -> bool:
        """Whether an interrupted write can have caused it: a beginning, and nothing after it."""
        return self.is_cut_off and self.resume is None


class _Bad(NamedTuple):
    reason: str
    is_cut_off: bool = False


def scan(data: Source, offset: int = 0) -> Iterator[StoredRecord | Damage]:
    """The records and the damage of one segment, in order. Records have `offset` or more."""
    position = 0
    while position < len(data):
        found = _record_at(data, position, offset)
        if isinstance(found, StoredRecord):
            yield found
            position, offset = found.end, found.offset + 1
            continue
        resume = _next_record(data, position + 1, offset)
        yield Damage(position, found.reason, resume, found.is_cut_off)
        if resume is None:
            return
        position = resume


def _record_at(data: Source, position: int, offset_min: int) -> StoredRecord | _Bad:
    if position + _HEAD.size > len(data):
        return _Bad(f"{len(data) - position} bytes are not a whole record", is_cut_off=True)
    size, offset, key_size = _HEAD.unpack_from(data, position)
    if not _BODY_BYTES_MIN + key_size <= size <= _BODY_BYTES_MAX:
        return _Bad(f"a record of {size} bytes with a key of {key_size} cannot be")
    start = position + _LENGTH_BYTES
    end = start + size
    if end > len(data):
        return _Bad(f"{len(data) - start} of {size} bytes of a record", is_cut_off=True)
    if not offset_min <= offset <= OFFSET_MAX:
        return _Bad(f"offset {offset} where {offset_min} or more is expected")
    key_end = position + _HEAD.size + key_size
    (payload_size,) = _U32.unpack_from(data, key_end)
    payload_end = key_end + _U32.size + payload_size
    if payload_end + _U32.size != end:
        return _Bad(f"a payload of {payload_size} bytes does not fit a record of {size}")
    (crc,) = _U32.unpack_from(data, payload_end)
    if zlib.crc32(data[start:payload_end]) != crc:
        return _Bad(f"the CRC of the record at offset {offset} does not match")
    key = bytes(data[position + _HEAD.size : key_end])
    return StoredRecord(offset, key, bytes(data[key_end + _U32.size : payload_end]), end)


def _next_record(data: Source, position: int, offset: int) -> int | None:
    for start in range(position, len(data) - _LENGTH_BYTES - _BODY_BYTES_MIN + 1):
        if isinstance(_record_at(data, start, offset), StoredRecord):
            return start
    return None


def encode_record(offset: int, key: bytes, payload: bytes) -> bytes:
    """One record as the original writes it."""
    size = _BODY_BYTES_MIN + len(key) + len(payload)
    head = _HEAD.pack(size, offset, len(key))
    body = head[_LENGTH_BYTES:] + key + _U32.pack(len(payload)) + payload
    return head[:_LENGTH_BYTES] + body + _U32.pack(zlib.crc32(body))
