"""Transactions on this node: the coordinator's machine, connected to the log and the participants.

The machine (`coordinator.py`) is pure: it hands out records and resumes when these are durable. The
records are kept in the internal topic `__transaction_state`. A node coordinates the transactional
ids whose partition of that topic it leads, from the moment it has read the partition back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from dragoman.broker.changes import Changes
from dragoman.broker.context import NodeContext
from dragoman.broker.errors import NotCoordinator
from dragoman.broker.groups.coordinator import GroupCoordinator
from dragoman.broker.internal_topic import InternalTopic, Keeper
from dragoman.broker.partitions import Partitions
from dragoman.broker.topics import Topics
from dragoman.broker.transactions.coordinator import TransactionCoordinator
from dragoman.broker.transactions.participants import Participants
from dragoman.broker.transactions.ports import Markers, StateRecord
from dragoman.broker.transactions.producer_ids import ProducerIds
from dragoman.cluster.events import Event, ProducerIdsReserved
from dragoman.config.settings import Settings
from dragoman.limits import PRODUCER_ID_BLOCK
from dragoman.outcome import Outcome, acknowledged, start
from dragoman.rpc import Registry, Rpc

log = logging.getLogger("dragoman.coordination")
TRANSACTIONS_TOPIC = "__transaction_state"


class Transactions:
    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        topics: Topics,
        changes: Changes,
        rpc: Rpc,
        groups: GroupCoordinator,
        incarnation: Callable[[], int],
    ) -> None:
        """`incarnation` of this node; it rises with every start."""
        settings = context.settings
        self._context = context
        self._changes = changes
        self.log = InternalTopic(
            context,
            partitions,
            topics,
            TRANSACTIONS_TOPIC,
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_replication_factor,
            Keeper(self._load, self._resume, self._unload),
        )
        self.producer_ids = ProducerIds(self._allocate_block)
        self.coordinator = TransactionCoordinator(
            context.clock,
            self._persist,
            self._write_markers,
            self.producer_ids,
            timeout_max_ms=settings.transaction_max_timeout_ms,
            expiration_ms=settings.transactional_id_expiration_ms,
            partition_of=self.log.partition_of,
        )
        self.participants = Participants(
            context, partitions, rpc, groups, self.log, self.coordinator, incarnation
        )

    def serve(self, registry: Registry) -> None:
        self.participants.serve(registry)

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed settings."""
        self.coordinator.timeout_max_ms = settings.transaction_max_timeout_ms
        self.coordinator.expiration_ms = settings.transactional_id_expiration_ms

    def close(self) -> None:
        """Refuse all requests that wait: another node will coordinate the transactions."""
        self.coordinator.close()

    def require(self, transactional_id: str) -> None:
        """Raises `CoordinatorLoading`, `NotCoordinator` or `CoordinatorNotAvailable` unless this
        node coordinates the transactional id.
        """
        self.log.require(transactional_id)

    # ---- reading back

    def _load(self, key: bytes, value: bytes | None) -> None:
        self.coordinator.load(key, value)

    def _resume(self, index: int) -> None:
        resumed = self.coordinator.resume(index)
        if resumed:
            log.info("finishing %d transactions that were decided before", resumed)

    def _unload(self, index: int, _error: NotCoordinator) -> None:
        self.coordinator.unload(index)

    # ---- ports of the machine

    def _persist(self, records: Sequence[StateRecord]) -> Outcome[None]:
        (index,) = {self.log.partition_of(each.transactional_id) for each in records}
        pairs = [(each.key, each.value) for each in records]
        return acknowledged(partial(self.log.append, index, pairs))

    def _write_markers(self, markers: Markers) -> Outcome[None]:
        home = self.log.partition_of(markers.transactional_id)
        return start(self.participants.end_everywhere(markers, self.log.leader_epoch(home)))

    def _allocate_block(self) -> Outcome[range]:
        return start(self._reserve_block())

    async def _reserve_block(self) -> range:
        blocks: list[range] = []

        def decide() -> list[Event]:
            first = self._context.image.next_producer_id
            blocks.append(range(first, first + PRODUCER_ID_BLOCK))
            return [ProducerIdsReserved(next_id=first + PRODUCER_ID_BLOCK)]

        await self._changes.make(decide)
        # The last decided state is the one to report.
        return blocks[-1]
