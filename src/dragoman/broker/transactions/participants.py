"""The participants of transactions: how they enrol, and how a transaction ends at all of them.

A transaction's partitions have leaders and its groups have coordinators, on this node and on
others. Before one of them writes in the transaction, it enrols with the transaction's coordinator
(`enrol`). When the transaction is decided, its coordinator ends it at all of them, and looks up
their nodes at each attempt (`end_everywhere`).

The end of a transaction may arrive between the coordinator's permission to write and the write
itself: on another connection, and before the permission. So a participant that waits for another
node leaves a guard, and an end that passes the guard revokes the permission. Not every end does,
because the first write of a transaction may wait for the end of the previous one. A producer with
an epoch for each transaction is distinguished from its past by the epoch. Any other producer
announces its partitions first, which is only accepted after the earlier end has reached all
participants: an end that passes its check is the end of the transaction that it writes in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dragoman.broker.context import NodeContext
from dragoman.broker.directory import NO_NODE
from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    Overloaded,
    Overtaken,
    TransactionAbortable,
)
from dragoman.broker.groups.coordinator import GroupCoordinator
from dragoman.broker.groups.records import OFFSETS_TOPIC
from dragoman.broker.internal_topic import InternalTopic
from dragoman.broker.partitions import Partitions
from dragoman.broker.transactions.coordinator import TransactionCoordinator
from dragoman.broker.transactions.ports import Markers
from dragoman.broker.transactions.state import ProducerIdentity, TopicPartition
from dragoman.errors import ClusterError
from dragoman.limits import TRANSACTION_GUARDS_MAX
from dragoman.log.batch import Marker, build_marker, read_header
from dragoman.outcome import acknowledged, gather, start
from dragoman.replication.replica import Replica
from dragoman.rpc import Call, Done, Node, Registry, Request, Rpc
from dragoman.types import GroupId, ProducerId

#: A partition or a group that a producer writes to.
Participant: TypeAlias = TopicPartition | str


class Enrol(Request[Done], frozen=True, kw_only=True, tag="Enrol"):
    """The leader of partitions, or the coordinator of groups, is about to write in a transaction.

    Answered once everything named is part of the transaction; with `is_check` refused unless it was
    before.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...] = ()
    groups: tuple[str, ...] = ()
    is_check: bool = False
    #: See `EndTransaction`.
    order: tuple[int, int] = (0, 0)


class EndTransaction(Request[Done], frozen=True, kw_only=True, tag="EndTransaction"):
    """Write markers to partitions that the node leads, and end what was staged for groups that it
    coordinates. Answered when all of that is durable.

    `order` rises with every request that a node sends. A request that was overtaken is refused: it
    is left over from a lost connection, was repeated since, and the producer may have begun another
    transaction under the same epoch.
    """

    producer_id: int
    #: The epoch of the markers.
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...] = ()
    groups: tuple[str, ...] = ()
    order: tuple[int, int] = (0, 0)


class _Guard:
    """Detects the end of a transaction while another node is asked for permission to write."""

    __slots__ = ("is_passed", "least_epoch")

    def __init__(self, request: Enrol) -> None:
        #: Ends under a lower epoch are of earlier transactions.
        self.least_epoch = request.epoch if request.is_check else request.epoch + 1
        self.is_passed = False


class Participants:
    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        rpc: Rpc,
        groups: GroupCoordinator,
        transactions_log: InternalTopic,
        coordinator: TransactionCoordinator,
        incarnation: Callable[[], int],
    ) -> None:
        """`incarnation`: of this node; it rises with every start."""
        self._context = context
        self._partitions = partitions
        self._rpc = rpc
        self._groups = groups
        self._transactions_log = transactions_log
        self._coordinator = coordinator
        self._incarnation = incarnation
        self._sent = 0
        #: By participant and producer id, the guards of requests to other nodes.
        self._guards: dict[tuple[Participant, int], list[_Guard]] = {}
        #: By node, the last of its requests that came in order.
        self._latest: dict[int, tuple[int, int]] = {}

    def serve(self, registry: Registry) -> None:
        registry.serve(Enrol, self._enrol_for_node)
        registry.serve(EndTransaction, self._end_for_node)

    # ---- before a write

    async def enrol(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        participant: Participant,
        *,
        is_check: bool = False,
    ) -> None:
        """Make the participant part of the producer's transaction, or with `is_check` require that
        it is.

        The caller must write at once when this returns, in the same turn. An error that only means
        that the coordinator cannot be asked now is a `CoordinatorLoading`.
        """
        request = Enrol(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            partitions=() if isinstance(participant, str) else (participant,),
            groups=(participant,) if isinstance(participant, str) else (),
            is_check=is_check,
            order=self._next_order(),
        )
        node_id = self._transactions_log.leader_of(transactional_id)
        try:
            if node_id in (self._context.node_id, NO_NODE):
                await self._enrol(request)
            elif len(self._guards) >= TRANSACTION_GUARDS_MAX:
                raise Overloaded("too many writes wait for other nodes")
            else:
                await self._ask_coordinator(node_id, request, (participant, producer.producer_id))
        except (NotCoordinator, CoordinatorNotAvailable, ClusterError, Overtaken) as error:
            # The client has found the right node for its write. It cannot do anything about another
            # node that cannot be asked just now.
            reason = f"the transaction's coordinator cannot be asked: {error}"
            raise CoordinatorLoading(reason) from error

    async def _ask_coordinator(
        self, node_id: int, request: Enrol, key: tuple[Participant, int]
    ) -> None:
        guard = _Guard(request)
        self._guards.setdefault(key, []).append(guard)
        try:
            await self._rpc.call(request, Node(node_id))
        finally:
            self._guards[key].remove(guard)
            if not self._guards[key]:
                del self._guards[key]
        if guard.is_passed:
            name = request.transactional_id
            raise TransactionAbortable(f"{name}: the transaction has ended meanwhile")

    async def _enrol_for_node(self, call: Call[Enrol]) -> Done:
        self._check_order(call.node_id, call.request)
        await self._enrol(call.request)
        return Done()

    async def _enrol(self, request: Enrol) -> None:
        """Enrol as the coordinator, for this node or for another."""
        producer = ProducerIdentity(request.producer_id, request.epoch)
        name, coordinator = request.transactional_id, self._coordinator
        self._transactions_log.require(name)
        if request.is_check:
            for partition in request.partitions:
                coordinator.verify_partition(name, producer, partition)
            for group in request.groups:
                coordinator.verify_group(name, producer, group)
        else:
            await coordinator.enrol_implicitly(name, producer, request.partitions, request.groups)

    def _pass_guards(self, participant: Participant, producer: ProducerIdentity) -> None:
        """A transaction has ended: its pending writes come too late."""
        for guard in self._guards.get((participant, producer.producer_id), ()):
            guard.is_passed = guard.is_passed or producer.epoch >= guard.least_epoch

    # ---- the end

    async def end_everywhere(self, markers: Markers, coordinator_epoch: int) -> None:
        """End a transaction at all its participants. After an error the same call repeats all of
        it, which does no harm to participants that have ended it.
        """
        by_node: dict[int, tuple[list[TopicPartition], list[str]]] = {}
        for topic, index in markers.partitions:
            metadata = self._context.image.topics.get(topic)
            # A topic that was deleted meanwhile needs no marker.
            if metadata is not None:
                leader = metadata.partitions[index].leader
                by_node.setdefault(leader, ([], []))[0].append((topic, index))
        is_kept = OFFSETS_TOPIC in self._context.image.topics
        # Without the topic nothing can have been staged for a group.
        for group in markers.groups if is_kept else ():
            node_id = self._groups.log.leader_of(group)
            by_node.setdefault(node_id, ([], []))[1].append(group)
        requests = [
            (
                node_id,
                EndTransaction(
                    producer_id=markers.producer_id,
                    epoch=markers.epoch,
                    is_commit=markers.commit,
                    coordinator_epoch=coordinator_epoch,
                    partitions=tuple(partitions),
                    groups=tuple(groups),
                    order=self._next_order(),
                ),
            )
            for node_id, (partitions, groups) in by_node.items()
        ]
        await gather([start(self._end_at(node_id, end)) for node_id, end in requests])

    async def _end_at(self, node_id: int, end: EndTransaction) -> None:
        if node_id == NO_NODE:
            raise CoordinatorNotAvailable("a partition of the transaction has no leader")
        await self._rpc.call(end, Node(node_id))

    async def _end_for_node(self, call: Call[EndTransaction]) -> Done:
        self._check_order(call.node_id, call.request)
        await self._end(call.request)
        return Done()

    async def _end(self, end: EndTransaction) -> None:
        """Write markers where this node leads, and end what was staged where it coordinates."""
        producer = ProducerIdentity(end.producer_id, end.epoch)
        marker = Marker(end.is_commit, end.coordinator_epoch)
        steps = [self._append_marker(producer, marker, each) for each in end.partitions]
        steps += [self._end_offsets(producer, marker, GroupId(each)) for each in end.groups]
        await gather([start(step) for step in steps])

    async def _append_marker(
        self, producer: ProducerIdentity, marker: Marker, partition: TopicPartition
    ) -> None:
        batch = build_marker(
            marker,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp=self._context.clock.wall_ms(),
        )
        replica = self._partitions.find(*partition)
        appended = replica.log.append_marker(
            batch, read_header(batch), replica.leader_epoch, marker
        )
        self._pass_guards(partition, producer)
        await acknowledged(lambda done: replica.when_committed(appended.next_offset, done))

    async def _end_offsets(
        self, producer: ProducerIdentity, marker: Marker, group: GroupId
    ) -> None:
        self._pass_guards(group, producer)
        producer_id = ProducerId(producer.producer_id)
        await self._groups.end_staged(group, producer_id, is_commit=marker.is_commit)

    async def end_by_hand(
        self, producer: ProducerIdentity, marker: Marker, partition: TopicPartition
    ) -> None:
        """End a transaction on one partition without its coordinator: for one that hangs there
        because its coordinator no longer knows of it.

        On a partition of the offsets topic this ends what the transaction staged for the groups
        kept there. A negative coordinator epoch stands for that of the producer's last marker.
        """
        topic, index = partition
        groups: list[str] = []
        partitions = [partition]
        epoch = marker.coordinator_epoch
        replica = self._partitions.find(topic, index)
        if topic == OFFSETS_TOPIC:
            self._groups.log.require_loaded()
            groups = self._groups.staged_by(producer.producer_id, index)
            partitions = []
        end = EndTransaction(
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            is_commit=marker.is_commit,
            coordinator_epoch=_last_epoch(replica, producer.producer_id) if epoch < 0 else epoch,
            partitions=tuple(partitions),
            groups=tuple(groups),
        )
        await self._end(end)

    # ---- order

    def _next_order(self) -> tuple[int, int]:
        self._sent += 1
        return self._incarnation(), self._sent

    def _check_order(self, node_id: int, request: Enrol | EndTransaction) -> None:
        """Raises `Overtaken` for a request that is left over from a lost connection."""
        if node_id == self._context.node_id:
            return
        latest = self._latest.get(node_id, (0, 0))
        if request.order < latest:
            raise Overtaken(f"request {request.order} came after {latest}")
        self._latest[node_id] = request.order


def _last_epoch(replica: Replica, producer_id: int) -> int:
    states = replica.log.producers
    known = None if states is None else states.producers().get(producer_id)
    return 0 if known is None else max(0, known.coordinator_epoch)
