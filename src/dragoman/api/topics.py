"""Topics as this node sees them, and their creation and deletion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from dragoman.api.access import Access
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.values import (
    ConfigValue,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicPage,
    TopicSummary,
)
from dragoman.broker import topics as broker_topics
from dragoman.broker.errors import NotAuthorized
from dragoman.broker.partitions import Partitions
from dragoman.cluster.metadata import NO_LEADER, MetadataImage, PartitionMetadata, TopicMetadata
from dragoman.config.overrides import describe_topic_config
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.log.partition import PartitionLog
from dragoman.net.future import future_of
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import Authorizer


class TopicBroker(Protocol):
    """What the service uses of the broker."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def topics(self) -> broker_topics.Topics: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def authorizer(self) -> Authorizer: ...


class TopicService:
    def __init__(self, broker: TopicBroker, hidden_from: Callable[[str], tuple[str, ...]]) -> None:
        """`hidden_from` gives the protocols whose clients cannot name a topic."""
        self._broker = broker
        self._access = Access(broker)
        self._hidden_from = hidden_from

    def list_topics(self, caller: Caller, after: str, limit: PageLimit) -> TopicPage:
        shown = self._access.shown(caller, Resource.TOPIC, self._broker.image.topics)
        names, following = page_of(shown, after, limit)
        items = tuple(_summary(self._broker.image.topics[name]) for name in names)
        return TopicPage(items=items, next=following)

    def describe_topic(self, caller: Caller, name: str) -> TopicDescription:
        """The configuration is empty for a caller that may not describe it."""
        self._access.require(caller, Operation.DESCRIBE, Resource.TOPIC, name)
        has_config = self._access.is_allowed(
            caller, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name
        )
        return self._describe(name, has_config=has_config)

    def _describe(self, name: str, *, has_config: bool) -> TopicDescription:
        topic = self._broker.image.topics.get(name)
        if topic is None:
            raise ApiError(404, "unknown_topic", f"there is no topic {name!r}")
        return TopicDescription(
            name=topic.name,
            topic_id=topic.topic_id.hex(),
            internal=topic.is_internal,
            partitions=tuple(self._partition(each) for each in topic.partitions),
            config=tuple(
                ConfigValue(
                    name=entry.key.name,
                    value=entry.text,
                    source=entry.source.value,
                    effective=getattr(entry.key, "effective", True),
                )
                for entry in describe_topic_config(self._broker.settings, topic.config)
                if has_config
            ),
            hidden_from=() if topic.is_internal else self._hidden_from(name),
        )

    def _partition(self, metadata: PartitionMetadata) -> PartitionDescription:
        try:
            log: PartitionLog | None = self._broker.partitions.held(metadata).log
        except DragomanError:
            log = None
        return PartitionDescription(
            partition=metadata.index,
            leader=metadata.leader if metadata.leader != NO_LEADER else None,
            leader_epoch=metadata.leader_epoch,
            replicas=metadata.replicas,
            in_sync=metadata.in_sync,
            log_start_offset=log.log_start_offset if log is not None else None,
            high_watermark=log.high_watermark if log is not None else None,
            log_end_offset=log.log_end_offset if log is not None else None,
            size_bytes=log.size if log is not None else None,
        )

    async def create_topic(self, caller: Caller, topic: NewTopic) -> TopicDescription:
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
        await future_of(self._broker.topics.create(new))
        has_config = self._access.is_allowed(
            caller, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, topic.name
        )
        return self._describe(topic.name, has_config=has_config)

    async def delete_topic(self, caller: Caller, name: str) -> None:
        self._access.require(caller, Operation.DELETE, Resource.TOPIC, name)
        topic = self._broker.image.topics.get(name)
        if topic is not None and topic.is_internal:
            raise NotAuthorized(f"topic {name!r} is internal to the broker")
        await future_of(self._broker.topics.delete(name))


def _summary(topic: TopicMetadata) -> TopicSummary:
    return TopicSummary(
        name=topic.name,
        partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        internal=topic.is_internal,
    )


def page_of(names: Iterable[str], after: str, limit: int) -> tuple[list[str], str | None]:
    """The names of one page in order, and the `after` of the next page; None on the last page."""
    found = sorted(name for name in names if name > after)
    return found[:limit], found[limit - 1] if len(found) > limit else None
