"""Values of the administration of groups, version 1 of the JSON API; see `values.py`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from dragoman import limits

_Place: TypeAlias = (
    Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    | Annotated[str, Meta(max_length=limits.PLACE_CHARS_MAX)]
)
_Offset = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Topic = Annotated[str, Meta(min_length=1, max_length=limits.TOPIC_NAME_BYTES_MAX)]


class PartitionOffset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: _Topic
    partition: Annotated[int, Meta(ge=0, le=limits.TOPIC_PARTITIONS_MAX)]
    offset: _Offset


class OffsetReset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a group shall continue: either `to` or `offsets`. Offsets outside of a log are moved to
    its nearer end.
    """

    #: A place in each partition, such as `earliest`, `@-15m`, `shift:-10` or an offset.
    to: _Place | None = None
    #: An offset for each of these partitions.
    offsets: Annotated[tuple[PartitionOffset, ...], Meta(max_length=limits.HTTP_CHANGES_MAX)] = ()
    #: All partitions of these topics; empty: the partitions with a committed offset. Not with
    #: `offsets`.
    topics: Annotated[tuple[_Topic, ...], Meta(max_length=limits.HTTP_PAGE_ITEMS_MAX)] = ()


class OffsetChange(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    #: Null without a committed offset.
    before: int | None
    after: int


class OffsetChanges(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    items: tuple[OffsetChange, ...]
    #: Whether the request was only checked.
    validated_only: bool = False


class RemovedOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Committed offsets that were deleted."""

    group: str
    topic: str
    partitions: tuple[int, ...]
    #: Whether the request was only checked.
    validated_only: bool = False


class GroupDeletion(msgspec.Struct, frozen=True, kw_only=True):
    """What the deletion of a group would delete."""

    group: str
    #: The number of its committed offsets.
    offsets: int
