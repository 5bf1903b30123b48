"""Records over HTTP: a page of a partition, a batch to write, and events as records arrive.

Any node serves them: it reads its own replica or asks the leader, and passes records on to their
leaders, as for clients of the protocols that are not redirected.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial as applied
from typing import Protocol

from dragoman import limits
from dragoman.api.access import Access
from dragoman.api.declaration import (
    ApiError,
    EventStream,
    FirstOffset,
    LastEventId,
    PartitionIndex,
    ReadBytes,
    RecordLimit,
    ValueBytes,
    ValueForm,
)
from dragoman.api.events import RecordEvents, mark_of, positions_of
from dragoman.api.node_requests import FindOffset
from dragoman.api.node_rpc import NodeCalls
from dragoman.api.payloads import new_record, read_record, size_of
from dragoman.api.places import Place
from dragoman.api.quotas import CallerQuotas
from dragoman.api.record_reader import PartitionReader, Turns, charged
from dragoman.api.record_values import (
    NewRecords,
    ReadRecord,
    RecordPage,
    WrittenRecord,
    WrittenRecords,
)
from dragoman.api.times import place_in, time_ms_of
from dragoman.broker.accumulator import size_of as bytes_of
from dragoman.broker.errors import (
    InvalidTopicName,
    Overloaded,
    RequestTimedOut,
    ShuttingDown,
    UnknownTopic,
)
from dragoman.broker.leader_queues import LeaderQueues
from dragoman.broker.readers import Ends, Readers
from dragoman.broker.throttles import Limit, Throttles
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata, TopicMetadata
from dragoman.errors import DragomanError, OffsetOutOfRangeError
from dragoman.log.batch import Record
from dragoman.net.admission import MemoryBudget
from dragoman.net.future import settled
from dragoman.outcome import Outcome, attempt, gather, start
from dragoman.partitioner import partition_for_key
from dragoman.rpc import Leader, Rpc
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import Authorizer
from dragoman.world import Clock, Random


class RecordBroker(Protocol):
    """What the service uses of the broker."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def readers(self) -> Readers: ...

    @property
    def leader_queues(self) -> LeaderQueues: ...

    @property
    def rpc(self) -> Rpc: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def random(self) -> Random: ...

    @property
    def on_stopping(self) -> list[Callable[[], None]]: ...

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def throttles(self) -> Throttles: ...


class RecordService:
    def __init__(self, broker: RecordBroker, budget: MemoryBudget) -> None:
        self._broker = broker
        self._budget = budget
        self._access = Access(broker)
        self._quotas = CallerQuotas(broker)
        self._calls = NodeCalls(broker.rpc)
        self._turns = Turns()
        #: Open streams, the oldest first, each with its client: a principal at a host.
        self._streams: dict[RecordEvents, tuple[str, str]] = {}
        #: Streams that were ended for others, and whose clients have not gone yet.
        self._displaced: set[RecordEvents] = set()
        broker.on_stopping.append(self._stop)

    def _topic(self, name: str) -> TopicMetadata:
        topic = self._broker.image.topics.get(name)
        if topic is None:
            raise ApiError(404, "unknown_topic", f"there is no topic {name!r}")
        return topic

    def _partition(self, name: str, index: int) -> PartitionMetadata:
        topic = self._topic(name)
        if not 0 <= index < len(topic.partitions):
            raise UnknownTopic(f"there is no partition {index} of topic {name!r}")
        return topic.partitions[index]

    # ---- reading

    async def read_records(
        self,
        caller: Caller,
        name: str,
        partition: PartitionIndex,
        offset: FirstOffset | None,
        time: str,
        last: RecordLimit | None,
        limit: RecordLimit,
        bytes: ReadBytes,  # noqa: A002 # the name of the parameter in the query
        max_value_bytes: ValueBytes,
        values: ValueForm,
    ) -> RecordPage:
        self._access.require(caller, Operation.READ, Resource.TOPIC, name)
        if (offset is not None) + bool(time) + (last is not None) > 1:
            raise ApiError(400, "invalid_request", "give one of offset, time and last")
        self._quotas.check_bytes(Limit.CONSUMED, caller)
        metadata = self._partition(name, partition)
        time_ms = time_ms_of("time", time, self._broker.clock.wall_ms()) if time else None
        (ends,) = await settled(self._broker.readers.all_ends([metadata]))
        if time_ms is not None:
            begin = await settled(self._at_time(caller, metadata, time_ms, ends))
        elif last is not None:
            begin = max(ends.log_start_offset, ends.last_stable_offset - last)
        else:
            begin = ends.log_start_offset if offset is None else offset
        if not ends.log_start_offset <= begin <= ends.last_stable_offset:
            within = f"{ends.log_start_offset} .. {ends.last_stable_offset}"
            raise OffsetOutOfRangeError(f"{name}-{partition}: offset {begin} is not in {within}")
        page = _Page(partition, begin, ends.last_stable_offset, limit, bytes)
        with charged(self._budget, 2 * bytes):
            await self._fill(
                page, metadata, applied(read_record, partition, values, max_value_bytes)
            )
        self._quotas.count_bytes(Limit.CONSUMED, caller, page.size)
        return RecordPage(
            topic=name,
            partition=partition,
            items=tuple(page.items),
            next=page.next if page.next < page.end else None,
            log_start_offset=ends.log_start_offset,
            end_offset=ends.last_stable_offset,
        )

    async def _fill(
        self, page: _Page, metadata: PartitionMetadata, shown: Callable[[Record], ReadRecord]
    ) -> None:
        """Raises `RequestTimedOut` when the leader sends nothing in time."""
        changed = asyncio.Event()
        reader = PartitionReader(
            self._broker.readers, metadata, page.next, self._turns, changed.set
        )
        try:
            async with asyncio.timeout(limits.HTTP_READ_SECONDS):
                while not page.is_full:
                    found = await reader.read(limits.HTTP_READ_STEP_BYTES, page.room)
                    if found:
                        await self._add(page, found, shown)
                        continue
                    page.next = max(page.next, min(reader.offset, page.end))
                    if reader.offset >= page.end:
                        return
                    changed.clear()
                    reader.wait()
                    await changed.wait()
        except TimeoutError:
            if not page.items:
                raise RequestTimedOut("the records did not arrive in time") from None
        finally:
            reader.close()

    async def _add(
        self, page: _Page, records: Sequence[Record], shown: Callable[[Record], ReadRecord]
    ) -> None:
        """Add records to a page until it is full, some of them in each turn of the loop."""
        left = deque(records)
        while left and not page.is_full:
            until = page.size + limits.HTTP_SHOWN_BYTES_PER_TURN
            async with self._turns.one():
                for _ in range(limits.HTTP_SHOWN_RECORDS_PER_TURN):
                    if not left or page.is_full or page.size >= until:
                        break
                    record = left.popleft()
                    if record.offset >= page.end:
                        page.next = page.end
                        break
                    page.add(record, shown(record))

    async def _at_time(
        self, caller: Caller, metadata: PartitionMetadata, time_ms: int, ends: Ends
    ) -> int:
        request = FindOffset(
            caller=caller, topic=metadata.topic.name, partition=metadata.index, time_ms=time_ms
        )
        found = await self._calls.call(request, Leader(metadata.partition_id))
        offset = ends.last_stable_offset if found.offset is None else found.offset
        return min(max(offset, ends.log_start_offset), ends.last_stable_offset)

    # ---- events

    async def record_events(
        self,
        caller: Caller,
        name: str,
        partitions: str,
        begin: str,
        last_event_id: LastEventId,
        max_value_bytes: ValueBytes,
        values: ValueForm,
    ) -> EventStream:
        self._access.require(caller, Operation.READ, Resource.TOPIC, name)
        topic = self._topic(name)
        mark = mark_of(topic.topic_id)
        known = positions_of(last_event_id, mark)
        wanted = (
            _chosen(partitions, len(topic.partitions))
            if partitions
            else (sorted(known) or list(range(len(topic.partitions))))
        )
        if len(wanted) > limits.HTTP_STREAM_PARTITIONS_MAX:
            text = f"a stream has {limits.HTTP_STREAM_PARTITIONS_MAX} partitions: choose some"
            raise ApiError(400, "invalid_request", f"partitions: {text}")
        chosen = {index: self._partition(name, index) for index in wanted}
        place = place_in("begin", begin or "latest", self._broker.clock.wall_ms())
        ends = await settled(self._broker.readers.all_ends(list(chosen.values())))
        for index, each in zip(wanted, ends, strict=True):
            if known.get(index, 0) > each.log_end_offset:
                await settled(self._check_known(chosen[index], known[index]))
        positions = {
            index: known[index]
            if index in known
            else await self._begin(caller, chosen[index], place, each)
            for index, each in zip(wanted, ends, strict=True)
        }
        client = (str(caller.principal), caller.host)
        if len(self._streams) >= limits.HTTP_STREAMS_MAX:
            self._make_room(client)
        if self._budget.room < limits.HTTP_STREAM_BYTES:
            raise Overloaded("the memory budget of the node is used up; try again")
        self._budget.take(limits.HTTP_STREAM_BYTES)

        def open_reader(index: int, on_change: Callable[[], None]) -> PartitionReader:
            return PartitionReader(
                self._broker.readers, chosen[index], positions[index], self._turns, on_change
            )

        def show(index: int, record: Record) -> ReadRecord:
            return read_record(index, values, max_value_bytes, record)

        self._quotas.check_bytes(Limit.CONSUMED, caller)
        count = applied(self._quotas.count_bytes, Limit.CONSUMED, caller)
        stream = RecordEvents(
            positions, mark, open_reader, show, self._turns, count, self._released
        )
        stream.check = applied(self._access.require, caller, Operation.READ, Resource.TOPIC, name)
        self._streams[stream] = client
        return stream

    async def _begin(
        self, caller: Caller, metadata: PartitionMetadata, place: Place, ends: Ends
    ) -> int:
        """The offset at which a stream begins to read a partition."""
        if place.kind == "time":
            return await settled(self._at_time(caller, metadata, place.number, ends))
        offset = place.offset(ends.log_start_offset, ends.last_stable_offset)
        assert offset is not None
        return offset

    async def _check_known(self, partition: PartitionMetadata, offset: int) -> None:
        """Raises `OffsetOutOfRangeError` for an offset that the leader has not reached: a stream
        would wait for it in silence.
        """
        end = (await self._broker.readers.ends(partition)).log_end_offset
        if offset > end:
            where = f"{partition.topic.name}-{partition.index}"
            raise OffsetOutOfRangeError(f"{where}: offset {offset} is past the end, {end}")

    def _make_room(self, client: tuple[str, str]) -> None:
        """End the oldest stream of the client with most streams. Raises `Overloaded` if that would
        leave it with fewer than this one has then.
        """
        held = Counter(self._streams.values())
        ((greedy, count),) = held.most_common(1)
        if count <= held[client] + 1:
            raise Overloaded(f"this node serves {limits.HTTP_STREAMS_MAX} streams already")
        displaced = next(each for each, owner in self._streams.items() if owner == greedy)
        del self._streams[displaced]
        self._displaced.add(displaced)
        displaced.end(Overloaded("another client needs one of the streams of this node"))

    def _released(self, stream: RecordEvents) -> None:
        self._streams.pop(stream, None)
        self._displaced.discard(stream)
        self._budget.give_back(limits.HTTP_STREAM_BYTES)

    def _stop(self) -> None:
        for each in list(self._streams):
            each.end(ShuttingDown("the node is stopping"))

    # ---- writing

    async def write_records(self, caller: Caller, name: str, wanted: NewRecords) -> WrittenRecords:
        """Each partition gets its records as one batch: all of them, or none."""
        self._access.require(caller, Operation.WRITE, Resource.TOPIC, name)
        topic = self._topic(name)
        if topic.is_internal:
            raise InvalidTopicName(f"{name} is a topic that only the broker writes to")
        self._quotas.check_bytes(Limit.PRODUCED, caller)
        count, now = len(topic.partitions), self._broker.clock.wall_ms()
        without_key = self._broker.random.randrange(count)
        placed: dict[int, list[int]] = {}
        records: list[Record] = []
        for number, each in enumerate(wanted.records):
            record = new_record(each, f"records[{number}]", now)
            if each.partition is not None:
                index = each.partition
            else:
                # As Kafka's clients do: records without a key go to one partition together.
                key = record.key
                index = without_key if key is None else partition_for_key(key, count)
            self._partition(name, index)
            placed.setdefault(index, []).append(number)
            records.append(record)
        self._quotas.count_bytes(Limit.PRODUCED, caller, sum(map(bytes_of, records)))
        work = [
            start(attempt(self._append(caller, topic.partitions[index], records, numbers)))
            for index, numbers in placed.items()
        ]
        answers = await settled(gather(work))
        errors = [each for each in answers if isinstance(each, DragomanError)]
        if len(errors) == len(answers):
            raise errors[0]
        items = dict(_written(placed, answers))
        return WrittenRecords(topic=name, items=tuple(items[each] for each in sorted(items)))

    async def _append(
        self,
        caller: Caller,
        partition: PartitionMetadata,
        records: list[Record],
        numbers: list[int],
    ) -> int:
        """Append records as one batch; the offset of the first, once all are committed."""
        appended: Outcome[int] = Outcome()
        self._broker.leader_queues.add_all(
            partition,
            [records[number] for number in numbers],
            lambda offset, error: appended.settle(offset if error is None else error),
            caller=caller,
        )
        return await appended


def _chosen(text: str, count: int) -> list[int]:
    """The partitions that a parameter such as `0,2` names. Raises `ApiError`."""
    found = []
    for each in text.split(","):
        if not (each.isascii() and each.isdigit() and len(each) <= 9):
            raise ApiError(
                400,
                "invalid_request",
                f"partitions: expected numbers such as 0,2, got {text[:100]!r}",
            )
        if int(each) >= count:
            raise UnknownTopic(f"there is no partition {int(each)}")
        found.append(int(each))
    return sorted(set(found))


class _Page:
    """Records of a page as they are found."""

    def __init__(self, partition: int, begin: int, end: int, limit: int, bytes_max: int) -> None:
        self.partition = partition
        self.items: list[ReadRecord] = []
        #: The offset after the last record.
        self.next = begin
        self.end = end
        self.size = 0
        self._limit = limit
        self._bytes_max = bytes_max

    @property
    def room(self) -> int:
        return self._limit - len(self.items)

    @property
    def is_full(self) -> bool:
        return self.next >= self.end or self.room <= 0 or self.size >= self._bytes_max

    def add(self, record: Record, shown: ReadRecord) -> None:
        size = max(size_of(shown), len(record.key or b"") + len(record.value or b""))
        if self.items and self.size + size > self._bytes_max:
            self.size = self._bytes_max
            return
        self.items.append(shown)
        self.size += size
        self.next = record.offset + 1


def _written(
    placed: dict[int, list[int]], answers: Sequence[int | DragomanError]
) -> Iterator[tuple[int, WrittenRecord]]:
    """The result of each record, by its number."""
    for (partition, numbers), answer in zip(placed.items(), answers, strict=True):
        for place, number in enumerate(numbers):
            if isinstance(answer, DragomanError):
                yield number, WrittenRecord(partition=partition, offset=None, problem=str(answer))
            else:
                yield number, WrittenRecord(partition=partition, offset=answer + place)
