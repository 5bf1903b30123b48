"""Values about what topics hold and how far groups are, version 1 of the JSON API; see
`values.py`.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class TopicUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, what it holds, and how many groups read it."""

    name: str
    partitions: int
    replication_factor: int
    internal: bool
    #: Offsets between the start and the high watermark of each log; null when a node that leads a
    #: partition does not answer.
    records: int | None
    #: Bytes on the disks of the leaders.
    size_bytes: int | None
    #: Groups with committed offsets in the topic, among those that the caller may describe.
    groups: int


class TopicUsagePage(msgspec.Struct, frozen=True, kw_only=True):
    #: In order of name.
    items: tuple[TopicUsage, ...]
    #: The `after` of the next page; null on the last page.
    next: str | None
    #: Nodes that did not answer: groups that they coordinate are not counted.
    unreachable: tuple[int, ...] = ()


class GroupUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A group, and how far it is behind."""

    group: str
    protocol: str
    state: str
    members: int
    #: Topics with committed offsets that the caller may describe.
    topics: tuple[str, ...]
    #: Records after the committed offsets; null when a node that leads a partition does not answer,
    #: and for groups with very many offsets.
    lag_records: int | None


class GroupUsagePage(msgspec.Struct, frozen=True, kw_only=True):
    #: In order of name.
    items: tuple[GroupUsage, ...]
    #: The `after` of the next page; null on the last page.
    next: str | None
    #: Nodes that did not answer: the groups that they coordinate are missing.
    unreachable: tuple[int, ...] = ()


class TopicKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of topics' configurations."""

    name: str
    type: Literal["boolean", "int", "long", "double", "string", "list"]
    #: What it does.
    meaning: str
    #: The accepted words of a string or of each element of a list; empty: any.
    choices: tuple[str, ...]
    #: False for a key that is accepted for compatibility and has no effect.
    effective: bool


class TopicKeyList(msgspec.Struct, frozen=True, kw_only=True):
    #: In order of name.
    items: tuple[TopicKey, ...]


class ChangedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that was changed while nodes run."""

    #: The node; null: all nodes.
    node_id: int | None
    name: str
    #: Null for a key without effect here, which may be a secret.
    value: str | None


class ChangedSettings(msgspec.Struct, frozen=True, kw_only=True):
    #: In order of node and name, those of all nodes first.
    items: tuple[ChangedSetting, ...]
