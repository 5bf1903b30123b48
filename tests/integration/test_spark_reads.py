"""Goal: a read returns every visible record once and no other, whichever way the bytes take.

Method: a real broker with small segments, read through the source's readers as Spark calls them,
with copies as executors get them, but without Spark: from the broker, from files, and from both.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, InputPartition, LessThan

from dragoman.client.kafka import BlockingKafkaClient, NewRecord, ResourceType, TopicPartition
from dragoman.errors import ConfigError, CorruptionError, DecodeError
from dragoman.log.pins import PINS, sweep_pins
from dragoman.operating_system import RealDisk
from dragoman.spark.logs import IncompleteError
from dragoman.spark.planner import DataLossError, RangePartition
from dragoman.testing import EphemeralBroker
from tables.source_readers import (
    batch_reader,
    make_topic,
    numbers_in,
    options_for,
    read,
    read_partitions,
    write,
)

MODES = ("broker", "auto", "segments")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EphemeralBroker]:
    """With a directory, retention that runs often, and no waiting."""
    # Nothing is deleted or compacted that the last one does not cover.
    monkeypatch.setattr("dragoman.log.store.CHECKPOINT_INTERVAL_S", 0.05)
    settings = {"log.retention.check.interval.ms": "20", "log.cleaner.backoff.ms": "20"}
    with EphemeralBroker(
        storage="directory", directory=str(tmp_path / "data"), settings=settings
    ) as broker:
        yield broker


def _offsets_in_files(planned: Sequence[InputPartition]) -> int:
    return sum(
        piece.end - piece.start
        for each in planned
        if isinstance(each, RangePartition)
        for piece in each.pieces
    )


# ---- what is read


def test_all_columns_have_the_names_and_values_of_the_kafka_source(node: EphemeralBroker) -> None:
    make_topic(node)
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        record = NewRecord(
            key=None, value=b"v", headers=(("h", b"1"), ("h", None)), timestamp=1_700_000_000_123
        )
        client.produce_records("orders", [record, NewRecord(value=b"w")])
    row, bare = read(options_for(node, includeHeaders="true"))
    assert bare["headers"] is None
    assert row == {
        "key": None,
        "value": b"v",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_reads_the_same_of_a_stopped_and_started_log(
    node: EphemeralBroker, mode: str
) -> None:
    make_topic(node, partitions=3)
    write(node, range(600), partitions=3)
    node.restart()
    reader = batch_reader(options_for(node, readMode=mode))
    planned = reader.partitions()
    # After a clean stop everything is stable, and the broker serves nothing of it.
    assert _offsets_in_files(planned) == (0 if mode == "broker" else 600)
    rows = read_partitions(reader, planned)
    assert sorted(numbers_in(rows)) == list(range(600))
    assert {row["partition"] for row in rows} == {0, 1, 2}
    for row in rows:
        assert row["partition"] == int(row["value"]) % 3
        assert row["offset"] == int(row["value"]) // 3


def test_auto_takes_files_for_the_stable_part_and_the_broker_for_the_rest(
    node: EphemeralBroker,
) -> None:
    make_topic(node)
    write(node, range(500))
    node.restart()
    write(node, range(500, 600))
    reader = batch_reader(options_for(node))
    (planned,) = reader.partitions()
    assert isinstance(planned, RangePartition)
    assert planned.pieces
    assert planned.pieces[0].start == 0
    assert planned.pieces[-1].end < planned.offsets.end == 600
    assert numbers_in(read_partitions(reader, [planned])) == list(range(600))


@pytest.mark.parametrize("mode", ["broker", "segments"])
def test_offsets_are_trimmed_inside_batches(node: EphemeralBroker, mode: str) -> None:
    make_topic(node)
    write(node, range(400), per_batch=50)
    node.restart()
    given = options_for(
        node,
        readMode=mode,
        startingOffsets=json.dumps({"orders": {"0": 33}}),
        endingOffsets=json.dumps({"orders": {"0": 377}}),
    )
    assert numbers_in(read(given)) == list(range(33, 377))


@pytest.mark.parametrize("mode", ["broker", "segments"])
def test_times_choose_the_first_record_at_or_after_them(node: EphemeralBroker, mode: str) -> None:
    make_topic(node)
    write(node, range(400), per_batch=50)
    node.restart()
    given = options_for(
        node, readMode=mode, startingTimestamp="1700000000123", endingTimestamp="1700000000321"
    )
    assert numbers_in(read(given)) == list(range(123, 321))
    late = options_for(node, readMode=mode, startingTimestamp="1800000000000")
    with pytest.raises(ConfigError, match="orders-0: no record is at or after"):
        read(late)
    assert read({**late, "startingOffsetsByTimestampStrategy": "latest"}) == []


@pytest.mark.parametrize("mode", MODES)
def test_ranges_are_split_without_loss_or_repetition(node: EphemeralBroker, mode: str) -> None:
    make_topic(node, partitions=2)
    write(node, range(400), partitions=2)
    node.restart()
    for given, count in (({"maxRecordsPerPartition": "33"}, 14), ({"minPartitions": "9"}, 10)):
        reader = batch_reader(options_for(node, readMode=mode, **given))
        planned = reader.partitions()
        assert len(planned) == count
        assert sorted(numbers_in(read_partitions(reader, planned))) == list(range(400))


def test_topics_are_chosen_by_name_pattern_and_partition(node: EphemeralBroker) -> None:
    for name in ("orders", "orders.eu", "other"):
        make_topic(node, name, partitions=2)
        write(node, range(10), name, partitions=2)
    pattern = read(options_for(node, subscribePattern="orders.*"))
    assert {row["topic"] for row in pattern} == {"orders", "orders.eu"}
    part = read(options_for(node, subscribePattern="ders"))
    assert {row["topic"] for row in part} == {"orders", "orders.eu"}
    whole = read(options_for(node, subscribePattern="^orders$"))
    assert {row["topic"] for row in whole} == {"orders"}
    assigned = read(options_for(node, assign='{"other": [1]}'))
    assert {(row["topic"], row["partition"]) for row in assigned} == {("other", 1)}
    with pytest.raises(ConfigError, match="there is no topic 'missing'"):
        read(options_for(node, subscribe="orders,missing"))
    with pytest.raises(ConfigError, match="'other' has no partition 7"):
        read(options_for(node, assign='{"other": [7]}'))


def test_columns_are_those_asked_for(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(3))
    assert read(options_for(node), ("offset", "value"))[2] == {"offset": 2, "value": b"2"}


def test_pushed_filters_leave_partitions_and_offsets_out(node: EphemeralBroker) -> None:
    make_topic(node, partitions=4)
    write(node, range(400), partitions=4)
    node.restart()
    filters = [
        In(("partition",), [1, 2]),  # type: ignore[arg-type]
        GreaterThanOrEqual(("offset",), 90),
        LessThan(("offset",), 95),
        EqualTo(("topic",), "orders"),
    ]
    rows = read(options_for(node), filters=filters)
    assert {(row["partition"], row["offset"]) for row in rows} == {
        (partition, offset) for partition in (1, 2) for offset in range(90, 95)
    }
    since = GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(1_700_000_000.2, UTC))
    assert sorted(numbers_in(read(options_for(node), filters=[since]))) == list(range(200, 400))


def test_offsets_are_given_for_all_partitions_when_filters_leave_some_out(
    node: EphemeralBroker,
) -> None:
    make_topic(node, partitions=2)
    write(node, range(20), partitions=2)
    given = options_for(node, startingOffsets='{"orders": {"0": 4, "1": 8}}')
    rows = read(given, filters=[EqualTo(("partition",), 1)])
    assert [(row["partition"], row["offset"]) for row in rows] == [(1, 8), (1, 9)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "starts at latest would be empty"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "orders-0 at -1 .latest. would be empty"),
        ({"endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "cannot end at -2 .earliest."),
        ({"startingOffsets": '{"orders": {"0": 11}}'}, "the start 11 is past the end 10"),
        (
            {"startingOffsets": '{"orders": {"0": 11}}', "failOnDataLoss": "false"},
            "the start 11 is past the end 10",
        ),
        (
            {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"0": 4}}'},
            "the start 5 is past the end 4",
        ),
    ],
)
def test_batches_that_could_have_no_record_are_refused(
    node: EphemeralBroker, options: dict[str, str], message: str
) -> None:
    make_topic(node)
    write(node, range(10))
    with pytest.raises(ConfigError, match=message):
        read(options_for(node, **options))


def test_times_by_partition_beat_a_start_at_latest(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(10))
    times = json.dumps({"orders": {"0": 1_700_000_000_007}})
    given = options_for(node, startingOffsets="latest", startingOffsetsByTimestamp=times)
    assert numbers_in(read(given)) == [7, 8, 9]
    assert numbers_in(read(options_for(node, startingTimestamp="0"))) == list(range(10))


# ---- transactions and compaction


def _transactions(node: EphemeralBroker) -> tuple[list[int], list[int]]:
    """Numbers that were committed, and all numbers, in the order of their offsets."""
    producer = Producer(
        {"bootstrap.servers": node.bootstrap_servers, "transactional.id": "t", "linger.ms": 0}
    )
    producer.init_transactions(30)
    committed, every = [], []
    for round_ in range(20):
        producer.begin_transaction()
        numbers = range(round_ * 20, round_ * 20 + 20)
        for number in numbers:
            producer.produce("orders", value=b"%d" % number, partition=0)
        producer.flush(30)
        every += numbers
        if round_ % 3:
            committed += numbers
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    return committed, every


@pytest.mark.parametrize("mode", MODES)
def test_aborted_transactions_and_markers_are_left_out(node: EphemeralBroker, mode: str) -> None:
    make_topic(node)
    committed, every = _transactions(node)
    node.restart()
    reader = batch_reader(options_for(node, readMode=mode))
    planned = reader.partitions()
    assert numbers_in(read_partitions(reader, planned)) == committed
    assert bool(_offsets_in_files(planned)) is (mode != "broker")
    split = options_for(node, readMode=mode, maxRecordsPerPartition="7")
    assert numbers_in(read(split)) == committed
    all_of_it = options_for(node, readMode=mode, kafka_isolation_level="read_uncommitted")
    assert numbers_in(read(all_of_it)) == every


def test_open_transaction_ends_a_read_of_committed_records(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(200))
    producer = Producer({"bootstrap.servers": node.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(200, 500):
        producer.produce("orders", value=b"%d" % number, partition=0)
    producer.flush(30)
    assert numbers_in(read(options_for(node))) == list(range(200))
    uncommitted = options_for(node, kafka_isolation_level="read_uncommitted")
    assert numbers_in(read(uncommitted)) == list(range(500))
    producer.abort_transaction(30)
    assert numbers_in(read(options_for(node))) == list(range(200))


@pytest.mark.parametrize("mode", MODES)
def test_gaps_of_compaction_are_no_loss(node: EphemeralBroker, mode: str) -> None:
    make_topic(
        node, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_bytes="2000"
    )
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        for number in range(300):
            record = NewRecord(key=b"%d" % (number % 5), value=b"%d" % number, partition=0)
            client.produce_records("orders", [record])
        where = TopicPartition("orders", 0)
        while client.log_directories()[0].sizes[where] > 3000:
            pass
    node.restart()
    found = numbers_in(read(options_for(node, readMode=mode)))
    assert found == sorted(found)
    assert len(found) < 300
    assert set(range(295, 300)) <= set(found)
    assert found == numbers_in(read(options_for(node, readMode="broker")))
    middle = options_for(
        node,
        readMode=mode,
        startingOffsets='{"orders": {"0": 10}}',
        endingOffsets='{"orders": {"0": 20}}',
    )
    assert numbers_in(read(middle)) == [number for number in found if 10 <= number < 20]


# ---- files come and go


def test_retention_during_a_scan_loses_nothing(node: EphemeralBroker) -> None:
    make_topic(node, retention_ms="-1")
    write(node, range(600))
    node.restart()
    reader = batch_reader(options_for(node))
    planned = reader.partitions()
    _drop_all(node, 600)
    assert numbers_in(read_partitions(reader, planned)) == list(range(600))


def test_compaction_during_a_scan_loses_nothing(node: EphemeralBroker) -> None:
    make_topic(node, cleanup_policy="compact", min_compaction_lag_ms="86400000")
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        records = [NewRecord(key=b"k", value=b"%d" % number) for number in range(600)]
        for start in range(0, 600, 20):
            client.produce_records("orders", records[start : start + 20])
        node.restart()
        old = min(Path(node.data_directory).glob("partitions/*-orders-0/*.log"))
        reader = batch_reader(options_for(node))
        planned = reader.partitions()
        changes = {"min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.01"}
        client.alter_configs(ResourceType.TOPIC, "orders", changes)
        while old.exists():
            pass
    assert numbers_in(read_partitions(reader, planned)) == list(range(600))
    assert len(read(options_for(node))) < 600


def _drop_all(node: EphemeralBroker, end: int) -> None:
    """Have the broker delete every record, and wait until the files are gone."""
    where = TopicPartition("orders", 0)
    (partition,) = Path(node.data_directory).glob("partitions/*-orders-0")
    old = sorted(partition.glob("*.log"))[:-1]
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.delete_records({where: end})
    while any(path.exists() for path in old):
        pass


def test_without_pins_deleted_records_are_reported_as_data_loss(
    node: EphemeralBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(node)
    write(node, range(600))
    node.restart()
    reader = batch_reader(options_for(node))
    monkeypatch.setattr(os, "link", _refuse_link)
    planned = reader.partitions()
    tolerant = batch_reader(options_for(node, failOnDataLoss="false"))
    _drop_all(node, 600)
    sweep_pins(RealDisk(node.data_directory), 1 << 62)
    write(node, range(600, 650))
    while os.path.exists(planned[0].pieces[0].log_path):  # type: ignore[attr-defined]
        pass
    with pytest.raises(DataLossError, match=r"orders-0: offsets 0 to .* were deleted"):
        read_partitions(reader, planned)
    # The last file has been written to since the start and is still there.
    found = numbers_in(read_partitions(tolerant, planned))
    assert found == list(range(600 - len(found), 600))
    assert len(found) < 600


def _refuse_link(*_: object) -> None:
    raise PermissionError("no links here")


def test_leases_are_swept_when_their_time_is_up(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(600))
    node.restart()
    (planned,) = batch_reader(options_for(node, pinSeconds="60")).partitions()
    assert isinstance(planned, RangePartition)
    assert planned.lease is not None
    pins = Path(node.data_directory, PINS)
    expires = int((pins / planned.lease.name / "expires").read_text())
    disk = RealDisk(node.data_directory)
    assert sweep_pins(disk, expires - 1) == 0
    assert sweep_pins(disk, expires) == 1
    assert list(pins.iterdir()) == []


def test_maintenance_of_the_node_sweeps_leases(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(600))
    node.restart()
    batch_reader(options_for(node, pinSeconds="1")).partitions()
    pins = Path(node.data_directory, PINS)
    while list(pins.iterdir()):
        pass


def test_start_before_the_log_is_reported_as_data_loss(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(600))
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.delete_records({TopicPartition("orders", 0): 100})
    given = options_for(node, startingOffsets='{"orders": {"0": 50}}')
    with pytest.raises(DataLossError, match="offsets 50 to 99 were deleted; the log starts at 100"):
        read(given)
    assert numbers_in(read({**given, "failOnDataLoss": "false"})) == list(range(100, 600))


def test_files_that_an_executor_cannot_open_are_asked_of_the_broker(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(600))
    node.restart()
    reader = batch_reader(options_for(node))
    planned = reader.partitions()
    shutil.rmtree(Path(node.data_directory, PINS))
    assert _offsets_in_files(planned) == 600
    assert numbers_in(read_partitions(reader, planned)) == list(range(600))


def test_manifest_that_is_damaged_leaves_its_partition_to_the_broker(
    node: EphemeralBroker, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(node, partitions=2)
    write(node, range(600), partitions=2)
    copy = f"{node.data_directory}-copy"
    # Not while it runs: files that it replaces vanish from under the copying.
    node.stop()
    shutil.copytree(node.data_directory, copy)
    node.start()
    (manifest,) = Path(copy).glob("partitions/*-orders-1/manifest.json")
    manifest.write_bytes(manifest.read_bytes()[:-9] + b"00000000\n")
    assert sorted(numbers_in(read(options_for(node, path=copy)))) == list(range(600))
    assert "orders-1 is read from the broker only" in caplog.text
    with pytest.raises(CorruptionError, match="manifest fails its checksum"):
        read(options_for(path=copy))


# ---- directories alone


def test_directory_of_a_stopped_broker_needs_no_broker(node: EphemeralBroker) -> None:
    make_topic(node, partitions=2)
    write(node, range(500), partitions=2)
    directory = node.data_directory
    node.stop()
    rows = read(options_for(path=directory, onIncomplete="fail"))
    assert sorted(numbers_in(rows)) == list(range(500))
    node.start()
    with pytest.raises(IncompleteError, match="in use or was not stopped cleanly"):
        read(options_for(path=directory, onIncomplete="fail"))


def test_index_that_is_missing_is_made_good_by_the_checksum(node: EphemeralBroker) -> None:
    make_topic(node)
    write(node, range(500))
    directory = node.data_directory
    node.stop()
    for index in Path(directory).glob("partitions/*/*.idx"):
        index.unlink()
    assert numbers_in(read(options_for(path=directory))) == list(range(500))
    node.start()


@pytest.mark.parametrize("position", [3, 9, 100])
@pytest.mark.parametrize("has_index", [True, False])
def test_damage_is_never_returned(node: EphemeralBroker, position: int, has_index: bool) -> None:
    """Byte 3 is of the base offset, 9 of the length, 100 of the records."""
    make_topic(node)
    write(node, range(500))
    directory = node.data_directory
    node.stop()
    copy = f"{directory}-copy"
    shutil.copytree(directory, copy)
    node.start()
    (partition,) = Path(copy).glob("partitions/*-orders-0")
    segment = sorted(partition.glob("*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[position] ^= 1
    segment.write_bytes(data)
    if not has_index:
        for index in partition.glob("*.idx"):
            index.unlink()
    with pytest.raises((CorruptionError, DecodeError)):
        read(options_for(path=copy))


def test_another_topic_of_the_same_name_is_not_read_from_its_old_files(
    node: EphemeralBroker,
) -> None:
    make_topic(node)
    write(node, range(500))
    copy = f"{node.data_directory}-copy"
    # Not while it runs: files that it replaces vanish from under the copying.
    node.stop()
    shutil.copytree(node.data_directory, copy)
    node.start()
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.delete_topic("orders")
    make_topic(node)
    write(node, range(1000, 1300))
    assert numbers_in(read(options_for(node, path=copy))) == list(range(1000, 1300))


def test_path_that_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not the data directory of a broker"):
        read(options_for(path=str(tmp_path)))
