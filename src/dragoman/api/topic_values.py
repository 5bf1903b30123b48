"""Values of operations on topics, version 1 of the JSON API; see `values.py`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from dragoman import limits
from dragoman.api.values import ConfigValue


class TopicConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a topic."""

    name: str
    #: In order of name; empty when the caller may change the configuration and not see it.
    items: tuple[ConfigValue, ...]
    #: Whether this would be the configuration: the request was only checked.
    validated_only: bool = False


class TopicChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a topic's configuration; keys that it does not name stay as they are."""

    #: New values, as text.
    set: Annotated[dict[str, str], Meta(max_length=limits.CONFIG_KEYS_PER_REQUEST_MAX)] = {}
    #: Keys that return to the node's default.
    unset: Annotated[tuple[str, ...], Meta(max_length=limits.CONFIG_KEYS_PER_REQUEST_MAX)] = ()


class NewPartitions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size that a topic shall have."""

    #: The new number of partitions, existing ones included.
    total: Annotated[int, Meta(ge=1, le=limits.TOPIC_PARTITIONS_MAX)]


class AddedPartitions(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    #: Partitions before the request, and after it.
    before: int
    total: int
    #: Whether the request was only checked.
    validated_only: bool = False


class TopicDeletion(msgspec.Struct, frozen=True, kw_only=True):
    """What the deletion of a topic would delete."""

    name: str
    partitions: int
    #: Offsets between the start and the high watermark of each log.
    records: int
    #: Bytes on the disks of the leaders.
    size_bytes: int
    #: The first groups, in order of name, with committed offsets in the topic, among those that the
    #: caller may describe, and how many there are.
    groups: tuple[str, ...]
    group_count: int
    #: Nodes that did not answer: what they lead and coordinate is not counted.
    unreachable: tuple[int, ...] = ()


_Place: TypeAlias = (
    Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    | Annotated[str, Meta(max_length=limits.PLACE_CHARS_MAX)]
)
_Offset = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]
_Index = Annotated[int, Meta(ge=0, le=limits.TOPIC_PARTITIONS_MAX)]


class Truncation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The records to delete: those before a place, or those before `offsets`."""

    #: By partition, the first offset to keep; -1: delete all committed records.
    offsets: Annotated[dict[_Index, _Offset], Meta(max_length=limits.TOPIC_PARTITIONS_MAX)] = {}
    #: A place in each partition, such as `latest`, `@-7d`, `-100` or an offset.
    before: _Place | None = None
    #: With `before`: the partitions; empty for all.
    partitions: Annotated[tuple[_Index, ...], Meta(max_length=limits.TOPIC_PARTITIONS_MAX)] = ()


class TruncatedPartition(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    #: The offset of the first record before and after the truncation.
    before: int
    after: int
    #: Why the partition was not truncated although the request was accepted; empty: it was.
    problem: str = ""


class TruncatedTopic(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    items: tuple[TruncatedPartition, ...]
    #: Whether the request was only checked.
    validated_only: bool = False
