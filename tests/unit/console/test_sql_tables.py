"""Goal: a query reads the records that it says, and counts what it leaves out.

Method: the reader of tables over a real broker in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic
from dragoman.console.sql.tables import SCHEMA, Side, TopicTables, next_offset, shared
from dragoman.console.sql.values import TopicRead
from dragoman.testing import EphemeralBroker


@pytest.fixture(scope="module")
def client() -> Iterator[BlockingKafkaClient]:
    with (
        EphemeralBroker() as broker,
        BlockingKafkaClient(broker.bootstrap_servers) as client,
    ):
        client.create_topic(NewTopic(name="orders", partitions=2))
        client.create_topic(NewTopic(name="empty", partitions=2))
        client.create_topic(NewTopic(name="bytes", partitions=1))
        numbered = [
            NewRecord(key=b"k", value=str(each).encode(), partition=each % 2) for each in range(100)
        ]
        client.produce_records("orders", numbered)
        client.produce_records(
            "bytes", [NewRecord(value=b"\xff\x00a"), NewRecord(key=b"\xfe", value=None)]
        )
        yield client


def _load(
    client: BlockingKafkaClient,
    topics: Sequence[str],
    *,
    records: int = 1000,
    bytes_max: int = 1 << 20,
    side: Side = "newest",
) -> tuple[dict[str, pa.Table], dict[str, TopicRead]]:
    reader = TopicTables(
        client, records=records, bytes_max=bytes_max, side=side, report=lambda _: None
    )
    tables = reader.load(topics)
    return tables, {each.topic: each for each in reader.read}


def _values(table: pa.Table) -> list[int]:
    return sorted(int(each) for each in table.column("value").to_pylist())


def test_a_small_topic_is_read_whole(client: BlockingKafkaClient) -> None:
    tables, read = _load(client, ["orders"])
    assert _values(tables["orders"]) == list(range(100))
    assert (read["orders"].records, read["orders"].offsets) == (100, 100)
    assert not read["orders"].is_part


@pytest.mark.parametrize(("side", "first"), [("newest", 80), ("oldest", 0)])
def test_of_a_larger_one_each_partition_gives_its_share(
    client: BlockingKafkaClient, side: Side, first: int
) -> None:
    tables, read = _load(client, ["orders"], records=20, side=side)
    assert _values(tables["orders"]) == list(range(first, first + 20))
    assert read["orders"].is_part
    assert (read["orders"].records, read["orders"].offsets) == (20, 100)


def test_no_more_bytes_are_read_than_may_be(client: BlockingKafkaClient) -> None:
    tables, read = _load(client, ["orders"], bytes_max=1)
    # What one answer of the node has is kept, the rest is not asked for.
    assert 0 < tables["orders"].num_rows < 100
    assert read["orders"].is_part


def test_an_empty_topic_is_an_empty_table(client: BlockingKafkaClient) -> None:
    tables, read = _load(client, ["empty"])
    assert tables["empty"].schema == SCHEMA
    assert tables["empty"].num_rows == 0
    assert not read["empty"].is_part


def test_bytes_that_are_no_text_are_shown_as_such(client: BlockingKafkaClient) -> None:
    tables, _ = _load(client, ["bytes"])
    assert tables["bytes"].column("value").to_pylist() == ["\ufffd\0a", None]
    assert tables["bytes"].column("key").to_pylist() == [None, "\ufffd"]


@pytest.mark.parametrize(
    ("sizes", "total", "expected"),
    [
        ([], 10, []),
        ([5, 5], 100, [5, 5]),
        ([100, 100], 10, [5, 5]),
        ([1, 100], 10, [1, 9]),
        ([100, 1, 3], 10, [6, 1, 3]),
        ([7, 7, 7], 1, [0, 0, 1]),
    ],
)
def test_shares_are_equal_and_add_up(sizes: list[int], total: int, expected: list[int]) -> None:
    assert shared(sizes, total) == expected


def test_an_answer_without_a_whole_batch_has_no_next_offset() -> None:
    assert next_offset(memoryview(b"")) == -1
    assert next_offset(memoryview(bytes(20))) == -1
