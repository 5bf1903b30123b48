"""The ports through which everything below the composition root touches the outside.

Clock, disk, background disk work, scheduling and randomness arrive as arguments; the network's port
is `asyncio.Protocol` and `asyncio.Transport`, which the simulated loop implements too. The real
versions are in this module, the simulated ones in `dragoman.testing.sim`. Nothing else in the
package may call `time`, `random`, `os.open` and their like: that is what makes a run repeatable
from a seed.

All disk calls block. Paths are relative to the disk's root, with `/` between parts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from dragoman.errors import DirectoryInUseError
from dragoman.limits import (
    BACKGROUND_JOB_BYTES_MAX,
    BACKGROUND_JOBS_MAX,
    BACKGROUND_QUEUED_BYTES_MAX,
    BULK_SYNC_FILES_MIN,
    OPEN_FILES_MAX,
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


# ---- real versions


def allow_open_files() -> None:
    """Raise the limit of open files as far as permitted: the usual one is meant for desktop
    programs.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_files_max() -> int:
    """The limit of descriptors of this process."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft


class RealPlainFiles:
    def stamp(self, path: str) -> FileStamp | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return FileStamp(found.st_mtime_ns, found.st_ino, found.st_size)

    def read(self, path: str, bytes_max: int) -> bytes:
        with open(path, "rb") as file:
            data = file.read(bytes_max + 1)
        if len(data) > bytes_max:
            raise OSError(errno.EFBIG, f"larger than {bytes_max} bytes", path)
        return data


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


def utc_text(wall_ms: int) -> str:
    """A time of `Clock.wall_ms`, as `2026-01-02T03:04:05.678Z`."""
    return (
        f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(wall_ms // 1000))}.{wall_ms % 1000:03d}Z"
    )


def system_random() -> Random:
    return random.SystemRandom()


#: Linux takes at most this many buffers in one vectored write.
_IOV_MAX = 1024


class SpareDescriptors:
    """Descriptors held open in reserve, to be closed when no others are free.

    Accepted connections may use up all descriptors of the process. Code that must not fail for that
    reason closes one of these and retries. The reserve is refilled as soon as descriptors are free.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._open: list[int] = []
        self.refill()

    def refill(self) -> None:
        with suppress(OSError):
            while len(self._open) < self._count:
                self._open.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def use(self, call: Callable[[], Result]) -> Result:
        """Call something that needs a descriptor, using a spare one if no other is free."""
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in OUT_OF_FILES:
                    raise
                # Other threads use spare ones, too, and may take the descriptor just closed.
                try:
                    spare = self._open.pop()
                except IndexError:
                    raise error from None
                os.close(spare)

    def __del__(self) -> None:
        while self._open:
            os.close(self._open.pop())


class RealFile:
    __slots__ = ("_fd", "_spares")

    def __init__(self, fd: int, spares: SpareDescriptors) -> None:
        self._fd = fd
        self._spares = spares

    def read(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing and data:
            data = os.pread(self._fd, missing, position + size - missing)
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        self._write(buffers, position, 0)

    def write_durable(self, buffers: Sequence[Buffer], position: int) -> None:
        self._write(buffers, position, os.RWF_DSYNC)

    def _write(self, buffers: Sequence[Buffer], position: int, flags: int) -> None:
        if position < 0:
            # To the system call, -1 is not an error but the file's current position.
            raise OSError(errno.EINVAL, f"cannot write at position {position}")
        if len(buffers) <= _IOV_MAX:
            wanted = sum(map(len, buffers))
            if os.pwritev(self._fd, buffers, position, flags) == wanted:
                return
        # After a short write, or with too many buffers for one call, copy once and finish
        # piecemeal. The durable flag goes on every piece, so the promise holds when the last one
        # returns.
        rest = memoryview(b"".join(buffers))
        while rest:
            written = os.pwritev(self._fd, [rest], position, flags)
            rest = rest[written:]
            position += written

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def is_linked(self) -> bool:
        return os.fstat(self._fd).st_nlink > 0

    def close(self) -> None:
        os.close(self._fd)
        self._spares.refill()


class RealSecrets:
    """Secrets in files and in the environment of this process."""

    def __init__(self, root: str) -> None:
        self._root = root

    def read(self, path: str, size_max: int, *, is_private: bool) -> bytes:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        fd = os.open(os.path.join(self._root, path), flags)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            if found.st_size > size_max:
                raise OSError(errno.EFBIG, f"it has more than {size_max} bytes")
            if is_private:
                _require_private(found)
            data = b""
            while len(data) <= size_max and (more := os.read(fd, size_max + 1 - len(data))):
                data += more
        finally:
            os.close(fd)
        if len(data) > size_max:
            raise OSError(errno.EFBIG, f"it has more than {size_max} bytes")
        return data

    def create(self, path: str, data: bytes) -> None:
        create_private(os.path.join(self._root, path), data)

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)


#: Variables that a process of the node inherits: how to run, and where the system's libraries find
#: what belongs to them. Others may be secrets, such as those that `env:` references name.
_INHERITED = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TZDIR", "TMPDIR"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("KRB5_CONFIG", "KRB5CCNAME", "KRB5_KTNAME", "LOCALDOMAIN", "RES_OPTIONS"),
    )
)
_INHERITED_PREFIXES = ("LC_", "PYTHON", "OPENSSL_", "MALLOC_", "COVERAGE_", "COV_CORE_")


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that a node starts, without secrets of the node."""
    return {
        name: text
        for name, text in environment.items()
        if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }


def _require_private(found: os.stat_result) -> None:
    """As PostgreSQL requires of private keys: mode 0600, or 0640 if the file belongs to root."""
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in (0, os.geteuid()):
        raise OSError(errno.EPERM, "it belongs to another user")
    if mode & (0o027 if found.st_uid == 0 else 0o077):
        raise OSError(errno.EPERM, f"other users may use it (mode {mode:04o}): chmod 600")


def create_private(path: str, data: bytes) -> None:
    """Make a file with mode 0600, durable when this returns. A crash leaves the whole file under
    its name, or none. Raises `FileExistsError` and other `OSError`.
    """
    # Unlike a rename, a link never replaces a file.
    _write_private(path, data, os.link)


def replace_private(path: str, data: bytes) -> None:
    """Replace a file by one with mode 0600, durable when this returns. A crash leaves the old file
    or the new one. Raises `OSError`.
    """
    _write_private(path, data, os.replace)


def _write_private(path: str, data: bytes, name: Callable[[str, str], None]) -> None:
    aside = f"{path}.new-{os.getpid()}"
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        name(aside, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class RealLock:
    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def is_ours(self) -> bool:
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # A temporary lack of rights or an unresponsive file system proves nothing, and must not
            # stop the node.
            return True
        ours = os.fstat(self._fd)
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def fileno(self) -> int:
        """The descriptor of the lock, for a child process that shares the files and so keeps the
        lock.
        """
        return self._fd

    def release(self) -> None:
        # Closing alone would leave the lock with any process that shares the descriptor.
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)


#: Directories of a data directory: partitions (log/directory.py) and pins (log/pins.py).
_PARTITIONS: Final = "partitions"
_PINS: Final = "pins"
#: Modes of shared directories: with the group passing, reading, and making files of its own, which
#: only their owners remove. Files get the group of their directory (setgid).
_PASSED, _READ, _PINNED = 0o710, 0o2750, 0o3770
_CLOSED: Final = 0o700
_SHARED_FILE, _CLOSED_FILE = 0o640, 0o600


class SharedDirectory:
    """A data directory in which a group may read the files of topics.

    Permissions of directories decide: the group passes the root and `partitions`, and reads the
    directories of partitions whose topic is not internal. All others are closed, and so are files
    in the root.
    """

    def __init__(self, root: str, group: int) -> None:
        self._root = root
        self._group = group

    def apply(self) -> None:
        """Give everything that exists its permissions, the root last. Raises `OSError`, EPERM if
        this user is not a member of the group.
        """
        for entry in os.scandir(self._root):
            if entry.name not in (_PARTITIONS, _PINS):
                _restrict(entry)
        partitions = f"{self._root}/{_PARTITIONS}"
        os.makedirs(partitions, exist_ok=True)
        for entry in os.scandir(partitions):
            if entry.is_dir(follow_symlinks=False):
                self.made(f"{_PARTITIONS}/{entry.name}", entry.path)
        os.makedirs(f"{self._root}/{_PINS}", exist_ok=True)
        self._set(f"{self._root}/{_PINS}", _PINNED)
        self._set(partitions, _PASSED)
        self._set(self._root, _PASSED)

    def made(self, path: str, full: str) -> None:
        """Give a directory, which was made or found at this path, its permissions."""
        first, _, rest = path.partition("/")
        if first != _PARTITIONS or not rest or "/" in rest:
            return
        if not _is_of_users(rest):
            os.chmod(full, _CLOSED)
            return
        found = os.stat(full)
        if (found.st_gid, stat.S_IMODE(found.st_mode)) != (self._group, _READ):
            for entry in os.scandir(full):
                os.chown(entry.path, -1, self._group)
                os.chmod(entry.path, _SHARED_FILE)
            self._set(full, _READ)

    def _set(self, full: str, mode: int) -> None:
        found = os.stat(full)
        if found.st_gid != self._group:
            os.chown(full, -1, self._group)
        # A change of the group clears the bits above the permissions.
        os.chmod(full, mode)


def _restrict(entry: os.DirEntry[str]) -> None:
    """Close a file or a directory to all but its user."""
    if not entry.is_symlink():
        os.chmod(entry.path, _CLOSED if entry.is_dir() else _CLOSED_FILE)


def _is_of_users(directory: str) -> bool:
    """Whether a partition's directory, `ID-TOPIC-INDEX`, belongs to a topic of users."""
    identity, dash, topic = directory.partition("-")
    return bool(dash) and identity.isdecimal() and not topic.startswith("__")


def close_directory(root: str) -> None:
    """Take a data directory back from the group that it was shared with, if it was."""
    try:
        modes = [stat.S_IMODE(os.stat(each).st_mode) for each in (root, f"{root}/{_PARTITIONS}")]
    except FileNotFoundError:
        return
    if modes == [_PASSED, _PASSED]:
        os.chmod(root, _CLOSED)


_OPEN_FLAGS = {
    "read": os.O_RDONLY | os.O_CLOEXEC,
    "write": os.O_RDWR | os.O_CLOEXEC,
    "create": os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
}


def is_directory(path: str) -> bool:
    """Whether a directory exists, without creating it as opening a disk does."""
    return os.path.isdir(path)


class RealDisk:
    """A directory of the operating system's file system.

    Creates the directory with access for this user only, because it may contain passwords of
    databases. An existing directory keeps its permissions.
    """

    def __init__(self, root: str, spare_files: int = 0, file_mode: int = 0o644) -> None:
        """`spare_files` is the number of files that can be opened when no descriptor is free;
        `file_mode` the mode of files that are created.
        """
        os.makedirs(root, mode=0o700, exist_ok=True)
        self.root = os.path.abspath(root)
        self._file_mode = file_mode
        self._sharing: SharedDirectory | None = None
        self._spares = SpareDescriptors(spare_files)

    def share(self, group: int) -> None:
        """Let a group read the files of topics. Raises `OSError`."""
        self._sharing = SharedDirectory(self.root, group)
        self._sharing.apply()

    def _path(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def open(self, path: str, mode: Literal["read", "write", "create"]) -> RealFile:
        full, flags = self._path(path), _OPEN_FLAGS[mode]
        # In the root are the identity of the node and its metadata, which are never shared.
        mode_bits = self._file_mode if "/" in path else _CLOSED_FILE
        return RealFile(self._spares.use(lambda: os.open(full, flags, mode_bits)), self._spares)

    def names(self, directory: str) -> list[str]:
        path = self._path(directory)
        try:
            return sorted(self._spares.use(lambda: os.listdir(path)))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(self._path(path))

    def make_directory(self, path: str) -> None:
        full = self._path(path)
        if self._sharing is None:
            os.makedirs(full, exist_ok=True)
            return
        os.makedirs(full, mode=_CLOSED, exist_ok=True)
        self._sharing.made(path, full)

    def remove_directory(self, path: str) -> None:
        try:
            os.rmdir(self._path(path))
        except FileNotFoundError:
            return

    def rename(self, old: str, new: str) -> None:
        os.replace(self._path(old), self._path(new))

    def link(self, old: str, new: str) -> None:
        os.link(self._path(old), self._path(new))

    def remove(self, path: str) -> None:
        try:
            os.unlink(self._path(path))
        except FileNotFoundError:
            return

    def sync_directory(self, path: str) -> None:
        try:
            fd = self._open_directory(path)
        except FileNotFoundError:
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
            self._spares.refill()

    def _open_directory(self, path: str) -> int:
        full, flags = self._path(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        return self._spares.use(lambda: os.open(full, flags))

    def sync_all(self) -> None:
        # Imported here: few processes need it, and none at start.
        import ctypes

        fd = self._open_directory("")
        try:
            # Unlike sync(2), this reports errors and leaves other file systems alone.
            if ctypes.CDLL(None, use_errno=True).syncfs(fd):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), self.root)
        finally:
            os.close(fd)
            self._spares.refill()

    def free_bytes(self) -> int:
        status = os.statvfs(self.root)
        return status.f_bavail * status.f_frsize

    def lock(self, path: str) -> RealLock:
        fd = os.open(self._path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _CLOSED_FILE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise DirectoryInUseError(f"another process uses {self.root}") from None
            raise
        return RealLock(fd, self._path(path))
