"""Goal: figures can be trusted. Method: the harness's arithmetic on known numbers, its raw frames
and reply positions against the codec, and a small contest against a real broker in this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.bounds import DsyncFile, memory_copy
from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context, Figure
from harness.processes import children, cpu_seconds, memory_kb
from harness.report import file_system_of
from harness.sampling import Latency, Sample, interleaved, percentile, ratio, summary
from harness.targets import TARGETS, verdicts
from harness.wire import (
    FetchReader,
    Pipeline,
    batch_of,
    check_produce_replies,
    create_topics,
    end_offsets,
    fetch_frame,
    produce_frame,
    produce_reply_bytes,
)
from scenarios import SCENARIOS

from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.testing import EphemeralBroker


def sample(seconds: float, messages: int, server_cpu_s: float | None = None) -> Sample:
    return Sample(
        seconds=seconds,
        messages=messages,
        payload_bytes=messages * 100,
        server_cpu_s=server_cpu_s,
    )


# ---- arithmetic


def test_percentile_counts_requests_and_not_entries() -> None:
    latencies = [Latency(0.001, 98), Latency(0.5, 1), Latency(0.2, 1)]
    assert percentile(latencies, 0.50) == 0.001
    assert percentile(latencies, 0.99) == 0.2
    assert percentile(latencies, 1.0) == 0.5


def test_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no latencies"):
        percentile([], 0.5)


def test_contenders_take_turns() -> None:
    order: list[str] = []

    def contender(name: str) -> Sample:
        order.append(name)
        return sample(1.0, len(order))

    found = interleaved({"a": lambda: contender("a"), "b": lambda: contender("b")}, 3)
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert [each.messages for each in found["b"]] == [2, 4, 6]


def test_summary_takes_medians_and_knows_units() -> None:
    rounds = [sample(1.0, 10_000, server_cpu_s=cpu) for cpu in (0.1, 0.2, 0.9)]
    figures = summary(rounds)
    assert figures["messages_per_s"] == 10_000
    assert figures["mb_per_s"] == 1.0
    assert figures["server_cpu_s_per_million"] == pytest.approx(20.0)
    assert figures["server_cpu_s_per_gb"] == pytest.approx(200.0)


def test_the_longest_wait_is_not_averaged_away() -> None:
    rounds = [
        Sample(seconds=1.0, messages=1, payload_bytes=1, latencies=[Latency(worst)])
        for worst in (0.001, 5.0, 0.001)
    ]
    assert summary(rounds)["max_ms"] == 5000
    assert summary(rounds)["p99_ms"] == 1


def test_ratio_compares_the_same_round() -> None:
    ours = [sample(1.0, 100), sample(1.0, 10), sample(1.0, 300)]
    theirs = [sample(1.0, 50), sample(1.0, 5), sample(1.0, 100)]
    assert ratio(ours, theirs) == 2.0


# ---- targets


def test_targets_are_judged_on_both_sides_of_their_bound() -> None:
    cpu = next(each for each in TARGETS if each.at_most == 2)
    good = Figure(scenario=cpu.scenario, case=cpu.case, metrics={cpu.metric: 2.0})
    bad = Figure(scenario=cpu.scenario, case=cpu.case, metrics={cpu.metric: 2.1})
    assert [each.is_met for each in verdicts([good])] == [True]
    assert [each.is_met for each in verdicts([bad])] == [False]


def test_a_ratio_can_be_a_target() -> None:
    redis = next(each for each in TARGETS if each.at_least == 1.0)
    figure = Figure(
        scenario=redis.scenario, case=redis.case, metrics={}, ratios={redis.metric: 0.9}
    )
    assert [each.is_met for each in verdicts([figure])] == [False]


def test_every_target_names_a_scenario_and_every_scenario_a_module() -> None:
    assert {each.scenario for each in TARGETS} <= set(SCENARIOS)
    here = Path(__file__).parent / "scenarios"
    assert all((here / f"{module}.py").exists() for module in SCENARIOS.values())


# ---- the machine


def test_cpu_time_grows_with_work_and_covers_ended_children() -> None:
    before = cpu_seconds(os.getpid())
    program = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", program], check=True)
    # It is counted in hundredths, rounded down in several places.
    assert cpu_seconds(os.getpid()) - before >= 0.25


def test_running_children_are_found() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    try:
        assert child.pid in children(os.getpid())
    finally:
        child.stdin.close()
        child.wait()


def test_memory_is_read_by_field() -> None:
    assert 0 < memory_kb(os.getpid()) <= memory_kb(os.getpid(), "VmHWM")
    with pytest.raises(ValueError, match="VmNothing"):
        memory_kb(os.getpid(), "VmNothing")


def test_the_file_system_of_proc_is_proc() -> None:
    assert file_system_of(Path("/proc/self")) == "proc"


def test_bounds_do_what_they_count(tmp_path: Path) -> None:
    disk = DsyncFile(tmp_path / "file")
    written = disk.write(100, 5, seconds_max=60)
    disk.close()
    assert (written.messages, written.payload_bytes) == (5, 500)
    assert len(written.latencies) == 5
    copied = memory_copy(1 << 20, 3)
    assert copied.payload_bytes == 3 << 20


# ---- raw frames


def test_produce_frames_are_what_the_codec_reads() -> None:
    batch = batch_of(3, 100)
    frame = bytearray(produce_frame("topic", [4, 5], batch))
    request = codec.decode_request(0, 7, frame[4:], 8 + 2 + len("benchmark"))
    assert isinstance(request, m.ProduceRequest)
    found = [
        (each.index, bytes(each.records or b"")) for each in request.topic_data[0].partition_data
    ]
    assert found == [(4, batch), (5, batch)]


def produce_reply(errors: list[int]) -> bytes:
    parts = [m.ProduceResponsePartition(index=i, error_code=e) for i, e in enumerate(errors)]
    response = m.ProduceResponse(
        responses=[m.ProduceResponseTopic(name="topic", partition_responses=parts)]
    )
    return codec.join(codec.encode_response(response, 7, 1))


def test_produce_replies_have_the_size_and_error_positions_that_are_assumed() -> None:
    good, bad = produce_reply([0, 0]), produce_reply([0, 3])
    assert len(good) == produce_reply_bytes("topic", 2)
    check_produce_replies(good * 3, "topic", 2)
    with pytest.raises(BenchmarkError, match="error 3"):
        check_produce_replies(good + bad, "topic", 2)
    with pytest.raises(BenchmarkError, match="whole"):
        check_produce_replies(good[:-1], "topic", 2)


def test_fetch_frames_end_with_offset_and_size() -> None:
    frame = fetch_frame("topic", 0, 77, 1234, 500)
    assert frame[-12:] == (77).to_bytes(8, "big") + (1234).to_bytes(4, "big")


def test_frames_of_a_pipeline_have_one_size() -> None:
    with pytest.raises(ValueError, match="one size"):
        Pipeline(("127.0.0.1", 1), [b"a", b"bb"], 1)


# ---- against a broker


def test_what_a_pipeline_produces_a_reader_finds() -> None:
    with EphemeralBroker(listeners=("kafka",)) as broker:
        host, port = broker.bootstrap_servers.split(":")
        address = (host, int(port))
        create_topics(address, ["topic"], 3)
        batch = batch_of(2, 100)
        frames = [produce_frame("topic", [index], batch) for index in range(3)]
        pipeline = Pipeline(address, frames, produce_reply_bytes("topic"))
        pipeline.open(connections=2, in_flight=8)
        done, latencies = pipeline.run(90, seconds_max=30)
        check_produce_replies(pipeline.take_replies(), "topic")
        pipeline.close()
        assert done == 90
        assert sum(end_offsets(address, "topic", 3)) == 180
        assert sum(each.count for each in latencies) == 90
        ends = [_read_to_end(address, partition, batch) for partition in range(3)]
    assert sum(ends) == 180
    assert min(ends) > 0


def _read_to_end(address: tuple[str, int], partition: int, batch: bytes) -> int:
    reader = FetchReader(
        address,
        "topic",
        batch_bytes=len(batch),
        batch_records=2,
        bytes_max=4 * len(batch),
        wait_ms=0,
        partition=partition,
    )
    while reader.fetch():
        pass
    reader.close()
    return reader.offset


def test_a_refused_topic_is_an_error() -> None:
    with EphemeralBroker(listeners=("kafka",)) as broker:
        host, port = broker.bootstrap_servers.split(":")
        with pytest.raises(BenchmarkError, match="bad name"):
            create_topics((host, int(port)), ["bad name"], 1)


def test_a_missing_command_is_said_clearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    context = Context(tmp_path, quick=True, peers=())
    with pytest.raises(BenchmarkError, match="install the package"), context.broker():
        pass
    assert BrokerProcess.profile_directory is None
