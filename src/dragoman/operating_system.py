"""The operating system: the real versions of the ports of `world.py`, limits, use of resources and
environments of processes, private files.
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
from typing import Literal, TypeVar

from dragoman.errors import DirectoryInUseError
from dragoman.limits import OPEN_FILES_MAX
from dragoman.shared_directory import CLOSED, CLOSED_FILE, SharedDirectory
from dragoman.types import Buffer
from dragoman.world import OUT_OF_FILES, FileStamp, Random

Result = TypeVar("Result")


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


def process_usage() -> dict[str, float]:
    """What this process uses, under the names that Prometheus' clients give it; without what the
    system does not tell.
    """
    import resource

    spent = resource.getrusage(resource.RUSAGE_SELF)
    usage: dict[str, float] = {
        "cpu_seconds_total": spent.ru_utime + spent.ru_stime,
        "max_fds": open_files_max(),
    }
    with suppress(OSError):
        # The descriptor of the directory itself is among them.
        usage["open_fds"] = len(os.listdir("/dev/fd")) - 1
    with suppress(OSError, ValueError, IndexError):
        usage |= _linux_usage()
    return usage


def _linux_usage() -> dict[str, float]:
    """From `/proc`, as of proc_pid_stat(5). Raises `OSError` where there is none."""
    with open("/proc/self/stat", "rb") as file:
        # The name of the program comes before, in parentheses, and may hold anything.
        fields = file.read().rpartition(b")")[2].split()
    with open("/proc/stat", "rb") as file:
        booted = next(line for line in file if line.startswith(b"btime "))
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    return {
        "start_time_seconds": int(booted.split()[1]) + int(fields[19]) / ticks,
        "virtual_memory_bytes": int(fields[20]),
        "resident_memory_bytes": int(fields[21]) * page,
    }


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

    #: Without a call of our own: it is read with every request.
    monotonic = staticmethod(time.monotonic)


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
        mode_bits = self._file_mode if "/" in path else CLOSED_FILE
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
        os.makedirs(full, mode=CLOSED, exist_ok=True)
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

    def size_bytes(self) -> int:
        status = os.statvfs(self.root)
        return status.f_blocks * status.f_frsize

    def lock(self, path: str) -> RealLock:
        fd = os.open(self._path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, CLOSED_FILE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise DirectoryInUseError(f"another process uses {self.root}") from None
            raise
        return RealLock(fd, self._path(path))
