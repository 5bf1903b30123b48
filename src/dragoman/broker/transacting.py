"""Transactions among partitions, groups and nodes: who may write in one, and how all hear its end.

A transaction's partitions have leaders and its groups have coordinators, here and on other nodes.
Whoever is about to write in it asks its coordinator first (`enrol`); when it is decided, its
coordinator tells all of them (`tell_end`), looking up at each try who they are.

Between the coordinator's word that a write may happen and the write itself, the end of the
transaction may come by: with another connection, and before the word. So whoever asks another node
leaves a guard; an end that passes it takes the word back. Not every end does: the first write of a
transaction may wait for the end of the one before. A producer that has an epoch for each
transaction is told from its past by that. One that has not announces its partitions, which it may
only do when the earlier end has been told everywhere: whatever passes its check is the end of the
transaction that it writes in.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    Overloaded,
    Overtaken,
    TransactionAbortable,
)
from dragoman.broker.groups import OFFSETS_TOPIC, TopicPartition
from dragoman.broker.kinds import NOBODY, Kind
from dragoman.broker.neighbours import Answer, EndTransaction, Enrol, told
from dragoman.broker.replica import Acknowledge, Replica
from dragoman.broker.steps import AllOf
from dragoman.broker.transactions import Markers, ProducerIdentity
from dragoman.errors import ClusterError, DragomanError
from dragoman.limits import TRANSACTION_GUARDS_MAX
from dragoman.log.batch import Marker, build_marker, read_header
from dragoman.types import GroupId, ProducerId

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker
    from dragoman.broker.coordination import Coordination

#: A partition or a group that a producer writes to.
_Place: TypeAlias = TopicPartition | str


class _Guard:
    __slots__ = ("is_passed", "least_epoch")

    def __init__(self, request: Enrol) -> None:
        #: Ends under a lower epoch are of earlier transactions.
        self.least_epoch = request.epoch if request.is_check else request.epoch + 1
        self.is_passed = False


class Transacting:
    def __init__(self, broker: Broker, coordination: Coordination) -> None:
        self._broker = broker
        self._coordination = coordination
        self._sent = 0
        #: By who waits for another node's word, and where it wants to write.
        self._guards: dict[tuple[_Place, int], list[_Guard]] = {}
        #: By neighbour, the last of its requests that came in order.
        self._latest: dict[int, tuple[int, int]] = {}

    # ---- before a write

    def enrol(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        place: _Place,
        done: Acknowledge,
        *,
        is_check: bool = False,
    ) -> None:
        """Make the place part of the producer's transaction, or see whether it is (`is_check`).

        The write must follow in `done`, at once. An error that only says that the coordinator
        cannot be asked now is a `CoordinatorLoading`.
        """
        request = Enrol(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            partitions=() if isinstance(place, str) else (place,),
            groups=(place,) if isinstance(place, str) else (),
            is_check=is_check,
            order=self._next_order(),
        )
        node = self._coordination.coordinator_of(Kind.TRANSACTION, transactional_id)
        if node in (self._broker.node_id, NOBODY):
            self.enrol_here(request, lambda error: done(_as_loading(error)))
        elif len(self._guards) >= TRANSACTION_GUARDS_MAX:
            done(Overloaded("too many writes wait for other nodes"))
        else:
            self._ask_coordinator(node, request, (place, producer.producer_id), done)

    def _ask_coordinator(
        self, node: int, request: Enrol, key: tuple[_Place, int], done: Acknowledge
    ) -> None:
        guard = _Guard(request)
        self._guards.setdefault(key, []).append(guard)

        def answered(answer: Answer | DragomanError) -> None:
            self._guards[key].remove(guard)
            if not self._guards[key]:
                del self._guards[key]
            if isinstance(answer, DragomanError):
                done(_as_loading(answer))
            elif guard.is_passed:
                name = request.transactional_id
                done(TransactionAbortable(f"{name}: the transaction has ended meanwhile"))
            else:
                done(None)

        self._broker.neighbours.ask(node, request, (), answered)

    def enrol_here(self, request: Enrol, done: Acknowledge) -> None:
        """The same on the coordinator, for itself or for another node."""
        producer = ProducerIdentity(request.producer_id, request.epoch)
        name, transactions = request.transactional_id, self._coordination.transactions
        try:
            self._coordination.require_transaction(name)
            if request.is_check:
                for partition in request.partitions:
                    transactions.verify_partition(name, producer, partition)
                for group in request.groups:
                    transactions.verify_group(name, producer, group)
                done(None)
                return
        except DragomanError as error:
            done(error)
            return
        transactions.enrol_implicitly(name, producer, request.partitions, request.groups, done)

    def _passed(self, place: _Place, producer: ProducerIdentity) -> None:
        """An end has come: what was to be written before it comes too late."""
        for guard in self._guards.get((place, producer.producer_id), ()):
            guard.is_passed = guard.is_passed or producer.epoch >= guard.least_epoch

    # ---- the end

    def tell_end(self, markers: Markers, coordinator_epoch: int, done: Acknowledge) -> None:
        """Have all that were enrolled hear of it. After an error the same call takes it up again:
        what has heard already hears again, which does no harm.
        """
        by_node: dict[int, tuple[list[TopicPartition], list[str]]] = {}
        for topic, index in markers.partitions:
            metadata = self._broker.image.topics.get(topic)
            # A topic that was deleted meanwhile needs no marker.
            if metadata is not None:
                leader = metadata.partitions[index].leader
                by_node.setdefault(leader, ([], []))[0].append((topic, index))
        is_kept = OFFSETS_TOPIC in self._broker.image.topics
        # Without the topic nothing can have been staged for a group.
        for group in markers.groups if is_kept else ():
            node = self._coordination.coordinator_of(Kind.GROUP, group)
            by_node.setdefault(node, ([], []))[1].append(group)
        steps = []
        for node, (partitions, groups) in by_node.items():
            end = EndTransaction(
                producer_id=markers.producer_id,
                epoch=markers.epoch,
                is_commit=markers.commit,
                coordinator_epoch=coordinator_epoch,
                partitions=tuple(partitions),
                groups=tuple(groups),
                order=self._next_order(),
            )
            steps.append(partial(self._end_at, node, end))
        AllOf(len(steps), done).run(steps)

    def _end_at(self, node: int, end: EndTransaction, done: Acknowledge) -> None:
        if node == self._broker.node_id:
            self.end_here(end, done)
        elif node == NOBODY:
            done(CoordinatorNotAvailable("a partition of the transaction has no leader"))
        else:
            self._broker.neighbours.ask(node, end, (), partial(told, done))

    def end_here(self, end: EndTransaction, done: Acknowledge) -> None:
        """Write markers where this node leads, and end what was staged where it coordinates."""
        producer = ProducerIdentity(end.producer_id, end.epoch)
        marker = Marker(end.is_commit, end.coordinator_epoch)
        steps = [
            partial(self._append_marker, producer, marker, partition)
            for partition in end.partitions
        ]
        steps += [partial(self._end_offsets, end, GroupId(group)) for group in end.groups]
        AllOf(len(steps), done).run(steps)

    def _append_marker(
        self,
        producer: ProducerIdentity,
        marker: Marker,
        partition: TopicPartition,
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
            replica = broker.find(*partition)
            appended = replica.log.append_marker(
                batch, read_header(batch), replica.leader_epoch, marker
            )
        except DragomanError as error:
            done(error)
            return
        self._passed(partition, producer)
        replica.when_committed(appended.next_offset, done)

    def _end_offsets(self, end: EndTransaction, group: GroupId, done: Acknowledge) -> None:
        self._passed(group, ProducerIdentity(end.producer_id, end.epoch))
        self._coordination.end_staged(group, ProducerId(end.producer_id), end.is_commit, done)

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
        groups: list[str] = []
        partitions = [partition]
        epoch = marker.coordinator_epoch
        try:
            replica = self._broker.find(topic, index)
            if topic == OFFSETS_TOPIC:
                self._coordination.require_loaded(Kind.GROUP)
                groups = self._coordination.groups_staged_by(producer.producer_id, index)
                partitions = []
        except DragomanError as error:
            done(error)
            return
        end = EndTransaction(
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            is_commit=marker.is_commit,
            coordinator_epoch=_last_epoch(replica, producer.producer_id) if epoch < 0 else epoch,
            partitions=tuple(partitions),
            groups=tuple(groups),
        )
        self.end_here(end, done)

    # ---- order

    def _next_order(self) -> tuple[int, int]:
        self._sent += 1
        return self._broker.store.node.incarnation, self._sent

    def check_order(self, node: int, request: Enrol | EndTransaction) -> None:
        """Raises `Overtaken` for what is left of a connection that was lost."""
        latest = self._latest.get(node, (0, 0))
        if request.order < latest:
            raise Overtaken(f"request {request.order} came after {latest}")
        self._latest[node] = request.order


def _last_epoch(replica: Replica, producer_id: int) -> int:
    states = replica.log.producers
    known = None if states is None else states.producers().get(producer_id)
    return 0 if known is None else max(0, known.coordinator_epoch)


def _as_loading(error: DragomanError | None) -> DragomanError | None:
    """Whoever wanted to write has found the right node; that another one cannot be asked just now
    is nothing that it could do anything about.
    """
    if isinstance(error, NotCoordinator | CoordinatorNotAvailable | ClusterError | Overtaken):
        return CoordinatorLoading(f"the transaction's coordinator cannot be asked: {error}")
    return error
