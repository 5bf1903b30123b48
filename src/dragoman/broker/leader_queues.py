"""Operations that any node accepts from its clients, queued for the leaders of their partitions.

For protocols whose clients cannot be redirected to the leader, or only at a high cost. The
operations on one partition run one after the other, so they keep their order even if the leader
changes. Records that arrive while an operation is in progress are sent as one batch. A partition
has two queues, so that records for the leader only do not wait behind those for all in-sync
replicas. A client that pipelines both kinds chooses its queue itself.

While no leader is known, or the leader does not know yet that it leads, the operation waits until a
deadline that counts from its arrival. Then the client gets `NotLeader`, and may find the leader
through another node. After a lost reply, its error says that the outcome is unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeAlias

from dragoman.broker.accumulator import Placed, RecordAccumulator, refusal, room_in_a_batch, size_of
from dragoman.broker.caller_rights import authorize, caller_of
from dragoman.broker.context import NodeContext
from dragoman.broker.directory import NO_NODE
from dragoman.broker.errors import MessageTooLarge, NotLeader, ShuttingDown, UnknownTopic
from dragoman.broker.partitions import Partitions
from dragoman.broker.produce import check_produced, place
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import BrokerError, DragomanError, NotSentError
from dragoman.limits import RELAY_PATIENCE_S, RELAY_RETRY_S
from dragoman.log.batch import Record, build_batch
from dragoman.outcome import Outcome, acknowledged
from dragoman.replication.replica import Replica
from dragoman.rpc import Answer, Call, Node, Registry, Reply, Request, Rpc
from dragoman.security.access import Caller, Operation, Resource
from dragoman.types import Buffer
from dragoman.world import Handle, Scheduler

#: Answers a request that another node forwards for its client.
AnswerRelay: TypeAlias = Callable[[memoryview], Coroutine[object, None, bytes]]
#: What the leader answered, or why there is no answer.
Answered: TypeAlias = Reply[Answer] | DragomanError
#: Errors after which nothing was done and a retry may succeed.
_TRANSIENT = (NotLeader, NotSentError, UnknownTopic)
#: Identifies a queue: the partition's id, and whether it is for the leader only.
_Key: TypeAlias = tuple[int, bool]


class LeaderOperation(Protocol):
    """An operation that runs once, here or on another node."""

    def here(self, replica: Replica, /) -> None:
        """Run on this node, the leader. Raises `DragomanError`, or else answers by itself."""
        ...

    def request(self) -> tuple[Request[Answer], Sequence[Buffer]]:
        """The request to the leader, which may be sent more than once."""
        ...

    def done(self, answer: Answered, /) -> None:
        """The leader's answer, or the reason for which it was not called."""
        ...


class _Queue:
    """Operations on one partition, each with its deadline; the first is in progress."""

    __slots__ = ("operations", "timer")

    def __init__(self) -> None:
        self.operations: deque[tuple[float, LeaderOperation]] = deque()
        #: Runs while operations wait behind the first.
        self.timer: Handle | None = None


class Appended(Answer, frozen=True, kw_only=True, tag="Appended"):
    base_offset: int


class Append(Request[Appended], frozen=True, kw_only=True, tag="Append"):
    """The body is a batch for a partition. Answered when it is committed or, with `is_leader_only`,
    when it is on the leader's stable storage. A leader of an older release ignores that field and
    answers when the batch is committed.
    """

    topic: str
    partition: int
    is_leader_only: bool = False
    #: None only from nodes below `SECURITY_LEVEL`; see `caller_rights`.
    caller: Caller | None = None


class Relayed(Answer, frozen=True, kw_only=True, tag="Relayed"):
    """The body is the protocol's own reply."""


class Relay(Request[Relayed], frozen=True, kw_only=True, tag="Relay"):
    """The body is a client's request, in the messages of its protocol's own service. The service on
    the leader or coordinator answers it.
    """

    protocol: str


class LeaderQueues:
    def __init__(
        self, context: NodeContext, partitions: Partitions, accumulator: RecordAccumulator, rpc: Rpc
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._accumulator = accumulator
        self._rpc = rpc
        #: By protocol: answers what other nodes forward for its clients.
        self.protocols: dict[str, AnswerRelay] = {}
        self._queues: dict[_Key, _Queue] = {}

    def serve(self, registry: Registry) -> None:
        registry.serve(Append, self._append)
        registry.serve(Relay, self._relay)

    async def _append(self, call: Call[Append]) -> Appended:
        request = call.request
        self._authorize(caller_of(self._context.image, request.caller), request.topic)
        replica = self._partitions.find(request.topic, request.partition)
        if not request.is_leader_only:
            replica.check_in_sync()
        # The log keeps the buffer, and writes offsets into it.
        batch = memoryview(bytearray(call.body))
        now_ms = self._context.clock.wall_ms()
        appended = place(replica, batch, check_produced(batch), now_ms)
        is_safe = replica.when_stable if request.is_leader_only else replica.when_committed
        await acknowledged(partial(is_safe, appended.next_offset))
        return Appended(base_offset=appended.base_offset)

    def _authorize(self, caller: Caller, topic: str) -> None:
        """Raises `NotAuthorized`."""
        authorize(self._context.authorizer, caller, Operation.WRITE, Resource.TOPIC, topic)

    async def _relay(self, call: Call[Relay]) -> Reply[Relayed]:
        protocol = call.request.protocol
        answer = self.protocols.get(protocol)
        if answer is None:
            raise BrokerError(f"no listener of this node serves {protocol}")
        return Reply(Relayed(), (await answer(call.body),))

    def add(
        self,
        partition: PartitionMetadata,
        record: Record,
        placed: Placed,
        *,
        caller: Caller,
        is_leader_only: bool = False,
        in_leader_queue: bool | None = None,
    ) -> None:
        """Append a record on the partition's leader. Raises `NotEnoughReplicas`.

        `is_leader_only`: call back when the record is on the leader's stable storage, regardless of
        its followers. Records of one queue are appended in the order of the calls. The leader
        authorizes the `caller` if this is another node, or the record had to wait.
        """
        in_queue = is_leader_only if in_leader_queue is None else in_leader_queue
        queue = self._queues.get((partition.partition_id, in_queue))
        if queue is None:
            try:
                replica = self._partitions.replica(partition)
            except NotLeader:
                pass
            else:
                if not is_leader_only:
                    replica.check_in_sync()
                self._accumulator.add(replica, record, placed, is_leader_only=is_leader_only)
                return
        config = self._context.config_of(partition.topic)
        where, size = f"{partition.topic.name}-{partition.index}", size_of(record)
        error = refusal(config, where, record, size)
        if error is not None:
            placed(-1, error)
            return
        records = None if queue is None else queue.operations[-1][1]
        if not isinstance(records, _Records) or not records.takes(size, is_leader_only, caller):
            records = self._records(partition, room_in_a_batch(config), is_leader_only, caller)
            self.run(partition, records, in_leader_queue=in_queue)
        records.add(record, size, placed)

    def _records(
        self,
        partition: PartitionMetadata,
        room: int,
        is_leader_only: bool,
        caller: Caller,
    ) -> _Records:
        return _Records(
            self._context.scheduler,
            self._accumulator,
            partition,
            room,
            is_leader_only,
            caller,
            partial(self._authorize, caller, partition.topic.name),
        )

    async def append(self, partition: PartitionMetadata, record: Record, *, caller: Caller) -> int:
        """Append a record on the partition's leader; returns its offset once it is committed."""
        appended: Outcome[int] = Outcome()

        def placed(offset: int, error: DragomanError | None) -> None:
            appended.settle(offset if error is None else error)

        self.add(partition, record, placed, caller=caller)
        return await appended

    def add_all(
        self,
        partition: PartitionMetadata,
        records: Sequence[Record],
        placed: Placed,
        *,
        caller: Caller,
        is_leader_only: bool = False,
    ) -> None:
        """Append several records in a row as one batch: all or none. `placed` receives the offset
        of the first. Raises `NotEnoughReplicas`, and `MessageTooLarge` for more than a batch.
        """
        config = self._context.config_of(partition.topic)
        where = f"{partition.topic.name}-{partition.index}"
        sizes = list(map(size_of, records))
        for record, size in zip(records, sizes, strict=True):
            error = refusal(config, where, record, size)
            if error is not None:
                placed(-1, error)
                return
        if sum(sizes) > room_in_a_batch(config) and len(records) > 1:
            text = f"{where}: {sum(sizes)} bytes in {len(records)} records, for one batch"
            raise MessageTooLarge(text)
        if not self.is_busy(partition, in_leader_queue=is_leader_only):
            with suppress(NotLeader):
                replica = self._partitions.replica(partition)
                if not is_leader_only:
                    replica.check_in_sync()
                self._accumulator.add_all(replica, records, placed, is_leader_only=is_leader_only)
                return
        together = self._records(partition, room_in_a_batch(config), is_leader_only, caller)
        self.run(partition, together, in_leader_queue=is_leader_only)
        for index, (record, size) in enumerate(zip(records, sizes, strict=True)):
            together.add(record, size, placed if not index else _ignore)
        together.room = 0

    def is_busy(self, partition: PartitionMetadata, *, in_leader_queue: bool) -> bool:
        """Whether operations are queued, which later ones must not overtake."""
        return (partition.partition_id, in_leader_queue) in self._queues

    def run(
        self,
        partition: PartitionMetadata,
        operation: LeaderOperation,
        *,
        in_leader_queue: bool = False,
    ) -> None:
        """Run the operation after those before it, and not before the end of this loop turn."""
        scheduler, key = self._context.scheduler, (partition.partition_id, in_leader_queue)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
            scheduler.call_soon(self._try, key)
        elif queue.timer is None:
            queue.timer = scheduler.call_later(RELAY_PATIENCE_S, self._expire, key)
        queue.operations.append((scheduler.time() + RELAY_PATIENCE_S, operation))

    def _try(self, key: _Key) -> None:
        context, operation = self._context, self._queues[key].operations[0][1]
        partition = context.image.partitions.get(key[0])
        if partition is None:
            self._finish(key, UnknownTopic("the topic is gone"))
            return
        if context.is_stopping:
            self._finish(key, ShuttingDown("the node is stopping"))
            return
        answered = partial(self._answered, key)
        try:
            replica = self._partitions.replica(partition)
        except NotLeader as error:
            if error.leader in (NO_NODE, context.node_id):
                answered(error)
            else:
                request, body = operation.request()
                self._rpc.begin(request, Node(error.leader), body).then(answered)
            return
        try:
            operation.here(replica)
        except DragomanError as error:
            operation.done(error)
        self._try_next(key)

    def _answered(self, key: _Key, answer: Answered) -> None:
        scheduler = self._context.scheduler
        if not isinstance(answer, _TRANSIENT):
            self._finish(key, answer)
        elif self._give_up(key, 0, str(answer)):
            self._try_next(key)
        else:
            scheduler.call_later(RELAY_RETRY_S, self._try, key)

    def _give_up(self, key: _Key, index: int, text: str) -> bool:
        """Refuse an operation, or those of its records, past the deadline; returns whether nothing
        of it is left.
        """
        operations, now = self._queues[key].operations, self._context.scheduler.time()
        until, operation = operations[index]
        if until > now:
            return False
        error = self._not_led(key, text)
        if not isinstance(operation, _Records):
            operation.done(error)
            return True
        left = operation.expire(now, error)
        if left is not None:
            operations[index] = (left, operation)
        return left is None

    def _not_led(self, key: _Key, text: str) -> NotLeader:
        partition = self._context.image.partitions.get(key[0])
        return NotLeader(text, NO_NODE if partition is None else partition.leader)

    def _expire(self, key: _Key) -> None:
        """Refuse queued operations at their deadlines: the one in progress may take much longer,
        until its reply counts as lost.
        """
        scheduler, queue = self._context.scheduler, self._queues[key]
        operations, now = queue.operations, scheduler.time()
        text = "earlier requests are still unanswered"
        while len(operations) > 1 and self._give_up(key, 1, text):
            del operations[1]
        queue.timer = None
        if len(operations) > 1:
            queue.timer = scheduler.call_later(operations[1][0] - now, self._expire, key)

    def _finish(self, key: _Key, answer: Answered) -> None:
        self._queues[key].operations[0][1].done(answer)
        self._try_next(key)

    def _try_next(self, key: _Key) -> None:
        queue = self._queues[key]
        queue.operations.popleft()
        if queue.operations:
            self._context.scheduler.call_soon(self._try, key)
        else:
            if queue.timer is not None:
                queue.timer.cancel()
            del self._queues[key]


def _ignore(_offset: int, _error: DragomanError | None) -> None:
    """The records of one call share a callback, that of the first."""


class _Records:
    """Records of one caller, to be appended as one batch."""

    def __init__(
        self,
        scheduler: Scheduler,
        accumulator: RecordAccumulator,
        partition: PartitionMetadata,
        room: int,
        is_leader_only: bool,
        caller: Caller,
        authorize: Callable[[], None],
    ) -> None:
        self._authorize = authorize
        self._scheduler = scheduler
        self._accumulator = accumulator
        self._append = Append(
            topic=partition.topic.name,
            partition=partition.index,
            is_leader_only=is_leader_only,
            caller=caller,
        )
        #: Deadlines, each with a number of records: those that arrive within a moment share one.
        #: The batch stays open until it is sent.
        self._deadlines: deque[tuple[float, int]] = deque()
        self._records: list[Record] = []
        self._placed: list[Placed] = []
        #: Bytes left in the batch.
        self.room = room
        self._is_begun = False

    def takes(self, size: int, is_leader_only: bool, caller: Caller) -> bool:
        return (
            not self._is_begun
            and size <= self.room
            and is_leader_only == self._append.is_leader_only
            and caller == self._append.caller
        )

    def add(self, record: Record, size: int, placed: Placed) -> None:
        until = self._scheduler.time() + RELAY_PATIENCE_S
        deadlines = self._deadlines
        if deadlines and until - deadlines[-1][0] <= RELAY_RETRY_S:
            deadlines[-1] = (deadlines[-1][0], deadlines[-1][1] + 1)
        else:
            deadlines.append((until, 1))
        self.room -= size
        self._records.append(record)
        self._placed.append(placed)

    def here(self, replica: Replica) -> None:
        self._is_begun = True
        self._authorize()
        is_leader_only = self._append.is_leader_only
        if not is_leader_only:
            replica.check_in_sync()
        add = self._accumulator.add
        for record, placed in zip(self._records, self._placed, strict=True):
            add(replica, record, placed, is_leader_only=is_leader_only)

    def request(self) -> tuple[Request[Answer], Sequence[Buffer]]:
        self._is_begun = True
        return self._append, (build_batch(self._records),)

    def expire(self, now: float, error: DragomanError) -> float | None:
        """Refuse the records past their deadlines; returns the next deadline, or None without
        any.
        """
        count = 0
        while self._deadlines and self._deadlines[0][0] <= now:
            count += self._deadlines.popleft()[1]
        refused = self._placed[:count]
        self.room += sum(map(size_of, self._records[:count]))
        del self._placed[:count], self._records[:count]
        for placed in refused:
            placed(-1, error)
        # The callback may have added another record.
        return self._deadlines[0][0] if self._deadlines else None

    def done(self, answer: Answered) -> None:
        if isinstance(answer, DragomanError):
            for placed in self._placed:
                placed(-1, answer)
            return
        appended = answer.answer
        assert isinstance(appended, Appended)
        for index, placed in enumerate(self._placed):
            placed(appended.base_offset + index, None)
