"""Errands for clients: what they want of a partition is done wherever that is led.

For protocols whose clients pay dearly for being sent elsewhere, or cannot be sent. Errands to one
partition are run one after the other, so that what came in order is done in order, also when the
leader changes in between; records that come meanwhile gather and go together.

While nobody is known to lead, or the leader has not heard of it yet, nothing is done and the errand
waits. If that takes too long the client is told `NotLeader`, and may find the leader from another
node. When an answer is lost the outcome is unknown, and the client is told that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from dragoman.broker.errors import MessageTooLarge, NotLeader, ShuttingDown, UnknownTopic
from dragoman.broker.gather import Placed, refusal, room_in_a_batch, size_of
from dragoman.broker.kinds import NOBODY
from dragoman.broker.neighbours import Answer, Append, Appended, Request
from dragoman.broker.replica import Replica
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError, NotSentError
from dragoman.limits import RELAY_PATIENCE_S, RELAY_RETRY_S
from dragoman.log.batch import Record, build_batch
from dragoman.types import Buffer

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

#: Takes the answer to what was done for another node's client.
Told: TypeAlias = Callable[[bytes | DragomanError], None]
#: Nothing was done, and it may go better in a moment.
_PASSING = (NotLeader, NotSentError, UnknownTopic)


class Errand(Protocol):
    """What is to be done, once, here or elsewhere."""

    def here(self, replica: Replica, /) -> None:
        """This node leads the partition. Raises `DragomanError`, else the errand is its own."""
        ...

    def request(self) -> tuple[Request, Sequence[Buffer]]:
        """What the leader is asked, which may happen more than once."""
        ...

    def done(self, answer: Answer | DragomanError, /) -> None:
        """What the leader said, or why nobody was asked."""
        ...


class Relaying:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: By partition id; the first of each is under way.
        self._lines: dict[int, deque[Errand]] = {}

    def add(self, partition: PartitionMetadata, record: Record, placed: Placed) -> None:
        """Append a record where the partition is led. Raises `NotEnoughReplicas`.

        Those of one caller are appended in the order of the calls.
        """
        broker = self._broker
        line = self._lines.get(partition.partition_id)
        if line is None:
            try:
                replica = broker.replica(partition)
            except NotLeader:
                pass
            else:
                replica.check_in_sync()
                broker.gatherer.add(replica, record, placed)
                return
        config = broker.topics.config_of(partition.topic)
        where, size = f"{partition.topic.name}-{partition.index}", size_of(record)
        error = refusal(config, where, record, size)
        if error is not None:
            placed(-1, error)
            return
        records = line[-1] if line is not None else None
        if not isinstance(records, _Records) or records.is_begun or size > records.room:
            records = _Records(broker, partition, room_in_a_batch(config))
            self.run(partition, records)
        records.add(record, size, placed)

    def add_all(
        self, partition: PartitionMetadata, records: Sequence[Record], placed: Placed
    ) -> None:
        """Append several as one batch, with nobody's between them: all or none. `placed` is told
        of the first. Raises `NotEnoughReplicas`, and `MessageTooLarge` for more than a batch.
        """
        broker = self._broker
        config = broker.topics.config_of(partition.topic)
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
        if partition.partition_id not in self._lines:
            with suppress(NotLeader):
                replica = broker.replica(partition)
                replica.check_in_sync()
                broker.gatherer.add_all(replica, records, placed)
                return
        together = _Records(broker, partition, room_in_a_batch(config))
        self.run(partition, together)
        for index, (record, size) in enumerate(zip(records, sizes, strict=True)):
            together.add(record, size, placed if not index else _unheard)
        together.room = 0

    def run(self, partition: PartitionMetadata, errand: Errand) -> None:
        """Do it after those before it; not before this loop turn ends."""
        partition_id = partition.partition_id
        line = self._lines.get(partition_id)
        if line is not None:
            line.append(errand)
        else:
            self._lines[partition_id] = deque((errand,))
            self._broker.scheduler.call_soon(self._begin, partition_id)

    def _begin(self, partition_id: int) -> None:
        self._try(partition_id, self._broker.scheduler.time() + RELAY_PATIENCE_S)

    def _try(self, partition_id: int, until: float) -> None:
        broker, errand = self._broker, self._lines[partition_id][0]
        partition = broker.image.partitions.get(partition_id)
        if partition is None:
            self._finish(partition_id, UnknownTopic("the topic is gone"))
            return
        if broker.is_stopping:
            self._finish(partition_id, ShuttingDown("the node is stopping"))
            return
        answered = partial(self._answered, partition_id, until)
        try:
            replica = broker.replica(partition)
        except NotLeader as error:
            if error.leader in (NOBODY, broker.node_id):
                answered(error)
            else:
                broker.neighbours.ask(error.leader, *errand.request(), answered)
            return
        try:
            errand.here(replica)
        except DragomanError as error:
            errand.done(error)
        self._go_on(partition_id)

    def _answered(self, partition_id: int, until: float, answer: Answer | DragomanError) -> None:
        scheduler = self._broker.scheduler
        if not isinstance(answer, _PASSING):
            self._finish(partition_id, answer)
        elif scheduler.time() < until:
            scheduler.call_later(RELAY_RETRY_S, self._try, partition_id, until)
        else:
            partition = self._broker.image.partitions.get(partition_id)
            leader = NOBODY if partition is None else partition.leader
            self._finish(partition_id, NotLeader(str(answer), leader))

    def _finish(self, partition_id: int, answer: Answer | DragomanError) -> None:
        self._lines[partition_id][0].done(answer)
        self._go_on(partition_id)

    def _go_on(self, partition_id: int) -> None:
        line = self._lines[partition_id]
        line.popleft()
        if line:
            self._broker.scheduler.call_soon(self._begin, partition_id)
        else:
            del self._lines[partition_id]


def _unheard(_offset: int, _error: DragomanError | None) -> None:
    """The first of those that go together is told of."""


class _Records:
    """Records to be appended as one batch."""

    def __init__(self, broker: Broker, partition: PartitionMetadata, room: int) -> None:
        self._broker = broker
        self._append = Append(topic=partition.topic.name, partition=partition.index)
        self._records: list[Record] = []
        self._placed: list[Placed] = []
        #: Bytes that the batch may still take.
        self.room = room
        self.is_begun = False

    def add(self, record: Record, size: int, placed: Placed) -> None:
        self.room -= size
        self._records.append(record)
        self._placed.append(placed)

    def here(self, replica: Replica) -> None:
        self.is_begun = True
        replica.check_in_sync()
        for record, placed in zip(self._records, self._placed, strict=True):
            self._broker.gatherer.add(replica, record, placed)

    def request(self) -> tuple[Request, Sequence[Buffer]]:
        self.is_begun = True
        return self._append, (build_batch(self._records),)

    def done(self, answer: Answer | DragomanError) -> None:
        if isinstance(answer, DragomanError):
            for placed in self._placed:
                placed(-1, answer)
            return
        assert isinstance(answer.reply, Appended)
        for index, placed in enumerate(self._placed):
            placed(answer.reply.base_offset + index, None)
