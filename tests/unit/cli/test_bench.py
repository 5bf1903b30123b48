"""`dragoman bench` against a broker in this process, and its parts by themselves."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from dragoman.cli.load.batches import prepare
from dragoman.cli.load.latencies import Latencies
from dragoman.cli.load.measurement import Measurement
from dragoman.cli.load.plan import Plan
from dragoman.cli.load.schedule import Schedule
from dragoman.cli.load.traces import Sent, Traces
from dragoman.cli.main import main
from dragoman.client.kafka import (
    BlockingKafkaClient,
    NewTopic,
    TopicPartition,
    partition_for_key,
)
from dragoman.log.batch import batches, records
from dragoman.testing import EphemeralBroker

QUICK = ("--records", "200", "--batch", "10", "--size", "20", "--warm-up", "0")
ROOT = Path(__file__).parents[3]


def bench(broker: EphemeralBroker, *arguments: str) -> int:
    return main(["bench", *arguments, "--brokers", broker.bootstrap_servers])


def topics(broker: EphemeralBroker) -> set[str]:
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        return set(client.cluster().topics)


# ---- commands


@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", "--processes", "2", "--topics", "2", "--partitions", "2"),
        ("produce", "--acks", "0"),
        ("produce", "--rate", "20000", "--keys", "zipf", "--codec", "gzip", "--values", "text"),
        ("consume", "--fill", "100", "--partitions", "2", "--clients", "2"),
        ("latency", "--rate", "5000", "--processes", "2", "--partitions", "3"),
    ],
    ids=" ".join,
)
def test_records_are_measured_and_own_topics_deleted(
    broker: EphemeralBroker, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert bench(broker, *arguments, *QUICK, "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["benchmark"] == arguments[0]
    assert found["records"] >= 200
    assert found["errors"] == {}
    assert found["unsent_records"] == 0
    assert (found["p99_9_ms"] is None) == ("0" in arguments)
    assert found["broker"]["api_versions"]["Produce"] == "0-13"
    assert found["options"]["batch_records"] == 10
    assert topics(broker) == set()


def test_named_topics_are_used_kept_and_announced(
    broker: EphemeralBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        client.create_topic(NewTopic(name="mine", partitions=1))
    assert bench(broker, "produce", "--topic", "mine", *QUICK) == 0
    printed = capsys.readouterr()
    assert "writes to existing topics, and keeps them: 'mine'" in printed.err
    assert "200 in" in printed.out
    assert bench(broker, "consume", "--topic", "mine", *QUICK, "--output", "csv") == 0
    header, row = csv.reader(io.StringIO(capsys.readouterr().out))
    assert int(dict(zip(header, row, strict=True))["records"]) >= 200
    assert topics(broker) == {"mine"}
    assert bench(broker, "produce", "--topic", "other", *QUICK) == 1
    assert "there is no such topic" in capsys.readouterr().err
    assert topics(broker) == {"mine"}


def test_all_clients_log_in_with_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    password = tmp_path / "password"
    password.write_text("a password")
    password.chmod(0o600)
    settings = {"super.users": "User:alice"}
    with EphemeralBroker(tls=True, users={"alice": "a password"}, settings=settings) as broker:
        login = ("--user", "alice", "--password-file", str(password), "--ca-file", broker.ca_file)
        arguments = ("latency", *QUICK, "--rate", "5000", "--processes", "2", "--partitions", "2")
        assert bench(broker, *arguments, *login, "--output", "json") == 0
    printed = capsys.readouterr().out
    found = json.loads(printed)
    assert found["records"] >= 200
    assert (found["is_tls"], found["login"]) == (True, "SCRAM-SHA-256")
    assert "a password" not in printed


def test_time_without_replies_counts() -> None:
    plan = Plan(mode="produce", brokers="", topics=(), duration_s=10.0, warm_up_s=1.0)
    measurement = Measurement(plan, start=100.0)
    measurement.add(began=100.5, done=101.5, records=1, size=1)
    assert measurement.tally.records == 0
    measurement.add(began=101.0, done=103.0, records=5, size=9)
    assert (measurement.tally.records, measurement.tally.seconds) == (5, 2.0)
    measurement.note_end(500.0)
    assert measurement.tally.seconds == 10.0


def test_refused_records_are_counted_by_the_error(
    broker: EphemeralBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        config = {"max.message.bytes": "100"}
        client.create_topic(NewTopic(name="small", partitions=1, config=config))
    assert bench(broker, "produce", "--topic", "small", *QUICK, "--output", "json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["records"], found["errors"]) == (0, {"MESSAGE_TOO_LARGE": 20})


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("produce", "--rate", "0"), "--rate: expected"),
        (("produce", "--size", "0"), "--size: expected at least 1"),
        (("produce", "--duration", "0"), "--duration and --warm-up: expected"),
        (("consume", "--in-flight", "0"), "--in-flight: expected at least 1"),
        (("latency", "--acks", "0"), "--acks 0: without"),
        (("latency", "--processes", "2"), "--processes 2: expected at most"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    broker: EphemeralBroker,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    problem: str,
) -> None:
    assert bench(broker, *arguments) == 2
    assert problem in capsys.readouterr().err
    assert topics(broker) == set()


@pytest.mark.parametrize(
    ("number", "reaches"),
    [
        (signal.SIGINT, os.killpg),
        (signal.SIGTERM, os.killpg),
        (signal.SIGTERM, os.kill),
        (signal.SIGHUP, os.killpg),
    ],
)
def test_interrupt_prints_what_was_measured_and_deletes_topics(
    broker: EphemeralBroker, number: signal.Signals, reaches: Callable[[int, int], None]
) -> None:
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dragoman.cli.main", "bench", "produce", "--warm-up", "0"),
                *("--duration", "600", "--output", "json", "--brokers", broker.bootstrap_servers),
            ],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]},
            start_new_session=True,
        )
        while not any(each.high_watermark for each in _partitions(client)):
            assert process.poll() is None
        reaches(process.pid, number)
        out, _ = process.communicate(timeout=60)
        found = json.loads(out)
        assert process.returncode == 130
        assert found["is_interrupted"]
        assert found["records"] > 0
        assert set(client.cluster().topics) == set()


def _partitions(client: BlockingKafkaClient):
    from dragoman.client.kafka import FetchFrom

    for topic in client.cluster().topics.values():
        wanted = {where: FetchFrom(0) for where in topic.all_partitions()}
        yield from client.fetch(wanted, max_wait_ms=0).values()


# ---- parts


def test_percentiles_are_those_of_the_values_within_a_percent() -> None:
    random = Random(1)
    values = sorted(random.lognormvariate(-6, 2) for _ in range(10_000))
    halves = Latencies(), Latencies()
    for number, value in enumerate(values):
        halves[number % 2].add(value)
    halves[0].merge(halves[1])
    for percent in (50.0, 90.0, 99.0, 99.9, 100.0):
        exact = values[int(len(values) * percent / 100) - 1]
        found = halves[0].percentile_s(percent)
        assert found is not None
        assert exact - 1e-6 <= found <= exact * 1.008 + 1e-6
    assert halves[0].max_s == values[-1]
    assert Latencies().percentile_s(99.0) is None


def test_batches_are_due_by_the_rate_and_not_by_the_replies() -> None:
    schedule = Schedule(start=100.0, counts_from=101.0, end=103.0, interval=0.5, phase=0.1)
    # Nothing was taken for two seconds: what was due is handed out nevertheless.
    assert schedule.overdue(102.0) == 4
    taken = [schedule.take(110.0) for _ in range(7)]
    assert taken == pytest.approx([100.1, 100.6, 101.1, 101.6, 102.1, 102.6, None])
    assert schedule.overdue(110.0) == 0


def test_limit_counts_batches_after_the_warm_up() -> None:
    schedule = Schedule(start=0.0, counts_from=1.0, end=float("inf"), interval=None, batches_max=2)
    assert [schedule.take(now) for now in (0.5, 1.0, 1.5, 2.0)] == [0.5, 1.0, 1.5, None]


def test_schedule_ends_when_it_is_stopped() -> None:
    schedule = Schedule(start=0.0, counts_from=0.0, end=100.0, interval=1.0)
    assert schedule.take(5.0) == 0.0
    schedule.stop(5.0)
    assert schedule.overdue(5.0) == 4


def test_batches_meet_their_offsets_in_any_order() -> None:
    where = TopicPartition("t", 0)
    traces = Traces()
    first, second, third = (Sent(end, float(end), 10, 99) for end in (10, 20, 30))
    assert traces.sent(where, second) is None
    assert traces.read(where, 15, 1.0) == []
    # The acknowledgement comes after the records.
    assert traces.sent(where, first) == 1.0
    assert traces.sent(where, third) is None
    assert traces.has_unread
    assert traces.read(where, 30, 2.0) == [second, third]
    assert not traces.has_unread
    assert traces.unread == []


@pytest.mark.parametrize("keys", ["none", "uniform", "zipf"])
def test_prepared_batches_are_those_of_the_seed(keys: str) -> None:
    plan = Plan(
        mode="produce", brokers="", topics=("t",), record_bytes=10, batch_records=5, keys=keys
    )
    targets = [TopicPartition("t", 1), TopicPartition("t", 2)]
    found = prepare(plan, targets, {"t": 3}, "1-0")
    again = prepare(plan, targets, {"t": 3}, "1-0")
    assert {each.where for each in found} == set(targets)
    assert [_values(each.data) for each in found] == [_values(each.data) for each in again]
    assert _values(found[0].data) != _values(prepare(plan, targets, {"t": 3}, "2-0")[0].data)
    for each in found:
        for key, value in _values(each.data):
            assert value is not None
            assert len(value) == 10
            assert (key is None) == (keys == "none")
            assert key is None or partition_for_key(key, 3) == each.where.partition


def _values(data: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [
        (record.key, record.value)
        for header, batch in batches(memoryview(data))
        for record in records(batch, header)
    ]
