"""The group coordinator of a node: consumer groups and committed offsets, joined to the log.

The table of groups (`registry.py`) and the rules of commits (`offsets.py`) are pure: they prepare
records, and apply them once these are durable. The coordinator keeps the records in the internal
topic `__consumer_offsets`. A node coordinates the groups whose partition of that topic it leads,
from the moment it has loaded the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from dragoman.broker.caller_rights import authorize, caller_of
from dragoman.broker.context import NodeContext
from dragoman.broker.directory import NO_NODE
from dragoman.broker.errors import NotCoordinator
from dragoman.broker.groups.direct import DirectGroup, DirectRules
from dragoman.broker.groups.offsets import CommitRequest, GroupRecords, Offsets, PreparedOffsets
from dragoman.broker.groups.ports import Dialect, GroupSettings, TopicFacts
from dragoman.broker.groups.records import OFFSETS_TOPIC, StateRecord, TopicPartition
from dragoman.broker.groups.registry import Groups
from dragoman.broker.internal_topic import InternalTopic, Keeper
from dragoman.broker.partitions import Partitions
from dragoman.broker.topics import Topics
from dragoman.cluster.metadata import TopicMetadata
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.outcome import Acknowledge, acknowledged, start
from dragoman.rpc import Answer, Call, Coordinator, Done, Registry, Request, Rpc
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import ENFORCE
from dragoman.types import GroupId, Partition, ProducerId, TopicName

log = logging.getLogger("dragoman.coordination")


class CommitOffsets(Request[Done], frozen=True, kw_only=True, tag="CommitOffsets"):
    """Answered when all of the offsets are committed."""

    request: CommitRequest
    #: None only from nodes below `SECURITY_LEVEL`; see `caller_rights`.
    caller: Caller | None = None


class GroupOffsets(Answer, frozen=True, kw_only=True, tag="Offsets"):
    """Partitions and their committed offsets."""

    offsets: tuple[tuple[int, int], ...] = ()


class CommittedOffsets(Request[GroupOffsets], frozen=True, kw_only=True, tag="CommittedOffsets"):
    """The committed offsets of a group in one topic."""

    group_id: str
    topic: str


class GroupDialect(Dialect, Protocol):
    """The coordinator's requirements of a protocol."""

    def is_visible(self, topic: str) -> bool:
        """Whether the wire can express the name of this topic."""
        ...


class ReadableTopics:
    """The topics that members of consumer groups can read, from the current metadata image."""

    def __init__(self, context: NodeContext, is_visible: Callable[[str], bool]) -> None:
        self._context = context
        self._image = context.image
        self._is_visible = is_visible

    @property
    def revision(self) -> int:
        # Neither of the two ever decreases.
        return self._image.topics_revision + self._image.security_revision

    @property
    def is_limited(self) -> bool:
        return self._image.security_mode == ENFORCE

    def describable(self, caller: Caller, names: Collection[TopicName]) -> frozenset[str]:
        allowed_among = self._context.authorizer.allowed_among
        return allowed_among(caller, Operation.DESCRIBE, Resource.TOPIC, names)

    def generalized(self, caller: Caller) -> Caller:
        return self._context.authorizer.generalized(caller)

    def find(self, name: str) -> TopicFacts | None:
        topic = self._image.topics.get(name)
        return None if topic is None or not self._is_visible(name) else _facts(topic)

    def find_by_id(self, topic_id: bytes) -> TopicFacts | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else _facts(topic)

    def names(self) -> Iterator[TopicName]:
        """All but internal topics, which members can still name explicitly."""
        for name, topic in self._image.topics.items():
            if not topic.is_internal and self._is_visible(name):
                yield TopicName(name)


class GroupCoordinator:
    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        topics: Topics,
        rpc: Rpc,
        own_config: Callable[[GroupId], Mapping[str, str]],
        dialect: GroupDialect | None = None,
    ) -> None:
        """`own_config` returns the configuration of a group."""
        settings = context.settings
        self._context = context
        self._rpc = rpc
        self.log = InternalTopic(
            context,
            partitions,
            topics,
            OFFSETS_TOPIC,
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_replication_factor,
            Keeper(self._load, self._resume, self._unload),
        )
        self.table = Groups(
            scheduler=context.scheduler,
            clock=context.clock,
            random=context.random,
            persist=self._append,
            settings=_take_settings(GroupSettings(), settings),
            catalog=ReadableTopics(context, _anything if dialect is None else dialect.is_visible),
            dialect=dialect,
            own_config=own_config,
            partition_of=self.log.partition_of,
        )
        self.offsets = Offsets(self.table)
        #: Topics that were deleted while the groups of a partition were being loaded.
        self._deleted_meanwhile: dict[int, set[TopicName]] = {}

    def serve(self, registry: Registry) -> None:
        registry.serve(CommitOffsets, self._commit_for_node)
        registry.serve(CommittedOffsets, self._committed_for_node)

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed settings."""
        _take_settings(self.table.settings, settings)

    def close(self) -> None:
        """Refuse all requests that wait: another node will coordinate the groups."""
        self.table.close()

    # ---- reading back

    def _load(self, key: bytes, value: bytes | None) -> None:
        self.table.load(key, value)

    def _resume(self, index: int) -> None:
        self.table.resume(index)
        for topic in self._deleted_meanwhile.pop(index, ()):
            changes = self.offsets.prepare_topic_deletion(topic)
            home = self.log.partition_of
            self._clean_up([each for each in changes if home(each.group_id) == index])

    def _unload(self, index: int, error: NotCoordinator) -> None:
        self._deleted_meanwhile.pop(index, None)
        self.table.unload_partition(index, error)

    # ---- groups

    def require(self, group_id: str) -> None:
        """Raises `CoordinatorLoading`, `NotCoordinator` or `CoordinatorNotAvailable` unless this
        node coordinates the group.
        """
        self.log.require(group_id)

    def home_of(self, group: str) -> TopicPartition:
        """The partition of the internal topic that keeps a group."""
        return OFFSETS_TOPIC, Partition(self.log.partition_of(group))

    def direct(self, group_id: GroupId, owner: str, rules: DirectRules) -> DirectGroup:
        """The group as that of `owner`, whose members the broker assigns. Raises what `require` and
        `Groups.claim` raise.
        """
        self.require(group_id)
        return self.table.direct(group_id, owner, rules)

    def partition_count(self, topic: TopicName) -> int:
        """The partition count of a topic; 0 if it does not exist."""
        found = self._context.image.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def topics_changed(self) -> None:
        """A topic was created or has more partitions."""
        for group in self.table:
            if isinstance(group.membership, DirectGroup):
                group.membership.topics_changed()

    async def delete(self, group_id: GroupId) -> None:
        """Delete a group without members, and its offsets."""
        self.require(group_id)
        await self._change(group_id, self.table.prepare_delete(group_id))

    # ---- offsets

    def commit(
        self,
        request: CommitRequest,
        done: Callable[[PreparedOffsets | None, DragomanError | None], None],
    ) -> None:
        """Commit offsets of a group that this node coordinates. `done` receives what was refused,
        once the rest is durable.
        """
        try:
            self.require(request.group_id)
            prepared = self.offsets.prepare_commit(request)
        except DragomanError as error:
            done(None, error)
            return

        def appended(error: DragomanError | None) -> None:
            if error is not None:
                done(None, error)
                return
            self.table.apply(prepared.records)
            done(prepared, None)

        self._append(request.group_id, prepared.records, appended)

    def commit_anywhere(self, request: CommitRequest, done: Acknowledge, *, caller: Caller) -> None:
        """Commit offsets wherever the group is coordinated, for clients that cannot be redirected.
        The error may concern only some of the offsets. A coordinator on another node authorizes the
        caller.
        """
        if self.log.leader_of(request.group_id) == self._context.node_id:
            self._commit_here(request, done)
            return
        coordinator = Coordinator(OFFSETS_TOPIC, request.group_id)
        outcome = self._rpc.begin(CommitOffsets(request=request, caller=caller), coordinator)
        outcome.then(lambda reply: done(reply if isinstance(reply, DragomanError) else None))

    def _commit_here(self, request: CommitRequest, done: Acknowledge) -> None:
        def committed(prepared: PreparedOffsets | None, error: DragomanError | None) -> None:
            if prepared is not None and prepared.errors:
                error = next(iter(prepared.errors.values()))
            done(error)

        self.commit(request, committed)

    async def _commit_for_node(self, call: Call[CommitOffsets]) -> Done:
        request, caller = call.request.request, caller_of(self._context.image, call.request.caller)
        may = partial(authorize, self._context.authorizer, caller, Operation.READ)
        may(Resource.GROUP, request.group_id)
        for topic in {each.topic for each in request.offsets}:
            may(Resource.TOPIC, topic)
        await acknowledged(partial(self._commit_here, request))
        return Done()

    def committed_here(self, group_id: GroupId, topic: TopicName) -> dict[int, int]:
        """Committed offsets by partition. Raises what `require` raises."""
        self.require(group_id)
        return {
            index: each.offset
            for (name, index), each in self.offsets.all_stored(group_id).items()
            if name == topic and each.is_position
        }

    async def committed(self, group_id: GroupId, topic: TopicName) -> dict[int, int]:
        """Committed offsets by partition, wherever the group is coordinated."""
        is_kept = OFFSETS_TOPIC in self._context.image.topics
        if not is_kept and self.log.leader_of(group_id) == NO_NODE:
            # No group has committed anything yet.
            return {}
        request = CommittedOffsets(group_id=group_id, topic=topic)
        answer = await self._rpc.call(request, Coordinator(OFFSETS_TOPIC, group_id))
        return dict(answer.offsets)

    async def _committed_for_node(self, call: Call[CommittedOffsets]) -> GroupOffsets:
        group_id, topic = GroupId(call.request.group_id), TopicName(call.request.topic)
        return GroupOffsets(offsets=tuple(self.committed_here(group_id, topic).items()))

    async def delete_offsets(
        self, group_id: GroupId, partitions: Sequence[TopicPartition]
    ) -> PreparedOffsets:
        """Forget committed offsets. The result says which were refused, once the rest is gone."""
        self.require(group_id)
        prepared = self.offsets.prepare_delete(group_id, partitions)
        await self._change(group_id, prepared.records)
        return prepared

    # ---- transactions

    async def end_staged(
        self, group_id: GroupId, producer_id: ProducerId, *, is_commit: bool
    ) -> None:
        """A transaction has ended: what it staged for the group is committed, or dropped."""
        self.require(group_id)
        ended = self.offsets.prepare_transaction_end(group_id, producer_id, is_commit=is_commit)
        await self._change(group_id, ended)

    def staged_by(self, producer_id: int, index: int) -> list[str]:
        """Groups of a partition for which a producer has staged offsets."""
        return [
            group.group_id
            for group in self.table
            if producer_id in group.ledger.producers
            and self.log.partition_of(group.group_id) == index
        ]

    # ---- cleaning up

    def topic_deleted(self, topic: TopicName) -> None:
        """Delete the offsets of a deleted topic: a new one of the same name must start without."""
        self._clean_up(self.offsets.prepare_topic_deletion(topic))
        for index in self.log.loading:
            self._deleted_meanwhile.setdefault(index, set()).add(topic)

    def expire_offsets(self) -> None:
        """Delete the offsets and groups that are past their retention."""
        self._clean_up(self.offsets.prepare_expiry())

    def _clean_up(self, changes: Sequence[GroupRecords]) -> None:
        for change in changes:
            # Groups that are being loaded are incomplete.
            if self.log.is_served(self.log.partition_of(change.group_id)):
                start(self._change(change.group_id, change.records)).then(_log_failure)

    # ---- writing

    async def _change(self, group_id: GroupId, records: Sequence[StateRecord]) -> None:
        """Make prepared records durable, then apply them."""
        await acknowledged(lambda done: self._append(group_id, records, done))
        self.table.apply(records)

    def _append(self, group_id: GroupId, records: Sequence[StateRecord], done: Acknowledge) -> None:
        index = self.log.partition_of(group_id)
        self.log.append(index, [(each.key, each.value) for each in records], done)


def _facts(topic: TopicMetadata) -> TopicFacts:
    return TopicFacts(TopicName(topic.name), topic.topic_id, len(topic.partitions))


def _take_settings(groups: GroupSettings, settings: Settings) -> GroupSettings:
    """Adopt the node's settings for groups, which have the same names."""
    for name in groups.__struct_fields__:
        setattr(groups, name, getattr(settings, name))
    return groups


def _anything(_topic: str) -> bool:
    return True


def _log_failure(error: DragomanError | None) -> None:
    if error is not None:
        log.warning("group records could not be written: %s; tried again later", error)
