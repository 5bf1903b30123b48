"""Readers of a partition, record by record, on any node: from the local replica or its leader's.

A local replica may be behind its leader; in either case only committed records are returned. On a
node without a replica a `RemoteReader` takes the place of a `LocalReader`: it requests the next
records from the leader, a few at a time, also after another node has become leader. When replicas
are moved, a reader changes from one to the other and continues at the same offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from dragoman.broker.context import NodeContext
from dragoman.broker.directory import NO_NODE
from dragoman.broker.errors import (
    MessageTooLarge,
    NotLeader,
    Overloaded,
    RequestTimedOut,
    UnknownTopic,
)
from dragoman.broker.fetch import Fetched, Fetches, FetchLimits, Wanted
from dragoman.broker.local_reader import LocalReader, RecordBuffer
from dragoman.broker.partitions import Partitions
from dragoman.cluster.metadata import PartitionMetadata
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
from dragoman.log.expansion import Expanded, Expansions, expanded_bytes_max
from dragoman.outcome import Outcome, gather, start
from dragoman.replication.replica import Replica
from dragoman.rpc import Answer, Call, Leader, Node, Registry, Reply, Request, Rpc
from dragoman.world import Handle

#: A retry may succeed: a leader will be elected, or the records will arrive.
_TRANSIENT = (NotLeader, ClusterError, Overloaded, RequestTimedOut, OffsetOutOfRangeError)


class Batches(Answer, frozen=True, kw_only=True, tag="Batches"):
    """The body has whole batches; the first may begin before the requested offset."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    #: The offset at which the batches begin.
    offset: int = 0
    #: Producer and first offset of aborted transactions, whose records are skipped.
    aborted: tuple[tuple[int, int], ...] = ()


class ReadBatches(Request[Batches], frozen=True, kw_only=True, tag="ReadBatches"):
    """Answered at once, or when there is data within `wait_ms`."""

    topic: str
    partition: int
    #: -1: at the end.
    offset: int
    bytes_max: int
    is_committed_only: bool = True
    wait_ms: int = 0
    #: Whether to begin with the oldest record when the offset was deleted.
    is_from_oldest: bool = False


class Reader(Protocol):
    """The common interface of `LocalReader` and `RemoteReader`, described at `LocalReader`."""

    @property
    def offset(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    def seek(self, offset: int, /) -> None: ...

    def read(self, bytes_max: int, count_max: int, /) -> list[Record]: ...

    def wait(self) -> None: ...

    def close(self) -> None: ...


class Ends(NamedTuple):
    """The beginning and end of a log."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int


class Readers:
    """Opens readers, and looks up the ends of partitions."""

    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        fetches: Fetches,
        rpc: Rpc,
        expansions: Expansions,
    ) -> None:
        self.context = context
        self.partitions = partitions
        self.rpc = rpc
        self.expansions = expansions
        self._fetches = fetches

    def serve(self, registry: Registry) -> None:
        registry.serve(ReadBatches, self._read_batches)

    def open(
        self, partition: PartitionMetadata, offset: int, on_change: Callable[[], None]
    ) -> Reader:
        """`on_change` is called once after each `wait`: read again."""
        return _RoamingReader(self, partition, offset, on_change)

    def tail(
        self, partition: PartitionMetadata, offset: int, on_change: Callable[[], None]
    ) -> LocalReader | RemoteReader:
        """A reader of the local replica, or of the leader's; the image may have been replaced since
        the partition was looked up.
        """
        partition = self.context.image.partitions.get(partition.partition_id, partition)
        try:
            return LocalReader(self.partitions.held(partition), offset, on_change)
        except NotLeader:
            return RemoteReader(self, partition, offset, on_change)

    # ---- ends

    async def ends(self, partition: PartitionMetadata) -> Ends:
        """The ends that the partition's leader knows."""
        with suppress(NotLeader):
            return _ends_of(self.partitions.replica(partition))
        request = ReadBatches(
            topic=partition.topic.name, partition=partition.index, offset=-1, bytes_max=1
        )
        found = await self.rpc.call(request, Leader(partition.partition_id))
        return Ends(
            found.log_start_offset, found.last_stable_offset, found.high_watermark, found.offset
        )

    async def all_ends(self, partitions: Sequence[PartitionMetadata]) -> list[Ends]:
        """The ends of several partitions, in order. Without a leader, those of the local
        replica.
        """
        return await gather([start(self._ends_or_held(each)) for each in partitions])

    async def _ends_or_held(self, partition: PartitionMetadata) -> Ends:
        try:
            return await self.ends(partition)
        except DragomanError:
            with suppress(NotLeader):
                return _ends_of(self.partitions.held(partition))
            raise

    # ---- for other nodes

    async def _read_batches(self, call: Call[ReadBatches]) -> Reply[Batches]:
        request = call.request
        replica = self.partitions.find(request.topic, request.partition)
        offset = request.offset if request.offset >= 0 else replica.log.log_end_offset
        if request.is_from_oldest:
            offset = max(offset, replica.log.log_start_offset)
        wanted = Wanted(replica, offset, request.bytes_max)
        limits = FetchLimits(
            1, request.bytes_max, request.wait_ms / 1000, request.is_committed_only
        )
        fetched: Outcome[list[Fetched]] = Outcome()
        self._fetches.begin([wanted], limits, fetched.succeed)
        (found,) = await fetched
        if found.error is not None:
            raise found.error
        batches = Batches(
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            offset=offset,
            aborted=tuple(found.aborted or ()),
        )
        return Reply(batches, found.buffers)


def _ends_of(replica: Replica) -> Ends:
    log = replica.log
    marks = (log.log_start_offset, log.last_stable_offset, log.high_watermark)
    return Ends(*marks, log.log_end_offset)


class _RoamingReader:
    """A reader of a partition whose replicas may come to this node and leave it."""

    def __init__(
        self,
        readers: Readers,
        partition: PartitionMetadata,
        offset: int,
        on_change: Callable[[], None],
    ) -> None:
        self._readers = readers
        self._partition = partition
        self._on_change = on_change
        self._tail = readers.tail(partition, offset, on_change)

    @property
    def offset(self) -> int:
        return self._tail.offset

    @property
    def log_start_offset(self) -> int:
        return self._tail.log_start_offset

    def seek(self, offset: int) -> None:
        self._tail.seek(offset)

    def read(self, bytes_max: int, count_max: int) -> list[Record]:
        try:
            return self._tail.read(bytes_max, count_max)
        except NotLeader:
            self._tail.close()
            self._tail = self._readers.tail(self._partition, self._tail.offset, self._on_change)
            return self._tail.read(bytes_max, count_max)

    def wait(self) -> None:
        self._tail.wait()

    def close(self) -> None:
        self._tail.close()


class RemoteReader:
    def __init__(
        self,
        readers: Readers,
        partition: PartitionMetadata,
        offset: int,
        on_change: Callable[[], None],
    ) -> None:
        self._context = readers.context
        self._partitions = readers.partitions
        self._rpc = readers.rpc
        self._expansions = readers.expansions
        self._partition = partition
        self._on_change = on_change
        self.offset = offset
        self.log_start_offset = 0
        #: The offset of the next batch to read.
        self._next = offset
        self._unread: RecordBuffer | None = None
        self._error: DragomanError | None = None
        #: Counts requests; only the answer to the last one is used.
        self._number = 0
        self._is_asking = False
        self._is_closed = False
        self._timer: Handle | None = None

    def seek(self, offset: int) -> None:
        self.offset = self._next = offset
        self._unread = None
        self._number += 1
        self._is_asking = False

    def read(self, bytes_max: int, count_max: int) -> list[Record]:
        """The received records; raises the leader's error."""
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
        self._number += 1
        self._unread = None
        if self._timer is not None:
            self._timer.cancel()

    def _ask(self) -> None:
        if self._is_closed:
            return
        self._number += 1
        number = self._number
        self._is_asking = True
        partition = self._context.image.partitions.get(self._partition.partition_id)
        if partition is None:
            name = f"{self._partition.topic.name}-{self._partition.index}"
            self._fail(UnknownTopic(f"{name} is gone"))
        elif self._has_copy(partition):
            self._fail(NotLeader("the partition has moved here", partition.leader))
        elif partition.leader in (NO_NODE, self._context.node_id):
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

            answered = partial(self._answered, number)
            self._rpc.begin(request, Node(partition.leader)).then(answered)

    def _has_copy(self, partition: PartitionMetadata) -> bool:
        if partition.leader != self._context.node_id:
            return False
        with suppress(NotLeader):
            self._partitions.held(partition)
            return True
        return False

    def _ask_later(self) -> None:
        self._timer = self._context.scheduler.call_later(FAR_READ_RETRY_S, self._ask)

    def _answered(self, number: int, reply: Reply[Batches] | DragomanError) -> None:
        if number != self._number:
            return
        if isinstance(reply, DragomanError):
            if isinstance(reply, _TRANSIENT):
                self._ask_later()
            else:
                self._fail(reply)
            return
        found, body = reply.answer, reply.body
        self.log_start_offset = found.log_start_offset
        self._next = found.offset
        if len(body):
            unread = RecordBuffer(body, found.aborted, found.offset, self._expand)
            self._next = unread.next_offset
            self._unread = None if unread.is_over else unread
        self._is_asking = False
        if self._unread is not None:
            self._on_change()
        else:
            # The request timed out, or its batches have no visible records.
            self._context.scheduler.call_soon(self._ask_on)

    def _expand(self, header: BatchHeader, batch: memoryview) -> Expanded:
        partition = self._partition
        config = self._context.config_of(partition.topic)
        return self._expansions.get(
            partition.partition_id, header, batch, expanded_bytes_max(config.max_message_bytes)
        )

    def _ask_on(self) -> None:
        if not self._is_asking and self._unread is None:
            self._ask()

    def _fail(self, error: DragomanError) -> None:
        self._is_asking = False
        self._error = error
        self._on_change()
