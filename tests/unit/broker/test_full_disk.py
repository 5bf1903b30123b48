"""Goal: what frees a full disk can be done on it: changes of the metadata wait in the journal.

Method: a broker on a disk that a topic fills; records are refused, and the topic is deleted.
"""

from __future__ import annotations

import pytest

from dragoman.errors import DiskFullError
from dragoman.log.node import Durability
from dragoman.outcome import start
from dragoman.replication.replica import Replica
from dragoman.testing.memory import MemoryDisk
from worlds.broker import Outcome, World

ROOM = 1 << 30


def filled(durability: Durability = Durability.FSYNC) -> tuple[World, Replica]:
    """A node that refuses records, and the partition that has filled its disk."""
    world = World(disk=MemoryDisk(capacity_bytes=ROOM), durability=durability)
    (small,) = world.create("small")
    (large,) = world.create("large")
    world.write(small, b"kept")
    world.write(large, b"first")
    world.store.checkpoint_now()
    world.disk._tree.capacity_bytes = world.disk._tree.used_bytes + 40_000
    while not world.store.is_disk_full:
        world.write(large, b"v" * 1000)
        world.store.flush(large.log)
    return world, large


def deleted(world: World, name: str) -> Outcome:
    outcome: Outcome = Outcome()
    start(world.broker.topics.delete(name)).then(outcome)
    world.settle()
    return outcome


def test_deleting_a_topic_makes_room_on_a_full_disk() -> None:
    world, _ = filled()
    small = world.broker.partitions.find("small", 0)
    assert deleted(world, "large").error is None
    world.advance(20)
    assert not world.store.is_disk_full
    world.write(small, b"again")
    again = world.reopened(kill=True)
    assert "large" not in again.broker.image.topics
    assert again.broker.partitions.find("small", 0).log.log_end_offset == 2


def test_records_are_refused_while_the_metadata_changes() -> None:
    world, large = filled()
    outcome: Outcome = Outcome()
    start(world.broker.topics.delete("small")).then(outcome)
    with pytest.raises(DiskFullError):
        world.write(large, b"more")
    world.settle()
    assert outcome.error is None
    with pytest.raises(DiskFullError):
        world.write(large, b"more")


def test_changes_on_a_full_disk_survive_a_kill_before_there_is_room() -> None:
    world, _ = filled()
    assert deleted(world, "small").error is None
    # A start replays the journal, which needs the room that was missing.
    world.disk._tree.capacity_bytes = ROOM
    again = world.reopened(kill=True)
    assert "small" not in again.broker.image.topics
    assert "large" in again.broker.image.topics


def test_without_a_journal_a_full_disk_refuses_changes_too() -> None:
    world, _ = filled(Durability.OS)
    assert isinstance(deleted(world, "large").error, DiskFullError)
    assert "large" in world.broker.image.topics
