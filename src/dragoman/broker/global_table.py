"""An internal topic that every node keeps in memory as a table: loaded once, then followed.

One compacted partition of keys and values, for small state that all nodes share. A write goes to
the partition's leader and takes effect on each node when it is read back. So all nodes see the same
order, and of two concurrent writes to one key the later one in the log wins everywhere. The topic
is created with the first record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from dragoman.broker.accumulator import placed
from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.context import NodeContext
from dragoman.broker.errors import NotLeader, UnknownTopic
from dragoman.broker.leader_queues import LeaderQueues
from dragoman.broker.partitions import Partitions
from dragoman.broker.readers import Reader, Readers
from dragoman.broker.topics import NewTopic, Topics
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError, NotSentError
from dragoman.limits import (
    FOLLOWED_READ_BYTES_MAX,
    FOLLOWED_RETRY_S,
    FOLLOWED_TRIES_MAX,
    INTERNAL_RECORDS_PER_SLICE,
)
from dragoman.log.batch import Record
from dragoman.outcome import Outcome, ignore, pause, start

#: The leader was not reached, or does not know yet that it leads; nothing was written.
_TRANSIENT: Final = (NotLeader, NotSentError, UnknownTopic)
_SEGMENT_BYTES: Final = 64 << 20


class GlobalTables:
    """Opens the tables of this node."""

    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        topics: Topics,
        readers: Readers,
        leader_queues: LeaderQueues,
    ) -> None:
        self.context = context
        self.partitions = partitions
        self.topics = topics
        self.readers = readers
        self.leader_queues = leader_queues

    def open(
        self, name: str, apply: Callable[[Record], None], forget: Callable[[], None]
    ) -> GlobalTable:
        """`apply` receives every record, in log order. After a failure, `forget` is called and all
        records are applied again from the beginning, because a record of a deleted key may be gone.
        """
        return GlobalTable(self, name, apply, forget)


class GlobalTable:
    def __init__(
        self,
        tables: GlobalTables,
        name: str,
        apply: Callable[[Record], None],
        forget: Callable[[], None],
    ) -> None:
        """See `GlobalTables.open`."""
        self._context = tables.context
        self._partitions = tables.partitions
        self._topics = tables.topics
        self._readers = tables.readers
        self._leader_queues = tables.leader_queues
        self.name = name
        self._apply = apply
        self._forget = forget
        tables.topics.reserve(name)
        #: Everything below this offset is applied.
        self._reader: Reader | None = None
        #: The end of the topic when loading began; loading is complete when it is reached.
        self._end = 0
        self._is_starting = False
        self._is_reading = False
        #: Waiters, each with the offset that has to be applied for it; None: until the table is
        #: loaded.
        self._waiting: list[tuple[int | None, Outcome[None]]] = []

    @property
    def partition(self) -> PartitionMetadata | None:
        """None until the topic is created."""
        topic = self._context.image.topics.get(self.name)
        return topic.partitions[0] if topic is not None else None

    @property
    def has_copy(self) -> bool:
        """Whether this node has a replica."""
        partition = self.partition
        return partition is not None and self._context.node_id in partition.replicas

    @property
    def is_loaded(self) -> bool:
        """Whether the whole topic is loaded."""
        if self._reader is None:
            return self.partition is None
        return self._reader.offset >= self._end

    # ---- reading

    async def loaded(self) -> None:
        """Return when the table is loaded. Waiters resume in the order of their calls."""
        if not self.is_loaded:
            await self._reached(None)

    def record_at(self, offset: int) -> Record:
        """The record at this offset, on a node with a replica."""
        partition = self.partition
        assert partition is not None
        stored = self._partitions.held(partition).log
        record = next(stored.iterate(offset, stored.high_watermark))
        assert record.offset == offset, "a record is not where it was written"
        return record

    async def _reached(self, end: int | None) -> None:
        """Return when the topic is applied up to an offset; None: when it is loaded."""
        reached: Outcome[None] = Outcome()
        self._waiting.append((end, reached))
        if self._reader is not None:
            self._apply_more()
        elif not self._is_starting:
            self._is_starting = True
            start(self._begin()).then(ignore)
        await reached

    async def _begin(self) -> None:
        """Find the end of the topic, and load it from its beginning."""
        try:
            self._end = await self._find_end()
        except DragomanError as error:
            self._give_up(error)
            return
        partition = self.partition
        assert partition is not None
        self._is_starting = False
        self._forget()
        self._reader = self._readers.open(partition, 0, self._apply_more)
        self._apply_more()

    async def _find_end(self) -> int:
        tries = FOLLOWED_TRIES_MAX
        while True:
            partition = self.partition
            assert partition is not None
            try:
                return (await self._readers.ends(partition)).high_watermark
            except _TRANSIENT:
                if not tries:
                    raise
            tries -= 1
            await pause(self._context.scheduler, FOLLOWED_RETRY_S)

    def _give_up(self, error: DragomanError) -> None:
        self._is_starting = False
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        waiting, self._waiting = self._waiting, []
        for _, reached in waiting:
            reached.fail(error)

    def _apply_more(self) -> None:
        """Apply a slice of the received records, and resume their waiters."""
        reader = self._reader
        if reader is None or self._is_reading:
            return
        self._is_reading = True
        try:
            found = reader.read(FOLLOWED_READ_BYTES_MAX, INTERNAL_RECORDS_PER_SLICE)
            for record in found:
                self._apply(record)
        except DragomanError as error:
            self._give_up(error)
            return
        finally:
            self._is_reading = False
        self._resume_waiters(reader.offset)
        if self._reader is reader:
            if found:
                self._context.scheduler.call_soon(self._apply_more)
            else:
                reader.wait()

    def _resume_waiters(self, offset: int) -> None:
        waiting, self._waiting = self._waiting, []
        ready: list[Outcome[None]] = []
        for end, reached in waiting:
            if (self._end if end is None else end) <= offset:
                ready.append(reached)
            else:
                self._waiting.append((end, reached))
        for reached in ready:
            reached.succeed(None)

    # ---- writing

    async def put(self, key: bytes, value: bytes | None) -> int:
        """Put a value, or delete the key if there is none. Returns the record's offset when it is
        durable and applied here. Records are appended in the order of the calls.
        """
        record = Record(key=key, value=value, timestamp=self._context.clock.wall_ms())
        new = NewTopic(
            name=self.name,
            partition_count=1,
            config={"cleanup.policy": "compact", "segment.bytes": str(_SEGMENT_BYTES)},
            is_internal=True,
        )
        await self._topics.ensure(new)
        partition = self.partition
        assert partition is not None
        add = partial(self._leader_queues.add, partition, record, caller=NODE_ITSELF)
        offset = await placed(add)
        await self._reached(offset + 1)
        return offset
