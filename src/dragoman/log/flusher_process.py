"""The flusher process: a script that runs disk jobs one after the other until its input ends.

It runs as `python -I -S flusher_process.py PARENT_PID FRAME_BYTES_MAX FULL_SYNC`, reads jobs from
descriptor 0 and writes replies to descriptor 1. FULL_SYNC is `platforms.FULL_SYNC`. It imports only
built-in modules and those that the interpreter has loaded anyway: `dragoman.world` alone would cost
45 ms and 6 MB, in a process that may be needed within milliseconds. So it repeats `world.perform`
in terms of `os`; a test runs both on the same jobs and compares the results.

    frame   length (u32, little endian) · `marshal` of a tuple
    job     (files to sync, directories to sync, ((path, data), …), ((path, size), …),
             ((path, position, size), …), files from which on the whole file system is synced)
    reply   (error number or 0, path)

Paths are absolute and in bytes. `marshal` is safe here because both ends are the same interpreter
and no other process can write to the pipes.

The process ends when its parent does. Jobs that the parent left behind are not begun, and the
current one changes nothing more once the sync it waits for is over: a new node may be recovering
the same files, and a late manifest would undo its work.
"""

from __future__ import annotations

import errno
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes written at once when a file is filled with zeros.
_ZERO_BLOCK_BYTES = 1 << 20
_LENGTH_BYTES = 4
_SYNC_FILE_RANGE_WRITE = 2


class OrphanedError(Exception):
    """The parent is gone: its files must not be changed any more."""


class Parent:
    """The process that owns the files."""

    #: Process id of the parent; None until `serve` sets it.
    pid: int | None = None

    @classmethod
    def check(cls) -> None:
        """Raises `OrphanedError` when the parent is gone; called before files are changed."""
        if cls.pid is not None and os.getppid() != cls.pid:
            raise OrphanedError


class FullSync:
    """The command of fcntl(2) that syncs more than fsync does."""

    #: 0 where fsync is enough, and until `serve` sets it.
    command: int = 0


def perform(
    files: tuple[bytes, ...],
    directories: tuple[bytes, ...],
    replacements: tuple[tuple[bytes, bytes], ...],
    zero_fills: tuple[tuple[bytes, int], ...],
    write_outs: tuple[tuple[bytes, int, int], ...],
    bulk_files_min: int,
) -> None:
    """Do one job. Raises the first `OSError`, with the path in it."""
    if len(files) + len(replacements) >= bulk_files_min:
        _perform_in_bulk(replacements, (files or (replacements[0][0],))[0])
    else:
        for path in files:
            _sync_file(path)
        for path in directories:
            _sync_directory(path)
        for path, data in replacements:
            _replace(path, data)
    for path, size in zero_fills:
        _zero_fill(path, size)
    for path, position, size in write_outs:
        _write_out(path, position, size)


def _perform_in_bulk(replacements: tuple[tuple[bytes, bytes], ...], any_path: bytes) -> None:
    """A few syncs of the whole file system in place of several for each file."""
    for path, data in replacements:
        os.close(_write_aside(path, data))
    _sync_all(any_path)
    if replacements:
        Parent.check()
        for path, _ in replacements:
            os.replace(path + b".new", path)
        _sync_all(any_path)


def _sync_all(path: bytes) -> None:
    import ctypes

    directory = os.path.dirname(path)
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        # The partition was removed meanwhile; the directory above is on the same file system.
        directory = os.path.dirname(directory)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), directory)
    finally:
        os.close(fd)


def _sync_file(path: bytes) -> None:
    """Sync one file. A file that was removed meanwhile has nothing to lose."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        _fdatasync(fd, path)
    finally:
        os.close(fd)


def _sync_directory(path: bytes) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        _sync(fd, os.fsync)
    except OSError as error:
        raise _named(error, path) from None
    finally:
        os.close(fd)


def _replace(path: bytes, data: bytes) -> None:
    fd = _write_aside(path, data)
    try:
        _fdatasync(fd, path + b".new")
    finally:
        os.close(fd)
    Parent.check()
    os.replace(path + b".new", path)
    _sync_directory(os.path.dirname(path))


def _write_aside(path: bytes, data: bytes) -> int:
    """The descriptor of a new file with this content, next to the one that it will replace."""
    Parent.check()
    aside = path + b".new"
    if os.path.lexists(aside):
        os.unlink(aside)
    fd = _create(aside)
    try:
        _write(fd, aside, memoryview(data), 0)
    except OSError:
        os.close(fd)
        raise
    return fd


def _zero_fill(path: bytes, size: int) -> None:
    Parent.check()
    fd = _create(path)
    try:
        block = memoryview(bytes(min(size, _ZERO_BLOCK_BYTES)))
        for position in range(0, size, _ZERO_BLOCK_BYTES):
            Parent.check()
            _write(fd, path, block[: size - position], position)
        _fdatasync(fd, path)
    finally:
        os.close(fd)
    _sync_directory(os.path.dirname(path))


def _write_out(path: bytes, position: int, size: int) -> None:
    """Ask the system to begin writing back, without waiting. Errors are ignored."""
    import ctypes

    start = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if start is None:
        return
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        start(fd, ctypes.c_int64(position), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE)
    finally:
        os.close(fd)


def _create(path: bytes) -> int:
    # Only files of partitions are ever shared with a group.
    mode = (
        0o644
        if os.path.basename(os.path.dirname(os.path.dirname(path))) == b"partitions"
        else 0o600
    )
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def _write(fd: int, path: bytes, data: memoryview, position: int) -> None:
    try:
        while data:
            written = os.pwrite(fd, data, position)
            data = data[written:]
            position += written
    except OSError as error:
        raise _named(error, path) from None


def _fdatasync(fd: int, path: bytes) -> None:
    try:
        # macOS has no fdatasync, and is not asked for it.
        _sync(fd, getattr(os, "fdatasync", os.fsync))
    except OSError as error:
        raise _named(error, path) from None


def _sync(fd: int, call: Callable[[int], None]) -> None:
    if not FullSync.command:
        call(fd)
        return
    import fcntl

    try:
        fcntl.fcntl(fd, FullSync.command)
    except OSError as error:
        # File systems that do not know the command; any other error is one of the sync itself.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY):
            raise
        os.fsync(fd)


def _named(error: OSError, path: bytes) -> OSError:
    """Add the path to errors of calls on descriptors, which lack it."""
    return OSError(error.errno, error.strerror, path)


# ---- messages


def read_frame(fd: int, bytes_max: int) -> bytes | None:
    """The next message, or None at the end of the input."""
    header = _read_exactly(fd, _LENGTH_BYTES)
    if header is None:
        return None
    length = int.from_bytes(header, "little")
    if length > bytes_max:
        raise ValueError(f"a job of {length} bytes, at most {bytes_max} are allowed")
    return _read_exactly(fd, length)


def _read_exactly(fd: int, length: int) -> bytes | None:
    data = bytearray(length)
    rest = memoryview(data)
    while rest:
        count = os.readv(fd, [rest])
        if not count:
            return None
        rest = rest[count:]
    return bytes(data)


def reply(fd: int, number: int, path: bytes) -> None:
    payload = marshal.dumps((number, path))
    message = memoryview(len(payload).to_bytes(_LENGTH_BYTES, "little") + payload)
    while message:
        message = message[os.write(fd, message) :]


def serve(
    jobs_fd: int, replies_fd: int, parent_pid: int, frame_bytes_max: int, full_sync: int
) -> None:
    """Run jobs until the parent closes the pipe or dies."""
    Parent.pid = parent_pid
    FullSync.command = full_sync
    while (frame := read_frame(jobs_fd, frame_bytes_max)) is not None:
        number, path = 0, b""
        try:
            Parent.check()
            perform(*marshal.loads(frame))
        except OrphanedError:
            return
        except OSError as error:
            number, path = error.errno or errno.EIO, os.fsencode(error.filename or b"")
        try:
            reply(replies_fd, number, path)
        except BrokenPipeError:
            return


if __name__ == "__main__":
    serve(0, 1, *map(int, sys.argv[1:4]))
