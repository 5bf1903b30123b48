"""Goal: records are read and written over HTTP on any node, in bounded steps.

Method: the services of two nodes in virtual time; node 1 leads partition 0 of `t`, node 2 leads
partition 1. Bytes of payloads are checked against models, with random input.
"""

from __future__ import annotations

import json
import tracemalloc
from base64 import b64decode, b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import limits
from dragoman.api.declaration import (
    ApiError,
    FirstOffset,
    PartitionIndex,
    ReadBytes,
    RecordLimit,
    ValueBytes,
    ValueForm,
)
from dragoman.api.payloads import payload_of, read_record
from dragoman.api.problems import status_of
from dragoman.api.record_values import Encoded, NewHeader, NewRecord, NewRecords, RecordPage
from dragoman.api.records import RecordService
from dragoman.broker.errors import InvalidTopicName, MessageTooLarge, Overloaded, UnknownTopic
from dragoman.errors import DragomanError, OffsetOutOfRangeError
from dragoman.log.batch import TRANSACTIONAL, Record, build_batch
from dragoman.log.compression import Codec
from dragoman.net.admission import MemoryBudget
from dragoman.partitioner import partition_for_key
from dragoman.security.access import Caller
from worlds.broker import World
from worlds.http import Services, ask
from worlds.two_nodes import Pair

CALLER = Caller()
MIB = 1 << 20


def read(
    service: RecordService,
    partition: int = 0,
    *,
    name: str = "t",
    offset: int | None = None,
    time: str = "",
    last: int | None = None,
    limit: int = 1000,
    bytes_max: int = MIB,
    value_bytes: int = MIB,
    values: ValueForm = "text",
) -> Any:
    return service.read_records(
        CALLER,
        name,
        PartitionIndex(partition),
        None if offset is None else FirstOffset(offset),
        time,
        None if last is None else RecordLimit(last),
        RecordLimit(limit),
        ReadBytes(bytes_max),
        ValueBytes(value_bytes),
        values,
    )


class Two:
    def __init__(self) -> None:
        self.pair = Pair()
        self.services = {node: Services(world).records for node, world in self.pair.worlds.items()}
        self.pair.create("t", 1, 2)

    def write(self, index: int, *values: bytes) -> None:
        world = self.pair.worlds[index + 1]
        world.write(world.broker.partitions.find("t", index), *values)

    def read(self, *args: Any, node: int = 1, **named: Any) -> RecordPage:
        page: RecordPage = ask(self.pair, read(self.services[node], *args, **named))
        return page

    def produce(self, *records: NewRecord, node: int = 1, name: str = "t") -> Any:
        wanted = NewRecords(records=records)
        return ask(self.pair, self.services[node].write_records(CALLER, name, wanted))


@pytest.fixture
def two() -> Two:
    return Two()


def texts(page: RecordPage) -> list[Any]:
    return [
        None if each.value is None else json.loads(bytes(each.value.data)) for each in page.items
    ]


# ---- reading


@pytest.mark.parametrize("partition", [0, 1])
def test_records_are_read_a_page_at_a_time_on_any_node(two: Two, partition: int) -> None:
    two.write(partition, *(b"%d" % number for number in range(25)))
    found, offset = [], 0
    while True:
        page = two.read(partition, offset=offset, limit=10)
        found += texts(page)
        if page.next is None:
            break
        offset = page.next
    assert found == [str(number) for number in range(25)]
    assert (page.log_start_offset, page.end_offset) == (0, 25)


def test_first_last_and_timed_records(two: Two) -> None:
    for number in range(10):
        two.pair.advance(1)
        two.write(1, b"%d" % number)
    log = two.pair.two.broker.partitions.find("t", 1).log
    times = [each.timestamp for each in log.iterate(0, 10)]
    assert texts(two.read(1, limit=2)) == ["0", "1"]
    assert texts(two.read(1, last=3)) == ["7", "8", "9"]
    assert texts(two.read(1, last=500)) == [str(number) for number in range(10)]
    assert texts(two.read(1, time=str(times[8]))) == ["8", "9"]
    assert texts(two.read(1, time="2200-01-01T00:00:00Z")) == []
    now_ms = two.pair.one.broker.clock.wall_ms()
    ago_s = (now_ms - times[7]) // 1000
    assert texts(two.read(1, time=f"@-{ago_s}s")) == ["7", "8", "9"]
    assert texts(two.read(1, offset=10)) == []


def test_empty_partition_has_an_empty_page(two: Two) -> None:
    for partition in (0, 1):
        page = two.read(partition)
        assert (page.items, page.next, page.end_offset) == ((), None, 0)


def test_page_is_bounded_by_bytes_and_has_at_least_one_record(two: Two) -> None:
    two.write(0, *[b"x" * 1000] * 10)
    assert len(two.read(bytes_max=5000).items) < 5
    assert len(two.read(bytes_max=1).items) == 1
    # What is cut counts in full: it is read.
    assert len(two.read(bytes_max=5000, value_bytes=1).items) < 6


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"offset": 11}, OffsetOutOfRangeError),
        ({"offset": 1 << 62}, OffsetOutOfRangeError),
        ({"offset": 1}, OffsetOutOfRangeError),
        ({"offset": 5, "last": 1}, ApiError),
        ({"time": "1", "last": 1}, ApiError),
        ({"time": "now"}, ApiError),
        ({"partition": 2}, UnknownTopic),
        ({"name": "nope"}, ApiError),
    ],
)
def test_bad_position_is_refused(
    two: Two, named: dict[str, Any], error: type[DragomanError]
) -> None:
    two.write(0, *[b"x"] * 10)
    two.pair.one.broker.partitions.find("t", 0).delete_below(3)
    with pytest.raises(error) as raised:
        two.read(**named)
    assert 400 <= status_of(raised.value) < 500


def test_leader_that_does_not_answer_is_unavailable(two: Two) -> None:
    two.write(1, b"x")
    two.pair.lines[1].is_cut = True
    with pytest.raises(DragomanError) as raised:
        two.read(1)
    assert status_of(raised.value) == 503


def test_reader_waits_for_no_memory(two: Two) -> None:
    two.write(0, b"x")
    budget = MemoryBudget(MIB)
    service = RecordService(two.pair.one.broker, budget)
    with pytest.raises(Overloaded):
        ask(two.pair, read(service, bytes_max=MIB))
    assert ask(two.pair, read(service, bytes_max=1000)).items
    assert budget.used == 0


def test_aborted_records_are_not_shown(two: Two) -> None:
    world = two.pair.one
    replica = world.broker.partitions.find("t", 0)
    batch = build_batch(
        [Record(value=b"never")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    world.append(replica, batch)
    assert two.read().items == ()
    world.end_transaction(replica, 7, commit=False)
    two.write(0, b"after")
    page = two.read()
    assert (texts(page), page.next) == (["after"], None)


def test_large_compressed_batch_is_read_in_bounded_memory() -> None:
    """A batch of some kilobytes that expands to nearly 32 MiB."""
    world = World()
    (replica,) = world.create("t", config={"max.message.bytes": str(40 * MIB)})
    records = [Record(value=bytes(MIB - 100), offset=number) for number in range(31)]
    world.append(replica, build_batch(records, codec=Codec.ZSTD))
    service = Services(world).records
    del records
    tracemalloc.start()
    try:
        offset: int | None = 0
        count = 0
        while offset is not None:
            page = ask(world, read(service, offset=offset, bytes_max=4 * MIB, value_bytes=100))
            count += len(page.items)
            offset = page.next
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 31
    # The expanded batch once in the cache, once as records, and a page.
    assert peak < 3 * 32 * MIB


# ---- payloads


@given(st.binary(max_size=60), st.sampled_from(["text", "json", "base64"]), st.integers(0, 70))
def test_payload_has_the_bytes_or_their_beginning(
    data: bytes, form: ValueForm, bytes_max: int
) -> None:
    payload = payload_of(data, form, bytes_max)
    assert payload is not None
    assert (payload.size, payload.is_cut) == (len(data), len(data) > bytes_max)
    shown = json.loads(msgspec.json.encode(payload))["data"]
    wanted = data[:bytes_max]
    if payload.encoding == "base64":
        assert b64decode(shown) == wanted
    elif payload.encoding == "json":
        assert not payload.is_cut
        assert shown == json.loads(data)
    else:
        text = shown.encode()
        # A cut does not split a character.
        assert wanted.startswith(text)
        assert len(wanted) - len(text) < 4


@given(st.text(max_size=40))
def test_text_is_shown_as_text(text: str) -> None:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    payload = payload_of(data, "text", 1000)
    assert payload is not None
    assert payload.encoding == "text"
    assert json.loads(bytes(payload.data)) == text


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_json_is_shown_as_json_when_it_is_wanted(value: Any) -> None:
    try:
        data = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    payload = payload_of(data, "json", 100_000)
    assert payload is not None
    assert payload.encoding == "json" or abs(value) >= 1 << 63
    assert json.loads(msgspec.json.encode(payload))["data"] == (
        value if payload.encoding == "json" else data.decode()
    )


# ---- writing


@pytest.mark.parametrize("node", [1, 2])
def test_records_are_written_on_any_node_and_offsets_come_in_order(two: Two, node: int) -> None:
    done = two.produce(
        NewRecord(value="a", partition=1),
        NewRecord(value="b", partition=0),
        NewRecord(value="c", partition=1),
        node=node,
    )
    assert [(each.partition, each.offset) for each in done.items] == [(1, 0), (0, 0), (1, 1)]
    assert (texts(two.read(0)), texts(two.read(1))) == (["b"], ["a", "c"])


def test_every_part_of_a_record_arrives(two: Two) -> None:
    binary = b64encode(b"\xff\x00").decode()
    two.produce(
        NewRecord(
            key=Encoded(base64=binary),
            value=Encoded(json=msgspec.Raw(b'{"a": [1]}')),
            headers=(NewHeader(name="h", value="text"), NewHeader(name="n")),
            timestamp=1234,
            partition=0,
        ),
        NewRecord(partition=0),
    )
    log = two.pair.one.broker.partitions.find("t", 0).log
    first, second = log.iterate(0, 2)
    assert (first.key, first.value, first.timestamp) == (b"\xff\x00", b'{"a": [1]}', 1234)
    assert first.headers == (("h", b"text"), ("n", None))
    assert (second.key, second.value) == (None, None)
    assert second.timestamp == two.pair.one.clock.wall_ms()


def test_keys_go_where_kafka_clients_send_them(two: Two) -> None:
    keys = [f"key-{number}" for number in range(20)]
    done = two.produce(*(NewRecord(key=key) for key in keys))
    assert [each.partition for each in done.items] == [
        partition_for_key(key.encode(), 2) for key in keys
    ]
    without = two.produce(*[NewRecord(value="x")] * 10)
    assert len({each.partition for each in without.items}) == 1


@pytest.mark.parametrize(
    ("records", "name", "error"),
    [
        ((NewRecord(partition=2),), "t", UnknownTopic),
        ((NewRecord(),), "nope", ApiError),
        ((NewRecord(),), "__consumer_offsets", InvalidTopicName),
        ((NewRecord(value=Encoded()),), "t", ApiError),
        ((NewRecord(value=Encoded(base64="!")),), "t", ApiError),
        ((NewRecord(value=Encoded(base64="YQ==", json=msgspec.Raw(b"1"))),), "t", ApiError),
        ((NewRecord(headers=(NewHeader(name="h", value=Encoded(base64="a")),)),), "t", ApiError),
        # None of the request is written.
        ((NewRecord(partition=0), NewRecord(partition=9)), "t", UnknownTopic),
        ((NewRecord(partition=0, value="x" * (2 * MIB)),), "t", MessageTooLarge),
    ],
)
def test_bad_records_are_refused(
    two: Two, records: tuple[NewRecord, ...], name: str, error: type[DragomanError]
) -> None:
    two.pair.create_internal("__consumer_offsets")
    with pytest.raises(error) as raised:
        two.produce(*records, name=name)
    assert 400 <= status_of(raised.value) < 500
    assert two.read(0).end_offset == two.read(1).end_offset == 0


def test_what_was_written_is_told_apart_from_what_was_not(two: Two) -> None:
    big = "x" * (2 * MIB)
    done = two.produce(NewRecord(partition=0, value="a"), NewRecord(partition=1, value=big))
    assert [(each.partition, each.offset) for each in done.items] == [(0, 0), (1, None)]
    assert [bool(each.problem) for each in done.items] == [False, True]


@pytest.mark.parametrize(
    "body",
    [
        b'{"records": []}',
        b'{"records": [{"value": 1}]}',
        b'{"records": [{"partition": -1}]}',
        b'{"records": [{"timestamp": -1}]}',
        b'{"records": [{"value": {"text": "a"}}]}',
        b'{"records": [{"values": "a"}]}',
        b'{"records": [' + b",".join([b"{}"] * (limits.HTTP_RECORDS_MAX + 1)) + b"]}",
    ],
)
def test_impossible_records_do_not_reach_the_broker(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=NewRecords)


def test_record_of_many_headers_is_shown_with_the_first_ones() -> None:
    headers = tuple((f"h{number}", b"") for number in range(limits.HTTP_HEADERS_MAX + 5))
    shown = read_record(0, "text", MIB, Record(value=b"v", headers=headers))
    assert len(shown.headers) == limits.HTTP_HEADERS_MAX
    assert shown.header_count == len(headers)


@pytest.mark.parametrize("value", [b'{"a": [1, "\xc3\xa4"]}', b" 1 ", b"[" + b"[]," * 9 + b"1]"])
def test_json_is_shown_as_it_is(value: bytes) -> None:
    payload = payload_of(value, "json", MIB)
    assert payload is not None
    assert (payload.encoding, bytes(payload.data)) == ("json", value)


@pytest.mark.parametrize("value", [b'"\xff"', b"[1,]", b"NaN", b"1 2", b"[" * 100_000, b""])
def test_what_is_no_json_is_not_shown_as_json(value: bytes) -> None:
    payload = payload_of(value, "json", MIB)
    assert payload is not None
    assert payload.encoding != "json"


def test_json_of_many_values_is_checked_without_making_them() -> None:
    value = b"[" + b"[]," * 100_000 + b"1]"
    tracemalloc.start()
    try:
        payload_of(value, "json", MIB)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
