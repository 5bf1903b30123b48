"""`dragoman import`, in the process and killed as a process of its own."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.cli.main import main
from dragoman.client.minibroker import BlockingMinibrokerClient
from dragoman.testing import EphemeralBroker
from protocols.minibroker_directory import write_example, write_segment


def run(source: Path, data: Path, *options: str) -> int:
    return main(["import", "minibroker", str(source), "--data", str(data), *options])


def contents(data: Path) -> dict[tuple[str, int], list[tuple[int, bytes, bytes]]]:
    """Every record of the example, as a minibroker client reads it."""
    counts = {("events", 0): 43, ("events", 1): 26, ("other", 0): 43, ("other", 1): 26}
    found = {}
    with (
        EphemeralBroker(
            storage="directory", directory=str(data), listeners=("minibroker",)
        ) as broker,
        BlockingMinibrokerClient(broker.address("minibroker")) as client,
    ):
        for (topic, partition), count in counts.items():
            with client.subscribe(topic, partition, 0) as subscription:
                records = [subscription.next(30) for _ in range(count)]
            assert all(records)
            found[topic, partition] = [
                (each.offset, each.key, each.payload) for each in records if each is not None
            ]
        with client.join("events", "workers") as member:
            first = {}
            while len(first) < 3:
                record = member.next(30)
                assert record is not None
                first.setdefault(record.partition, record.offset)
            assert first == {0: 7, 1: 30, 2: 0}
    return found


def test_imports_and_says_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, data = tmp_path / "source", tmp_path / "data"
    write_example(source)
    assert run(source, data) == 0
    told = capsys.readouterr()
    assert "2 topics: 181 records and 3 committed offsets imported; 0 and 0 existed" in told.err
    assert run(source, data) == 0
    assert "0 records and 0 committed offsets imported; 181 and 3" in capsys.readouterr().err
    assert contents(data)["events", 1][0] == (20, b"", b"1:20")


def test_damage_is_status_1_and_names_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, data = tmp_path / "source", tmp_path / "data"
    records = [(offset, b"", b"%d" % offset) for offset in range(3)]
    path = write_segment(source, "t", 0, records)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert run(source, data) == 1
    at = len(content) * 2 // 3
    assert f"dragoman: {path} at byte {at}: the CRC" in capsys.readouterr().err
    assert run(source, data, "--skip-damaged") == 1


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "missing", tmp_path / "data") == 2
    assert "missing is not a directory" in capsys.readouterr().err
    source, data = tmp_path / "source", tmp_path / "data"
    write_example(source)
    with EphemeralBroker(storage="directory", directory=str(data), listeners=("minibroker",)):
        assert run(source, data) == 2
    assert "another process uses" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(3))
def test_killed_process_and_repeated(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    source, data = tmp_path / "source", tmp_path / "data"
    write_example(source)
    # Enough to be in the middle of.
    for partition in range(4):
        records = [(offset, b"", rng.randbytes(10_000)) for offset in range(400)]
        write_segment(source, "large", partition, records)
    command = [sys.executable, "-m", "dragoman.cli.main", "import", "minibroker", str(source)]
    process = subprocess.Popen([*command, "--data", str(data)], stderr=subprocess.DEVNULL)
    try:
        # Killed when it has begun to write, at some size of its journal.
        journal = data / "journal"
        goal = rng.randrange(1 << 20, 12 << 20)
        while process.poll() is None and _size(journal) < goal:
            pass
        process.send_signal(signal.SIGKILL)
    finally:
        process.wait(60)
    assert process.returncode == -signal.SIGKILL
    assert run(source, data) == 0
    whole = tmp_path / "whole"
    assert run(source, whole) == 0
    assert contents(data) == contents(whole)
    assert _large(data) == _large(whole)


def _size(folder: Path) -> int:
    try:
        return sum(each.stat().st_size for each in folder.iterdir())
    except FileNotFoundError:
        return 0


def _large(data: Path) -> list[list[bytes]]:
    with (
        EphemeralBroker(
            storage="directory", directory=str(data), listeners=("minibroker",)
        ) as broker,
        BlockingMinibrokerClient(broker.address("minibroker")) as client,
    ):
        found = []
        for partition in range(4):
            with client.subscribe("large", partition, 0) as subscription:
                records = [subscription.next(30) for _ in range(400)]
            assert [each.offset for each in records if each is not None] == list(range(400))
            found.append([each.payload for each in records if each is not None])
    return found
