"""Topics as this node sees them, and their administration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from dragoman.api.access import Access
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.node_requests import (
    FindMarks,
    MeasureTopic,
    PartitionMarks,
    Truncated,
    TruncatePartition,
)
from dragoman.api.node_rpc import NodeCalls, in_time
from dragoman.api.node_topics import MARKS_ITEMS
from dragoman.api.pages import page_of
from dragoman.api.places import Place
from dragoman.api.quotas import CallerQuotas
from dragoman.api.times import place_in
from dragoman.api.topic_values import (
    AddedPartitions,
    NewPartitions,
    TopicChange,
    TopicConfiguration,
    TopicDeletion,
    TruncatedPartition,
    TruncatedTopic,
    Truncation,
)
from dragoman.api.usage_values import TopicKey, TopicKeyList
from dragoman.api.values import (
    ConfigValue,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicPage,
    TopicSummary,
)
from dragoman.broker import topics as broker_topics
from dragoman.broker.administration import Actor, recorded
from dragoman.broker.errors import (
    InvalidConfig,
    InvalidTopicName,
    NotAuthorized,
    TopicDeletionDisabled,
    UnknownTopic,
)
from dragoman.broker.readers import Ends, Readers
from dragoman.broker.replica_marks import ReplicaMarks
from dragoman.broker.throttles import Throttles
from dragoman.broker.work_queue import Steps, WorkQueue
from dragoman.cluster.metadata import NO_LEADER, MetadataImage, PartitionMetadata, TopicMetadata
from dragoman.config.keys import near_match
from dragoman.config.overrides import TOPIC_CONFIG, describe_topic_config
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.limits import HTTP_CHANGES_AT_ONCE_MAX, HTTP_PAGE_ITEMS_MAX
from dragoman.net.future import future_of, settled
from dragoman.outcome import attempt, gather, start
from dragoman.replication.replica import ALL_COMMITTED
from dragoman.rpc import Leader, Node, Rpc
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.audit import AuditLog
from dragoman.security.authorizer import Authorizer
from dragoman.world import Clock


class TopicBroker(Protocol):
    """What the service uses of the broker."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def topics(self) -> broker_topics.Topics: ...

    @property
    def replica_marks(self) -> ReplicaMarks: ...

    @property
    def readers(self) -> Readers: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def work(self) -> WorkQueue: ...

    @property
    def rpc(self) -> Rpc: ...

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def throttles(self) -> Throttles: ...

    @property
    def audit(self) -> AuditLog: ...


class TruncationEnd(NamedTuple):
    """The first offset to keep, or a time, which takes precedence."""

    offset: int = ALL_COMMITTED
    time_ms: int | None = None


class TopicService:
    def __init__(self, broker: TopicBroker, hidden_from: Callable[[str], tuple[str, ...]]) -> None:
        """`hidden_from` gives the protocols whose clients cannot name a topic."""
        self._broker = broker
        self._access = Access(broker)
        self._quotas = CallerQuotas(broker)
        self._hidden_from = hidden_from
        self._calls = NodeCalls(broker.rpc)

    def list_topics(self, caller: Caller, after: str, limit: PageLimit) -> TopicPage:
        shown = self._access.shown(caller, Resource.TOPIC, self._broker.image.topics)
        names, following = page_of(shown, after, limit)
        items = tuple(_summary(self._broker.image.topics[name]) for name in names)
        return TopicPage(items=items, next=following)

    async def describe_topic(
        self, caller: Caller, name: str, after: str, limit: PageLimit
    ) -> TopicDescription:
        """The configuration is empty for a caller that may not describe it."""
        self._access.require(caller, Operation.DESCRIBE, Resource.TOPIC, name)
        begin = 0
        if after:
            if not (after.isascii() and after.isdigit() and len(after) <= 9):
                text = f"after: expected the number of a partition, got {after[:100]!r}"
                raise ApiError(400, "invalid_request", text)
            begin = int(after) + 1
        return await self._describe(caller, name, begin, limit)

    async def _describe(
        self, caller: Caller, name: str, begin: int = 0, limit: int = HTTP_PAGE_ITEMS_MAX
    ) -> TopicDescription:
        topic = self._existing(name)
        end = begin + limit
        shown = topic.partitions[begin:end]
        own = await settled(self._broker.work.run(self._partitions(shown)))
        return TopicDescription(
            name=topic.name,
            topic_id=topic.topic_id.hex(),
            internal=topic.is_internal,
            partitions=await self._with_marks_of_leaders(caller, name, own),
            config=self._config_shown_to(caller, topic),
            hidden_from=() if topic.is_internal else self._hidden_from(name),
            next=str(end - 1) if end < len(topic.partitions) else None,
        )

    def _existing(self, name: str) -> TopicMetadata:
        topic = self._broker.image.topics.get(name)
        if topic is None:
            raise ApiError(404, "unknown_topic", f"there is no topic {name!r}")
        return topic

    def _config_shown_to(self, caller: Caller, topic: TopicMetadata) -> tuple[ConfigValue, ...]:
        may = self._access.is_allowed
        if not may(caller, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, topic.name):
            return ()
        return self._config(topic.config)

    def _config(self, overrides: Mapping[str, str]) -> tuple[ConfigValue, ...]:
        return tuple(
            ConfigValue(
                name=entry.key.name,
                value=entry.text,
                source=entry.source.value,
                effective=getattr(entry.key, "effective", True),
            )
            for entry in describe_topic_config(self._broker.settings, overrides)
        )

    def _partitions(
        self, wanted: Sequence[PartitionMetadata]
    ) -> Steps[tuple[PartitionDescription, ...]]:
        found = []
        for each in wanted:
            found.append(self._partition(each))
            yield MARKS_ITEMS
        return tuple(found)

    async def _with_marks_of_leaders(
        self, caller: Caller, topic: str, partitions: Sequence[PartitionDescription]
    ) -> tuple[PartitionDescription, ...]:
        """With the ends of the partitions that have no replica here, as far as leaders answer."""
        elsewhere: dict[int, list[int]] = {}
        for each in partitions:
            if each.leader is not None and each.log_end_offset is None:
                elsewhere.setdefault(each.leader, []).append(each.partition)
        answers = await in_time(
            [
                self._calls.call(
                    FindMarks(caller=caller, topic=topic, partitions=tuple(numbers)), Node(leader)
                )
                for leader, numbers in elsewhere.items()
            ]
        )
        found = {
            marks.partition: marks
            for answer in answers
            if not isinstance(answer, DragomanError)
            for marks in answer.items
        }
        return tuple(_with_marks(each, found.get(each.partition)) for each in partitions)

    def _partition(self, metadata: PartitionMetadata) -> PartitionDescription:
        marks = self._broker.replica_marks.find(metadata)
        return PartitionDescription(
            partition=metadata.index,
            leader=metadata.leader if metadata.leader != NO_LEADER else None,
            leader_epoch=metadata.leader_epoch,
            replicas=metadata.replicas,
            in_sync=metadata.in_sync,
            log_start_offset=marks.log_start_offset if marks is not None else None,
            high_watermark=marks.high_watermark if marks is not None else None,
            log_end_offset=marks.log_end_offset if marks is not None else None,
            size_bytes=marks.size if marks is not None else None,
        )

    async def create_topic(
        self, caller: Caller, topic: NewTopic, validate_only: bool
    ) -> TopicDescription | None:
        self._access.require_new_topic(caller, topic.name)
        default = broker_topics.DEFAULT
        new = broker_topics.NewTopic(
            name=topic.name,
            partition_count=topic.partitions if topic.partitions is not None else default,
            replication_factor=topic.replication_factor
            if topic.replication_factor is not None
            else default,
            config=topic.config,
        )
        if validate_only or self._broker.throttles.is_on:
            # What cannot be created uses nothing of a quota.
            self._broker.topics.check_new(new)
        if validate_only:
            return None
        self._quotas.count_mutations(caller, self._broker.topics.count_of(new))
        await future_of(self._broker.topics.create(new, _actor(caller)))
        return await self._describe(caller, topic.name)

    # ---- configuration

    def topic_configuration(self, caller: Caller, name: str) -> TopicConfiguration:
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name)
        return TopicConfiguration(name=name, items=self._config(self._existing(name).config))

    async def alter_topic(
        self, caller: Caller, name: str, change: TopicChange, validate_only: bool
    ) -> TopicConfiguration:
        self._access.require(caller, Operation.ALTER_CONFIGS, Resource.TOPIC, name)
        self._existing(name)
        alter = partial(_altered, change)
        if validate_only:
            config = self._broker.topics.check_altered(name, alter)
        else:
            await settled(self._broker.topics.alter_config(name, alter, _actor(caller)))
            config = self._existing(name).config
        may = self._access.is_allowed
        is_shown = may(caller, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name)
        return TopicConfiguration(
            name=name,
            items=self._config(config) if is_shown else (),
            validated_only=validate_only,
        )

    def list_topic_keys(self, caller: Caller) -> TopicKeyList:  # noqa: ARG002 # not secret
        return TopicKeyList(
            items=tuple(
                TopicKey(
                    name=name,
                    type=key.kind.value,
                    meaning=key.doc,
                    choices=key.choices,
                    effective=getattr(key, "effective", True),
                )
                for name, key in sorted(TOPIC_CONFIG.items())
            )
        )

    # ---- partitions

    async def add_partitions(
        self, caller: Caller, name: str, wanted: NewPartitions, validate_only: bool
    ) -> AddedPartitions:
        self._access.require(caller, Operation.ALTER, Resource.TOPIC, name)
        topic = self._existing(name)
        if topic.is_internal:
            # The partition of a group or transactional id depends on the number of partitions.
            raise InvalidTopicName(f"the partitions of {name} cannot be changed")
        before = len(topic.partitions)
        self._broker.topics.check_request(wanted.total - before)
        self._broker.topics.check_added(topic, wanted.total, ())
        if not validate_only:
            self._quotas.count_mutations(caller, wanted.total - before)
            await settled(
                self._broker.topics.add_partitions(name, wanted.total, (), _actor(caller))
            )
        return AddedPartitions(
            name=name, before=before, total=wanted.total, validated_only=validate_only
        )

    # ---- deletion

    async def delete_topic(
        self, caller: Caller, name: str, validate_only: bool
    ) -> TopicDeletion | None:
        self._access.require(caller, Operation.DELETE, Resource.TOPIC, name)
        topic = self._broker.image.topics.get(name)
        if topic is not None and topic.is_internal:
            raise NotAuthorized(f"topic {name!r} is internal to the broker")
        if validate_only:
            return await self._measured(caller, self._existing(name))
        self._quotas.count_mutations(caller, len(self._existing(name).partitions))
        await settled(self._broker.topics.delete(name, _actor(caller)))
        return None

    async def _measured(self, caller: Caller, topic: TopicMetadata) -> TopicDeletion:
        if not self._broker.settings.delete_topic_enable:
            raise TopicDeletionDisabled("delete.topic.enable is false")
        nodes = sorted(self._broker.image.nodes)
        request = MeasureTopic(caller=caller, topic=topic.name)
        answers = await in_time([self._calls.call(request, Node(each)) for each in nodes])
        found = [each for each in answers if not isinstance(each, DragomanError)]
        groups = sorted({group for each in found for group in each.groups})
        return TopicDeletion(
            name=topic.name,
            partitions=len(topic.partitions),
            records=sum(each.records for each in found),
            size_bytes=sum(each.size_bytes for each in found),
            groups=tuple(groups[:HTTP_PAGE_ITEMS_MAX]),
            group_count=sum(each.group_count for each in found),
            unreachable=tuple(
                node
                for node, each in zip(nodes, answers, strict=True)
                if isinstance(each, DragomanError)
            ),
        )

    async def truncate_topic(
        self, caller: Caller, name: str, wanted: Truncation, validate_only: bool
    ) -> TruncatedTopic:
        self._access.require(caller, Operation.DELETE, Resource.TOPIC, name)
        topic = self._existing(name)
        if topic.is_internal:
            raise InvalidTopicName(f"records of {name} are the broker's own")
        place = _checked(wanted, self._broker.clock.wall_ms())
        partitions = _chosen(topic, wanted.offsets or wanted.partitions)
        if place is None:
            ends = [TruncationEnd(wanted.offsets[each]) for each in partitions]
        else:
            ends = await settled(self._ends_at(topic, partitions, place))
        requests = [
            TruncatePartition(
                caller=caller, topic=name, partition=index, offset=end.offset, time_ms=end.time_ms
            )
            for index, end in zip(partitions, ends, strict=True)
        ]
        items = await settled(self._truncated(topic, requests, validate_only=validate_only))
        if not validate_only:
            self._note_truncation(caller, name, items)
        return TruncatedTopic(name=name, items=items, validated_only=validate_only)

    async def _ends_at(
        self, topic: TopicMetadata, partitions: Sequence[int], place: Place
    ) -> list[TruncationEnd]:
        """Where the truncation of each partition ends."""
        if place.kind == "time":
            return [TruncationEnd(time_ms=place.number)] * len(partitions)
        if place.kind == "end":
            return [TruncationEnd(ALL_COMMITTED)] * len(partitions)
        found = []
        for begin in range(0, len(partitions), HTTP_CHANGES_AT_ONCE_MAX):
            some = [
                topic.partitions[each]
                for each in partitions[begin : begin + HTTP_CHANGES_AT_ONCE_MAX]
            ]
            calls = [start(self._broker.readers.ends(each)) for each in some]
            found += [_end_in(each, place) for each in await gather(calls)]
        return found

    def _note_truncation(
        self, caller: Caller, name: str, items: Sequence[TruncatedPartition]
    ) -> None:
        details = [
            f"partition {each.partition}: {each.problem or f'records before {each.after}'}"
            for each in items
        ]
        with recorded(
            self._broker.audit, "topic.truncate", _actor(caller), f"topic:{name}", details
        ):
            pass

    async def _truncated(
        self, topic: TopicMetadata, requests: list[TruncatePartition], *, validate_only: bool
    ) -> tuple[TruncatedPartition, ...]:
        checks = [msgspec.structs.replace(each, validate_only=True) for each in requests]
        answers = await self._on_leaders(topic, checks)
        for each in answers:
            if isinstance(each, DragomanError):
                raise each
        if not validate_only:
            answers = await self._on_leaders(topic, requests)
        return tuple(
            TruncatedPartition(partition=request.partition, before=-1, after=-1, problem=str(each))
            if isinstance(each, DragomanError)
            else TruncatedPartition(
                partition=request.partition, before=each.before, after=each.after
            )
            for request, each in zip(requests, answers, strict=True)
        )

    async def _on_leaders(
        self, topic: TopicMetadata, requests: list[TruncatePartition]
    ) -> list[Truncated | DragomanError]:
        """The answers of the partitions' leaders, in order."""
        answers: list[Truncated | DragomanError] = []
        for begin in range(0, len(requests), HTTP_CHANGES_AT_ONCE_MAX):
            some = requests[begin : begin + HTTP_CHANGES_AT_ONCE_MAX]
            leaders = [Leader(topic.partitions[each.partition].partition_id) for each in some]
            answers += await gather(
                [
                    start(attempt(self._calls.call(request, leader)))
                    for request, leader in zip(some, leaders, strict=True)
                ]
            )
        return answers


def _with_marks(
    partition: PartitionDescription, marks: PartitionMarks | None
) -> PartitionDescription:
    if marks is None:
        return partition
    return msgspec.structs.replace(
        partition,
        log_start_offset=marks.log_start_offset,
        high_watermark=marks.high_watermark,
        log_end_offset=marks.log_end_offset,
        size_bytes=marks.size_bytes,
    )


def _actor(caller: Caller) -> Actor:
    return Actor(caller, "http")


def _altered(change: TopicChange, current: Mapping[str, str]) -> dict[str, str]:
    """The overrides of a topic after a change. Raises `InvalidConfig`."""
    config = dict(current)
    for name in (*change.set, *change.unset):
        if name not in TOPIC_CONFIG:
            raise InvalidConfig(f"unknown configuration {name!r}{near_match(name, TOPIC_CONFIG)}")
    both = change.set.keys() & set(change.unset)
    if both:
        raise InvalidConfig(f"{min(both)!r} is both set and unset")
    for name in change.unset:
        config.pop(name, None)
    return config | change.set


def _checked(wanted: Truncation, now_ms: int) -> Place | None:
    """The place before which records are deleted; None: there are offsets. Raises `ApiError`."""
    if (wanted.before is None) != bool(wanted.offsets):
        raise ApiError(400, "invalid_request", "give either `before` or `offsets`")
    if wanted.before is not None:
        return place_in("before", wanted.before, now_ms)
    if wanted.partitions:
        raise ApiError(400, "invalid_request", "partitions: only with `before`")
    return None


def _chosen(topic: TopicMetadata, partitions: Collection[int]) -> list[int]:
    """The partitions in order; all if none is named. Raises `UnknownTopic`."""
    every = range(len(topic.partitions))
    for each in partitions:
        if each not in every:
            raise UnknownTopic(f"there is no partition {each} of topic {topic.name!r}")
    return sorted(set(partitions or every))


def _end_in(ends: Ends, place: Place) -> TruncationEnd:
    offset = place.offset(ends.log_start_offset, ends.high_watermark)
    assert offset is not None
    return TruncationEnd(offset)


def _summary(topic: TopicMetadata) -> TopicSummary:
    return TopicSummary(
        name=topic.name,
        partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        internal=topic.is_internal,
    )
