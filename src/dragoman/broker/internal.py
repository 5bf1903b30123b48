"""Internal topics: compacted logs of keys and values in which the broker keeps its own state.

Made with the first record. A record is part of the state when its append has been acknowledged;
at start everything is read back in slices, so that a large topic does not hold up the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from dragoman.broker.errors import TopicExists
from dragoman.broker.replica import Acknowledge, Replica
from dragoman.broker.topics import NewTopic
from dragoman.errors import DragomanError
from dragoman.limits import INTERNAL_RECORDS_PER_SLICE
from dragoman.log.batch import Record, build_batch, read_header

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

#: Key and value of one record; without a value the key is removed.
KeyValue: TypeAlias = tuple[bytes, bytes | None]


class InternalTopic:
    def __init__(self, broker: Broker, name: str, partition_count: int) -> None:
        self._broker = broker
        self.name = name
        self._partition_count = partition_count
        self._waiting_for_topic: list[Callable[[DragomanError | None], None]] = []
        broker.topics.reserve(name)

    @property
    def partition_count(self) -> int:
        """Of the topic as it is, or as it will be made."""
        topic = self._broker.image.topics.get(self.name)
        return len(topic.partitions) if topic is not None else self._partition_count

    def append(self, index: int, records: Sequence[KeyValue], done: Acknowledge) -> None:
        """Make records durable, in the order of the calls, all of one call or none."""
        if not records:
            done(None)
            return
        if self.name in self._broker.image.topics:
            self._append(index, records, done)
            return

        def created(error: DragomanError | None) -> None:
            if error is None:
                self._append(index, records, done)
            else:
                done(error)

        self._waiting_for_topic.append(created)
        if len(self._waiting_for_topic) == 1:
            self._create()

    def _create(self) -> None:
        new = NewTopic(
            name=self.name,
            partition_count=self._partition_count,
            config={"cleanup.policy": "compact", "segment.bytes": str(64 << 20)},
            is_internal=True,
        )

        def created(error: DragomanError | None) -> None:
            waiting, self._waiting_for_topic = self._waiting_for_topic, []
            for each in waiting:
                each(None if isinstance(error, TopicExists) else error)

        self._broker.topics.create(new, created)

    def _append(self, index: int, records: Sequence[KeyValue], done: Acknowledge) -> None:
        now_ms = self._broker.clock.wall_ms()
        batch = build_batch(
            [Record(key=key, value=value, timestamp=now_ms) for key, value in records]
        )
        try:
            replica = self._broker.find(self.name, index)
            appended = replica.log.append(batch, read_header(batch), replica.leader_epoch)
        except DragomanError as error:
            done(error)
            return
        replica.when_committed(appended.next_offset, done)

    def replicas(self) -> Iterator[Replica]:
        topic = self._broker.image.topics.get(self.name)
        for partition in topic.partitions if topic is not None else ():
            yield self._broker.replica(partition)

    def load(self, take: Callable[[bytes, bytes | None], None], done: Callable[[], None]) -> None:
        """Hand every record to `take`, oldest first, a slice per loop turn; then `done`."""
        records = self._records()

        def some() -> None:
            for _ in range(INTERNAL_RECORDS_PER_SLICE):
                record = next(records, None)
                if record is None:
                    done()
                    return
                assert record.key is not None
                take(record.key, record.value)
            self._broker.scheduler.call_soon(some)

        some()

    def _records(self) -> Iterator[Record]:
        for replica in self.replicas():
            log = replica.log
            yield from log.iterate(log.log_start_offset, log.high_watermark)
