"""Goal: what clients were promised holds after kills and pauses: a slice of `make chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.checker import judge
from chaos.clients import KAFKA_TOPIC, GroupReader, KafkaWriter, Place
from chaos.run import run

#: One cluster at a time: they look for free ports.
pytestmark = pytest.mark.xdist_group("cluster")


@pytest.mark.timeout(300)
def test_promises_survive_kills_and_pauses(tmp_path: Path) -> None:
    faults, summary = run(tmp_path, cycles=4, seed=1)
    assert faults == [], summary


def place(offset: int) -> Place:
    return Place(KAFKA_TOPIC, 0, offset)


def written(*values: bytes) -> dict[Place, bytes]:
    return {place(offset): value for offset, value in enumerate(values)}


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        (written(b"w:0", b"w:1", b"w:2"), ""),
        (written(b"w:0", b"w:1"), "b'w:2' was acknowledged"),
        (written(b"w:0", b"w:1", b"w:2", b"w:2"), "4 records for 3 written"),
        (written(b"w:0", b"w:2", b"w:1"), "from number 1 on"),
    ],
)
def test_the_checker_sees_what_is_lost_doubled_or_out_of_order(
    log: dict[Place, bytes], fault: str
) -> None:
    writer = KafkaWriter("w", "127.0.0.1:1", 0)
    writer.written = 3
    writer.acknowledged = written(b"w:0", b"w:1", b"w:2")
    assert fault in "; ".join(judge(log, [writer], [])) if fault else not judge(log, [writer], [])


def test_the_checker_sees_a_record_that_changed_and_one_that_nobody_read() -> None:
    reader = GroupReader("r", "127.0.0.1:1")
    reader.seen = written(b"a")
    assert "saw b'a'" in judge(written(b"b"), [], [reader])[0]
    assert "has never read 1 records" in judge(written(b"a", b"b"), [], [reader])[0]
