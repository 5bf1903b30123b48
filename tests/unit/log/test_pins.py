"""Goal: leases of scans go when their time is up, whatever was left behind in one of them.

Method: leases on a disk in memory, swept.
"""

from __future__ import annotations

from dragoman.log.pins import EXPIRES, PINS, sweep_pins
from dragoman.testing.memory import MemoryDisk
from dragoman.world import write_aside


def make_file(disk: MemoryDisk, path: str, data: bytes) -> None:
    write_aside(disk, path, data)
    disk.rename(f"{path}.new", path)


def test_lease_whose_renewal_was_cut_short_goes_and_holds_up_no_other() -> None:
    disk = MemoryDisk()
    for name in ("a", "b"):
        disk.make_directory(f"{PINS}/{name}/1-t-0")
        make_file(disk, f"{PINS}/{name}/1-t-0/0.log", b"records")
        make_file(disk, f"{PINS}/{name}/{EXPIRES}", b"5")
    make_file(disk, f"{PINS}/a/{EXPIRES}.77", b"")
    assert sweep_pins(disk, 4) == 0
    assert sweep_pins(disk, 5) == 2
    assert disk.names(PINS) == []
