"""Groups of the whole cluster, and their administration.

A group is described and changed by the node that coordinates it; the ends of logs, and the offset
of a time, come from the leaders of the partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from dragoman.api.access import Access
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.group_values import (
    GroupDeletion,
    OffsetChange,
    OffsetChanges,
    OffsetReset,
    RemovedOffsets,
)
from dragoman.api.node_requests import (
    A_co,
    DescribeGroup,
    FindOffset,
    FindOffsets,
    FindTime,
    ListGroups,
    NodeRequest,
    RemoveGroup,
    RemoveOffsets,
    ResetOffsets,
)
from dragoman.api.node_rpc import NodeCalls, in_time
from dragoman.api.places import Place
from dragoman.api.times import place_in
from dragoman.api.values import GroupDescription, GroupOffset, GroupPage
from dragoman.broker.directory import NO_NODE
from dragoman.broker.errors import GroupNotFound, UnknownTopic
from dragoman.broker.groups.coordinator import GroupCoordinator
from dragoman.broker.groups.records import OFFSETS_TOPIC
from dragoman.broker.readers import Ends, Readers
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.limits import HTTP_CHANGES_AT_ONCE_MAX, HTTP_CHANGES_MAX
from dragoman.net.future import settled
from dragoman.outcome import attempt, gather, start
from dragoman.rpc import Coordinator, Leader, Node, Rpc
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import Authorizer
from dragoman.world import Clock

Item = TypeVar("Item")


class Coordination(Protocol):
    @property
    def groups(self) -> GroupCoordinator: ...


class GroupBroker(Protocol):
    """What the service uses of the broker."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def coordination(self) -> Coordination: ...

    @property
    def readers(self) -> Readers: ...

    @property
    def rpc(self) -> Rpc: ...

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def clock(self) -> Clock: ...


class _Target(NamedTuple):
    """A partition whose committed offset changes."""

    metadata: PartitionMetadata
    before: int | None


class GroupService:
    def __init__(self, broker: GroupBroker) -> None:
        self._broker = broker
        self._access = Access(broker)
        self._calls = NodeCalls(broker.rpc)

    async def _call(self, name: str, request: NodeRequest[A_co]) -> A_co:
        """Call the coordinator of a group. Raises `ApiError` for a group that does not exist."""
        groups = self._broker.coordination.groups
        unknown = ApiError(404, "unknown_group", f"there is no group {name!r}")
        if OFFSETS_TOPIC not in self._broker.image.topics:
            is_reset = isinstance(request, ResetOffsets)
            if groups.log.leader_of(name) == NO_NODE and not is_reset:
                # No group has committed anything yet; the call would create the topic.
                raise unknown
        try:
            return await self._calls.call(request, Coordinator(OFFSETS_TOPIC, name))
        except GroupNotFound:
            raise unknown from None

    # ---- reading

    async def list_groups(self, caller: Caller, after: str, limit: PageLimit) -> GroupPage:
        nodes = sorted(self._broker.image.nodes)
        request = ListGroups(caller=caller, after=after, limit=limit + 1)
        answers = await in_time([self._calls.call(request, Node(each)) for each in nodes])
        # While a group changes its coordinator, two nodes may list it.
        found = {
            row.group: row
            for each in answers
            if not isinstance(each, DragomanError)
            for row in each.items
        }
        names = sorted(found)
        page = names[:limit]
        return GroupPage(
            items=tuple(found[name] for name in page),
            next=page[-1] if len(names) > limit else None,
            unreachable=tuple(
                node
                for node, each in zip(nodes, answers, strict=True)
                if isinstance(each, DragomanError)
            ),
        )

    async def describe_group(
        self, caller: Caller, name: str, after: str, limit: PageLimit
    ) -> GroupDescription:
        """Topics that the caller may not describe are left out."""
        self._access.require(caller, Operation.DESCRIBE, Resource.GROUP, name)
        request = DescribeGroup(
            caller=caller, group=name, after=_partition_of(after) if after else None, limit=limit
        )
        described = await settled(self._call(name, request))
        known = {
            (each.topic, each.partition): metadata
            for each in described.offsets
            if (metadata := self._find(each.topic, each.partition)) is not None
        }
        ends: list[Ends | DragomanError] = []
        for some in _slices(known.values()):
            ends += await in_time([self._broker.readers.ends(each) for each in some])
        at = dict(zip(known, ends, strict=True))
        offsets = [
            _with_end(each, at.get((each.topic, each.partition))) for each in described.offsets
        ]
        times = await self._times(
            request.caller,
            [(each, known[each.topic, each.partition]) for each in offsets if each.lag_records],
        )
        now_ms = self._broker.clock.wall_ms()
        return msgspec.structs.replace(
            described,
            offsets=tuple(
                _with_age(each, times.get((each.topic, each.partition)), now_ms) for each in offsets
            ),
        )

    async def _times(
        self, caller: Caller, lagging: list[tuple[GroupOffset, PartitionMetadata]]
    ) -> dict[tuple[str, int], int]:
        """By partition, the time of the first record that the group has not committed, as far as
        it is known.
        """
        found: dict[tuple[str, int], int] = {}
        for some in _slices(lagging):
            calls = [
                self._calls.call(
                    FindTime(
                        caller=caller,
                        topic=each.topic,
                        partition=each.partition,
                        offset=each.committed_offset,
                    ),
                    Leader(metadata.partition_id),
                )
                for each, metadata in some
            ]
            answers = await in_time(calls)
            for (each, _), answer in zip(some, answers, strict=True):
                if not isinstance(answer, DragomanError) and answer.time_ms is not None:
                    found[each.topic, each.partition] = answer.time_ms
        return found

    def _find(self, topic: str, partition: int) -> PartitionMetadata | None:
        found = self._broker.image.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    async def _ends(self, partitions: Iterable[PartitionMetadata]) -> list[Ends | DragomanError]:
        """The ends of partitions, in order, from their leaders."""
        found: list[Ends | DragomanError] = []
        for some in _slices(partitions):
            ends = self._broker.readers.ends
            found += await gather([start(attempt(ends(each))) for each in some])
        return found

    # ---- reset

    async def reset_group(
        self, caller: Caller, name: str, wanted: OffsetReset, validate_only: bool
    ) -> OffsetChanges:
        """Kafka's tools need the same rights: they describe the group and the ends of the topics,
        and then commit.
        """
        for operation in (Operation.READ, Operation.DESCRIBE):
            self._access.require(caller, operation, Resource.GROUP, name)
        place = _checked(wanted, self._broker.clock.wall_ms())
        return await settled(self._reset(caller, name, wanted, place, validate_only=validate_only))

    async def _reset(
        self,
        caller: Caller,
        name: str,
        wanted: OffsetReset,
        place: Place | None,
        *,
        validate_only: bool,
    ) -> OffsetChanges:
        is_shift = place is not None and place.kind == "shift"
        targets = await self._targets(caller, name, wanted, is_shift=is_shift)
        topics = {each.metadata.topic.name for each in targets}
        for topic in sorted(topics):
            for operation in (Operation.READ, Operation.DESCRIBE):
                self._access.require(caller, operation, Resource.TOPIC, topic)
        if len(targets) > HTTP_CHANGES_MAX:
            text = f"{len(targets)} partitions; one request resets {HTTP_CHANGES_MAX}: name topics"
            raise ApiError(400, "invalid_request", text)
        items = tuple(
            [
                OffsetChange(
                    topic=target.metadata.topic.name,
                    partition=target.metadata.index,
                    before=target.before,
                    after=offset,
                )
                for target, offset in zip(
                    targets, await self._offsets(caller, wanted, place, targets), strict=True
                )
            ]
        )
        request = ResetOffsets(
            caller=caller,
            group=name,
            items=tuple((each.topic, each.partition, each.after) for each in items),
            validate_only=validate_only,
        )
        await self._call(name, request)
        return OffsetChanges(group=name, items=items, validated_only=validate_only)

    async def _targets(
        self, caller: Caller, name: str, wanted: OffsetReset, *, is_shift: bool
    ) -> list[_Target]:
        named = tuple(sorted({*wanted.topics, *(each.topic for each in wanted.offsets)}))
        for topic in named:
            self._access.require(caller, Operation.DESCRIBE, Resource.TOPIC, topic)
        stored: dict[tuple[str, int], int] = {}
        try:
            found = await self._call(name, FindOffsets(caller=caller, group=name, topics=named))
            stored = {(topic, index): offset for topic, index, offset in found.items}
        except ApiError:
            # A group may get offsets before its first member comes.
            if not named or is_shift:
                raise
        if wanted.offsets:
            partitions = [(each.topic, each.partition) for each in wanted.offsets]
        elif wanted.topics:
            partitions = [
                (topic, index)
                for topic in named
                for index in range(len(self._topic_partitions(topic)))
                if not is_shift or (topic, index) in stored
            ]
        else:
            partitions = sorted(stored)
        return [_Target(self._existing(*each), stored.get(each)) for each in partitions]

    def _topic_partitions(self, topic: str) -> Sequence[PartitionMetadata]:
        found = self._broker.image.topics.get(topic)
        if found is None:
            raise ApiError(404, "unknown_topic", f"there is no topic {topic!r}")
        return found.partitions

    def _existing(self, topic: str, partition: int) -> PartitionMetadata:
        found = self._find(topic, partition)
        if found is None:
            raise UnknownTopic(f"there is no partition {partition} of topic {topic!r}")
        return found

    async def _offsets(
        self, caller: Caller, wanted: OffsetReset, place: Place | None, targets: list[_Target]
    ) -> list[int]:
        """The new offset of each partition, within its log."""
        ends = []
        for each in await self._ends(target.metadata for target in targets):
            if isinstance(each, DragomanError):
                raise each
            ends.append(each)
        places = (
            [Place("offset", each.offset) for each in wanted.offsets]
            if place is None
            else [place] * len(targets)
        )
        times: list[int | None] = [None] * len(targets)
        if place is not None and place.kind == "time":
            times = await self._at_time(caller, place.number, targets)
        offsets = []
        for at, log, target, time in zip(places, ends, targets, times, strict=True):
            offset = at.offset(
                log.log_start_offset, log.high_watermark, committed=target.before, at_time=time
            )
            assert offset is not None, "targets of a shift have committed offsets"
            offsets.append(offset)
        return offsets

    async def _at_time(
        self, caller: Caller, time_ms: int, targets: list[_Target]
    ) -> list[int | None]:
        """The offsets of a time; None: all records are older."""
        found: list[int | None] = []
        for some in _slices(target.metadata for target in targets):
            calls = [
                self._calls.call(
                    FindOffset(
                        caller=caller,
                        topic=each.topic.name,
                        partition=each.index,
                        time_ms=time_ms,
                    ),
                    Leader(each.partition_id),
                )
                for each in some
            ]
            found += [each.offset for each in await gather(list(map(start, calls)))]
        return found

    # ---- deletion

    async def delete_group(
        self, caller: Caller, name: str, validate_only: bool
    ) -> GroupDeletion | None:
        self._access.require(caller, Operation.DELETE, Resource.GROUP, name)
        request = RemoveGroup(caller=caller, group=name, validate_only=validate_only)
        removed = await settled(self._call(name, request))
        return GroupDeletion(group=name, offsets=removed.offsets) if validate_only else None

    async def delete_group_offsets(
        self, caller: Caller, name: str, topic: str, validate_only: bool
    ) -> RemovedOffsets:
        self._access.require(caller, Operation.DELETE, Resource.GROUP, name)
        if not topic:
            raise ApiError(400, "invalid_request", "topic: missing")
        self._access.require(caller, Operation.READ, Resource.TOPIC, topic)
        if topic not in self._broker.image.topics:
            raise ApiError(404, "unknown_topic", f"there is no topic {topic!r}")
        request = RemoveOffsets(caller=caller, group=name, topic=topic, validate_only=validate_only)
        removed = await settled(self._call(name, request))
        partitions = tuple(index for _, index, _ in removed.items)
        return RemovedOffsets(
            group=name, topic=topic, partitions=partitions, validated_only=validate_only
        )


def _partition_of(after: str) -> tuple[str, int]:
    """The partition that `next` of a description names. Raises `ApiError`."""
    topic, at, index = after.rpartition("@")
    if not (at and index.isascii() and index.isdigit() and len(index) <= 9):
        text = f"after: expected `next` of the page before, got {after[:300]!r}"
        raise ApiError(400, "invalid_request", text)
    return topic, int(index)


def _with_end(offset: GroupOffset, ends: Ends | DragomanError | None) -> GroupOffset:
    if not isinstance(ends, Ends):
        return offset
    lag = max(0, ends.high_watermark - offset.committed_offset)
    return msgspec.structs.replace(offset, log_end_offset=ends.high_watermark, lag_records=lag)


def _checked(wanted: OffsetReset, now_ms: int) -> Place | None:
    """The place that the group shall continue at; None: it has offsets. Raises `ApiError`."""
    if (wanted.to is None) != bool(wanted.offsets):
        raise ApiError(400, "invalid_request", "give either `to` or `offsets`")
    if wanted.to is not None:
        return place_in("to", wanted.to, now_ms, with_shift=True)
    if wanted.topics:
        raise ApiError(400, "invalid_request", "topics: not with offsets")
    if len({(each.topic, each.partition) for each in wanted.offsets}) < len(wanted.offsets):
        raise ApiError(400, "invalid_request", "offsets: a partition is named twice")
    return None


def _with_age(offset: GroupOffset, time_ms: int | None, now_ms: int) -> GroupOffset:
    if offset.lag_records == 0:
        return msgspec.structs.replace(offset, lag_seconds=0.0)
    if time_ms is None:
        return offset
    return msgspec.structs.replace(offset, lag_seconds=max(0, now_ms - time_ms) / 1000)


def _slices(items: Iterable[Item]) -> Iterator[list[Item]]:
    """As many at a time as are asked for at once."""
    left = list(items)
    while left:
        yield left[:HTTP_CHANGES_AT_ONCE_MAX]
        left = left[HTTP_CHANGES_AT_ONCE_MAX:]
