"""How the platforms differ. Everything else asks this module; options of sockets are in `net`.

    Linux     nodes; the platform that tests and measurements run on
    macOS     nodes; no durable writes and no sync of a file system, fsync leaves data in the drive
    Windows   clients, Spark and brokers in memory: files have no permissions, locks and positions
              of Unix there, so `require_unix` refuses what works on them

Modules that only Unix has are imported where they are used, so that this one loads everywhere.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from dragoman.errors import ConfigError

IS_WINDOWS: Final = sys.platform == "win32"
#: Flags of `os.open`; Windows lacks them, and the module still loads there.
CLOSE_ON_EXEC: Final[int] = getattr(os, "O_CLOEXEC", 0)
DIRECTORY: Final[int] = getattr(os, "O_DIRECTORY", 0)
#: Opening a pipe does not wait, and a terminal does not become the one of this process.
NEVER_WAIT: Final[int] = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
#: The flag with which `pwritev` returns when the bytes are on stable storage; only Linux has it.
DURABLE_WRITE: Final[int | None] = getattr(os, "RWF_DSYNC", None)
#: Whether one call syncs a whole file system.
HAS_SYNCFS: Final = sys.platform == "linux"
#: F_FULLFSYNC of fcntl(2) on macOS, where fsync(2) ends when the drive has the data, which may
#: still be in its volatile cache. 0 where fsync is enough.
FULL_SYNC: Final = 51 if sys.platform == "darwin" else 0
#: File systems that do not know this command, such as network ones, answer with one of these.
_NO_FULL_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY)
#: The most handles of a process on Windows, where sockets are handles and not small numbers.
HANDLES_MAX_WINDOWS: Final = 1 << 24
#: OPEN_MAX of macOS: the highest limit of open files there, even if none is set.
OPEN_FILES_MAX_MACOS: Final = 10_240


def never_waiting(path: str, flags: int) -> int:
    """An `opener` of `open`, which does not wait for the writer of a pipe."""
    return os.open(path, flags | NEVER_WAIT | CLOSE_ON_EXEC)


def require_unix(what: str) -> None:
    """Raises `ConfigError` on Windows."""
    if IS_WINDOWS:
        raise ConfigError(
            f"{what} needs Linux or macOS; Windows has the clients, the Spark source and "
            "EphemeralBroker in memory, and WSL is a Linux (docs/reference/platforms.md)"
        )


# ---- stable storage


def sync_file(fd: int) -> None:
    """Make the bytes and the size of a file durable."""
    if FULL_SYNC:
        _sync_fully(fd)
    else:
        # On Linux, whose fdatasync also makes the size durable.
        getattr(os, "fdatasync", os.fsync)(fd)


def sync_directory(fd: int) -> None:
    """Make the names in a directory durable."""
    if FULL_SYNC:
        _sync_fully(fd)
    else:
        os.fsync(fd)


def _sync_fully(fd: int) -> None:
    import fcntl

    try:
        fcntl.fcntl(fd, FULL_SYNC)
    except OSError as error:
        # Any other error is one of the sync itself, which another sync would hide.
        if error.errno not in _NO_FULL_SYNC:
            raise
        os.fsync(fd)


def sync_file_system(fd: int, path: str) -> None:
    """Make everything durable that is on the file system of a directory, given by its descriptor
    and, for errors, its path. Only where `HAS_SYNCFS`.
    """
    # Imported here: few processes need it, and none at start.
    import ctypes

    # Unlike sync(2), this reports errors and leaves other file systems alone.
    if ctypes.CDLL(None, use_errno=True).syncfs(fd):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


# ---- locks


def lock(fd: int, *, is_shared: bool = False) -> bool:
    """Lock a file until it is unlocked or closed; False when another process has locked it."""
    require_unix("a lock of a file")
    import fcntl

    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


@contextmanager
def turn_in(directory: str) -> Iterator[None]:
    """Wait until no other process is in such a block for the directory. No effect on Windows, and
    on file systems without locks.
    """
    if IS_WINDOWS:
        yield
        return
    import fcntl

    fd = os.open(directory, os.O_RDONLY | DIRECTORY | CLOSE_ON_EXEC)
    try:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def unlock(fd: int) -> None:
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_UN)


# ---- users and names


def own_user() -> int:
    """The number of the user that this process runs as."""
    return os.geteuid()


def user_name(user: int) -> str:
    """Raises `KeyError` for a user without a name: in containers, numbers may have none."""
    # Imported here: few commands need it.
    import pwd

    return pwd.getpwuid(user).pw_name


def machine_name() -> str:
    return os.environ.get("COMPUTERNAME", "") if IS_WINDOWS else os.uname().nodename
