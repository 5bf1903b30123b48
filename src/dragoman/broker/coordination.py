"""Groups, committed offsets and transactions, joined to the log.

The machines (`groups/`, `offsets.py`, `transactions/`) are pure: they say which records to write
and go on when these are durable. Here are their ports: two internal topics, the control markers,
and the producer ids from the metadata quorum. A node coordinates the groups and transactional ids
whose partition of the internal topic it leads, once it has read the partition back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from dragoman.broker.catalog import ReadableTopics
from dragoman.broker.errors import CoordinatorNotAvailable, NotCoordinator
from dragoman.broker.groups import (
    OFFSETS_TOPIC,
    Dialect,
    Groups,
    GroupSettings,
    StateRecord,
    TopicPartition,
)
from dragoman.broker.groups.direct import DirectGroup, DirectRules
from dragoman.broker.guests import Guests
from dragoman.broker.internal import InternalTopic, Keeper
from dragoman.broker.kinds import NOBODY, Kind
from dragoman.broker.neighbours import Answer, CommitOffsets, CommittedOffsets, told
from dragoman.broker.neighbours import Offsets as CommittedReply
from dragoman.broker.offsets import CommitRequest, GroupRecords, Offsets, PreparedOffsets
from dragoman.broker.replica import Acknowledge
from dragoman.broker.transacting import Transacting
from dragoman.broker.transactions import Markers, ProducerIds, TransactionCoordinator
from dragoman.broker.transactions import StateRecord as TransactionRecord
from dragoman.cluster.events import Event, ProducerIdsReserved
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.limits import (
    PRODUCER_ID_BLOCK,
    TRANSACTION_EXPIRY_INTERVAL_S,
    TRANSACTION_RETRY_INTERVAL_S,
)
from dragoman.types import GroupId, Partition, ProducerId, TopicName
from dragoman.world import Handle

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

log = logging.getLogger("dragoman.coordination")
TRANSACTIONS_TOPIC = "__transaction_state"


class GroupDialect(Dialect, Protocol):
    """What the core must know of the wire whose groups it coordinates."""

    def is_visible(self, topic: str) -> bool:
        """Can the wire express the name of this topic?"""
        ...


class Coordination:
    def __init__(self, broker: Broker, dialect: GroupDialect | None = None) -> None:
        settings = broker.settings
        self._broker = broker
        self._offsets_log = InternalTopic(
            broker.context,
            broker.partitions,
            broker.topics,
            OFFSETS_TOPIC,
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_replication_factor,
            Keeper(self._load_group, self._resume_groups, self._unload_groups),
        )
        self._transactions_log = InternalTopic(
            broker.context,
            broker.partitions,
            broker.topics,
            TRANSACTIONS_TOPIC,
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_replication_factor,
            Keeper(self._load_transaction, self._resume_transactions, self._unload_transactions),
        )
        self._logs = {
            Kind.GROUP: self._offsets_log,
            Kind.TRANSACTION: self._transactions_log,
        }
        self.groups = Groups(
            scheduler=broker.scheduler,
            clock=broker.clock,
            random=broker.random,
            persist=self._append_group,
            settings=_take_settings(GroupSettings(), settings),
            catalog=ReadableTopics(
                broker.image, _anything if dialect is None else dialect.is_visible
            ),
            dialect=dialect,
            own_config=broker.group_configs.of,
            partition_of=self._offsets_log.partition_of,
        )
        self.offsets = Offsets(self.groups)
        self.transacting = Transacting(broker, self)
        self.guests = Guests(broker, self)
        self._seats = 0
        self.producer_ids = ProducerIds(self._allocate_block)
        self.transactions = TransactionCoordinator(
            broker.clock,
            self._persist_transactions,
            self._write_markers,
            self.producer_ids,
            timeout_max_ms=settings.transaction_max_timeout_ms,
            expiration_ms=settings.transactional_id_expiration_ms,
            partition_of=self._transactions_log.partition_of,
        )
        #: Topics that were deleted while the groups of a partition were being read back.
        self._deleted_meanwhile: dict[int, set[TopicName]] = {}
        self._timers: dict[str, Handle] = {}
        self._arm: dict[str, Callable[[], None]] = {}

    # ---- life

    def start(self) -> None:
        """From now on groups and transactions are served as their partitions are led."""
        self._every("offsets", self._offsets_interval_s, self._expire_offsets)
        self._every("time-outs", self._time_outs_interval_s, self.transactions.abort_timed_out)
        self._every("retries", lambda: TRANSACTION_RETRY_INTERVAL_S, self.transactions.retry_failed)
        self._every("expiry", lambda: TRANSACTION_EXPIRY_INTERVAL_S, self.transactions.expire_idle)

    def _offsets_interval_s(self) -> float:
        return self._broker.settings.offsets_retention_check_interval_ms / 1000

    def _time_outs_interval_s(self) -> float:
        settings = self._broker.settings
        return settings.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000

    def _every(
        self, name: str, interval_s: Callable[[], float], action: Callable[[], object]
    ) -> None:
        def due() -> None:
            action()
            arm()

        def arm() -> None:
            self._timers[name] = self._broker.scheduler.call_later(interval_s(), due)

        self._arm[name] = arm
        arm()

    def reconfigure(self, settings: Settings) -> None:
        """From now on these settings hold."""
        _take_settings(self.groups.settings, settings)
        self.transactions.timeout_max_ms = settings.transaction_max_timeout_ms
        self.transactions.expiration_ms = settings.transactional_id_expiration_ms
        for name in ("offsets", "time-outs"):
            timer = self._timers.get(name)
            if timer is not None:
                timer.cancel()
                self._arm[name]()

    def close(self) -> None:
        """Whoever waits for a group or a transaction is told to come back."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for each in self._logs.values():
            each.close()
        self.groups.close()
        self.transactions.close()

    # ---- leadership

    def topics(self) -> dict[str, int]:
        """Partitions of the internal topics whose leaders coordinate."""
        return {each.name: each.partition_count for each in self._logs.values()}

    def led(self, topic: str, index: int, leader_epoch: int) -> None:
        """This node leads a partition of an internal topic, ours or not. What is kept there is read
        back and then served. Also for a topic that is yet to be made, on a node that is alone.
        """
        for each in self._logs.values():
            if each.name == topic:
                each.lead(index, leader_epoch)

    def resigned(self, topic: str, index: int) -> None:
        """It does not any more: who waits for what is kept there is told to look elsewhere."""
        for each in self._logs.values():
            if each.name == topic:
                each.resign(index)

    def _load_group(self, key: bytes, value: bytes | None) -> None:
        self.groups.load(key, value)

    def _resume_groups(self, index: int) -> None:
        self.groups.resume(index)
        for topic in self._deleted_meanwhile.pop(index, ()):
            changes = self.offsets.prepare_topic_deletion(topic)
            home = self._offsets_log.partition_of
            self._clean_up([each for each in changes if home(each.group_id) == index])

    def _unload_groups(self, index: int, error: NotCoordinator) -> None:
        self._deleted_meanwhile.pop(index, None)
        self.groups.unload_partition(index, error)

    def _load_transaction(self, key: bytes, value: bytes | None) -> None:
        self.transactions.load(key, value)

    def _resume_transactions(self, index: int) -> None:
        resumed = self.transactions.resume(index)
        if resumed:
            log.info("finishing %d transactions that were decided before", resumed)

    def _unload_transactions(self, index: int, _error: NotCoordinator) -> None:
        self.transactions.unload(index)

    # ---- who coordinates

    def coordinator_of(self, kind: Kind, name: str) -> int:
        """The node, or -1 while there is none."""
        return self._logs[kind].leader_of(name)

    def find_coordinator(
        self, kind: Kind, name: str, done: Callable[[int | DragomanError], None]
    ) -> None:
        """The same for a client, who is to get a lasting answer: the topic is made if need be."""

        def made(error: DragomanError | None) -> None:
            node = self.coordinator_of(kind, name)
            if error is None and node == NOBODY:
                error = CoordinatorNotAvailable(f"nobody coordinates {kind.value} {name!r}")
            done(node if error is None else error)

        if self.coordinator_of(kind, name) != NOBODY:
            made(None)
        else:
            self._logs[kind].ensure(made)

    def require_group(self, group_id: str) -> None:
        """Raises `CoordinatorLoading`, `NotCoordinator` or `CoordinatorNotAvailable` unless this
        node coordinates the group.
        """
        self._offsets_log.require(group_id)

    def require_transaction(self, transactional_id: str) -> None:
        """The same for a transactional id."""
        self._transactions_log.require(transactional_id)

    def require_loaded(self, kind: Kind) -> None:
        """Raises `CoordinatorLoading` while this node is not sure what it coordinates."""
        self._logs[kind].require_loaded()

    # ---- groups of protocols that leave the assignment to the broker

    def direct_group(self, group_id: GroupId, owner: str, rules: DirectRules) -> DirectGroup:
        """The group as that of `owner`. Raises what `require_group` and `claim` raise."""
        self.require_group(group_id)
        return self.groups.direct(group_id, owner, rules)

    def next_seat(self) -> int:
        """A number for a member that has no name of its own."""
        self._seats += 1
        return self._seats

    def partition_count(self, topic: TopicName) -> int:
        found = self._broker.image.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def topics_changed(self) -> None:
        """A topic was made or grew."""
        for group in self.groups:
            if isinstance(group.membership, DirectGroup):
                group.membership.topics_changed()

    # ---- offsets

    def commit(
        self,
        request: CommitRequest,
        done: Callable[[PreparedOffsets | None, DragomanError | None], None],
    ) -> None:
        """Commit offsets; `done` tells what was refused, once the rest is durable."""
        try:
            self.require_group(request.group_id)
            prepared = self.offsets.prepare_commit(request)
        except DragomanError as error:
            done(None, error)
            return

        def appended(error: DragomanError | None) -> None:
            if error is not None:
                done(None, error)
                return
            self.groups.apply(prepared.records)
            done(prepared, None)

        self._append_group(request.group_id, prepared.records, appended)

    def commit_here(self, request: CommitRequest, done: Acknowledge) -> None:
        """The same with one answer for all offsets, whose error may concern only some of them."""

        def committed(prepared: PreparedOffsets | None, error: DragomanError | None) -> None:
            refused = () if prepared is None else prepared.errors.values()
            done(error or next(iter(refused), None))

        self.commit(request, committed)

    def commit_anywhere(self, request: CommitRequest, done: Acknowledge) -> None:
        """The same wherever the group is coordinated, for clients that cannot be sent there."""

        def found(node: int | DragomanError) -> None:
            if isinstance(node, DragomanError):
                done(node)
            elif node == self._broker.node_id:
                self.commit_here(request, done)
            else:
                message = CommitOffsets(request=request)
                self._broker.neighbours.ask(node, message, (), partial(told, done))

        self.find_coordinator(Kind.GROUP, request.group_id, found)

    def committed_here(self, group_id: GroupId, topic: TopicName) -> dict[int, int]:
        """Committed offsets by partition. Raises what `require_group` raises."""
        self.require_group(group_id)
        return {
            index: each.offset
            for (name, index), each in self.offsets.all_stored(group_id).items()
            if name == topic and each.is_position
        }

    def look_up_committed(
        self,
        group_id: GroupId,
        topic: TopicName,
        done: Callable[[dict[int, int] | DragomanError], None],
    ) -> None:
        """The same, wherever the group is coordinated."""
        node = self.coordinator_of(Kind.GROUP, group_id)

        def answered(answer: Answer | DragomanError) -> None:
            if isinstance(answer, DragomanError):
                done(answer)
            else:
                assert isinstance(answer.reply, CommittedReply)
                done(dict(answer.reply.offsets))

        if node == NOBODY and OFFSETS_TOPIC not in self._broker.image.topics:
            # Nobody has committed anything yet.
            done({})
        elif node in (self._broker.node_id, NOBODY):
            try:
                found = self.committed_here(group_id, topic)
            except DragomanError as error:
                done(error)
            else:
                done(found)
        else:
            request = CommittedOffsets(group_id=group_id, topic=topic)
            self._broker.neighbours.ask(node, request, (), answered)

    def delete_group(self, group_id: GroupId, done: Acknowledge) -> None:
        try:
            self.require_group(group_id)
            records = self.groups.prepare_delete(group_id)
        except DragomanError as error:
            done(error)
            return
        self._change_group(group_id, records, done)

    def delete_offsets(
        self,
        group_id: GroupId,
        partitions: Sequence[TopicPartition],
        done: Callable[[PreparedOffsets | None, DragomanError | None], None],
    ) -> None:
        """Forget committed offsets; `done` tells which were refused, once the rest is gone."""
        try:
            self.require_group(group_id)
            prepared = self.offsets.prepare_delete(group_id, partitions)
        except DragomanError as error:
            done(None, error)
            return

        def changed(error: DragomanError | None) -> None:
            done(prepared if error is None else None, error)

        self._change_group(group_id, prepared.records, changed)

    def topic_deleted(self, topic: TopicName) -> None:
        """A topic of the same name would start anew: its offsets go with it."""
        self._clean_up(self.offsets.prepare_topic_deletion(topic))
        for index in self._offsets_log.loading:
            self._deleted_meanwhile.setdefault(index, set()).add(topic)

    def _expire_offsets(self) -> None:
        self._clean_up(self.offsets.prepare_expiry())

    def _clean_up(self, changes: Sequence[GroupRecords]) -> None:
        for change in changes:
            # Of groups that are being read back not all is known.
            if self._offsets_log.is_served(self._offsets_log.partition_of(change.group_id)):
                self._change_group(change.group_id, change.records, _logged)

    def _change_group(
        self, group_id: GroupId, records: Sequence[StateRecord], done: Acknowledge
    ) -> None:
        def appended(error: DragomanError | None) -> None:
            if error is None:
                self.groups.apply(records)
            done(error)

        self._append_group(group_id, records, appended)

    def _append_group(
        self, group_id: GroupId, records: Sequence[StateRecord], done: Acknowledge
    ) -> None:
        index = self._offsets_log.partition_of(group_id)
        self._offsets_log.append(index, [(each.key, each.value) for each in records], done)

    # ---- transactions

    def _persist_transactions(
        self, records: Sequence[TransactionRecord], done: Acknowledge
    ) -> None:
        (index,) = {self._transactions_log.partition_of(each.transactional_id) for each in records}
        self._transactions_log.append(index, [(each.key, each.value) for each in records], done)

    def _write_markers(self, markers: Markers, done: Acknowledge) -> None:
        home = self._transactions_log.partition_of(markers.transactional_id)
        self.transacting.tell_end(markers, self._transactions_log.leader_epoch(home), done)

    def end_staged(
        self, group_id: GroupId, producer_id: ProducerId, is_commit: bool, done: Acknowledge
    ) -> None:
        """A transaction has ended: what it staged for the group is committed, or dropped."""
        try:
            self.require_group(group_id)
        except DragomanError as error:
            done(error)
            return
        records = self.offsets.prepare_transaction_end(group_id, producer_id, is_commit=is_commit)
        self._change_group(group_id, records, done)

    def groups_staged_by(self, producer_id: int, index: int) -> list[str]:
        """Groups of a partition for which a producer has staged offsets."""
        return [
            group.group_id
            for group in self.groups
            if producer_id in group.ledger.producers
            and self._offsets_log.partition_of(group.group_id) == index
        ]

    def group_partition(self, group: str) -> TopicPartition:
        """The partition of the internal topic that keeps a group."""
        return TopicName(OFFSETS_TOPIC), Partition(self._offsets_log.partition_of(group))

    def _allocate_block(self, done: Callable[[range | DragomanError], None]) -> None:
        blocks: list[range] = []

        def decide() -> list[Event]:
            first = self._broker.image.next_producer_id
            blocks.append(range(first, first + PRODUCER_ID_BLOCK))
            return [ProducerIdsReserved(next_id=first + PRODUCER_ID_BLOCK)]

        def reserved(error: DragomanError | None) -> None:
            # What was decided last is what was agreed on.
            done(blocks[-1] if error is None else error)

        self._broker.changes.make(decide).then(reserved)


def _take_settings(groups: GroupSettings, settings: Settings) -> GroupSettings:
    """Groups have those settings of the node that are named like theirs."""
    for name in groups.__struct_fields__:
        setattr(groups, name, getattr(settings, name))
    return groups


def _anything(_topic: str) -> bool:
    return True


def _logged(error: DragomanError | None) -> None:
    if error is not None:
        log.warning("group records could not be written: %s; tried again later", error)
