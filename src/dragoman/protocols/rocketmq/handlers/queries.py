"""Messages looked up by key, by id and by place (12, 33, 321).

There is no index of keys: the partitions of a topic are looked through, one after the other, in
slices between which the node does other things, from where the time index says the given time
begins. It ends when enough is found, when its time is up, or when the client is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from dragoman.broker.errors import Overloaded
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.errors import DecodeError, DragomanError
from dragoman.limits import (
    ROCKETMQ_FOUND_BYTES_MAX,
    ROCKETMQ_FOUND_COUNT_MAX,
    ROCKETMQ_LOOK_UP_S_MAX,
    ROCKETMQ_LOOK_UPS_MAX,
)
from dragoman.log.batch import Record
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import Property, Response
from dragoman.protocols.rocketmq.filters import Filter, compile_filter
from dragoman.protocols.rocketmq.handlers.lookup import Found, find_record
from dragoman.protocols.rocketmq.handlers.names import (
    physical_offset,
    require_topic,
    spelling,
    split_physical,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.offsets import partition_of
from dragoman.protocols.rocketmq.handlers.records import PREFIX, encoded, properties_of
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.slices import Slice, read_slice
from dragoman.protocols.rocketmq.handlers.times import offset_at
from dragoman.protocols.rocketmq.messages import read_message_id, tag_hash
from dragoman.protocols.rocketmq.sql92 import FilterError
from dragoman.security.authorizer import Operation, Resource

_UNIQUE_QUERY: Final = "_UNIQUE_KEY_QUERY"
_UNIQUE_HEADERS: Final = (PREFIX + Property.UNIQUE_KEY, Property.UNIQUE_KEY)
_KEYS_HEADERS: Final = (PREFIX + Property.KEYS, Property.KEYS)
_COUNT: Final = 32
_TIME_MAX: Final = (1 << 63) - 2


# ---- by key


def handle_query_message(call: Call) -> None:
    topic = require_topic(call.service.broker.image, call.text("topic"))
    call.session.authorize(Operation.READ, Resource.TOPIC, topic.name)
    key = call.text("key")

    def answer(search: Search) -> None:
        if not search.found:
            text = f"can not find message for {key!r}"
            if not search.is_complete:
                text += f" within {ROCKETMQ_LOOK_UP_S_MAX:g} s; a narrower time takes less"
            raise Refused(Response.QUERY_NOT_FOUND, text)
        last = search.last
        call.reply(
            fields={
                "indexLastUpdateTimestamp": str(last.timestamp if last is not None else 0),
                "indexLastUpdatePhyoffset": str(search.last_physical),
            },
            body=b"".join(search.found),
        )

    wanted = Sought(
        key=key.encode(),
        is_unique=call.flag(_UNIQUE_QUERY),
        count_max=min(max(1, call.number("maxNum", _COUNT)), ROCKETMQ_FOUND_COUNT_MAX),
        begin_ms=_time(call, 0, "beginTimestamp", "begin"),
        end_ms=_time(call, _TIME_MAX, "endTimestamp", "end"),
    )
    Search(call, topic, wanted, answer).start()


def _time(call: Call, default: int, *names: str) -> int:
    name = next((each for each in names if each in call.fields), names[0])
    return min(max(0, call.number(name, default)), _TIME_MAX)


def has_key(record: Record, key: bytes, *, is_unique: bool) -> bool:
    """Is it the message's unique id or, unless only that counts, one of its keys?"""
    keys = record.key
    for name, value in record.headers:
        if name in _UNIQUE_HEADERS and value == key:
            return True
        if name in _KEYS_HEADERS:
            keys = value
    return not is_unique and keys is not None and key in keys.split(b" ")


class Sought(NamedTuple):
    key: bytes
    #: Is it the id that a client gave a message? Else it may also be one of the keys.
    is_unique: bool
    count_max: int = 1
    begin_ms: int = 0
    end_ms: int = _TIME_MAX

    def is_found_in(self, record: Record) -> bool:
        is_in_time = self.begin_ms <= record.timestamp <= self.end_ms
        return is_in_time and has_key(record, self.key, is_unique=self.is_unique)


class Search:
    """`done` is called once, unless the client goes away; what it raises is answered."""

    def __init__(
        self, call: Call, topic: TopicMetadata, sought: Sought, done: Callable[[Search], None]
    ) -> None:
        self._call = call
        self._broker = call.service.broker
        self._topic = spelling(topic.name).encode()
        self._partitions = iter(topic.partitions)
        self._sought = sought
        self._done = done
        self._until = 0.0
        self._is_over = False
        self.found: list[bytes] = []
        self._bytes = 0
        #: The newest that was found, and its place.
        self.last: Record | None = None
        self.last_physical = 0
        #: Has all been looked at, or enough been found?
        self.is_complete = False

    def start(self) -> None:
        """Raises `Overloaded`."""
        node = self._call.node
        if node.searches >= ROCKETMQ_LOOK_UPS_MAX:
            raise Overloaded(f"{node.searches} messages are being looked up already")
        node.searches += 1
        self._until = self._broker.scheduler.time() + ROCKETMQ_LOOK_UP_S_MAX
        self._call.session.on_gone[self] = self._gone
        self._next_partition()

    def _next_partition(self) -> None:
        partition = next(self._partitions, None)
        if partition is None:
            self._finish(is_complete=True)
            return

        def begin(offset: int | DragomanError) -> None:
            if isinstance(offset, DragomanError):
                self._end(offset)
            else:
                self._read(partition, offset)

        if self._sought.begin_ms:
            offset_at(self._broker, partition, self._sought.begin_ms, begin)
        else:
            begin(0)

    def _read(self, partition: PartitionMetadata, offset: int) -> None:
        if self._is_over:
            return
        if self._broker.scheduler.time() >= self._until:
            self._finish(is_complete=False)
            return

        def look(piece: Slice | DragomanError) -> None:
            if isinstance(piece, DragomanError):
                self._end(piece)
            else:
                self._look(partition, piece)

        read_slice(self._broker, partition, offset, look, self._sought.key)

    def _look(self, partition: PartitionMetadata, piece: Slice) -> None:
        sought = self._sought
        for record in piece.records:
            if sought.is_found_in(record):
                self._take(partition, record)
                if len(self.found) >= sought.count_max or self._bytes >= ROCKETMQ_FOUND_BYTES_MAX:
                    self._finish(is_complete=True)
                    return
        # Times may be the clients', and a little out of order: a whole slice has to be past.
        is_past = piece.oldest_ms is not None and piece.oldest_ms > sought.end_ms
        call_soon = self._broker.scheduler.call_soon
        if is_past or piece.next_offset >= piece.end_offset:
            call_soon(self._next_partition)
        else:
            call_soon(self._read, partition, piece.next_offset)

    def _take(self, partition: PartitionMetadata, record: Record) -> None:
        message = encode_here(self._call, self._topic, partition, record)
        self.found.append(message)
        self._bytes += len(message)
        if self.last is None or record.timestamp >= self.last.timestamp:
            self.last = record
            self.last_physical = physical_offset(partition.partition_id, record.offset)

    # ---- the end

    def _finish(self, *, is_complete: bool) -> None:
        self.is_complete = is_complete
        self._end(None)

    def _gone(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._call.node.searches -= 1

    def _end(self, error: DragomanError | None) -> None:
        if self._is_over:
            return
        self._gone()
        self._call.session.on_gone.pop(self, None)
        if error is not None:
            self._call.refuse(error)
        else:
            self._call.guarded(lambda: self._done(self))


def encode_here(call: Call, topic: bytes, partition: PartitionMetadata, record: Record) -> bytes:
    store_host = call.session.store_host
    return encoded(record, topic, partition.partition_id, partition.index, store_host)


# ---- by id


def handle_view_message_by_id(call: Call) -> None:
    if "offset" in call.fields:
        place = call.number("offset")
    else:
        place = _place(call.text("offset", "msgId"))
    find_by_place(call, place, lambda message: call.reply(body=message))


def _place(message_id: str) -> int:
    try:
        return read_message_id(message_id)[1]
    except DecodeError as error:
        raise Refused(Response.SYSTEM_ERROR, str(error)) from None


def find_by_place(call: Call, place: int, use: Callable[[bytes], None]) -> None:
    """`use` gets the message at a physical offset, delivered or not. Raises `DragomanError`."""

    def found(outcome: Found | DragomanError) -> None:
        def go_on() -> None:
            if isinstance(outcome, DragomanError):
                raise outcome
            call.session.authorize(Operation.READ, Resource.TOPIC, outcome.topic)
            topic = spelling(outcome.topic).encode()
            store_host = call.session.store_host
            where = (outcome.partition_id, outcome.queue)
            use(encoded(outcome.record, topic, *where, store_host))

        call.guarded(go_on)

    find_record(call.service.broker, place, found)


def find_by_id(call: Call, message_id: str, spelt: str, use: Callable[[bytes], None]) -> None:
    """By the place in the id or, when there is none, by the id that its client gave it."""
    topic = visible_topic(call.service.broker.image, spelt) if spelt else None
    place = None
    try:
        place = read_message_id(message_id)[1]
    except DecodeError:
        if topic is None:
            raise Refused(Response.SYSTEM_ERROR, f"{message_id!r} is no message's id") from None
    if topic is not None and (place is None or not _is_here(call, place, topic)):
        call.session.authorize(Operation.READ, Resource.TOPIC, topic.name)

        def answer(search: Search) -> None:
            if not search.found:
                text = f"there is no message {message_id} in {spelt}"
                raise Refused(Response.SYSTEM_ERROR, text)
            use(search.found[0])

        Search(call, topic, Sought(message_id.encode(), is_unique=True), answer).start()
    else:
        assert place is not None
        find_by_place(call, place, use)


def _is_here(call: Call, place: int, topic: TopicMetadata) -> bool:
    """May the place be one of this topic? Unique ids look like places of other partitions."""
    partition = call.service.broker.image.partitions.get(split_physical(place)[0])
    return partition is not None and partition.topic.name == topic.name


# ---- by queue and number


def handle_query_consume_queue(call: Call) -> None:
    partition = partition_of(call)
    call.session.authorize(Operation.READ, Resource.TOPIC, partition.topic.name)
    index = call.number("index")
    count = min(max(0, call.number("count", _COUNT)), ROCKETMQ_FOUND_COUNT_MAX)
    data, chosen = _subscription(call)
    view = bodies.ConsumeQueueView(subscription_data=data)

    def look(piece: Slice | DragomanError) -> None:
        def go_on() -> None:
            if isinstance(piece, DragomanError):
                raise piece
            view.min_queue_index = piece.log_start_offset
            view.max_queue_index = piece.end_offset
            room = count - len(view.queue_data)
            for record in piece.records[:room]:
                view.queue_data.append(_entry(call, partition, record, chosen))
            is_over = len(view.queue_data) >= count or piece.next_offset >= piece.end_offset
            if is_over:
                call.reply(body=bodies.encode(view))
            else:
                broker = call.service.broker
                broker.scheduler.call_soon(read_slice, broker, partition, piece.next_offset, look)

        call.guarded(go_on)

    read_slice(call.service.broker, partition, max(0, index), look)


def _subscription(call: Call) -> tuple[bodies.SubscriptionData | None, Filter | None]:
    """What the group that is named reads of the topic, as far as this node knows it."""
    group = call.fields.get("consumerGroup", "")
    local = call.node.clients.groups.get(group)
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
