"""Files outside of the log: those that an operator names, and secrets for this user alone."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress

from dragoman.operating_system import platforms
from dragoman.world import FileStamp


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


class RealSecrets:
    """Secrets in files and in the environment of this process."""

    def __init__(self, root: str) -> None:
        self._root = root

    def read(self, path: str, size_max: int, *, is_private: bool) -> bytes:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        flags = os.O_RDONLY | platforms.NEVER_WAIT | platforms.CLOSE_ON_EXEC
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


def _require_private(found: os.stat_result) -> None:
    """As PostgreSQL requires of private keys: mode 0600, or 0640 if the file belongs to root."""
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in (0, platforms.own_user()):
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
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | platforms.CLOSE_ON_EXEC
    fd = os.open(aside, flags, 0o600)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            platforms.sync_file(fd)
        finally:
            os.close(fd)
        name(aside, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)
    flags = os.O_RDONLY | platforms.DIRECTORY | platforms.CLOSE_ON_EXEC
    directory = os.open(os.path.dirname(path) or ".", flags)
    try:
        platforms.sync_directory(directory)
    finally:
        os.close(directory)
