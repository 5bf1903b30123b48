"""Internal topics: compacted logs of keys and values in which the broker keeps its own state.

Each name maps to a partition, and the leader of the partition keeps the state of the name. A node
that becomes leader (`lead`) loads the partition, in slices so that a large one does not block the
loop, and then serves it; a node that stops leading (`resign`) unloads it. The state in memory is
that of the log: a record is part of it when its append is acknowledged, in the leadership that
loaded the rest. When it is unknown whether a record is in the log, the partition is loaded again.

A topic is created on first use.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeAlias

from dragoman.broker.context import NodeContext
from dragoman.broker.directory import coordinator_partition
from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    RequestTimedOut,
    TopicExists,
)
from dragoman.broker.partitions import Partitions
from dragoman.broker.topics import NewTopic, Topics
from dragoman.errors import BrokerError, DiskFullError, DragomanError
from dragoman.limits import INTERNAL_LOAD_RETRY_S, INTERNAL_RECORDS_PER_SLICE, SLOW_LOAD_S
from dragoman.log.batch import Record, build_batch, read_header
from dragoman.log.partition import PartitionLog
from dragoman.outcome import acknowledged, ignore, pause, start
from dragoman.replication.replica import Acknowledge

log = logging.getLogger("dragoman.coordination")
#: Key and value of one record; None as value removes the key.
KeyValue: TypeAlias = tuple[bytes, bytes | None]
#: Builds records whose keys contain their own offsets, once the first offset is known.
PlacedRecords: TypeAlias = Callable[[int], Sequence[KeyValue]]


class Keeper(NamedTuple):
    """Holder of the in-memory state that a partition's records add up to."""

    #: Receives a record of a partition that is being loaded, in log order.
    load: Callable[[bytes, bytes | None], None]
    #: Called when a partition is loaded and may be served.
    resume: Callable[[int], None]
    #: Drops the state of a partition, served or not, and fails the requests that wait for it.
    unload: Callable[[int, NotCoordinator], None]


class _Kept:
    """A partition that this node leads, for one leadership."""

    __slots__ = ("is_loaded", "is_over", "leader_epoch", "load_began", "loaded_records")

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.is_loaded = False
        self.is_over = False
        #: When its records began to be read, and how many were.
        self.load_began = 0.0
        self.loaded_records = 0


class InternalTopic:
    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        topics: Topics,
        name: str,
        partition_count: int,
        replication_factor: int,
        keeper: Keeper,
    ) -> None:
        """`factor` is an upper bound: with fewer nodes there are fewer replicas."""
        self._context = context
        self._partitions = partitions
        self._topics = topics
        self.name = name
        self._partition_count = partition_count
        self._replication_factor = replication_factor
        self._keeper = keeper
        self._kept: dict[int, _Kept] = {}
        #: Partitions to load, one after the other.
        self._to_load: deque[tuple[int, _Kept, Iterator[Record]]] = deque()
        self._is_reading = False
        self._is_closed = False
        topics.reserve(name)

    # ---- the partition of a name

    @property
    def partition_count(self) -> int:
        """The partition count of the topic, or the one it will be created with."""
        topic = self._context.image.topics.get(self.name)
        return len(topic.partitions) if topic is not None else self._partition_count

    def partition_of(self, name: str) -> int:
        return coordinator_partition(name, self.partition_count)

    def leader_of(self, name: str) -> int:
        """The leader of a name's partition; -1: there is none, or the topic does not exist yet.

        A node that leads partitions of a topic that does not exist is a single node.
        """
        topic = self._context.image.topics.get(self.name)
        index = self.partition_of(name)
        if topic is not None:
            return topic.partitions[index].leader
        return self._context.node_id if index in self._kept else -1

    def require(self, name: str) -> None:
        """Raises `CoordinatorLoading`, `NotCoordinator` or `CoordinatorNotAvailable` unless this
        node serves the name's partition.
        """
        self.require_partition(self.partition_of(name))

    def require_partition(self, index: int) -> None:
        """`require` for a partition."""
        if not self.is_served(index):
            raise self._refusal(index)

    @property
    def loading(self) -> list[int]:
        """Partitions that are being loaded."""
        return [index for index, each in self._kept.items() if not each.is_loaded]

    def require_loaded(self) -> None:
        """Raises `CoordinatorLoading` while any partition is being loaded."""
        if self.loading:
            raise CoordinatorLoading(f"{self.name} is being read back")

    def is_served(self, index: int) -> bool:
        kept = self._kept.get(index)
        return kept is not None and kept.is_loaded

    def leader_epoch(self, index: int) -> int:
        """The epoch of the leadership in which the partition is served."""
        return self._kept[index].leader_epoch

    def _refusal(self, index: int) -> BrokerError:
        topic = self._context.image.topics.get(self.name)
        if self._is_closed:
            return CoordinatorNotAvailable("this node stops")
        if topic is None and index not in self._kept:
            start(self.ensure()).then(ignore)
            return CoordinatorNotAvailable(f"{self.name} is being made")
        where = f"{self.name}-{index}"
        leader = self._context.node_id if topic is None else topic.partitions[index].leader
        if leader == self._context.node_id:
            return CoordinatorLoading(f"{where} is being read back")
        if leader < 0:
            return CoordinatorNotAvailable(f"no node leads {where}")
        return NotCoordinator(f"node {leader} leads {where}", leader)

    # ---- leadership

    def lead(self, index: int, leader_epoch: int) -> None:
        """This node leads the partition: load it, then serve it."""
        known = self._kept.get(index)
        if known is not None:
            if known.leader_epoch >= leader_epoch:
                return
            self.resign(index)
        kept = self._kept[index] = _Kept(leader_epoch)
        if self.name in self._context.image.topics:
            start(self._committed_log(index, kept)).then(partial(self._read_back, index, kept))
        else:
            self._serve(index, kept)

    def resign(self, index: int) -> None:
        """This node stops leading the partition, and writing to it."""
        kept = self._kept.pop(index, None)
        if kept is not None:
            kept.is_over = True
            topic = self._context.image.topics.get(self.name)
            leader = -1 if topic is None else topic.partitions[index].leader
            self._keeper.unload(index, NotCoordinator(f"{self.name}-{index} has moved", leader))

    def close(self) -> None:
        """The node stops: callbacks of pending writes are dropped."""
        self._is_closed = True
        for kept in self._kept.values():
            kept.is_over = True
        self._kept.clear()

    # ---- loading

    async def _committed_log(self, index: int, kept: _Kept) -> PartitionLog | None:
        """The log of the partition once all of it is known to be committed: it includes records of
        earlier leaders, whose commit this node may not know yet. None when the leadership ends
        first.
        """
        while not kept.is_over:
            try:
                replica = self._partitions.find(self.name, index)
                end = replica.log.log_end_offset
                await acknowledged(partial(replica.when_committed, end))
            except DragomanError as error:
                if not kept.is_over:
                    log.warning("%s-%d cannot be read back yet: %s", self.name, index, error)
                    await pause(self._context.scheduler, INTERNAL_LOAD_RETRY_S)
            else:
                return replica.log
        return None

    def _read_back(
        self, index: int, kept: _Kept, stored: PartitionLog | DragomanError | None
    ) -> None:
        assert not isinstance(stored, DragomanError)
        if stored is None or kept.is_over:
            return
        kept.load_began = self._context.clock.monotonic()
        records = stored.iterate(stored.log_start_offset, stored.high_watermark)
        self._to_load.append((index, kept, records))
        if not self._is_reading:
            self._is_reading = True
            self._load_some()

    def _load_some(self) -> None:
        room = INTERNAL_RECORDS_PER_SLICE
        while self._to_load:
            index, kept, records = self._to_load[0]
            try:
                for record in records if not kept.is_over else ():
                    assert record.key is not None
                    self._keeper.load(record.key, record.value)
                    kept.loaded_records += 1
                    room -= 1
                    if not room:
                        self._context.scheduler.call_soon(self._load_some)
                        return
            except DragomanError as error:
                log.error("%s-%d cannot be read and is not served: %s", self.name, index, error)
                self._keeper.unload(index, NotCoordinator(str(error)))
            else:
                if not kept.is_over:
                    self._serve(index, kept)
            self._to_load.popleft()
        self._is_reading = False

    def _serve(self, index: int, kept: _Kept) -> None:
        kept.is_loaded = True
        seconds = self._context.clock.monotonic() - kept.load_began
        level = logging.INFO if seconds >= SLOW_LOAD_S else logging.DEBUG
        if log.isEnabledFor(level) and kept.loaded_records:
            fields = {
                "topic": self.name,
                "partition": index,
                "records": kept.loaded_records,
                "ms": round(seconds * 1000),
            }
            log.log(level, "internal partition loaded", extra=fields)
        self._keeper.resume(index)

    # ---- writing

    def append(
        self, index: int, records: Sequence[KeyValue] | PlacedRecords, done: Acknowledge
    ) -> None:
        """Make records durable, in the order of the calls, all of one call or none.

        Requires a served partition. After an error that leaves the outcome unknown, the partition
        is unloaded before `done` is called.
        """
        kept = self._kept.get(index)
        if not records:
            done(None)
        elif kept is None or not kept.is_loaded:
            done(self._refusal(index))
        elif self.name in self._context.image.topics:
            self._append(index, kept, records, done)
        else:

            def made(error: DragomanError | None) -> None:
                if error is None:
                    self._append(index, kept, records, done)
                else:
                    done(error)

            start(self.ensure()).then(made)

    async def ensure(self) -> None:
        """Create the topic unless it exists."""
        new = NewTopic(
            name=self.name,
            partition_count=self._partition_count,
            replication_factor=self._context.internal_factor(self._replication_factor),
            config={"cleanup.policy": "compact", "segment.bytes": str(64 << 20)},
            is_internal=True,
        )
        # Another node may create it first.
        with suppress(TopicExists):
            await self._topics.ensure(new)

    def _append(
        self,
        index: int,
        kept: _Kept,
        records: Sequence[KeyValue] | PlacedRecords,
        done: Acknowledge,
    ) -> None:
        now_ms = self._context.clock.wall_ms()
        try:
            replica = self._partitions.find(self.name, index)
            if kept.is_over or replica.leader_epoch != kept.leader_epoch:
                raise NotLeader(f"{self.name}-{index} has moved", replica.metadata.leader)
            replica.check_in_sync()
            if callable(records):
                records = records(replica.log.log_end_offset)
            batch = build_batch(
                [Record(key=key, value=value, timestamp=now_ms) for key, value in records]
            )
            appended = replica.log.append(batch, read_header(batch), kept.leader_epoch)
        except DragomanError as error:
            done(_in_words_of_coordinators(error))
            return

        def acknowledged(error: DragomanError | None) -> None:
            if kept.is_over:
                # The state was dropped; loading it again shows whether the record was written.
                error = NotCoordinator(f"{self.name}-{index} has moved; the outcome is unknown")
            elif error is not None and not isinstance(error, DiskFullError):
                # After a full disk the record is known to be missing. Otherwise the outcome is
                # unknown.
                self._load_again(index, kept)
            done(_in_words_of_coordinators(error))

        replica.when_committed(appended.next_offset, acknowledged)

    def _load_again(self, index: int, kept: _Kept) -> None:
        self.resign(index)
        topic = self._context.image.topics.get(self.name)
        if topic is not None:
            partition = topic.partitions[index]
            is_same = partition.leader_epoch == kept.leader_epoch
            if is_same and partition.leader == self._context.node_id:
                self.lead(index, kept.leader_epoch)


def _in_words_of_coordinators(error: DragomanError | None) -> DragomanError | None:
    """Replaces leader errors: a client knows the coordinator, not the log behind it."""
    match error:
        case NotLeader():
            return NotCoordinator(str(error), error.leader)
        case RequestTimedOut() | NotEnoughReplicas():
            return CoordinatorNotAvailable(str(error))
    return error
