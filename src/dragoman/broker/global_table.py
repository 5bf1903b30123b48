"""An internal topic that nodes keep in memory as a table: read back once, then followed.

One compacted partition of keys and values, for what is small and what all nodes must agree on. What
a node writes goes to the partition's leader and counts here once it has come back: so all nodes see
the same order, and of two that change the same thing at the same time the later one in the log is
the later one for both. The topic is made with the first record that is put.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from dragoman.broker.context import NodeContext
from dragoman.broker.errors import NotLeader, UnknownTopic
from dragoman.broker.gather import Placed
from dragoman.broker.partitions import Partitions
from dragoman.broker.reading import Ends, Reader, Readers
from dragoman.broker.relaying import Relaying
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
from dragoman.outcome import start

Then: TypeAlias = Callable[[], None]
Refuse: TypeAlias = Callable[[DragomanError], None]
#: The leader was not reached, or hears a moment later that it is one; nothing was written.
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
        relaying: Relaying,
    ) -> None:
        self.context = context
        self.partitions = partitions
        self.topics = topics
        self.readers = readers
        self.relaying = relaying

    def open(
        self, name: str, apply: Callable[[Record], None], forget: Callable[[], None]
    ) -> GlobalTable:
        """`apply` takes every record, in the order of the log. After a failure all of them come
        again, from the beginning, and `forget` first: what was deleted meanwhile may not even be
        named any more.
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
        self._relaying = tables.relaying
        self.name = name
        self._apply = apply
        self._forget = forget
        tables.topics.reserve(name)
        #: Everything below its offset has been applied.
        self._reader: Reader | None = None
        #: Where the topic ended when it began to be read: with that, it is read back.
        self._end = 0
        self._is_starting = False
        self._is_reading = False
        #: Until where the topic has to be read for those who wait; None: until it is read back.
        self._waiting: list[tuple[int | None, Then, Refuse]] = []

    @property
    def partition(self) -> PartitionMetadata | None:
        """None as long as nothing was put."""
        topic = self._context.image.topics.get(self.name)
        return topic.partitions[0] if topic is not None else None

    @property
    def has_copy(self) -> bool:
        """Does this node have the log itself?"""
        partition = self.partition
        return partition is not None and self._context.node_id in partition.replicas

    @property
    def is_loaded(self) -> bool:
        """Has everything been read back?"""
        if self._reader is None:
            return self.partition is None
        return self._reader.offset >= self._end

    # ---- reading

    def when_loaded(self, then: Then, refuse: Refuse) -> None:
        """Call `then`, now or when everything has been read back, or `refuse`."""
        if self.is_loaded:
            then()
        else:
            self._wait(None, then, refuse)

    def record_at(self, offset: int) -> Record:
        """The record that was applied with this offset, on a node that has a copy."""
        partition = self.partition
        assert partition is not None
        stored = self._partitions.held(partition).log
        record = next(stored.iterate(offset, stored.high_watermark))
        assert record.offset == offset, "a record is not where it was written"
        return record

    def _wait(self, end: int | None, then: Then, refuse: Refuse) -> None:
        self._waiting.append((end, then, refuse))
        if self._reader is not None:
            self._take_in()
        elif not self._is_starting:
            self._is_starting = True
            self._find_end()

    def _find_end(self, tries: int = FOLLOWED_TRIES_MAX) -> None:
        """How far it has to be read back."""
        partition = self.partition
        assert partition is not None

        def found(ends: Ends | DragomanError) -> None:
            if isinstance(ends, Ends):
                self._begin(ends.high_watermark)
            elif isinstance(ends, _TRANSIENT) and tries:
                self._context.scheduler.call_later(FOLLOWED_RETRY_S, self._find_end, tries - 1)
            else:
                self._give_up(ends)

        start(self._readers.ends(partition)).then(found)

    def _begin(self, end: int) -> None:
        self._is_starting = False
        partition = self.partition
        assert partition is not None
        self._end = end
        self._forget()
        self._reader = self._readers.open(partition, 0, self._take_in)
        self._take_in()

    def _give_up(self, error: DragomanError) -> None:
        self._is_starting = False
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        waiting, self._waiting = self._waiting, []
        for _, _, refuse in waiting:
            refuse(error)

    def _take_in(self) -> None:
        """A slice of what has come; those who have waited for it go on."""
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
        self._go_on(reader.offset)
        if self._reader is reader:
            if found:
                self._context.scheduler.call_soon(self._take_in)
            else:
                reader.wait()

    def _go_on(self, reached: int) -> None:
        waiting, self._waiting = self._waiting, []
        ready: list[tuple[int | None, Then, Refuse]] = []
        for each in waiting:
            until = self._end if each[0] is None else each[0]
            (ready if until <= reached else self._waiting).append(each)
        for _, then, refuse in ready:
            try:
                then()
            except DragomanError as raised:
                refuse(raised)

    # ---- writing

    def put(self, key: bytes, value: bytes | None, done: Placed) -> None:
        """`done` comes when the record is durable and has been applied here; without a value the
        key goes.
        """
        record = Record(key=key, value=value, timestamp=self._context.clock.wall_ms())

        def ready(error: DragomanError | None) -> None:
            if error is not None:
                done(-1, error)
            else:
                partition = self.partition
                assert partition is not None
                self._relaying.add(partition, record, placed)

        def placed(offset: int, error: DragomanError | None) -> None:
            if error is not None:
                done(offset, error)
            else:
                self._wait(
                    offset + 1, lambda: done(offset, None), lambda refused: done(-1, refused)
                )

        new = NewTopic(
            name=self.name,
            partition_count=1,
            config={"cleanup.policy": "compact", "segment.bytes": str(_SEGMENT_BYTES)},
            is_internal=True,
        )
        start(self._topics.ensure(new)).then(ready)
