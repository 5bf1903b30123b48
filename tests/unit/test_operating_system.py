"""The real disk and the other real ports: what cannot be tested on the twins.

The behaviour all disks share is in `testing/test_disk_contract.py`.
"""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dragoman.errors import DirectoryInUseError
from dragoman.limits import (
    BACKGROUND_JOB_BYTES_MAX,
    BACKGROUND_JOBS_MAX,
    BACKGROUND_QUEUED_BYTES_MAX,
    OPEN_FILES_MAX,
)
from dragoman.operating_system import (
    RealDisk,
    SpareDescriptors,
    SystemClock,
    allow_open_files,
    platforms,
    process_usage,
    system_random,
)
from dragoman.telemetry.catalogue import METRICS
from dragoman.types import Buffer
from dragoman.world import BackgroundJob, Replacement, admit, perform, read_whole


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    return RealDisk(str(tmp_path / "made" / "here"))


def test_the_root_is_made_and_paths_stay_below_it(disk: RealDisk, tmp_path: Path) -> None:
    disk.open("a", "create").close()
    assert (tmp_path / "made" / "here" / "a").exists()


def test_a_pipe_in_the_place_of_a_file_fails_and_does_not_wait(disk: RealDisk) -> None:
    os.mkfifo(f"{disk.root}/pipe")
    file = disk.open("pipe", "read")
    with pytest.raises(OSError, match="Illegal seek"):
        file.read(10, 0)
    file.close()


def test_a_root_that_is_made_is_for_this_user_alone(disk: RealDisk, tmp_path: Path) -> None:
    assert (tmp_path / "made" / "here").stat().st_mode & 0o777 == 0o700
    opened = tmp_path / "opened"
    opened.mkdir(mode=0o755)
    RealDisk(str(opened))
    assert opened.stat().st_mode & 0o777 == 0o755


@contextmanager
def no_descriptors() -> Iterator[list[int]]:
    """The process has none left; those in the list may be closed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 20, hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield taken
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in taken:
            os.close(each)


def test_a_disk_with_spare_files_opens_some_when_no_descriptor_is_left(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path), 3)
    disk.make_directory("d")
    with no_descriptors() as taken:
        assert disk.names("") == ["d"]
        disk.sync_directory("d")
        files = [disk.open(name, "create") for name in "abc"]
        with pytest.raises(OSError, match="Too many open files"):
            disk.open("d", "create")
        # What it closes stays its own.
        files.pop().close()
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        files.append(disk.open("d/e", "create"))
        os.close(taken.pop())
        disk.open("d/f", "create").close()
    for file in files:
        file.close()


def test_spare_files_go_with_their_disk(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    disk = RealDisk(str(tmp_path), 10)
    assert len(os.listdir("/proc/self/fd")) == before + 10
    del disk
    assert len(os.listdir("/proc/self/fd")) == before


class ShortWrites:
    """`os.pwritev` that writes at most `most` bytes a call, and notes the flags it was given."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.flags: list[int] = []
        self.original = os.pwritev

    def __call__(self, fd: int, buffers: Sequence[Buffer], position: int, flags: int = 0) -> int:
        self.flags.append(flags)
        data = b"".join(buffers)[: self.most]
        return self.original(fd, [data], position, flags)


@pytest.mark.parametrize("most", [1, 3, 7, 1000])
@pytest.mark.parametrize("durable", [False, True])
def test_short_writes_are_finished_with_the_same_promise(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch, most: int, durable: bool
) -> None:
    short = ShortWrites(most)
    monkeypatch.setattr(os, "pwritev", short)
    file = disk.open("a", "create")
    buffers = [b"0123", b"", memoryview(b"456"), bytearray(b"789")]
    (file.write_durable if durable else file.write)(buffers, 5)
    assert file.read(100, 0) == bytes(5) + b"0123456789"
    assert set(short.flags) == {(platforms.DURABLE_WRITE or 0) if durable else 0}
    file.close()


def test_short_reads_are_finished(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("a", "create")
    file.write([b"0123456789"], 0)
    original = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: original(fd, min(size, 3), at))
    assert file.read(10, 0) == b"0123456789"
    assert file.read(8, 5) == b"56789"
    file.close()


def test_an_error_of_a_write_comes_out(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    file = disk.open("a", "create")
    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="no space") as raised:
        file.write([b"x"], 0)
    assert raised.value.errno == errno.ENOSPC
    file.close()


def test_free_bytes_is_what_the_file_system_says(disk: RealDisk) -> None:
    status = os.statvfs(disk.root)
    assert 0 < disk.free_bytes() <= status.f_blocks * status.f_frsize


# ---- locks between processes

HOLDER = """
import sys
from dragoman.operating_system import RealDisk
lock = RealDisk(sys.argv[1]).lock("lock")
print("held", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder(disk: RealDisk) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, disk.root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_keeps_other_processes_out_until_it_is_released(
    disk: RealDisk, holder: subprocess.Popen[str]
) -> None:
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        with pytest.raises(DirectoryInUseError, match="another process"):
            disk.lock("lock")
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "released\n"
        disk.lock("lock").release()


def test_a_lock_ends_with_its_process(disk: RealDisk, holder: subprocess.Popen[str]) -> None:
    with holder:
        holder.kill()
        holder.wait()
        disk.lock("lock").release()


def test_releasing_a_lock_frees_it_although_a_copy_of_the_descriptor_is_open(
    disk: RealDisk,
) -> None:
    lock = disk.lock("lock")
    copy = os.dup(lock.fileno())
    lock.release()
    disk.lock("lock").release()
    os.close(copy)


# ---- background jobs


def test_perform_does_all_parts_of_a_job(disk: RealDisk) -> None:
    disk.open("a", "create").close()
    job = BackgroundJob(
        sync=("a", "missing"),
        sync_directories=("",),
        replace=(Replacement("b", b"b"),),
        zero_fill=(("c", 3),),
    )
    perform(disk, job)
    assert disk.names("") == ["a", "b", "c"]
    assert read_whole(disk, "c") == bytes(3)


def test_perform_ends_at_the_first_failure(disk: RealDisk) -> None:
    job = BackgroundJob(replace=(Replacement("no/a", b""),), zero_fill=(("c", 3),))
    with pytest.raises(FileNotFoundError):
        perform(disk, job)
    assert disk.names("") == []


def test_admit_counts_bytes_and_refuses_excess() -> None:
    def job(size: int) -> BackgroundJob:
        return BackgroundJob(replace=(Replacement("a", bytes(size)), Replacement("b", b"xy")))

    assert admit(job(5), 0, 0) == 7
    assert admit(job(5), BACKGROUND_JOBS_MAX - 1, BACKGROUND_QUEUED_BYTES_MAX - 7) == 7
    for arguments, number in (
        ((job(BACKGROUND_JOB_BYTES_MAX - 1), 0, 0), errno.EMSGSIZE),
        ((job(5), BACKGROUND_JOBS_MAX, 0), errno.ENOBUFS),
        ((job(5), 0, BACKGROUND_QUEUED_BYTES_MAX - 6), errno.ENOBUFS),
    ):
        with pytest.raises(OSError) as raised:
            admit(*arguments)
        assert raised.value.errno == number


# ---- clock and randomness


def test_the_monotonic_clock_does_not_go_back() -> None:
    clock = SystemClock()
    first = clock.monotonic()
    assert clock.monotonic() >= first
    assert clock.wall_ms() > 1_600_000_000_000


def test_the_systems_randomness_has_no_seed() -> None:
    with pytest.raises(NotImplementedError):
        system_random().getstate()


def test_as_many_files_as_the_system_allows_may_be_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        allow_open_files()
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert allowed == (OPEN_FILES_MAX if hard == -1 else min(hard, OPEN_FILES_MAX))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_spare_descriptor_that_another_thread_takes_first_is_not_the_last_try() -> None:
    spares = SpareDescriptors(3)
    left = [OSError(errno.EMFILE, "too many"), OSError(errno.EMFILE, "too many")]

    def call() -> str:
        if left:
            raise left.pop()
        return "done"

    assert spares.use(call) == "done"
    spares.refill()

    def never() -> None:
        raise OSError(errno.EMFILE, "too many")

    with pytest.raises(OSError, match="too many"):
        spares.use(never)


def test_lock_is_lost_only_when_its_file_is_gone_or_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node stops for a directory that was removed, not for one that it may not look at."""
    lock = RealDisk(str(tmp_path)).lock("lock")
    assert lock.is_ours()

    def refuse(path: str) -> os.stat_result:
        raise PermissionError(errno.EACCES, "permission denied", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        found = lock.is_ours()
    assert found
    (tmp_path / "lock").rename(tmp_path / "other")
    assert not lock.is_ours()
    (tmp_path / "lock").touch()
    assert not lock.is_ours()
    lock.release()


def test_use_of_resources_is_known_on_linux() -> None:
    used = process_usage()
    assert used["resident_memory_bytes"] > 1_000_000
    assert used["virtual_memory_bytes"] >= used["resident_memory_bytes"]
    assert 1_000_000_000 < used["start_time_seconds"] <= time.time() + 1
    assert used["cpu_seconds_total"] > 0
    assert 0 < used["open_fds"] < used["max_fds"]
    assert {f"process_{name}" for name in used} <= METRICS.keys()


def test_use_that_the_system_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_file(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", no_such_file)
    monkeypatch.setattr(os, "listdir", no_such_file)
    assert process_usage().keys() == {"cpu_seconds_total", "max_fds"}
