"""The real disk, the memory disk and the simulated disk behave alike, down to the kind of error.

Every test runs on all three. What only one of them does is tested in its own module.
"""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from dragoman.errors import DirectoryInUseError
from dragoman.operating_system import RealDisk
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.disk import SimDisk
from dragoman.world import Disk, parent, read_whole, replace_file, sync_path, zero_fill


@pytest.fixture(params=["real", "memory", "sim"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    match request.param:
        case "real":
            return RealDisk(str(tmp_path))
        case "memory":
            return MemoryDisk()
        case _:
            return SimDisk(Random(1))


def put(disk: Disk, path: str, data: bytes = b"") -> None:
    file = disk.open(path, "create")
    file.write([data], 0)
    file.close()


def failure(disk: Disk, call: str, *args: str) -> int | None:
    with pytest.raises(OSError) as raised:
        getattr(disk, call)(*args)
    return raised.value.errno


# ---- bytes


def test_reads_back_what_was_written_in_one_or_many_buffers(disk: Disk) -> None:
    file = disk.open("a", "create")
    file.write([b"abc", bytearray(b"de"), memoryview(b"fgh")], 0)
    file.write_durable([b"XY"], 2)
    assert file.read(100, 0) == b"abXYefgh"
    assert file.read(3, 1) == b"bXY"
    assert file.read(3, 7) == b"h"
    assert file.read(3, 8) == b""
    assert file.read(3, 100) == b""
    assert file.read(0, 0) == b""
    assert file.size() == 8
    file.close()
    assert read_whole(disk, "a") == b"abXYefgh"


def test_empty_writes_change_nothing(disk: Disk) -> None:
    file = disk.open("a", "create")
    file.write([], 0)
    file.write([b""], 100)
    file.write_durable([b"", b""], 5)
    assert file.size() == 0
    file.close()


def test_more_buffers_than_one_system_call_takes(disk: Disk) -> None:
    buffers = [bytes([i % 256]) * (i % 5) for i in range(3000)]
    file = disk.open("a", "create")
    file.write(buffers, 10)
    file.write_durable(buffers, 20_000)
    assert file.read(1 << 20, 10)[: len(b"".join(buffers))] == b"".join(buffers)
    assert file.read(1 << 20, 20_000) == b"".join(buffers)
    file.close()


def test_a_gap_reads_as_zeros(disk: Disk) -> None:
    file = disk.open("a", "create")
    file.write([b"x"], 5)
    assert file.read(10, 0) == b"\0\0\0\0\0x"
    file.close()


def test_truncate_cuts_and_lengthens(disk: Disk) -> None:
    file = disk.open("a", "create")
    file.write([b"abcdef"], 0)
    file.truncate(3)
    assert file.size() == 3
    file.truncate(5)
    assert file.read(10, 0) == b"abc\0\0"
    file.write([b"Z"], 5)
    file.sync()
    assert file.read(10, 0) == b"abc\0\0Z"
    file.close()


def test_a_removed_file_lives_while_it_is_open(disk: Disk) -> None:
    put(disk, "a", b"abc")
    file = disk.open("a", "write")
    disk.remove("a")
    file.write([b"d"], 3)
    assert file.read(10, 0) == b"abcd"
    assert not disk.exists("a")
    file.close()


def test_two_opens_see_each_others_writes(disk: Disk) -> None:
    first = disk.open("a", "create")
    second = disk.open("a", "write")
    first.write([b"abc"], 0)
    assert second.read(10, 0) == b"abc"
    second.truncate(1)
    assert first.size() == 1
    first.close()
    second.close()


@pytest.mark.parametrize("call", ["write", "write_durable", "truncate"])
def test_a_file_opened_for_reading_refuses_changes(disk: Disk, call: str) -> None:
    put(disk, "a", b"abc")
    file = disk.open("a", "read")
    arguments = (1,) if call == "truncate" else ([b"x"], 0)
    with pytest.raises(OSError) as raised:
        getattr(file, call)(*arguments)
    assert raised.value.errno in (errno.EBADF, errno.EINVAL)
    assert file.read(10, 0) == b"abc"
    file.sync()
    file.close()


def test_negative_positions_are_refused(disk: Disk) -> None:
    file = disk.open("a", "create")
    for call in (
        lambda: file.read(1, -1),
        lambda: file.write([b"x"], -1),
        lambda: file.truncate(-1),
    ):
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == errno.EINVAL
    file.close()


def test_a_closed_file_is_of_no_more_use(disk: Disk) -> None:
    file = disk.open("a", "create")
    file.close()
    for call in (file.size, file.sync, file.close, lambda: file.write([b"x"], 0)):
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == errno.EBADF


# ---- names


def test_open_tells_missing_and_existing_apart(disk: Disk) -> None:
    assert failure(disk, "open", "a", "read") == errno.ENOENT
    assert failure(disk, "open", "a", "write") == errno.ENOENT
    assert failure(disk, "open", "no/a", "create") == errno.ENOENT
    put(disk, "a")
    assert failure(disk, "open", "a", "create") == errno.EEXIST
    assert failure(disk, "open", "a/b", "create") == errno.ENOTDIR
    assert failure(disk, "open", "a/b", "read") == errno.ENOTDIR
    disk.make_directory("d")
    assert failure(disk, "open", "d", "create") == errno.EEXIST
    assert failure(disk, "open", "d", "write") == errno.EISDIR


def test_errors_are_the_builtin_subclasses_and_name_the_path(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        disk.open("some/file", "read")
    assert str(raised.value.filename).endswith("some/file")


def test_directories_are_made_with_parents_and_listed_sorted(disk: Disk) -> None:
    disk.make_directory("d/e/f")
    disk.make_directory("d/e/f")
    disk.make_directory("d/b")
    put(disk, "d/c")
    assert disk.names("") == ["d"]
    assert disk.names("d") == ["b", "c", "e"]
    assert disk.names("d/e/f") == []
    assert disk.names("nowhere") == []
    assert disk.exists("d/e")
    assert disk.exists("")
    assert not disk.exists("d/x")
    assert not disk.exists("d/c/x")


def test_a_file_in_the_way_of_a_directory(disk: Disk) -> None:
    put(disk, "a")
    assert failure(disk, "make_directory", "a") == errno.EEXIST
    assert failure(disk, "make_directory", "a/b") == errno.ENOTDIR
    assert failure(disk, "names", "a") == errno.ENOTDIR
    assert failure(disk, "remove_directory", "a") == errno.ENOTDIR
    assert failure(disk, "sync_directory", "a") == errno.ENOTDIR


def test_remove_directory_wants_it_empty_and_forgives_a_missing_one(disk: Disk) -> None:
    disk.make_directory("d")
    put(disk, "d/a")
    assert failure(disk, "remove_directory", "d") == errno.ENOTEMPTY
    disk.remove("d/a")
    disk.remove_directory("d")
    disk.remove_directory("d")
    disk.remove_directory("no/d")
    assert disk.names("") == []


def test_remove_forgives_a_missing_file_and_refuses_a_directory(disk: Disk) -> None:
    put(disk, "a")
    disk.remove("a")
    disk.remove("a")
    disk.remove("no/a")
    assert disk.names("") == []
    disk.make_directory("d")
    assert failure(disk, "remove", "d") == errno.EISDIR


def test_rename_replaces_and_moves(disk: Disk) -> None:
    put(disk, "a", b"new")
    put(disk, "b", b"old")
    disk.rename("a", "b")
    disk.make_directory("d")
    disk.rename("b", "d/c")
    assert disk.names("") == ["d"]
    assert read_whole(disk, "d/c") == b"new"
    disk.rename("d/c", "d/c")
    assert disk.names("d") == ["c"]


def test_rename_of_directories(disk: Disk) -> None:
    disk.make_directory("d/e")
    put(disk, "d/a", b"x")
    disk.make_directory("empty")
    disk.rename("d", "empty")
    assert disk.names("empty") == ["a", "e"]
    disk.make_directory("full/x")
    put(disk, "f")
    assert failure(disk, "rename", "empty", "full") == errno.ENOTEMPTY
    assert failure(disk, "rename", "empty", "f") == errno.ENOTDIR
    assert failure(disk, "rename", "f", "full") == errno.EISDIR
    assert failure(disk, "rename", "empty", "empty/e/x") == errno.EINVAL


def test_rename_of_nothing_or_to_nowhere(disk: Disk) -> None:
    put(disk, "a")
    assert failure(disk, "rename", "x", "y") == errno.ENOENT
    assert failure(disk, "rename", "a", "no/y") == errno.ENOENT
    assert disk.names("") == ["a"]


def test_link_gives_a_second_name_to_the_same_bytes(disk: Disk) -> None:
    put(disk, "a", b"abc")
    disk.link("a", "b")
    file = disk.open("b", "write")
    file.write([b"X"], 0)
    file.close()
    assert read_whole(disk, "a") == b"Xbc"
    disk.rename("a", "b")
    assert disk.names("") == ["a", "b"]
    disk.remove("a")
    assert read_whole(disk, "b") == b"Xbc"


def test_link_refuses_what_exists_is_missing_or_is_a_directory(disk: Disk) -> None:
    put(disk, "a")
    put(disk, "b")
    disk.make_directory("d")
    assert failure(disk, "link", "a", "b") == errno.EEXIST
    assert failure(disk, "link", "x", "y") == errno.ENOENT
    assert failure(disk, "link", "d", "e") == errno.EPERM


def test_a_name_too_long_is_refused(disk: Disk) -> None:
    put(disk, "ü" * 127)
    assert failure(disk, "open", "ü" * 128, "create") == errno.ENAMETOOLONG
    assert failure(disk, "make_directory", "n" * 256) == errno.ENAMETOOLONG


def test_sync_directory_forgives_a_missing_one(disk: Disk) -> None:
    disk.sync_directory("nowhere")
    disk.sync_directory("")


# ---- locks and space


def test_sync_all_changes_nothing_that_is_seen(disk: Disk) -> None:
    disk.make_directory("a/b")
    file = disk.open("a/b/f", "create")
    file.write([b"x"], 0)
    file.close()
    disk.sync_all()
    assert read_whole(disk, "a/b/f") == b"x"


def test_a_lock_is_exclusive_until_released(disk: Disk) -> None:
    lock = disk.lock("lock")
    with pytest.raises(DirectoryInUseError):
        disk.lock("lock")
    disk.lock("other").release()
    lock.release()
    disk.lock("lock").release()
    assert disk.names("") == ["lock", "other"]


def test_there_is_space(disk: Disk) -> None:
    assert 0 < disk.free_bytes() <= disk.size_bytes()


# ---- what is built on the port


def test_replace_file_leaves_nothing_aside(disk: Disk) -> None:
    disk.make_directory("d")
    put(disk, "d/a.new", b"a leftover that is longer")
    replace_file(disk, "d/a", b"one")
    replace_file(disk, "d/a", b"two")
    assert disk.names("d") == ["a"]
    assert read_whole(disk, "d/a") == b"two"


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 7])
def test_zero_fill_makes_exactly_that_many_zeros(disk: Disk, size: int) -> None:
    zero_fill(disk, "z", size)
    assert read_whole(disk, "z") == bytes(size)
    assert failure(disk, "open", "z", "create") == errno.EEXIST


def test_sync_path_forgives_a_missing_file(disk: Disk) -> None:
    put(disk, "a", b"a")
    sync_path(disk, "a")
    sync_path(disk, "b")


def test_parent_of_a_path() -> None:
    assert parent("a/b/c") == "a/b"
    assert parent("a") == ""
