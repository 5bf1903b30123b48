"""Goal: what the sink's tasks stage and its driver publishes is in the topics once, and no more.

Method: a real broker, and the writers used as Spark uses them (copies by pickle, a new object per
call), but without Spark; with it, see tests/integration/spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TypeVar

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from dragoman.client.kafka import (
    BlockingKafkaClient,
    ConsumedRecord,
    Isolation,
    KafkaError,
    NewTopic,
    TopicPartition,
    UnknownTopicError,
    partition_for_key,
)
from dragoman.errors import EncodeError
from dragoman.spark import writer
from dragoman.testing import EphemeralBroker

Copied = TypeVar("Copied")
HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
        StructField("partition", IntegerType()),
    ]
)
ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("partition", pa.int32()),
    ]
)


@pytest.fixture
def client(broker: EphemeralBroker) -> Iterator[BlockingKafkaClient]:
    with BlockingKafkaClient(broker.bootstrap_servers) as opened:
        opened.create_topic(NewTopic(name="t", partitions=3))
        yield opened


@pytest.fixture(autouse=True)
def _no_shared_client() -> Iterator[None]:
    yield
    if writer._Shared.client is not None:
        writer._Shared.client.close()
    writer._Shared.client = writer._Shared.options = None


def copied(value: Copied) -> Copied:
    """As it reaches another process."""
    result: Copied = pickle.loads(pickle.dumps(value))
    return result


def rows(*values: bytes, key: bytes | None = None, partition: int | None = None) -> pa.RecordBatch:
    made = [
        {
            "key": key,
            "value": value,
            "headers": [{"key": "h", "value": value}],
            "partition": partition,
        }
        for value in values
    ]
    return pa.RecordBatch.from_pylist(made, ARROW)


class Query:
    """A streaming query as the sink sees it."""

    def __init__(self, broker: EphemeralBroker, query_id: str, **options: str) -> None:
        self._query_id = query_id
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", **options}
        self._writer = writer.DragomanStreamWriter(given, SCHEMA)

    def stage(self, *batches: pa.RecordBatch) -> writer.StagedMessage:
        task = copied(self._writer)
        options = task._options
        writer_id = options.writer_id or self._query_id
        return copied(writer._stage(iter(batches), options, writer_id, self._query_id))

    def commit(self, batch_id: int, *messages: writer.StagedMessage) -> None:
        copied(self._writer).commit(list(messages), batch_id)


def read(client: BlockingKafkaClient, topic: str = "t") -> list[ConsumedRecord]:
    """All that a reader of uncommitted records can see."""
    partitions = client.topic(topic).all_partitions()
    ends = {
        where: at.offset for where, at in client.list_offsets(dict.fromkeys(partitions, -1)).items()
    }
    found: list[ConsumedRecord] = []
    with client.reader(
        dict.fromkeys(partitions, 0), until=ends, isolation=Isolation.READ_UNCOMMITTED
    ) as reader:
        while records := reader.next_records():
            found += records
    return found


def values(client: BlockingKafkaClient, topic: str = "t") -> list[bytes | None]:
    return sorted(record.value or b"" for record in read(client, topic))


def test_rows_appear_when_the_driver_commits(broker: EphemeralBroker, client: BlockingKafkaClient):
    query = Query(broker, "q")
    first = query.stage(rows(b"a", b"b", key=b"k"), rows(b"c", partition=2))
    query.stage(rows(b"loser"))
    second = query.stage(rows(b"d", key=b"k"))
    empty = query.stage()
    assert values(client) == []
    query.commit(0, first, empty, second)
    found = read(client)
    assert sorted(record.value for record in found) == [b"a", b"b", b"c", b"d"]
    home = partition_for_key(b"k", 3)
    assert [record.value for record in found if record.key] == [b"a", b"b", b"d"]
    assert {record.partition for record in found if record.key} == {home}
    assert [record.partition for record in found if record.value == b"c"] == [2]
    assert all(record.headers == (("h", record.value),) for record in found)


def test_a_batch_that_comes_again_is_not_written_again(
    broker: EphemeralBroker, client: BlockingKafkaClient
):
    query = Query(broker, "q")
    query.commit(0, query.stage(rows(b"a")))
    query.commit(0, query.stage(rows(b"a")))
    query.commit(1)
    query.commit(2, query.stage(rows(b"b")))
    assert values(client) == [b"a", b"b"]


def test_a_new_checkpoint_under_an_old_name_is_refused(
    broker: EphemeralBroker, client: BlockingKafkaClient
):
    first = Query(broker, "q1", txnAppId="daily")
    first.commit(7, first.stage(rows(b"a")))
    second = Query(broker, "q2", txnAppId="daily")
    with pytest.raises(KafkaError, match="'daily' belongs to query q1, not to q2"):
        second.commit(0, second.stage(rows(b"b")))
    assert values(client) == [b"a"]


def test_a_batch_job_that_is_run_twice_writes_twice(
    broker: EphemeralBroker, client: BlockingKafkaClient
):
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"}
    for _ in range(2):
        job = writer.DragomanWriter(given, SCHEMA)
        messages = [copied(job).write(iter([rows(b"a")])) for _ in range(2)]
        copied(job).abort([*messages, None])
        assert len(values(client)) in (0, 1)
        copied(job).commit(messages[:1])
    assert values(client) == [b"a", b"a"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_rows_in_small_batches(
    broker: EphemeralBroker, client: BlockingKafkaClient, codec: str
):
    options = {"kafka.batch.size": "4096", "kafka.compression.type": codec}
    query = Query(broker, "q", **options)
    expected = [b"%06d" % number for number in range(20_000)]
    batches = [rows(*expected[start : start + 3000]) for start in range(0, len(expected), 3000)]
    message = query.stage(*batches)
    query.commit(0, message)
    assert values(client) == expected
    assert len({record.partition for record in read(client)}) == 3, "full batches move on"
    pieces = [piece for found in message.staged.pieces.values() for piece in found]
    assert sum(piece.record_count for piece in pieces) == len(expected)


def test_a_topic_is_created_by_the_rule_of_the_broker(broker: EphemeralBroker):
    query = Query(broker, "q", topic="fresh")
    query.commit(0, query.stage(rows(b"a")))
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        assert values(client, "fresh") == [b"a"]


def test_without_that_rule_the_topic_is_missed_in_words():
    with EphemeralBroker(settings={"auto.create.topics.enable": "false"}) as broker:
        query = Query(broker, "q", topic="missing")
        with pytest.raises(UnknownTopicError, match="missing"):
            query.stage(rows(b"a"))


def test_errors_of_rows_reach_the_user(broker: EphemeralBroker, client: BlockingKafkaClient):
    with pytest.raises(EncodeError, match="has 3 partitions, a row names partition 3"):
        Query(broker, "q").stage(rows(b"a", partition=3))


def test_the_order_of_tasks_is_kept(broker: EphemeralBroker, client: BlockingKafkaClient):
    query = Query(broker, "q")
    messages = [query.stage(rows(b"%d" % number, partition=0)) for number in range(6)]
    query.commit(0, *reversed(messages))
    assert [record.value for record in read(client)] == [b"5", b"4", b"3", b"2", b"1", b"0"]


def test_an_option_that_changes_gets_a_connection_of_its_own(
    broker: EphemeralBroker, client: BlockingKafkaClient
):
    query = Query(broker, "q")
    query.commit(0, query.stage(rows(b"a")))
    before = writer._Shared.client
    query.commit(1, query.stage(rows(b"b")))
    assert writer._Shared.client is before
    other = Query(broker, "other", topic="t2")
    other.commit(0, other.stage(rows(b"c")))
    assert writer._Shared.client is not before
    assert TopicPartition("t2", 0) in client.topic("t2").all_partitions()
