"""Groups, committed offsets and transactions, joined to the log.

The machines (`groups/`, `offsets.py`, `transactions/`) are pure: they say which records to write
and go on when these are durable. Here are their ports: two internal topics, the control markers,
and the producer ids from the metadata quorum. Requests are refused until what the internal topics
hold has been read back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from dragoman.broker.catalog import ReadableTopics
from dragoman.broker.errors import CoordinatorLoading, UnknownTopic
from dragoman.broker.groups import (
    OFFSETS_TOPIC,
    Dialect,
    Groups,
    GroupSettings,
    StateRecord,
    TopicPartition,
)
from dragoman.broker.groups.direct import DirectGroup, DirectRules
from dragoman.broker.internal import InternalTopic
from dragoman.broker.offsets import CommitRequest, Offsets, PreparedOffsets
from dragoman.broker.placement import coordinator_partition
from dragoman.broker.replica import Acknowledge, Replica
from dragoman.broker.steps import AllOf
from dragoman.broker.transactions import (
    Markers,
    ProducerIdentity,
    ProducerIds,
    TransactionCoordinator,
)
from dragoman.broker.transactions import StateRecord as TransactionRecord
from dragoman.cluster.events import ProducerIdsReserved
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.limits import (
    PRODUCER_ID_BLOCK,
    TRANSACTION_EXPIRY_INTERVAL_S,
    TRANSACTION_RETRY_INTERVAL_S,
)
from dragoman.log.batch import Marker, build_marker, read_header
from dragoman.types import GroupId, Partition, ProducerId, TopicName
from dragoman.world import Handle

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

log = logging.getLogger("dragoman.coordination")
TRANSACTIONS_TOPIC = "__transaction_state"
#: On one node the coordinator never changes hands; its epoch is the leader epoch of its partition.
_COORDINATOR_EPOCH = 0


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
            broker, OFFSETS_TOPIC, settings.offsets_topic_num_partitions
        )
        self._transactions_log = InternalTopic(
            broker, TRANSACTIONS_TOPIC, settings.transaction_state_log_num_partitions
        )
        self.groups = Groups(
            scheduler=broker.scheduler,
            clock=broker.clock,
            random=broker.random,
            persist=self._persist_group,
            settings=_take_settings(GroupSettings(), settings),
            catalog=ReadableTopics(
                broker.image, _anything if dialect is None else dialect.is_visible
            ),
            dialect=dialect,
            own_config=broker.group_configs.of,
        )
        self.offsets = Offsets(self.groups)
        self.producer_ids = ProducerIds(self._allocate_block)
        self.transactions = TransactionCoordinator(
            broker.clock,
            self._persist_transactions,
            self._write_markers,
            self.producer_ids,
            timeout_max_ms=settings.transaction_max_timeout_ms,
            expiration_ms=settings.transactional_id_expiration_ms,
        )
        self.are_groups_loaded = False
        self._timers: dict[str, Handle] = {}
        self._arm: dict[str, Callable[[], None]] = {}

    # ---- life

    def start(self) -> None:
        """Read the internal topics back; requests are served as each is done."""
        self._offsets_log.load(self.groups.load, self._groups_loaded)
        self._transactions_log.load(self.transactions.load, self._transactions_loaded)

    def _groups_loaded(self) -> None:
        self.are_groups_loaded = True
        self.groups.resume()
        self._every("offsets", self._offsets_interval_s, self._expire_offsets)

    def _transactions_loaded(self) -> None:
        resumed = self.transactions.resume()
        if resumed:
            log.info("finishing %d transactions that were decided before the restart", resumed)
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
        self.groups.close()
        self.transactions.close()

    def require_groups(self) -> None:
        """Raises `CoordinatorLoading` until groups can be used."""
        if not self.are_groups_loaded:
            raise CoordinatorLoading("the groups are being read back")

    # ---- groups of protocols that leave the assignment to the broker

    def direct_group(self, group_id: GroupId, owner: str, rules: DirectRules) -> DirectGroup:
        """The group as that of `owner`. Raises `CoordinatorLoading` and what `claim` raises."""
        self.require_groups()
        return self.groups.direct(group_id, owner, rules)

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
            self.require_groups()
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

    def delete_group(self, group_id: GroupId, done: Acknowledge) -> None:
        try:
            self.require_groups()
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
            self.require_groups()
            prepared = self.offsets.prepare_delete(group_id, partitions)
        except DragomanError as error:
            done(None, error)
            return

        def changed(error: DragomanError | None) -> None:
            done(prepared if error is None else None, error)

        self._change_group(group_id, prepared.records, changed)

    def topic_deleted(self, topic: TopicName) -> None:
        """A topic of the same name would start anew: its offsets go with it."""
        for change in self.offsets.prepare_topic_deletion(topic):
            self._change_group(change.group_id, change.records, _logged)

    def _expire_offsets(self) -> None:
        for change in self.offsets.prepare_expiry():
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
        index = coordinator_partition(group_id, self._offsets_log.partition_count)
        self._offsets_log.append(index, [(each.key, each.value) for each in records], done)

    def _persist_group(
        self, group_id: GroupId, records: Sequence[StateRecord], done: Acknowledge
    ) -> None:
        self._append_group(group_id, records, done)

    # ---- transactions

    def _persist_transactions(
        self, records: Sequence[TransactionRecord], done: Acknowledge
    ) -> None:
        count = self._transactions_log.partition_count
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for each in records:
            index = coordinator_partition(GroupId(each.transactional_id), count)
            by_partition.setdefault(index, []).append((each.key, each.value))
        append = self._transactions_log.append
        steps = [_bound(append, index, found) for index, found in by_partition.items()]
        AllOf(len(steps), done).run(steps)

    def _write_markers(self, markers: Markers, done: Acknowledge) -> None:
        steps = [
            _bound(self._write_marker, markers, topic, index) for topic, index in markers.partitions
        ]
        steps += [_bound(self._end_offsets, markers, group) for group in markers.groups]
        AllOf(len(steps), done).run(steps)

    def _write_marker(
        self, markers: Markers, topic: TopicName, index: int, done: Acknowledge
    ) -> None:
        producer = ProducerIdentity(markers.producer_id, markers.epoch)
        marker = Marker(markers.commit, _COORDINATOR_EPOCH)

        def marked(error: DragomanError | None) -> None:
            # A topic that was deleted meanwhile needs no marker.
            done(None if isinstance(error, UnknownTopic) else error)

        self._append_marker(producer, marker, topic, index, marked)

    def _append_marker(
        self,
        producer: ProducerIdentity,
        marker: Marker,
        topic: TopicName,
        index: int,
        done: Acknowledge,
    ) -> None:
        broker = self._broker
        batch = build_marker(
            marker,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp=broker.clock.wall_ms(),
        )
        try:
            replica = broker.find(topic, index)
            appended = replica.log.append_marker(
                batch, read_header(batch), replica.leader_epoch, marker
            )
        except DragomanError as error:
            done(error)
        else:
            replica.when_committed(appended.next_offset, done)

    def end_by_hand(
        self,
        producer: ProducerIdentity,
        marker: Marker,
        partition: TopicPartition,
        done: Acknowledge,
    ) -> None:
        """End a transaction on one partition without its coordinator: for one that hangs there
        because its coordinator no longer knows of it. On a partition of the offsets topic this
        ends what the transaction staged for the groups kept there. A negative coordinator epoch
        stands for that of whoever wrote the producer's last marker.
        """
        topic, index = partition
        try:
            replica = self._broker.find(topic, index)
            self.require_groups()
        except DragomanError as error:
            done(error)
            return
        if topic != OFFSETS_TOPIC:
            if marker.coordinator_epoch < 0:
                epoch = _coordinator_epoch(replica, producer.producer_id)
                marker = Marker(marker.is_commit, epoch)
            self._append_marker(producer, marker, topic, index, done)
            return
        count = self._offsets_log.partition_count
        staged_for = [
            group.group_id
            for group in self.groups
            if producer.producer_id in group.ledger.producers
            and coordinator_partition(group.group_id, count) == index
        ]
        markers = Markers(
            "", producer.producer_id, producer.epoch, marker.is_commit, (), tuple(staged_for)
        )
        self._write_markers(markers, done)

    def group_partition(self, group: str) -> TopicPartition:
        """The partition of the internal topic that keeps a group."""
        count = self._offsets_log.partition_count
        return TopicName(OFFSETS_TOPIC), Partition(coordinator_partition(GroupId(group), count))

    def _end_offsets(self, markers: Markers, group: str, done: Acknowledge) -> None:
        group_id = GroupId(group)
        try:
            self.require_groups()
        except DragomanError as error:
            done(error)
            return
        records = self.offsets.prepare_transaction_end(
            group_id, ProducerId(markers.producer_id), is_commit=markers.commit
        )
        self._change_group(group_id, records, done)

    def _allocate_block(self, done: Callable[[range | DragomanError], None]) -> None:
        first = self._broker.image.next_producer_id
        block = range(first, first + PRODUCER_ID_BLOCK)

        def reserved(error: DragomanError | None) -> None:
            done(block if error is None else error)

        self._broker.quorum.propose([ProducerIdsReserved(next_id=block.stop)], reserved)


def _take_settings(groups: GroupSettings, settings: Settings) -> GroupSettings:
    """Groups have those settings of the node that are named like theirs."""
    for name in groups.__struct_fields__:
        setattr(groups, name, getattr(settings, name))
    return groups


def _coordinator_epoch(replica: Replica, producer_id: int) -> int:
    states = replica.log.producers
    known = None if states is None else states.producers().get(producer_id)
    return 0 if known is None else max(0, known.coordinator_epoch)


def _bound(function: Callable[..., None], *arguments: object) -> Callable[[Acknowledge], None]:
    return lambda done: function(*arguments, done)


def _anything(_topic: str) -> bool:
    return True


def _logged(error: DragomanError | None) -> None:
    if error is not None:
        log.warning("group records could not be written: %s; tried again later", error)
