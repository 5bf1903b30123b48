"""Bytes of records as JSON, and back."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman import limits
from dragoman.api.declaration import ApiError
from dragoman.api.record_values import (
    Encoded,
    NewRecord,
    Payload,
    ReadHeader,
    ReadRecord,
)
from dragoman.errors import MALFORMED
from dragoman.log.batch import Record

#: How readers want values: text where it is UTF-8, JSON where it is that, or always base64.
Form: TypeAlias = Literal["text", "json", "base64"]
_utf8: Final = getincrementaldecoder("utf-8")
_encode: Final = msgspec.json.Encoder().encode


def payload_of(data: bytes | None, form: Form, bytes_max: int) -> Payload | None:
    """What a reader gets of these bytes."""
    if data is None:
        return None
    is_cut = len(data) > bytes_max
    piece = data[:bytes_max] if is_cut else data
    if form == "json" and not is_cut and _is_json(piece):
        return Payload(encoding="json", data=msgspec.Raw(piece), size=len(data))
    text = None if form == "base64" else _text_of(piece, is_cut=is_cut)
    if text is not None:
        return Payload(
            encoding="text", data=msgspec.Raw(_encode(text)), size=len(data), is_cut=is_cut
        )
    encoded = msgspec.Raw(b'"%s"' % b64encode(piece))
    return Payload(encoding="base64", data=encoded, size=len(data), is_cut=is_cut)


def _text_of(piece: bytes, *, is_cut: bool) -> str | None:
    """The text, without a character that the cut has split; None when it is not UTF-8."""
    try:
        return _utf8().decode(piece, final=not is_cut)
    except UnicodeDecodeError:
        return None


def _is_json(piece: bytes) -> bool:
    # Its values are not made: a megabyte may have several hundred thousand of them.
    try:
        piece.decode()
        msgspec.json.decode(piece, type=msgspec.Raw)
    except MALFORMED:
        return False
    return True


def read_record(partition: int, form: Form, bytes_max: int, record: Record) -> ReadRecord:
    return ReadRecord(
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=payload_of(record.key, form, bytes_max),
        value=payload_of(record.value, form, bytes_max),
        headers=headers_of(record.headers, form, bytes_max),
        header_count=len(record.headers),
    )


def headers_of(
    headers: Sequence[tuple[str, bytes | None]], form: Form, bytes_max: int
) -> tuple[ReadHeader, ...]:
    """The first headers of a record: one of a megabyte may have half a million."""
    return tuple(
        ReadHeader(name=name, value=payload_of(value, form, bytes_max))
        for name, value in headers[: limits.HTTP_HEADERS_MAX]
    )


def size_of(record: ReadRecord) -> int:
    """Roughly the bytes of the record's JSON."""
    payloads = (record.key, record.value, *(each.value for each in record.headers))
    names = sum(len(each.name) for each in record.headers)
    return 100 + names + sum(60 + len(bytes(each.data)) for each in payloads if each is not None)


def new_record(given: NewRecord, where: str, now_ms: int) -> Record:
    """Raises `ApiError`."""
    return Record(
        key=_bytes_of(given.key, f"{where}.key"),
        value=_bytes_of(given.value, f"{where}.value"),
        headers=tuple(
            (each.name, _bytes_of(each.value, f"{where}.headers[{index}].value"))
            for index, each in enumerate(given.headers)
        ),
        timestamp=now_ms if given.timestamp is None else given.timestamp,
    )


def _bytes_of(given: str | Encoded | None, where: str) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode()
    if (given.base64 is None) == (given.json is msgspec.UNSET):
        raise ApiError(400, "invalid_request", f"{where}: give either base64 or json")
    if not isinstance(given.json, msgspec.UnsetType):
        return bytes(given.json)
    assert given.base64 is not None
    try:
        return b64decode(given.base64, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, "invalid_request", f"{where}.base64: not base64") from None
