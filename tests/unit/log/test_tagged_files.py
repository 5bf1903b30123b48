"""Goal: a directory stays readable to the previous release as long as its level allows.

Method: a log with a producer, written at a low and at the present level; the checksums of its files
are worked out as releases before `TAGGED_FILES_LEVEL` did.
"""

from __future__ import annotations

import pytest

from dragoman.checksum import crc32c
from dragoman.log.batch import Record, build_batch, read_header
from dragoman.log.index import load_index
from dragoman.log.node import FEATURE_LEVEL, TAGGED_FILES_LEVEL
from dragoman.world import read_whole
from worlds.log import World


def written(level: int) -> World:
    world = World()
    world.store.use_level(level)
    for number in range(30):
        batch = build_batch(
            [Record(key=b"k", value=bytes(100), timestamp=1000)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=number,
        )
        world.log.append(batch, read_header(batch), 0)
        world.commit()
    world.store.close()
    return world


def is_plain(world: World, name: str) -> bool:
    """Whether the release before believes the file."""
    data = read_whole(world.disk, f"partitions/t-0/{name}")
    if name.endswith(".idx"):
        return load_index(data, 0)[2] == len(data)
    return crc32c(data[4:]) == int.from_bytes(data[:4], "little")


@pytest.mark.parametrize("level", range(2, FEATURE_LEVEL + 1))
def test_files_are_of_the_directory_s_level(level: int) -> None:
    world = written(level)
    names = [
        name
        for name in world.disk.names("partitions/t-0")
        if name.endswith(".idx") or name == "producers.snapshot"
    ]
    assert len(names) > 3
    expected = level < TAGGED_FILES_LEVEL
    assert {name: is_plain(world, name) for name in names} == dict.fromkeys(names, expected)


def test_files_of_both_kinds_are_believed() -> None:
    world = written(TAGGED_FILES_LEVEL - 1)
    world.open()
    world.store.use_level(TAGGED_FILES_LEVEL)
    world.fill(30)
    world.restart()
    assert (len(world.values()), world.log.is_damaged) == (60, False)
