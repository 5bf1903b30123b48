"""Goal: a process without descriptors refuses for a while, loses nothing, and continues.

Method: a disk in memory that opens no file while the test forbids it.
"""

from __future__ import annotations

import errno

import pytest

from dragoman.errors import DiskFullError, LogStoppedError
from dragoman.limits import CHECKPOINT_INTERVAL_S, DIRTY_PARTITION_BYTES_MAX
from dragoman.log.store import Durability
from dragoman.testing.memory import MemoryDisk, MemoryFile
from worlds.broker import World, batch_of, values_in

PARTITIONS = 5


class Exhausted(MemoryDisk):
    """Opens no file while it has no descriptors."""

    has_descriptors = True
    refused = 0

    def open(self, path: str, mode: str) -> MemoryFile:  # type: ignore[override]
        if not self.has_descriptors:
            self.refused += 1
            raise OSError(errno.EMFILE, "too many open files", path)
        return super().open(path, mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("durability", list(Durability))
def test_without_descriptors_appends_are_refused_until_there_are_some(
    durability: Durability,
) -> None:
    disk = Exhausted()
    world = World(disk=disk, durability=durability)
    replicas = world.create("t", PARTITIONS)
    written: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
    disk.has_descriptors = False
    refused = 0
    # Enough for segments to be written, journal files to be made, and checkpoints to begin.
    for number in range(60):
        replica = replicas[number % PARTITIONS]
        value = bytes([number]) * (2 * DIRTY_PARTITION_BYTES_MAX)
        try:
            appended = world.append(replica, batch_of(value))
        except DiskFullError:
            refused += 1
        else:
            # Without a journal, it is refused when it was to be written.
            is_kept = replica.log.log_end_offset > appended.base_offset
            refused += not is_kept
            written[number % PARTITIONS] += [value] * is_kept
        world.advance(CHECKPOINT_INTERVAL_S / 10)
        assert world.store.failure is None
    assert disk.refused
    assert refused
    disk.has_descriptors = True
    world.advance(2 * CHECKPOINT_INTERVAL_S)
    for index, replica in enumerate(replicas):
        world.append(replica, batch_of(b"after"))
        written[index].append(b"after")
    again = world.reopened()
    for index, values in written.items():
        found = again.broker.partitions.find("t", index)
        read = found.log.read(0, 1 << 30, found.log.log_end_offset)
        assert [value for each in read.buffers for value in values_in(each)] == values


def test_reading_without_descriptors_is_refused_and_works_later() -> None:
    disk = Exhausted()
    world = World(disk=disk)
    (replica,) = world.create("t")
    world.append(replica, batch_of(b"v"))
    world = world.reopened()
    replica = world.broker.partitions.find("t", 0)
    world.store.files.close()
    disk.has_descriptors = False
    with pytest.raises(DiskFullError, match="no descriptor"):
        replica.log.read(0, 1 << 20, 1)
    disk.has_descriptors = True
    assert values_in(b"".join(replica.log.read(0, 1 << 20, 1).buffers)) == [b"v"]


def test_a_write_that_fails_for_another_reason_ends_the_log() -> None:
    """What is transient here is the lack of descriptors, and nothing else."""
    world = World()
    (replica,) = world.create("t")
    world.store.fail(OSError(errno.EIO, "broken"))
    with pytest.raises(LogStoppedError):
        world.append(replica, batch_of(b"v"))
