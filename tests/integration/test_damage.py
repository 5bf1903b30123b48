"""Goal: damage on the disk of a node that is alone is seen by its readers and its operator.

Method: a broker in this process on a directory; a byte of a closed segment is changed while it is
down. Stock Kafka clients, the node's own client and the other protocols read over it; the operator
asks for status and health, then repairs the directory.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka
import kafka.errors
import pytest

from dragoman.api.values import ClusterStatus
from dragoman.cli.main import main
from dragoman.cli.remote import Remote
from dragoman.client.cursus import BlockingCursusClient
from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic, TopicPartition
from dragoman.client.minibroker import BlockingMinibrokerClient
from dragoman.client.mlog import BlockingMlogClient
from dragoman.errors import DragomanError
from dragoman.testing import EphemeralBroker

TOPIC = "t"
COUNT = 400
VALUES = [b"%06d" % n * 20 for n in range(COUNT)]
WHERE = TopicPartition(TOPIC, 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EphemeralBroker]:
    """One whose second segment has a wrong byte."""
    directory = tmp_path / "data"
    broker = EphemeralBroker(
        storage="directory",
        directory=str(directory),
        settings={"log.segment.bytes": "16384"},
        listeners=("kafka", "http", "mlog", "cursus", "minibroker"),
    )
    with broker:
        with BlockingKafkaClient(broker.bootstrap_servers) as client:
            client.create_topic(NewTopic(name=TOPIC, partitions=1))
            for start in range(0, COUNT, 10):
                records = [NewRecord(value=each, partition=0) for each in VALUES[start:][:10]]
                client.produce_records(TOPIC, records)
        broker.stop()
        flip(segments(directory)[1], 5000)
        broker.start()
        yield broker


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"partitions/*-{TOPIC}-0/*.log"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def own_read(broker: EphemeralBroker, offset: int, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with (
        BlockingKafkaClient(broker.bootstrap_servers) as client,
        client.reader({WHERE: offset}) as reader,
    ):
        while len(found) < count:
            found += [each.value for each in reader.next_records()]
    return found


def status(broker: EphemeralBroker) -> ClusterStatus:
    return Remote(broker.http_url).get("/api/v1/cluster", ClusterStatus)


def text(broker: EphemeralBroker, path: str) -> str:
    with urllib.request.urlopen(broker.http_url + path) as reply:
        return reply.read().decode()


def test_librdkafka_gets_an_error_and_reads_on_behind_it(broker: EphemeralBroker) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    error = None
    while error is None:
        message = consumer.poll(30)
        assert message is not None, "the consumer hangs"
        error = message.error()
        if error is None:
            found.append(message.value())
    assert error.name() == "INVALID_MSG"
    (lost,) = status(broker).damage
    assert found == VALUES[: lost.first_offset]
    consumer.seek(confluent_kafka.TopicPartition(TOPIC, 0, lost.next_offset))
    while len(found) < COUNT - (lost.next_offset - lost.first_offset):
        message = consumer.poll(30)
        assert message is not None
        # An error that was on its way when the position changed.
        if message.error() is None:
            found.append(message.value())
    assert found == VALUES[: lost.first_offset] + VALUES[lost.next_offset :]
    consumer.close()


def test_kafka_python_raises(broker: EphemeralBroker) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    where = kafka.TopicPartition(TOPIC, 0)
    consumer.assign([where])
    consumer.seek(where, 0)
    polls = (consumer.poll(timeout_ms=1000) for _ in range(100))
    with pytest.raises(kafka.errors.CorruptRecordError):
        sum(map(len, polls))
    consumer.close()


def test_our_client_names_what_helps(broker: EphemeralBroker) -> None:
    with pytest.raises(DragomanError, match="dragoman log repair"):
        own_read(broker, 0, COUNT)


def mlog_read(broker: EphemeralBroker) -> None:
    with BlockingMlogClient(broker.address("mlog")) as client:
        consumer = client.consume(TOPIC, offset=0)
        for _ in range(COUNT):
            consumer.next_entries()


def cursus_read(broker: EphemeralBroker) -> None:
    with BlockingCursusClient(broker.address("cursus")) as client:
        offset = 0
        while offset < COUNT:
            offset = client.consume(TOPIC, 0, offset)[-1].offset + 1


def minibroker_read(broker: EphemeralBroker) -> None:
    with BlockingMinibrokerClient(broker.address("minibroker")) as client:
        subscription = client.subscribe(TOPIC, 0, 0)
        for _ in range(COUNT):
            if subscription.next(30) is None:
                return


@pytest.mark.parametrize("read", [mlog_read, cursus_read, minibroker_read])
def test_readers_of_other_protocols_get_an_error(broker: EphemeralBroker, read) -> None:
    with pytest.raises(DragomanError, match="damage"):
        read(broker)


def test_status_health_and_metrics_show_it_also_after_a_start(broker: EphemeralBroker) -> None:
    assert text(broker, "/readyz") == "ready\n"
    with pytest.raises(DragomanError):
        own_read(broker, 0, COUNT)
    for _ in range(2):
        (lost,) = status(broker).damage
        assert (lost.topic, lost.partition) == (TOPIC, 0)
        assert lost.path.endswith(segments(Path(broker.data_directory))[1].name)
        assert f"{lost.path} at byte {lost.position}" in text(broker, "/readyz")
        assert "\ndragoman_log_damaged_ranges 1\n" in text(broker, "/metrics")
        broker.stop()
        broker.start()


def test_a_repaired_directory_serves_all_that_was_sound(
    broker: EphemeralBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DragomanError):
        own_read(broker, 0, COUNT)
    (lost,) = status(broker).damage
    broker.stop()
    directory = broker.data_directory
    assert main(["log", "verify", directory]) == 1
    assert "damaged: 1 of " in capsys.readouterr().out
    assert main(["log", "repair", directory, "--dry-run"]) == 0
    assert "would be removed" in capsys.readouterr().out
    assert main(["log", "repair", directory]) == 0
    out = capsys.readouterr().out
    assert f"offsets {lost.first_offset} to {lost.next_offset - 1} removed" in out
    assert main(["log", "verify", directory]) == 0
    broker.start()
    expected = VALUES[: lost.first_offset] + VALUES[lost.next_offset :]
    assert own_read(broker, 0, len(expected)) == expected
    assert own_read(broker, lost.first_offset, 1)[0] == VALUES[lost.next_offset]
    assert text(broker, "/readyz") == "ready\n"
    assert status(broker).damaged_ranges == 0
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        (written,) = client.produce_records(TOPIC, [NewRecord(value=b"new", partition=0)])
        assert written.offset == COUNT


def test_files_that_cannot_be_read_are_named(
    broker: EphemeralBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.stop()
    path = str(segments(Path(broker.data_directory))[0])
    from dragoman.operating_system import RealDisk

    before = RealDisk.open

    def refused(self, name, mode):
        if path.endswith(name):
            raise PermissionError(13, "Permission denied", path)
        return before(self, name, mode)

    monkeypatch.setattr(RealDisk, "open", refused)
    assert main(["log", "verify", broker.data_directory]) == 1
    out = capsys.readouterr().out
    assert "unread: cannot be read: Permission denied" in out
    assert "not checked: 1 of " in out
