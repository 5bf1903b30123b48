"""Spools transactions that the database sends while they are in progress, each in a file.

    file   | length u32 | message of pgoutput, without the xid | …

A rollback to a savepoint undoes everything since the savepoint, including nested savepoints. So the
file is truncated at the offset where the subtransaction began. Table descriptions are kept in
memory, because the server does not repeat them after a rollback.

The files need not be durable: after a restart the database sends these transactions again.
"""

from __future__ import annotations

import errno
import shutil
from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final

from dragoman.errors import CdcError
from dragoman.limits import CAPTURE_SPOOL_BUFFER_BYTES, CAPTURE_SPOOL_BYTES_MAX

_LENGTH: Final = Struct(">I")
_XID: Final = Struct(">xI")
_HEAD_BYTES: Final = 5
_MASK, _HALF = 0xFFFF_FFFF, 0x8000_0000
_DESCRIPTIONS: Final = frozenset(b"RY")
_ORIGIN: Final = ord("O")
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


class SpoolFullError(CdcError): ...


class _Spooled:
    __slots__ = ("_highest", "descriptions", "offsets", "path", "size", "xid", "xids")

    def __init__(self, xid: int, path: Path) -> None:
        self.xid = self._highest = xid
        self.path = path
        self.size = 0
        #: Subtransactions, and the offset of the first message of each.
        self.xids = array("I")
        self.offsets = array("Q")
        #: Table descriptions, each with the offset in the file that it precedes.
        self.descriptions: list[tuple[int, bytes]] = []

    def note(self, xid: int) -> None:
        """Note the offset of a subtransaction. It may continue after a nested one."""
        # Xids increase, so a higher one is new; they wrap around after 2^32.
        is_new = 0 < (xid - self._highest) & _MASK < _HALF
        if is_new:
            self._highest = xid
        if is_new or xid not in self.xids:
            self.xids.append(xid)
            self.offsets.append(self.size)

    def cut(self, xid: int) -> None:
        for index in range(len(self.xids) - 1, -1, -1):
            if self.xids[index] == xid:
                self.size = self.offsets[index]
                del self.xids[index:], self.offsets[index:]
                self.descriptions = [
                    (min(at, self.size), message) for at, message in self.descriptions
                ]
                with self.path.open("r+b") as file:
                    file.truncate(self.size)
                return


class Spool:
    def __init__(self, directory: str) -> None:
        """Empties the directory."""
        self._directory = Path(directory)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self._spooled: dict[int, _Spooled] = {}
        self._current: _Spooled | None = None
        self._file: BinaryIO | None = None
        self.size = 0

    def open(self, xid: int) -> None:
        """Begin a block: the messages up to `close` belong to this transaction."""
        assert self._file is None
        current = self._spooled.get(xid)
        if current is None:
            current = self._spooled[xid] = _Spooled(xid, self._directory / f"{xid:08x}")
        self._current = current
        with _refusing(self._directory):
            self._file = current.path.open("ab", buffering=CAPTURE_SPOOL_BUFFER_BYTES)

    def append(self, message: bytes) -> None:
        """Append a message of pgoutput with its xid. Raises `SpoolFullError`."""
        current, file = self._current, self._file
        assert current is not None
        assert file is not None
        if message[0] == _ORIGIN:
            return  # it has no xid, and is not needed
        (xid,) = _XID.unpack_from(message)
        if xid != current.xid and (not current.xids or current.xids[-1] != xid):
            current.note(xid)
        if message[0] in _DESCRIPTIONS:
            current.descriptions.append((current.size, message[:1] + message[_HEAD_BYTES:]))
            return
        rest = memoryview(message)[_HEAD_BYTES:]
        size = _LENGTH.size + 1 + len(rest)
        if self.size + size > CAPTURE_SPOOL_BYTES_MAX:
            raise SpoolFullError(
                f"transactions in progress need more than {CAPTURE_SPOOL_BYTES_MAX >> 30} GiB: end"
                " them, or set `streaming` to false so that the database stores them"
            )
        with _refusing(self._directory):
            file.write(_LENGTH.pack(1 + len(rest)))
            file.write(message[:1])
            file.write(rest)
        current.size += size
        self.size += size

    def close(self) -> None:
        file, self._file = self._file, None
        self._current = None
        if file is not None:
            with _refusing(self._directory):
                file.close()

    def remove(self) -> None:
        """Remove all files, even after a failure."""
        with suppress(OSError, SpoolFullError):
            self.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def cut(self, xid: int, part: int) -> None:
        """Drop a subtransaction, or the whole transaction, that was rolled back."""
        if xid == part:
            self.drop(xid)
        elif xid in self._spooled:
            spooled = self._spooled[xid]
            before = spooled.size
            spooled.cut(part)
            self.size -= before - spooled.size

    def messages(self, xid: int) -> Iterator[bytes]:
        """All messages of a transaction in order, without xids."""
        spooled = self._spooled.get(xid)
        if spooled is None:
            return
        descriptions = iter(spooled.descriptions)
        following = next(descriptions, None)
        position = 0
        if spooled.path.exists():
            with spooled.path.open("rb", buffering=CAPTURE_SPOOL_BUFFER_BYTES) as file:
                while position < spooled.size:
                    while following is not None and following[0] <= position:
                        yield following[1]
                        following = next(descriptions, None)
                    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
                    yield file.read(length)
                    position += _LENGTH.size + length
        while following is not None:
            yield following[1]
            following = next(descriptions, None)

    def drop(self, xid: int) -> None:
        spooled = self._spooled.pop(xid, None)
        if spooled is not None:
            self.size -= spooled.size
            spooled.path.unlink(missing_ok=True)


class _refusing:  # noqa: N801  # Read as a statement.
    """Turns a full disk into a `SpoolFullError` that names the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise SpoolFullError(
                f"no space is left in {self._directory} for transactions in progress: free some, or"
                " set `streaming` to false so that the database stores them"
            ) from None
