"""The real disk: a directory of the file system, its files and its lock."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Literal

from dragoman.errors import DirectoryInUseError
from dragoman.operating_system import platforms
from dragoman.operating_system.descriptors import SpareDescriptors
from dragoman.shared_directory import CLOSED, CLOSED_FILE, SharedDirectory
from dragoman.types import Buffer
from dragoman.world import sync_path

#: Linux and macOS take at most this many buffers in one vectored write.
_IOV_MAX = 1024


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
        if platforms.DURABLE_WRITE is not None:
            self._write(buffers, position, platforms.DURABLE_WRITE)
        else:
            self._write(buffers, position, 0)
            platforms.sync_file(self._fd)

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
        platforms.sync_file(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def is_linked(self) -> bool:
        return os.fstat(self._fd).st_nlink > 0

    def close(self) -> None:
        os.close(self._fd)
        self._spares.refill()


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
        platforms.unlock(self._fd)
        os.close(self._fd)


_OPEN_FLAGS = {
    # A pipe in the place of a file fails when it is read, instead of stopping the node.
    "read": os.O_RDONLY | platforms.NEVER_WAIT | platforms.CLOSE_ON_EXEC,
    "write": os.O_RDWR | platforms.CLOSE_ON_EXEC,
    "create": os.O_RDWR | os.O_CREAT | os.O_EXCL | platforms.CLOSE_ON_EXEC,
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
        `file_mode` the mode of files that are created. Raises `ConfigError` on Windows.
        """
        platforms.require_unix("a data directory")
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
            platforms.sync_directory(fd)
        finally:
            os.close(fd)
            self._spares.refill()

    def _open_directory(self, path: str) -> int:
        full, flags = self._path(path), os.O_RDONLY | platforms.DIRECTORY | platforms.CLOSE_ON_EXEC
        return self._spares.use(lambda: os.open(full, flags))

    def sync_all(self) -> None:
        if not platforms.HAS_SYNCFS:
            self._sync_each()
            return
        fd = self._open_directory("")
        try:
            platforms.sync_file_system(fd, self.root)
        finally:
            os.close(fd)
            self._spares.refill()

    def _sync_each(self) -> None:
        # Contents before names: a name that survives has what belongs to it.
        for directory, _, names in os.walk(self.root, topdown=False):
            path = os.path.relpath(directory, self.root)
            place = "" if path == os.curdir else f"{path}/"
            for name in names:
                # Other users' files, sockets and links hold nothing of the node.
                if os.path.isfile(f"{directory}/{name}") and not os.path.islink(
                    f"{directory}/{name}"
                ):
                    sync_path(self, f"{place}{name}")
            self.sync_directory(place.rstrip("/"))

    def free_bytes(self) -> int:
        status = os.statvfs(self.root)
        return status.f_bavail * status.f_frsize

    def size_bytes(self) -> int:
        status = os.statvfs(self.root)
        return status.f_blocks * status.f_frsize

    def lock(self, path: str) -> RealLock:
        flags = os.O_RDWR | os.O_CREAT | platforms.CLOSE_ON_EXEC
        fd = os.open(self._path(path), flags, CLOSED_FILE)
        try:
            is_ours = platforms.lock(fd)
        except OSError:
            os.close(fd)
            raise
        if not is_ours:
            os.close(fd)
            raise DirectoryInUseError(f"another process uses {self.root}")
        return RealLock(fd, self._path(path))
