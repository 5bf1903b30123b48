"""Pending names: which changes a sync of a directory saves, and that survivors are consistent."""

from __future__ import annotations

from random import Random

from dragoman.testing.file_tree import Edits, FileTree
from dragoman.testing.sim.disk import PendingNames
from dragoman.testing.sim.file import Inode


class World:
    def __init__(self) -> None:
        self.tree: FileTree[Inode] = FileTree(1 << 20)
        self.pending = PendingNames()
        for name in ("d", "e"):
            self.tree.apply(self.tree.plan_directories(name)[0])

    def do(self, edits: Edits[Inode]) -> None:
        self.tree.apply(edits)
        self.pending.add(edits)

    def paths(self) -> list[str]:
        return [path for path, _ in self.tree.files()]


def test_a_sync_saves_the_directory_and_what_its_changes_build_on() -> None:
    world = World()
    world.do(world.tree.plan_add("d/a", Inode()))
    world.do(world.tree.plan_add("d/other", Inode()))
    world.do(world.tree.plan_rename("d/a", "e/a"))
    world.pending.sync(world.tree.directory("e"))
    assert world.pending.settle(world.tree, Random(1), 0.0) == (0, 1)
    assert world.paths() == ["e/a"]


def test_nothing_survives_without_the_earlier_changes_of_its_names() -> None:
    found = set()
    for seed in range(100):
        world = World()
        world.do(world.tree.plan_add("d/a", Inode()))
        world.do(world.tree.plan_rename("d/a", "d/b"))
        world.do(world.tree.plan_rename("d/b", "e/c"))
        world.do(world.tree.plan_add("d/b", Inode()))
        world.pending.settle(world.tree, Random(seed), 0.6)
        found.add(tuple(world.paths()))
    assert found == {(), ("d/a",), ("d/b",), ("e/c",), ("d/b", "e/c")}


def test_everything_or_nothing_at_the_ends_of_the_odds() -> None:
    for chance, expected in ((0.0, []), (1.0, ["d/a", "e/a"])):
        world = World()
        world.do(world.tree.plan_add("d/a", Inode()))
        world.do(world.tree.plan_add("e/a", Inode()))
        world.pending.settle(world.tree, Random(1), chance)
        assert world.paths() == expected
