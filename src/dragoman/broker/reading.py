"""Reading a partition record by record on any node: its own copy if it has one, else its leader's.

A copy may be behind its leader; nothing is given before it is committed, in either case. `FarTail`
stands in for a `Tail` where there is no copy: it asks the leader for the next records, a little at
a time, and follows when another node leads. When replicas are moved, a reader changes from one to
the other and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from dragoman.broker.errors import (
    MessageTooLarge,
    NotLeader,
    Overloaded,
    RequestTimedOut,
    UnknownTopic,
)
from dragoman.broker.kinds import NOBODY
from dragoman.broker.neighbours import Answer, Batches, Neighbours, ReadBatches
from dragoman.broker.replica import Replica
from dragoman.broker.tailing import Tail
from dragoman.broker.topics import Topics
from dragoman.broker.unread import Unread
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from dragoman.errors import (
    ClusterError,
    CorruptionError,
    DecodeError,
    DragomanError,
    OffsetOutOfRangeError,
    OversizedBatchError,
)
from dragoman.limits import FAR_READ_BYTES_MAX, FAR_READ_RETRY_S, FAR_READ_WAIT_MS
from dragoman.log.batch import BatchHeader, Record
from dragoman.log.expansion import Expanded, expanded_bytes_max
from dragoman.log.store import LogStore
from dragoman.world import Handle, Scheduler

#: Reasons to ask again: somebody will lead the partition, or what is asked for will be there.
_PASSING = (NotLeader, ClusterError, Overloaded, RequestTimedOut, OffsetOutOfRangeError)


class ReaderNode(Protocol):
    """What a reader needs of the node that it is on."""

    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> MetadataImage: ...

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def store(self) -> LogStore: ...

    @property
    def topics(self) -> Topics: ...

    @property
    def neighbours(self) -> Neighbours: ...

    def held(self, metadata: PartitionMetadata, /) -> Replica:
        """The node's own replica of a partition. Raises `NotLeader` where there is none."""
        ...

    def replica(self, metadata: PartitionMetadata, /) -> Replica:
        """The same, of a partition that the node leads. Raises `NotLeader`."""
        ...


class Reader(Protocol):
    """What `Tail` and `FarTail` have in common; their meaning is described at `Tail`."""

    @property
    def offset(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    def seek(self, offset: int, /) -> None: ...

    def read(self, bytes_max: int, count_max: int, /) -> list[Record]: ...

    def wait(self) -> None: ...

    def close(self) -> None: ...


def open_reader(
    broker: ReaderNode, partition: PartitionMetadata, offset: int, on_change: Callable[[], None]
) -> Reader:
    """`on_change` is called once after each `wait`: look again."""
    return _Roaming(broker, partition, offset, on_change)


class _Roaming:
    """A reader of a partition whose replicas may come to this node and leave it."""

    def __init__(
        self,
        broker: ReaderNode,
        partition: PartitionMetadata,
        offset: int,
        on_change: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._partition = partition
        self._on_change = on_change
        self._reader = self._opened_at(offset)

    def _opened_at(self, offset: int) -> Tail | FarTail:
        broker, partition = self._broker, self._partition
        # The image may have been replaced since.
        partition = broker.image.partitions.get(partition.partition_id, partition)
        try:
            return Tail(broker.held(partition), offset, self._on_change)
        except NotLeader:
            return FarTail(broker, partition, offset, self._on_change)

    @property
    def offset(self) -> int:
        return self._reader.offset

    @property
    def log_start_offset(self) -> int:
        return self._reader.log_start_offset

    def seek(self, offset: int) -> None:
        self._reader.seek(offset)

    def read(self, bytes_max: int, count_max: int) -> list[Record]:
        try:
            return self._reader.read(bytes_max, count_max)
        except NotLeader:
            self._reader.close()
            self._reader = self._opened_at(self._reader.offset)
            return self._reader.read(bytes_max, count_max)

    def wait(self) -> None:
        self._reader.wait()

    def close(self) -> None:
        self._reader.close()


class Ends(NamedTuple):
    """Where a log begins and ends, for all who may ask."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int


def find_ends(
    broker: ReaderNode, partition: PartitionMetadata, done: Callable[[Ends | DragomanError], None]
) -> None:
    """As the partition's leader knows them."""
    try:
        done(_ends_of(broker.replica(partition)))
        return
    except NotLeader as error:
        leader = error.leader

    def answered(answer: Answer | DragomanError) -> None:
        if isinstance(answer, DragomanError):
            done(answer)
            return
        found = answer.reply
        assert isinstance(found, Batches)
        marks = (found.log_start_offset, found.last_stable_offset, found.high_watermark)
        done(Ends(*marks, found.offset))

    request = ReadBatches(
        topic=partition.topic.name, partition=partition.index, offset=-1, bytes_max=1
    )
    broker.neighbours.ask(leader, request, (), answered)


def find_all_ends(
    broker: ReaderNode,
    partitions: Sequence[PartitionMetadata],
    done: Callable[[list[Ends] | DragomanError], None],
) -> None:
    """Of several partitions, in their order. Where a leader is away, its copy here will do."""
    found: list[Ends | DragomanError | None] = [None] * len(partitions)
    left = len(partitions)

    def one(index: int, ends: Ends | DragomanError) -> None:
        nonlocal left
        if isinstance(ends, DragomanError):
            with suppress(NotLeader):
                ends = _ends_of(broker.held(partitions[index]))
        found[index] = ends
        left -= 1
        if not left:
            error = next((each for each in found if isinstance(each, DragomanError)), None)
            done(error or [each for each in found if isinstance(each, Ends)])

    for index, partition in enumerate(partitions):
        find_ends(broker, partition, partial(one, index))


def _ends_of(replica: Replica) -> Ends:
    log = replica.log
    marks = (log.log_start_offset, log.last_stable_offset, log.high_watermark)
    return Ends(*marks, log.log_end_offset)


class FarTail:
    def __init__(
        self,
        broker: ReaderNode,
        partition: PartitionMetadata,
        offset: int,
        on_change: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._partition = partition
        self._on_change = on_change
        self.offset = offset
        self.log_start_offset = 0
        #: Where the next batch is to be read.
        self._next = offset
        self._unread: Unread | None = None
        self._error: DragomanError | None = None
        #: Of the question under way; an answer to an earlier one is ignored.
        self._question = 0
        self._is_asking = False
        self._is_closed = False
        self._timer: Handle | None = None

    def seek(self, offset: int) -> None:
        self.offset = self._next = offset
        self._unread = None
        self._question += 1
        self._is_asking = False

    def read(self, bytes_max: int, count_max: int) -> list[Record]:
        """What has come; raises what the leader said."""
        if self._error is not None:
            raise self._error
        if self._unread is None:
            return []
        unread = self._unread
        try:
            given = unread.take(bytes_max, count_max)
        except DecodeError as error:
            where = f"{self._partition.topic.name}-{self._partition.index}"
            self._unread = None
            if isinstance(error, OversizedBatchError):
                raise MessageTooLarge(f"{where}: {error}") from None
            raise CorruptionError(where, self.offset, str(error)) from None
        if given:
            self.offset = given[-1].offset + 1
        if unread.is_over:
            self._next = unread.next_offset
            self._unread = None
        return given

    def wait(self) -> None:
        if self._unread is not None or self._error is not None:
            self._on_change()
        elif not self._is_asking:
            self._ask()

    def close(self) -> None:
        self._is_closed = True
        self._question += 1
        self._unread = None
        if self._timer is not None:
            self._timer.cancel()

    def _ask(self) -> None:
        if self._is_closed:
            return
        self._question += 1
        question = self._question
        self._is_asking = True
        partition = self._broker.image.partitions.get(self._partition.partition_id)
        if partition is None:
            name = f"{self._partition.topic.name}-{self._partition.index}"
            self._fail(UnknownTopic(f"{name} is gone"))
        elif self._has_copy(partition):
            self._fail(NotLeader("the partition has moved here", partition.leader))
        elif partition.leader in (NOBODY, self._broker.node_id):
            self._ask_later()
        else:
            request = ReadBatches(
                topic=partition.topic.name,
                partition=partition.index,
                offset=self._next,
                bytes_max=FAR_READ_BYTES_MAX,
                wait_ms=FAR_READ_WAIT_MS,
                is_from_oldest=True,
            )

            def answered(answer: Answer | DragomanError) -> None:
                if question == self._question:
                    self._answered(answer)

            self._broker.neighbours.ask(partition.leader, request, (), answered)

    def _has_copy(self, partition: PartitionMetadata) -> bool:
        if partition.leader != self._broker.node_id:
            return False
        with suppress(NotLeader):
            self._broker.held(partition)
            return True
        return False

    def _ask_later(self) -> None:
        self._timer = self._broker.scheduler.call_later(FAR_READ_RETRY_S, self._ask)

    def _answered(self, answer: Answer | DragomanError) -> None:
        if isinstance(answer, DragomanError):
            if isinstance(answer, _PASSING):
                self._ask_later()
            else:
                self._fail(answer)
            return
        reply = answer.reply
        assert isinstance(reply, Batches)
        self.log_start_offset = reply.log_start_offset
        self._next = reply.offset
        if len(answer.body):
            unread = Unread(answer.body, reply.aborted, reply.offset, self._expand)
            self._next = unread.next_offset
            self._unread = None if unread.is_over else unread
        self._is_asking = False
        if self._unread is not None:
            self._on_change()
        else:
            # Its time was up, or there was nothing to give in what came.
            self._broker.scheduler.call_soon(self._ask_on)

    def _expand(self, header: BatchHeader, batch: memoryview) -> Expanded:
        partition = self._partition
        config = self._broker.topics.config_of(partition.topic)
        return self._broker.store.expansions.get(
            partition.partition_id, header, batch, expanded_bytes_max(config.max_message_bytes)
        )

    def _ask_on(self) -> None:
        if not self._is_asking and self._unread is None:
            self._ask()

    def _fail(self, error: DragomanError) -> None:
        self._is_asking = False
        self._error = error
        self._on_change()
