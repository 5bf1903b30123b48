"""The ports through which everything below the composition root touches the outside.

Clock, disk, background disk work, scheduling and randomness arrive as arguments; the network's port
is `asyncio.Protocol` and `asyncio.Transport`, which the simulated loop implements too. The real
versions are in `operating_system`, the simulated ones in `dragoman.testing.sim`. Nothing below
the composition root may call `time`, `random`, `os.open` and their like: that is what makes a run
repeatable from a seed.

All disk calls block. Paths are relative to the disk's root, with `/` between parts.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from dragoman.limits import (
    BACKGROUND_JOB_BYTES_MAX,
    BACKGROUND_JOBS_MAX,
    BACKGROUND_QUEUED_BYTES_MAX,
    BULK_SYNC_FILES_MIN,
)
from dragoman.types import Buffer

#: No descriptor is left, in the process or on the machine. Transient: others are closed in time.
OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)

Result = TypeVar("Result")

#: Source of all randomness: seeded in tests, the operating system's in production.
Random: TypeAlias = random.Random


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970. May jump; only for timestamps that people or clients see."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; for time-outs and ages."""
        ...


def utc_text(wall_ms: int) -> str:
    """A time of `Clock.wall_ms`, as `2026-01-02T03:04:05.678Z`."""
    return (
        f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(wall_ms // 1000))}.{wall_ms % 1000:03d}Z"
    )


class Handle(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The part of an asyncio event loop that code below the handlers may use."""

    def time(self) -> float: ...

    def call_soon(self, callback: Callable[..., object], *args: object) -> Handle: ...

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object
    ) -> Handle: ...


#: The result for a name without an address.
NO_ADDRESS: Final = "0.0.0.0"


class HostNames(Protocol):
    def ipv4(self, host: str) -> str:
        """The last known address of a host, without blocking; `NO_ADDRESS` if none is known."""
        ...


class NumericHosts:
    """Resolves no names: an address stands for itself."""

    def ipv4(self, host: str) -> str:
        return host if is_ipv4(host) else NO_ADDRESS


def is_ipv4(host: str) -> bool:
    parts = host.split(".")
    return len(parts) == 4 and all(
        each.isascii() and each.isdigit() and len(each) <= 3 and int(each) <= 255 for each in parts
    )


class FileStamp(NamedTuple):
    """A value that changes when a file is replaced or rewritten."""

    modified_ns: int
    inode: int
    size: int


class PlainFiles(Protocol):
    """Files outside the data directory that an operator names, such as certificates."""

    def stamp(self, path: str) -> FileStamp | None:
        """None: the file cannot be read at the moment."""
        ...

    def read(self, path: str, bytes_max: int) -> bytes:
        """Raises `OSError`, also for a larger file."""
        ...


class File(Protocol):
    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers in turn. Survives a crash of the process, not of the machine."""
        ...

    def write_durable(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers and return when the bytes are on stable storage."""
        ...

    def sync(self) -> None:
        """Make all earlier writes of this file durable, and its size with them."""
        ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def is_linked(self) -> bool:
        """Whether the file still has a name: writes to an unlinked file are lost with it."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    def is_ours(self) -> bool:
        """Whether the directory still exists under its name, with this lock in it."""
        ...

    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, mode: Literal["read", "write", "create"]) -> File:
        """`create` makes a file and refuses an existing one; `write` opens an existing or new
        one.
        """
        ...

    def names(self, directory: str) -> list[str]:
        """Sorted names in a directory; empty when it does not exist."""
        ...

    def exists(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; no error when it exists. Durable after
        `sync_directory` of each parent.
        """
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; no error when it is missing."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Replace `new` atomically. Durable only after `sync_directory`."""
        ...

    def link(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; no error when it is missing."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creates, renames and removes in this directory durable."""
        ...

    def sync_all(self) -> None:
        """Make everything durable: files, names and directories. Expensive, but no more so for a
        thousand files than for one.
        """
        ...

    def free_bytes(self) -> int: ...

    def size_bytes(self) -> int:
        """The size of the file system, free and used."""
        ...

    def lock(self, path: str) -> Lock:
        """Lock the directory for this process until release or exit. Raises
        `DirectoryInUseError`.
        """
        ...


class SecretSource(Protocol):
    """Secrets that the operator of a node keeps outside of its log. Paths are absolute, or relative
    to the data directory.
    """

    def read(self, path: str, size_max: int, *, is_private: bool) -> bytes:
        """The contents of a regular file. Raises `OSError`: `FileNotFoundError` without the file,
        EFBIG for a larger one, EPERM for one that must be private and that others may read.
        """
        ...

    def create(self, path: str, data: bytes) -> None:
        """Make a private file, durable when this returns. Raises `OSError`, EEXIST if it exists."""
        ...

    def variable(self, name: str) -> str | None:
        """A variable of the environment."""
        ...


class Replacement(msgspec.Struct, frozen=True):
    """A file that is replaced atomically: written aside, synced, renamed to `path`, made
    durable.
    """

    path: str
    data: bytes


class BackgroundJob(msgspec.Struct, frozen=True, kw_only=True):
    """Slow disk work. Its steps run in the order of the fields; a failure ends the job."""

    #: Files to make durable.
    sync: tuple[str, ...] = ()
    #: Directories to make durable, after the files.
    sync_directories: tuple[str, ...] = ()
    replace: tuple[Replacement, ...] = ()
    #: Files to create with this many zero bytes, synced.
    zero_fill: tuple[tuple[str, int], ...] = ()
    #: Bytes (path, position, size) whose write-back to the disk should begin before they are
    #: synced. A hint only: it may be ignored, and its failures are not errors.
    write_out: tuple[tuple[str, int, int], ...] = ()


class Background(Protocol):
    """Does slow disk work beside the loop, one job at a time, in order."""

    def submit(self, job: BackgroundJob, done: Callable[[OSError | None], None]) -> None:
        """Call `done` on the loop, after this has returned. An error of a sync is final.

        Raises `OSError` when the job is refused (EMSGSIZE: it is too large, ENOBUFS: too many are
        waiting); `done` is not called then.
        """
        ...

    def close(self) -> None:
        """Finish submitted jobs without calling `done`, and free resources.

        Blocks. Raises the first error of a job whose `done` was not called.
        """
        ...


def admit(job: BackgroundJob, waiting_jobs: int, waiting_bytes: int) -> int:
    """The bytes in a job. Raises `OSError` when it exceeds the bounds of a background."""
    size = sum(len(replacement.data) for replacement in job.replace)
    if size > BACKGROUND_JOB_BYTES_MAX:
        raise OSError(errno.EMSGSIZE, f"a background job of {size} bytes is too large")
    if waiting_jobs >= BACKGROUND_JOBS_MAX or waiting_bytes + size > BACKGROUND_QUEUED_BYTES_MAX:
        raise OSError(errno.ENOBUFS, f"{waiting_jobs} background jobs are waiting already")
    return size


def perform(disk: Disk, job: BackgroundJob) -> None:
    """Run a background job synchronously. Raises the first `OSError`.

    A job with many files uses a few syncs of the whole file system instead of several per file: for
    10,000 partitions that takes a second instead of a minute.
    """
    if len(job.sync) + len(job.replace) >= BULK_SYNC_FILES_MIN:
        _perform_in_bulk(disk, job)
    else:
        for path in job.sync:
            sync_path(disk, path)
        for directory in job.sync_directories:
            disk.sync_directory(directory)
        for replacement in job.replace:
            replace_file(disk, replacement.path, replacement.data)
    for path, size in job.zero_fill:
        zero_fill(disk, path, size)


def _perform_in_bulk(disk: Disk, job: BackgroundJob) -> None:
    for replacement in job.replace:
        write_aside(disk, replacement.path, replacement.data)
    # Files to sync, and new contents, are durable before any file gets its name.
    disk.sync_all()
    if job.replace:
        for replacement in job.replace:
            disk.rename(aside_of(replacement.path), replacement.path)
        disk.sync_all()


def sync_path(disk: Disk, path: str) -> None:
    """Sync one file by name; a file that was removed is ignored."""
    try:
        file = disk.open(path, "write")
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()


def read_whole(disk: Disk, path: str) -> bytes:
    file = disk.open(path, "read")
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def replace_file(disk: Disk, path: str, data: Buffer) -> None:
    """Replace a whole file so that a crash leaves the old one or the new one."""
    write_aside(disk, path, data, is_synced=True)
    disk.rename(aside_of(path), path)
    disk.sync_directory(parent(path))


def aside_of(path: str) -> str:
    """The temporary path of a file that will replace `path`."""
    return path + ".new"


def write_aside(disk: Disk, path: str, data: Buffer, *, is_synced: bool = False) -> None:
    aside = aside_of(path)
    disk.remove(aside)
    file = disk.open(aside, "create")
    try:
        file.write([data], 0)
        if is_synced:
            file.sync()
    finally:
        file.close()


class DiskSecrets:
    """Secrets on a disk of the simulator, or in memory: without permissions and environment."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def read(self, path: str, size_max: int, *, is_private: bool) -> bytes:  # noqa: ARG002
        data = read_whole(self._disk, path.lstrip("/"))
        if len(data) > size_max:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return data

    def create(self, path: str, data: bytes) -> None:
        if self._disk.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        replace_file(self._disk, path, data)

    def variable(self, name: str) -> str | None:  # noqa: ARG002
        return None


#: Size of one write when a file is filled with zeros.
_ZERO_BLOCK_BYTES = 1 << 20


def zero_fill(disk: Disk, path: str, size: int) -> None:
    file = disk.open(path, "create")
    try:
        block = memoryview(bytes(min(size, _ZERO_BLOCK_BYTES)))
        for position in range(0, size, _ZERO_BLOCK_BYTES):
            file.write([block[: size - position]], position)
        file.sync()
    finally:
        file.close()
    disk.sync_directory(parent(path))


def parent(path: str) -> str:
    """The directory part of a relative path; the root is the empty string."""
    return path.rpartition("/")[0]
