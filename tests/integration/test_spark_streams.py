"""Goal: a stream sees every record once, whatever happens to the topic between micro-batches.

Method: as in `test_spark_reads.py`; micro-batches are stepped by hand, so that what happens between
two of them is known. A restart is a new reader that begins at the last position.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from dragoman.client.kafka import BlockingKafkaClient, TopicPartition
from dragoman.log.pins import PINS
from dragoman.spark.planner import DataLossError
from dragoman.testing import EphemeralBroker
from tables.source_readers import Stream, make_topic, numbers_in, options_for, write


@pytest.fixture
def node(tmp_path: Path) -> Iterator[EphemeralBroker]:
    with EphemeralBroker(storage="directory", directory=str(tmp_path / "data")) as broker:
        yield broker


def _remake(node: EphemeralBroker, name: str = "orders") -> None:
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.delete_topic(name)
    make_topic(node, name)


# ---- progress


def test_micro_batches_follow_the_topic(node: EphemeralBroker) -> None:
    make_topic(node, partitions=2)
    write(node, range(100), partitions=2)
    with Stream(options_for(node, startingOffsets="earliest")) as stream:
        assert sorted(numbers_in(stream.step())) == list(range(100))
        assert stream.step() == []
        write(node, range(100, 150), partitions=2)
        assert sorted(numbers_in(stream.step())) == list(range(100, 150))


def test_stream_starts_at_the_end_by_default(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(10))
    with Stream(options_for(node)) as stream:
        assert stream.step() == []
        write(node, range(10, 20))
        assert numbers_in(stream.step()) == list(range(10, 20))


def test_restart_goes_on_where_the_checkpoint_is(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(300))
    seen: list[int] = []
    at = None
    given = options_for(node, startingOffsets="earliest", maxOffsetsPerTrigger="70")
    for _ in range(6):
        with Stream(given, json.loads(json.dumps(at)) if at else None) as stream:
            seen += numbers_in(stream.step())
            at = stream.at
        node.restart()
    assert seen == list(range(300))


def test_replayed_micro_batch_is_the_same(node: EphemeralBroker) -> None:
    make_topic(node, partitions=2)
    write(node, range(200), partitions=2)
    with Stream(options_for(node, startingOffsets="earliest")) as stream:
        start = stream.at
        first = stream.step()
        write(node, range(200, 300), partitions=2)
        again = [
            row
            for partition in stream.reader.partitions(start, stream.at)
            for batch in stream.reader.read(partition)
            for row in batch.to_pylist()
        ]
    assert again == first


def test_position_has_the_layout_of_the_kafka_source_and_topic_ids(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(7))
    with Stream(options_for(node, startingOffsets="earliest")) as stream:
        stream.step()
        assert stream.at["orders"] == {"0": 7}
        (topic_id,) = stream.at["$topicIds"].values()
        assert len(bytes.fromhex(topic_id)) == 16
        write(node, range(7, 9))
        assert stream.reader.reportLatestOffset()["orders"] == {"0": 9}


def test_available_now_ends_at_what_was_there_when_it_began(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(100))
    given = options_for(node, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    with Stream(given) as stream:
        stream.reader.prepareForTriggerAvailableNow()
        seen: list[int] = []
        while rows := stream.step():
            assert len(rows) <= 30
            seen += numbers_in(rows)
            write(node, range(100, 120))
        assert seen == list(range(100))


# ---- admission


def test_limits_of_records_are_shared_in_proportion(node: EphemeralBroker) -> None:
    make_topic(node, partitions=2)
    write(node, [number * 2 for number in range(300)], partitions=2)
    write(node, [number * 2 + 1 for number in range(30)], partitions=2)
    given = options_for(node, startingOffsets="earliest", maxOffsetsPerTrigger="110")
    with Stream(given) as stream:
        rows = stream.step()
        by_partition = [sum(row["partition"] == each for row in rows) for each in (0, 1)]
        assert by_partition == [100, 10]


def test_all_available_is_honoured_in_spite_of_limits(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(100))
    given = options_for(node, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    with Stream(given) as stream:
        assert stream.reader.getDefaultReadLimit() == ReadMaxRows(10)
        end = stream.reader.latestOffset(stream.at, ReadAllAvailable())
        assert end["orders"] == {"0": 100}


def test_too_few_records_wait_until_there_are_enough(node: EphemeralBroker) -> None:
    make_topic(node)
    given = options_for(node, startingOffsets="earliest", minOffsetsPerTrigger="50")
    with Stream(given) as stream:
        write(node, range(40))
        assert stream.step() == []
        write(node, range(40, 60))
        assert numbers_in(stream.step()) == list(range(60))
    with Stream({**given, "maxTriggerDelay": "0s"}) as impatient:
        write(node, range(60, 61))
        assert numbers_in(impatient.step()) == list(range(61))


@pytest.mark.parametrize("mode", ["broker", "auto"])
def test_limit_of_bytes_holds_and_lets_everything_through(node: EphemeralBroker, mode: str) -> None:
    make_topic(node, index_interval_bytes="256")
    write(node, range(1000))
    node.restart()
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        size = client.log_directories()[0].sizes[TopicPartition("orders", 0)]
    bound = size // 5
    given = options_for(
        node, startingOffsets="earliest", maxBytesPerTrigger=str(bound), readMode=mode
    )
    with Stream(given) as stream:
        steps = []
        while rows := stream.step():
            steps.append(numbers_in(rows))
    assert [number for step in steps for number in step] == list(range(1000))
    assert 5 <= len(steps) <= 9
    assert max(map(len, steps)) <= 210


# ---- topics change


def test_partitions_that_are_added_are_read_from_their_beginning(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(10))
    with Stream(options_for(node)) as stream:
        with BlockingKafkaClient(node.bootstrap_servers) as client:
            client.create_partitions("orders", 3)
        write(node, range(30, 60), partitions=3)
        rows = stream.step()
    assert sorted(numbers_in(rows)) == list(range(30, 60))


def test_topics_that_a_pattern_matches_later_are_read(node: EphemeralBroker) -> None:
    make_topic(node, "orders.a")
    with Stream(options_for(node, subscribePattern=r"orders\..*")) as stream:
        make_topic(node, "orders.b")
        write(node, range(5), "orders.b")
        assert {row["topic"] for row in stream.step()} == {"orders.b"}
        assert stream.at["$topicIds"].keys() == {"orders.a", "orders.b"}


@pytest.mark.parametrize("loss", ["true", "false"])
def test_topic_made_anew_is_refused_with_both_ids(node: EphemeralBroker, loss: str) -> None:
    make_topic(node)
    write(node, range(10))
    given = options_for(node, startingOffsets="earliest", failOnDataLoss=loss)
    with Stream(given) as stream:
        stream.step()
        at = stream.at
    _remake(node)
    write(node, range(100))
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        new_id = client.topic("orders").topic_id.hex()
    with Stream(given, at) as stream, pytest.raises(DataLossError) as refused:
        stream.step()
    assert at["$topicIds"]["orders"] in str(refused.value)
    assert new_id in str(refused.value)


def test_topic_made_anew_between_plan_and_read_is_refused(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(10))
    with Stream(options_for(node, startingOffsets="earliest", readMode="broker")) as stream:
        end = stream.reader.latestOffset(stream.at, ReadAllAvailable())
        (planned,) = stream.reader.partitions(stream.at, end)
        _remake(node)
        write(node, range(100))
        with pytest.raises(DataLossError, match="was deleted and created again"):
            list(stream.reader.read(planned))


def test_records_deleted_before_they_were_read_are_a_loss(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(100))
    given = options_for(node, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    with Stream(given) as stream:
        stream.step()
        at = stream.at
        with BlockingKafkaClient(node.bootstrap_servers) as client:
            client.delete_records({TopicPartition("orders", 0): 50})
        with pytest.raises(DataLossError, match="offsets 10 to 49 were deleted"):
            stream.step()
    with Stream({**given, "failOnDataLoss": "false", "maxOffsetsPerTrigger": "60"}, at) as stream:
        assert numbers_in(stream.step()) == list(range(50, 70))


def test_start_past_the_end_of_the_log_is_reported_as_data_loss(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(10))
    given = options_for(node, startingOffsets='{"orders": {"0": 15}}')
    with (
        Stream(given) as stream,
        pytest.raises(DataLossError, match="the stream is at offset 15, the log ends at 10"),
    ):
        stream.step()
    with Stream({**given, "failOnDataLoss": "false"}) as stream:
        assert stream.step() == []
        write(node, range(10, 20))
        # What is written below the start that was asked for is not passed over.
        assert numbers_in(stream.step()) == list(range(10, 20))


# ---- files and progress


def test_leases_are_released_when_a_batch_is_done(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(500))
    node.restart()
    pins = Path(node.data_directory, PINS)
    given = options_for(node, startingOffsets="earliest", maxOffsetsPerTrigger="200")
    with Stream(given) as stream:
        end = stream.reader.latestOffset(stream.at, stream.reader.getDefaultReadLimit())
        stream.reader.partitions(stream.at, end)
        assert len(list(pins.iterdir())) == 1
        stream.reader.commit(end)
        assert list(pins.iterdir()) == []
        stream.reader.partitions(stream.at, end)
    assert list(pins.iterdir()) == []


def test_progress_is_committed_to_a_group_when_one_is_named(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(30))
    where = TopicPartition("orders", 0)
    with Stream(options_for(node, startingOffsets="earliest", kafka_group_id="g")) as stream:
        stream.step()
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        assert client.committed_offsets("g")[where].offset == 30
