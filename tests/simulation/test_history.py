"""Goal: a whole node keeps its history over stops, kills and power cuts, and starts whatever the
files of the history have.

Method: a node with listeners on a simulated loop, network and disk, in virtual time.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from dragoman.telemetry.history.files import DIRECTORY
from dragoman.testing.sim.loop import SimWorld
from dragoman.testing.sim.node import SimNode

SETTINGS = Settings(node_id=1, listeners=(Listener(name="kafka", bind=Address("node", 9092)),))


class Run:
    def __init__(self, seed: int) -> None:
        self.world = SimWorld(seed)
        self.node = SimNode(self.world, "node", SETTINGS)
        self.node.start()

    def advance(self, seconds: float) -> None:
        self.world.run_until(lambda: False, seconds)

    def samples(self) -> list[tuple[int, int]]:
        """Time and number of values of each sample."""
        assert self.node.node is not None
        history = self.node.node.history
        assert history is not None
        return [
            (row.at, sum(value == value for value in row.values)) for row in history.rings.fine.rows
        ]


def test_a_node_samples_itself() -> None:
    run = Run(1)
    run.advance(1)
    assert run.node.node is not None
    assert run.node.node.history is None, "it begins after the start"
    run.advance(60)
    found = run.samples()
    assert all(later[0] - earlier[0] == 15 for earlier, later in pairwise(found))
    assert 3 <= len(found) <= 4
    history = run.node.node.history
    assert history is not None
    names = {key[0] for key in history.rings.series()}
    assert {"connections", "cpu_cores", "metadata_term", "disk_free_bytes"} <= names


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_samples_survive_the_end_of_the_process(end: str) -> None:
    run = Run(2)
    run.advance(100)
    before = run.samples()
    getattr(run.node, end)()
    run.advance(50)
    run.node.start()
    run.advance(20)
    found = run.samples()
    assert found[: len(before)] == before
    assert len(found) > len(before)
    gap = found[len(before)][0] - before[-1][0]
    assert gap >= 45


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_loses_samples_and_invents_none(seed: int) -> None:
    run = Run(seed)
    known: set[tuple[int, int]] = set()
    for _ in range(4):
        run.advance(run.world.random.uniform(20, 200))
        known |= set(run.samples())
        run.node.cut_power()
        run.node.start()
    began_s = run.node.clock.wall_ms() // 1000
    run.advance(5)
    assert {each for each in run.samples() if each[0] <= began_s} <= known


def test_a_node_starts_on_a_history_that_is_something_else() -> None:
    run = Run(3)
    run.advance(40)
    run.node.stop()
    for path, data in (
        (f"{DIRECTORY}/5m-00000009", b"\xff" * 3000),
        (f"{DIRECTORY}/notes", b"hello"),
    ):
        file = run.node.disk.open(path, "create")
        file.write([data], 0)
        file.close()
    run.node.start()
    run.advance(40)
    assert len(run.samples()) >= 4


def test_a_full_disk_ends_neither_the_node_nor_its_history() -> None:
    run = Run(4)
    run.advance(40)
    run.node.disk.capacity_bytes = 0
    run.advance(60)
    count = len(run.samples())
    assert count >= 6
    run.node.disk.capacity_bytes = 1 << 40
    run.advance(60)
    assert len(run.samples()) >= count + 4
    assert run.node.node is not None
    assert not run.node.node.failed.is_set()
