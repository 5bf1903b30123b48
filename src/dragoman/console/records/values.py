"""Values of requests and answers about records."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dragoman import limits
from dragoman.console.records.decoding.forms import Choice, Form

Offset = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Partition = Annotated[int, Meta(ge=0, le=limits.TOPIC_PARTITIONS_MAX)]
PlaceText = Annotated[str, Meta(max_length=100)]


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True): ...


class Decoding(_Request, frozen=True, kw_only=True):
    key: Choice = "auto"
    value: Choice = "auto"


class Budget(_Request, frozen=True, kw_only=True):
    """A search ends at the first of these."""

    records: Annotated[int, Meta(ge=1, le=limits.CONSOLE_SEARCH_RECORDS_MAX)] = 1_000_000
    bytes: Annotated[int, Meta(ge=1, le=limits.CONSOLE_SEARCH_BYTES_MAX)] = 1 << 30
    seconds: Annotated[float, Meta(gt=0, le=limits.CONSOLE_SEARCH_SECONDS_MAX)] = 30.0


class Continue(_Request, frozen=True, kw_only=True):
    """Where a search has ended, by partition: the next offset, and where the search goes to."""

    positions: dict[str, Offset]
    ends: dict[str, Offset]


class Search(_Request, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(min_length=1, max_length=limits.TOPIC_NAME_BYTES_MAX)]
    #: None: all.
    partitions: Annotated[tuple[Partition, ...], Meta(max_length=limits.TOPIC_PARTITIONS_MAX)] = ()
    #: Places as in `api/places.py`. Without `until`, a search goes to the end at its beginning.
    start: PlaceText = msgspec.field(default="earliest", name="from")
    until: PlaceText | None = None
    filter: str = ""
    decode: Decoding = Decoding()
    #: What is found: records to show, or lines of a file.
    form: Literal["records", "jsonl", "csv"] = "records"
    limit: Annotated[int, Meta(ge=1, le=limits.CONSOLE_EXPORT_RECORDS_MAX)] = 100
    budget: Budget = Budget()
    resume: Continue | None = msgspec.field(default=None, name="continue")


class Tail(_Request, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(min_length=1, max_length=limits.TOPIC_NAME_BYTES_MAX)]
    partitions: Annotated[tuple[Partition, ...], Meta(max_length=limits.TOPIC_PARTITIONS_MAX)] = ()
    filter: str = ""
    decode: Decoding = Decoding()
    #: Records shown in a second; the others are counted.
    rate: Annotated[int, Meta(ge=1, le=limits.CONSOLE_TAIL_RECORDS_PER_SECOND_MAX)] = 50
    #: Where a tail that was interrupted continues, by partition; others begin at the end.
    positions: dict[str, Offset] = {}


# ---- answers


class Shown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes as a page shows them. Its field is null where the record has no bytes."""

    form: Form
    #: JSON for structures, digits for `hex`.
    text: str
    #: Bytes in the record.
    size: int
    #: Whether `text` has the beginning only.
    is_cut: bool = False
    #: The number of a schema of a registry.
    schema_id: int | None = None
    #: What is to be known about it, such as why it is not decoded as it was wanted.
    note: str = ""
    #: The bytes in base64, where they are asked for.
    base64: str | None = None


class ShownHeader(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: Shown | None


class ShownRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="record"):
    partition: int
    offset: int
    #: Milliseconds since 1970; -1: none.
    timestamp: int
    key: Shown | None
    #: Null in a tombstone.
    value: Shown | None
    headers: tuple[ShownHeader, ...]


class Lines(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="lines"):
    """A piece of a file."""

    text: str


class Start(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="start"):
    """The first line: by partition the offsets from which and to which a search goes."""

    starts: dict[int, int]
    ends: dict[int, int]
    notes: tuple[str, ...] = ()


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="progress"):
    #: Records that were looked at.
    scanned: int
    #: Bytes that the nodes have sent.
    bytes: int
    matched: int
    #: Records for which the answer of the filter is unknown.
    unknown: int
    #: Offsets that were removed before they were read, or could not be expanded.
    skipped: int
    #: Offsets that are done, of those between start and end.
    done: int
    total: int
    #: The next offset of each partition.
    at: dict[int, int]
    elapsed_s: float


class End(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="end"):
    reason: Literal["end", "limit", "budget"]
    #: What was used up.
    budget: Literal["", "records", "bytes", "seconds"] = ""
    #: For the request that goes on here; null at the end.
    resume: Continue | None = msgspec.field(default=None, name="continue")


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="problem"):
    code: str
    detail: str
    resume: Continue | None = msgspec.field(default=None, name="continue")


class TailProgress(msgspec.Struct, frozen=True, kw_only=True):
    scanned: int
    matched: int
    shown: int
    #: Records that matched and were too many for a page.
    dropped: int
    unknown: int
    #: Offsets that were passed over, because the console could not keep up.
    skipped: int
    #: The next offset of each partition; empty for so many that a request cannot have them.
    positions: dict[int, int]
