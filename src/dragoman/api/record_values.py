"""Values of operations on records, version 1 of the JSON API; see `values.py`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dragoman import limits

_TIME_MS_MAX = (1 << 63) - 1


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a key, a value or a header."""

    #: What `data` is: text, any JSON, or base64 of bytes that are neither.
    encoding: Literal["text", "json", "base64"]
    data: msgspec.Raw
    #: Bytes in the record.
    size: int
    #: Whether `data` has the first bytes only.
    is_cut: bool = False


class ReadHeader(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: Payload | None


class ReadRecord(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    offset: int
    #: Milliseconds since 1970; -1: none.
    timestamp: int
    key: Payload | None
    #: Null in a tombstone.
    value: Payload | None
    #: The first headers of the record.
    headers: tuple[ReadHeader, ...]
    #: How many headers the record has.
    header_count: int


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    items: tuple[ReadRecord, ...]
    #: The `offset` of the next page; null at the end of the committed records.
    next: int | None
    log_start_offset: int
    #: The end of the committed records.
    end_offset: int


class Encoded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes that are not text: exactly one of the two."""

    base64: Annotated[str, Meta(max_length=limits.HTTP_BODY_BYTES_MAX)] | None = None
    #: Any JSON, which is stored as it was sent.
    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class NewHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    value: str | Encoded | None = None


class NewRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record to write. Without a partition, its key decides, as with Kafka's clients."""

    key: str | Encoded | None = None
    value: str | Encoded | None = None
    headers: Annotated[tuple[NewHeader, ...], Meta(max_length=limits.HTTP_HEADERS_MAX)] = ()
    partition: Annotated[int, Meta(ge=0, le=limits.TOPIC_PARTITIONS_MAX)] | None = None
    #: Milliseconds since 1970; null: now.
    timestamp: Annotated[int, Meta(ge=0, le=_TIME_MS_MAX)] | None = None


class NewRecords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    records: Annotated[
        tuple[NewRecord, ...], Meta(min_length=1, max_length=limits.HTTP_RECORDS_MAX)
    ]


class WrittenRecord(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    #: Null when the record was not written, or may not have been: `problem` says why.
    offset: int | None
    problem: str = ""


class WrittenRecords(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    #: In the order of the request.
    items: tuple[WrittenRecord, ...]
