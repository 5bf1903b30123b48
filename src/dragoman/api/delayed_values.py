"""Values of operations on delayed records, version 1 of the JSON API; see `values.py`."""

from __future__ import annotations

import msgspec


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
