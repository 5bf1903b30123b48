"""Values of operations on delayed records, version 1 of the JSON API; see `values.py`."""

from __future__ import annotations

from typing import Literal

import msgspec

from dragoman.api.record_values import Payload, ReadHeader


class DelayedTopic(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    #: Delayed records, whose time has not come, and held ones, whose transaction is open.
    records: int


class DelayedPage(msgspec.Struct, frozen=True, kw_only=True):
    #: The answering node, which stores these; other nodes store others.
    node_id: int
    #: In order of topic.
    items: tuple[DelayedTopic, ...]
    #: The `after` of the next page; null on the last page.
    next: str | None
    #: All that the node stores.
    records: int


class DelayedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record that is stored until its time comes, or until its producer decides."""

    #: The partition that it is for.
    partition: int
    #: `held`: its transaction is open; `deciding`: the decision is being written; `due`: it is on
    #: its way to the partition.
    state: Literal["delayed", "held", "deciding", "due"]
    #: When it is due, or when the producer of a held record is asked; milliseconds since 1970.
    due_ms: int
    #: Of its key, value and headers.
    size_bytes: int
    key: Payload | None
    value: Payload | None
    #: The first headers of the record: among them tags, and the topic that a retry came from.
    headers: tuple[ReadHeader, ...]
    #: How many headers the record has.
    header_count: int


class DelayedRecordPage(msgspec.Struct, frozen=True, kw_only=True):
    #: The answering node, which stores these; other nodes store others.
    node_id: int
    topic: str
    #: In order of time.
    items: tuple[DelayedRecord, ...]
    #: The `after` of the next page; null on the last page.
    next: str | None
