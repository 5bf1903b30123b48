"""Messages looked up by key, by id, and by queue and offset (12, 33, 321).

There is no index of keys. A search reads the partitions of a topic sequentially, from the given
time on, which the time index locates. It reads in slices, between which the node serves other
requests. It ends when it has found enough messages, when it times out, or when the client is gone.

A search for certain bytes decodes only batches that contain them, because an uncompressed batch
stores the content of records verbatim.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dragoman.broker.delayed import Token
from dragoman.broker.errors import NotAuthorized, NotLeader, Overloaded, UnknownDelayedRecord
from dragoman.broker.fetch import FetchLimits, Wanted, read_all
from dragoman.broker.readers import ReadBatches
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.errors import DecodeError
from dragoman.limits import (
    EXPANDED_BATCH_BYTES_MAX,
    ROCKETMQ_FOUND_BYTES_MAX,
    ROCKETMQ_FOUND_COUNT_MAX,
    ROCKETMQ_LOOK_UP_BYTES_MAX,
    ROCKETMQ_LOOK_UP_S_MAX,
    ROCKETMQ_LOOK_UPS_MAX,
)
from dragoman.log.batch import CODEC_MASK, Record, iterate_records
from dragoman.log.isolation import Aborted, VisibleBatches
from dragoman.outcome import Outcome, pause
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import Property, Response
from dragoman.protocols.rocketmq.filters import Filter, FilterError, compile_filter
from dragoman.protocols.rocketmq.handlers.core import Core
from dragoman.protocols.rocketmq.handlers.names import (
    physical_offset,
    spelling,
    split_physical,
    topic_name,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.offsets import offset_at, partition_of
from dragoman.protocols.rocketmq.handlers.records import PREFIX, encoded, properties_of
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.protocols.rocketmq.messages import read_message_id, tag_hash
from dragoman.protocols.rocketmq.signatures import UNIQUE_QUERY
from dragoman.replication.replica import Replica
from dragoman.rpc import Node
from dragoman.security.access import Operation, Resource

_UNIQUE_HEADERS: Final = (PREFIX + Property.UNIQUE_KEY, Property.UNIQUE_KEY)
_KEYS_HEADERS: Final = (PREFIX + Property.KEYS, Property.KEYS)
_COUNT: Final = 32
_TIME_MAX: Final = (1 << 63) - 2


# ---- by key


async def handle_query_message(call: Call) -> Answer:
    topic = call.known_topic(Operation.READ)
    key = call.text("key")
    wanted = Sought(
        key=key.encode(),
        is_unique=call.flag(UNIQUE_QUERY),
        count_max=min(max(1, call.number("maxNum", _COUNT)), ROCKETMQ_FOUND_COUNT_MAX),
        begin_ms=_time(call, 0, "beginTimestamp", "begin"),
        end_ms=_time(call, _TIME_MAX, "endTimestamp", "end"),
    )
    search = Search(call, topic, wanted)
    await search.run()
    # The client may have lost the right in the meantime.
    call.authorize_topic(Operation.READ, topic.name)
    if not search.found:
        text = f"can not find message for {key!r}"
        if not search.is_complete:
            text += f" within {ROCKETMQ_LOOK_UP_S_MAX:g} s; a shorter period takes less time"
        raise Refused(Response.QUERY_NOT_FOUND, text)
    last = search.last
    return Answer(
        fields={
            "indexLastUpdateTimestamp": str(last.timestamp if last is not None else 0),
            "indexLastUpdatePhyoffset": str(search.last_physical),
        },
        body=b"".join(search.found),
    )


def _time(call: Call, default: int, *names: str) -> int:
    name = next((each for each in names if each in call.fields), names[0])
    return min(max(0, call.number(name, default)), _TIME_MAX)


def has_key(record: Record, key: bytes, *, is_unique: bool) -> bool:
    """Whether the key is the message's unique id or, without `is_unique`, one of its keys."""
    keys = record.key
    for name, value in record.headers:
        if name in _UNIQUE_HEADERS and value == key:
            return True
        if name in _KEYS_HEADERS:
            keys = value
    return not is_unique and keys is not None and key in keys.split(b" ")


class Sought(NamedTuple):
    key: bytes
    #: Whether to compare only unique ids, and not keys.
    is_unique: bool
    count_max: int = 1
    begin_ms: int = 0
    end_ms: int = _TIME_MAX

    def is_found_in(self, record: Record) -> bool:
        is_in_time = self.begin_ms <= record.timestamp <= self.end_ms
        return is_in_time and has_key(record, self.key, is_unique=self.is_unique)


class Search:
    """A search for messages in a topic. It ends early when the client is gone."""

    def __init__(self, call: Call, topic: TopicMetadata, sought: Sought) -> None:
        self._call = call
        self._broker = call.broker
        self._topic = topic
        self._spelt = spelling(topic.name).encode()
        self._sought = sought
        self._until = 0.0
        self._is_over = False
        self.found: list[bytes] = []
        self._bytes = 0
        #: The newest message found, and its physical offset.
        self.last: Record | None = None
        self.last_physical = 0
        #: Whether enough messages were found, or the whole topic was read.
        self.is_complete = False

    async def run(self) -> None:
        """Run the search. Raises `Overloaded`, and the errors of reading."""
        node, on_gone = self._call.node, self._call.session.on_gone
        if node.searches >= ROCKETMQ_LOOK_UPS_MAX:
            raise Overloaded(f"{node.searches} searches for messages are in progress")
        node.searches += 1
        self._until = self._broker.scheduler.time() + ROCKETMQ_LOOK_UP_S_MAX
        on_gone[self] = self._end
        try:
            await self._read()
        finally:
            on_gone.pop(self, None)
            self._end()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._call.node.searches -= 1

    async def _read(self) -> None:
        """Read all partitions, until enough messages are found or the search times out."""
        for partition in self._topic.partitions:
            offset, begin_ms = 0, self._sought.begin_ms
            if begin_ms:
                offset = await offset_at(self._call.node, partition, begin_ms)
            is_read = False
            while not is_read:
                if self._is_over or self._broker.scheduler.time() >= self._until:
                    return
                piece = await read_slice(self._broker, partition, offset, self._sought.key)
                if self._select(partition, piece):
                    self.is_complete = True
                    return
                # Clients set the times, so records may be out of order: a whole slice must be past
                # the end.
                is_past = piece.oldest_ms is not None and piece.oldest_ms > self._sought.end_ms
                offset = piece.next_offset
                is_read = is_past or offset >= piece.end_offset
                await pause(self._broker.scheduler, 0)
        self.is_complete = True

    def _select(self, partition: PartitionMetadata, piece: Slice) -> bool:
        """Take the matching records of a slice. True if enough are found."""
        sought = self._sought
        for record in piece.records:
            if sought.is_found_in(record):
                self._take(partition, record)
                if len(self.found) >= sought.count_max or self._bytes >= ROCKETMQ_FOUND_BYTES_MAX:
                    return True
        return False

    def _take(self, partition: PartitionMetadata, record: Record) -> None:
        message = encode_here(self._call, self._spelt, partition, record)
        self.found.append(message)
        self._bytes += len(message)
        if self.last is None or record.timestamp >= self.last.timestamp:
            self.last = record
            self.last_physical = physical_offset(partition.partition_id, record.offset)


def encode_here(call: Call, topic: bytes, partition: PartitionMetadata, record: Record) -> bytes:
    store_host = call.session.store_host
    return encoded(record, topic, partition.partition_id, partition.index, store_host)


# ---- by id


async def handle_view_message_by_id(call: Call) -> Answer:
    if "offset" in call.fields:
        place = call.number("offset")
    else:
        place = _place(call.text("offset", "msgId"))
    return Answer(body=await find_by_place(call, place))


def _place(message_id: str) -> int:
    try:
        return read_message_id(message_id)[1]
    except DecodeError as error:
        raise Refused(Response.SYSTEM_ERROR, str(error)) from None


async def find_by_place(call: Call, place: int) -> bytes:
    """The message at a physical offset, delivered or held. Raises `DragomanError`."""
    found = await readable_record(call, place)
    topic = spelling(found.topic).encode()
    where = (found.partition_id, found.queue)
    return encoded(found.record, topic, *where, call.session.store_host)


async def find_by_id(call: Call, message_id: str, spelt: str) -> bytes:
    """The message with this offset message id or unique id."""
    if spelt:
        call.authorize_topic(Operation.READ, topic_name(spelt))
    topic = visible_topic(call.broker.image, spelt) if spelt else None
    place = None
    try:
        place = read_message_id(message_id)[1]
    except DecodeError:
        if topic is None:
            raise Refused(Response.SYSTEM_ERROR, f"{message_id!r} is not a message id") from None
    if place is not None and (topic is None or _is_here(call, place, topic)):
        return await find_by_place(call, place)
    assert topic is not None
    call.authorize_topic(Operation.READ, topic.name)
    search = Search(call, topic, Sought(message_id.encode(), is_unique=True))
    await search.run()
    call.authorize_topic(Operation.READ, topic.name)
    if not search.found:
        text = f"there is no message {message_id} in {spelt}"
        raise Refused(Response.SYSTEM_ERROR, text)
    return search.found[0]


def _is_here(call: Call, place: int, topic: TopicMetadata) -> bool:
    """Whether a physical offset belongs to this topic. Unique ids look like physical offsets."""
    partition = call.broker.image.partitions.get(split_physical(place)[0])
    return partition is not None and partition.topic.name == topic.name


# ---- by queue and offset


async def handle_query_consume_queue(call: Call) -> bodies.ConsumeQueueView:
    call.authorize_topic(Operation.READ, topic_name(call.text("topic")))
    partition = partition_of(call)
    offset = max(0, call.number("index"))
    count = min(max(0, call.number("count", _COUNT)), ROCKETMQ_FOUND_COUNT_MAX)
    data, chosen = _subscription(call)
    view = bodies.ConsumeQueueView(subscription_data=data)
    broker, rows = call.broker, view.queue_data
    while True:
        piece = await read_slice(broker, partition, offset)
        view.min_queue_index = piece.log_start_offset
        view.max_queue_index = piece.end_offset
        for record in piece.records[: count - len(rows)]:
            rows.append(_entry(call, partition, record, chosen))
        if len(rows) >= count or piece.next_offset >= piece.end_offset:
            call.authorize_topic(Operation.READ, partition.topic.name)
            return view
        offset = piece.next_offset
        await pause(broker.scheduler, 0)


def _subscription(call: Call) -> tuple[bodies.SubscriptionData | None, Filter | None]:
    """The named group's subscription to the topic, if this node knows it and the client may
    describe the group, and its filter.
    """
    group = call.fields.get("consumerGroup", "")
    is_visible = bool(group) and call.may(Operation.DESCRIBE, Resource.GROUP, group)
    local = call.node.clients.groups.get(group) if is_visible else None
    data = None if local is None else local.subscription(call.session, call.text("topic"))
    if data is None:
        return None, None
    try:
        return data, compile_filter(data.expression_type, data.sub_string)
    except FilterError:
        return data, None


def _entry(
    call: Call, partition: PartitionMetadata, record: Record, chosen: Filter | None
) -> bodies.ConsumeQueueEntry:
    properties = properties_of(record)
    tags = properties.get(Property.TAGS)
    topic = spelling(partition.topic.name).encode()
    return bodies.ConsumeQueueEntry(
        physic_offset=physical_offset(partition.partition_id, record.offset),
        physic_size=len(encode_here(call, topic, partition, record)),
        tags_code=0 if tags is None else tag_hash(tags),
        eval=chosen is None or chosen.matches(properties),
    )


# ---- records by physical offset


class Found(NamedTuple):
    topic: str
    queue: int
    record: Record
    partition_id: int


def _not_found(physical: int) -> Refused:
    text = f"can not find message by the offset {physical}"
    return Refused(Response.SYSTEM_ERROR, text)


async def readable_record(call: Call, physical: int) -> Found:
    """`find_record` for a client that names no topic: a refusal would reveal which one it is, so
    there is no such message for a client that may not read it.
    """
    partition = call.broker.image.partitions.get(split_physical(physical)[0])
    try:
        if partition is not None and not partition.topic.is_internal:
            call.authorize_topic(Operation.READ, partition.topic.name)
        found = await find_record(call.broker, physical)
        call.authorize_topic(Operation.READ, found.topic)
    except (NotAuthorized, UnknownDelayedRecord):
        raise _not_found(physical) from None
    return found


async def find_record(broker: Core, physical: int) -> Found:
    """The record at a physical offset. A record that is held for later delivery is in an internal
    topic. Raises `DragomanError`.
    """
    partition_id, offset = split_physical(physical)
    partition = broker.image.partitions.get(partition_id)
    if partition is None:
        raise _not_found(physical)
    if partition.topic.is_internal:
        token = Token(partition_id, offset)
        content = await broker.delayed.read(token)
        topic, queue = content.target
        return Found(topic, queue, content.record, partition_id)
    record = await _read_record(broker, partition, offset)
    return Found(partition.topic.name, partition.index, record, partition_id)


async def _read_record(broker: Core, partition: PartitionMetadata, offset: int) -> Record:
    ends = await broker.readers.ends(partition)
    if ends.log_start_offset <= offset < ends.last_stable_offset:
        record = await _next_record(broker, partition, offset)
        if record.offset == offset:
            return record
    where = f"{partition.topic.name}-{partition.index}"
    raise Refused(Response.SYSTEM_ERROR, f"there is no message {offset} in {where}")


async def _next_record(broker: Core, partition: PartitionMetadata, offset: int) -> Record:
    """The record at an offset or, if there is none, the next one."""
    changed: Outcome[None] = Outcome()
    reader = broker.readers.open(partition, offset, lambda: changed.succeed(None))
    try:
        # Reads return nothing until the leader's data has arrived.
        while not (records := reader.read(1, 1)):
            changed = Outcome()
            reader.wait()
            await changed
        return records[0]
    finally:
        reader.close()


# ---- slices


class Slice(NamedTuple):
    """Committed records of a partition, in order."""

    records: list[Record]
    #: The lowest base timestamp of the slice's batches; None if it has none.
    oldest_ms: int | None
    #: The offset of the next slice, and the end of the partition.
    next_offset: int
    end_offset: int
    log_start_offset: int


async def read_slice(
    broker: Core, partition: PartitionMetadata, offset: int, having: bytes = b""
) -> Slice:
    """The records from an offset or, if it was deleted, from the oldest one, without batches that
    cannot contain certain bytes. An empty slice does not mean the end of the partition.
    """
    try:
        replica = broker.partitions.replica(partition)
    except NotLeader as error:
        leader = error.leader
    else:
        return _read_here(replica, offset, having)
    request = ReadBatches(
        topic=partition.topic.name,
        partition=partition.index,
        offset=offset,
        bytes_max=ROCKETMQ_LOOK_UP_BYTES_MAX,
        is_from_oldest=True,
    )
    reply = await broker.rpc.exchange(request, Node(leader))
    batches = reply.answer
    return _visible(
        reply.body,
        batches.aborted,
        batches.offset,
        batches.last_stable_offset,
        batches.log_start_offset,
        having,
    )


def _read_here(replica: Replica, offset: int, having: bytes) -> Slice:
    log = replica.log
    offset = max(offset, log.log_start_offset)
    end = log.last_stable_offset
    if offset >= end:
        return Slice([], None, end, end, log.log_start_offset)
    wanted = Wanted(replica, offset, ROCKETMQ_LOOK_UP_BYTES_MAX)
    limits = FetchLimits(0, ROCKETMQ_LOOK_UP_BYTES_MAX, 0, True)
    (found,), _, _ = read_all([wanted], limits)
    if found.error is not None:
        raise found.error
    data = memoryview(b"".join(found.buffers))
    return _visible(data, found.aborted or (), offset, end, log.log_start_offset, having)


def _visible(
    data: memoryview, aborted: Aborted, offset: int, end: int, start: int, having: bytes
) -> Slice:
    """Raises `DecodeError`."""
    walk = VisibleBatches(data, aborted, offset)
    found: list[Record] = []
    oldest_ms: int | None = None
    for header, batch in walk:
        begins = header.base_timestamp
        oldest_ms = begins if oldest_ms is None else min(begins, oldest_ms)
        if header.attributes & CODEC_MASK or having in bytes(batch):
            decoded = iterate_records(batch, header, EXPANDED_BATCH_BYTES_MAX)
            found += (each for each in decoded if each.offset >= offset)
    # No data means that compaction has left a gap up to the end.
    return Slice(found, oldest_ms, walk.next_offset if len(data) else end, end, start)
