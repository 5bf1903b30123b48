"""The memory disk: what it does beyond the contract all disks share (`test_disk_contract.py`)."""

from __future__ import annotations

import errno

import pytest

from dragoman.testing.memory import MemoryDisk
from dragoman.world import read_whole


def test_a_full_disk_refuses_a_write_whole_and_gives_space_back() -> None:
    disk = MemoryDisk(capacity_bytes=100)
    file = disk.open("a", "create")
    file.write([b"x" * 60], 0)
    for call in (lambda: file.write([b"y" * 41], 60), lambda: file.truncate(101)):
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == errno.ENOSPC
    assert read_whole(disk, "a") == b"x" * 60
    assert disk.free_bytes() == 40
    file.write([b"z" * 60], 0)
    file.truncate(10)
    assert disk.free_bytes() == 90
    disk.remove("a")
    assert disk.free_bytes() == 90
    file.close()
    assert disk.free_bytes() == 100


def test_a_replaced_file_gives_its_space_back() -> None:
    disk = MemoryDisk(capacity_bytes=100)
    for name, size in (("a", 30), ("b", 20)):
        file = disk.open(name, "create")
        file.write([bytes(size)], 0)
        file.close()
    disk.link("a", "c")
    disk.rename("b", "a")
    assert disk.free_bytes() == 50
    disk.remove("c")
    assert disk.free_bytes() == 80


def test_a_position_far_past_the_end_takes_no_memory() -> None:
    file = MemoryDisk().open("a", "create")
    with pytest.raises(OSError, match="No space"):
        file.write([b"x"], 1 << 50)
    assert file.size() == 0


def test_two_disks_share_nothing() -> None:
    first, second = MemoryDisk(), MemoryDisk()
    first.open("a", "create").close()
    first.lock("lock")
    assert second.names("") == []
    second.lock("lock")
