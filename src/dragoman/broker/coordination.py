"""Groups, committed offsets and transactions, joined to the log.

The machines (`groups/`, `offsets.py`, `transactions/`) are pure: they say which records to write
and go on when these are durable. Here are their ports: two internal topics, the control markers,
and the producer ids from the metadata quorum. Requests are refused until what the internal topics
hold has been read back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dragoman.broker.errors import CoordinatorLoading, UnknownTopic
from dragoman.broker.groups import (
    OFFSETS_TOPIC,
    Groups,
    GroupSettings,
    StateRecord,
    coordinator_partition,
)
from dragoman.broker.internal import InternalTopic
from dragoman.broker.offsets import CommitRequest, Offsets, PreparedOffsets
from dragoman.broker.replica import Acknowledge
from dragoman.broker.transactions import Markers, ProducerIds, TransactionCoordinator
from dragoman.broker.transactions import StateRecord as TransactionRecord
from dragoman.cluster.events import ProducerIdsReserved
from dragoman.errors import DragomanError
from dragoman.limits import (
    PRODUCER_ID_BLOCK,
    TRANSACTION_EXPIRY_INTERVAL_S,
    TRANSACTION_RETRY_INTERVAL_S,
)
from dragoman.log.batch import Marker, build_marker, read_header
from dragoman.types import GroupId, ProducerId, TopicName
from dragoman.world import Handle

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

log = logging.getLogger("dragoman.coordination")
TRANSACTIONS_TOPIC = "__transaction_state"
#: On one node the coordinator never changes hands; its epoch is the leader epoch of its partition.
_COORDINATOR_EPOCH = 0


class Coordination:
    def __init__(self, broker: Broker) -> None:
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
            settings=GroupSettings(
                group_min_session_timeout_ms=settings.group_min_session_timeout_ms,
                group_max_session_timeout_ms=settings.group_max_session_timeout_ms,
                group_initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
                group_max_size=settings.group_max_size,
                offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
                offsets_retention_minutes=settings.offsets_retention_minutes,
            ),
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

    # ---- life

    def start(self) -> None:
        """Read the internal topics back; requests are served as each is done."""
        self._offsets_log.load(self.groups.load, self._groups_loaded)
        self._transactions_log.load(self.transactions.load, self._transactions_loaded)

    def _groups_loaded(self) -> None:
        self.are_groups_loaded = True
        self.groups.resume()
        interval_ms = self._broker.settings.offsets_retention_check_interval_ms
        self._every("offsets", interval_ms / 1000, self._expire_offsets)

    def _transactions_loaded(self) -> None:
        resumed = self.transactions.resume()
        if resumed:
            log.info("finishing %d transactions that were decided before the restart", resumed)
        settings = self._broker.settings
        interval_ms = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._every("time-outs", interval_ms / 1000, self.transactions.abort_timed_out)
        self._every("retries", TRANSACTION_RETRY_INTERVAL_S, self.transactions.retry_failed)
        self._every("expiry", TRANSACTION_EXPIRY_INTERVAL_S, self.transactions.expire_idle)

    def _every(self, name: str, seconds: float, action: Callable[[], object]) -> None:
        def due() -> None:
            action()
            self._timers[name] = self._broker.scheduler.call_later(seconds, due)

        self._timers[name] = self._broker.scheduler.call_later(seconds, due)

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
        _AllOf(len(steps), done).run(steps)

    def _write_markers(self, markers: Markers, done: Acknowledge) -> None:
        steps = [
            _bound(self._write_marker, markers, topic, index) for topic, index in markers.partitions
        ]
        steps += [_bound(self._end_offsets, markers, group) for group in markers.groups]
        _AllOf(len(steps), done).run(steps)

    def _write_marker(
        self, markers: Markers, topic: TopicName, index: int, done: Acknowledge
    ) -> None:
        broker = self._broker
        marker = Marker(markers.commit, _COORDINATOR_EPOCH)
        batch = build_marker(
            marker,
            producer_id=markers.producer_id,
            producer_epoch=markers.epoch,
            timestamp=broker.clock.wall_ms(),
        )
        try:
            replica = broker.find(topic, index)
            appended = replica.log.append_marker(
                batch, read_header(batch), replica.leader_epoch, marker
            )
        except UnknownTopic:
            done(None)
        except DragomanError as error:
            done(error)
        else:
            replica.when_committed(appended.next_offset, done)

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


class _AllOf:
    """Calls back once when several steps are done, with the first error if there was one."""

    def __init__(self, count: int, done: Acknowledge) -> None:
        self._left = count
        self._done = done
        self._error: DragomanError | None = None

    def run(self, steps: Sequence[Callable[[Acknowledge], None]]) -> None:
        if not steps:
            self._done(None)
        for step in steps:
            step(self._finished)

    def _finished(self, error: DragomanError | None) -> None:
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._done(self._error)


def _bound(function: Callable[..., None], *arguments: object) -> Callable[[Acknowledge], None]:
    return lambda done: function(*arguments, done)


def _logged(error: DragomanError | None) -> None:
    if error is not None:
        log.warning("group records could not be written: %s; tried again later", error)
