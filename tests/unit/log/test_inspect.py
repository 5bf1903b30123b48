"""Goal: offline tools find what is there, and every flipped bit that matters.

Method: a directory is filled, then looked at as it is, in use, and with bits turned over.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from dragoman.log.inspect import (
    GroupFound,
    NodeFound,
    PartitionFound,
    Problem,
    SegmentFound,
    describe,
    inspect_disk,
    verified,
)
from dragoman.operating_system import RealDisk
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.disk import SimDisk
from worlds.log import World


def test_a_closed_directory_is_sound_and_fully_counted(world: World):
    world.fill(30)
    world.store.close()
    found = list(inspect_disk(world.disk))
    assert not [each for each in found if isinstance(each, Problem | GroupFound)]
    assert sum(each.records for each in found if isinstance(each, SegmentFound)) == 30
    (partition,) = [each for each in found if isinstance(each, PartitionFound)]
    assert (partition.topic, partition.log_end_offset) == ("t", 30)
    assert verified(inspect_disk(world.disk)).is_sound


def test_a_directory_in_use_says_so_and_is_not_touched(world: World):
    world.fill(30)
    found = list(inspect_disk(world.disk))
    assert next(each for each in found if isinstance(each, NodeFound)).is_in_use
    assert [each for each in found if isinstance(each, GroupFound)]
    assert verified(inspect_disk(world.disk)).is_in_use
    world.fill(5)
    assert len(world.values()) == 35


def test_an_empty_directory_is_no_data_directory():
    (problem,) = verified(inspect_disk(MemoryDisk())).problems
    assert problem.reason == "missing: not a data directory"


@pytest.mark.parametrize("seed", range(60))
def test_every_flipped_bit_outside_free_space_is_found(new_world, seed: int):
    disk = SimDisk(Random(seed))
    world = new_world(disk)
    world.fill(20)
    world.store.close()
    random = Random(seed)
    files = [
        path for path, data in disk.image().items() if data and path.endswith((".log", "json"))
    ]
    path = random.choice(sorted(files))
    position = random.randrange(len(disk.image()[path]))
    disk.flip(path, position, random.randrange(8))
    result = verified(inspect_disk(disk))
    assert not result.is_sound
    (problem, *_) = result.problems
    assert problem.path == path
    assert problem.position <= position


def test_missing_and_shortened_files_are_found(world: World):
    world.fill(30)
    world.store.close()
    names = [n for n in world.disk.names("partitions/t-0") if n.endswith(".log")]
    world.disk.remove(f"partitions/t-0/{names[0]}")
    file = world.disk.open(f"partitions/t-0/{names[1]}", "write")
    file.truncate(file.size() - 1)
    reasons = " / ".join(problem.reason for problem in verified(inspect_disk(world.disk)).problems)
    assert "missing" in reasons
    assert "bytes are there" in reasons


def test_a_directory_on_disk_is_read_and_described(new_world, tmp_path: Path):
    disk = RealDisk(str(tmp_path))
    world = new_world(disk)
    world.fill(12)
    world.store.close()
    assert verified(inspect_disk(RealDisk(str(tmp_path)))).is_sound
    kinds = {type(each) for each in inspect_disk(RealDisk(str(tmp_path)))}
    assert kinds >= {NodeFound, PartitionFound, SegmentFound}
    segment = next(tmp_path.glob("partitions/t-0/*.log"))
    data = bytearray(segment.read_bytes())
    data[40] ^= 1
    segment.write_bytes(data)
    result = verified(inspect_disk(RealDisk(str(tmp_path))))
    assert not result.is_sound
    lines = [describe(each) for each in inspect_disk(RealDisk(str(tmp_path)))]
    assert any(segment.name in line and "damage" in line for line in lines)
