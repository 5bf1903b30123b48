"""Whole files as records, for `dragoman produce --record`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import msgspec

from dragoman.cli.record_clients.session import Headers, OutgoingRecord, SizedFile
from dragoman.cli.status import CommandError
from dragoman.limits import CLI_LINE_BYTES_MAX


def require_readable(paths: Iterable[str]) -> None:
    """Raises `CommandError` for a file that cannot be read, before others are sent."""
    for path in paths:
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise _unreadable(path, error) from None


def largest_of(paths: Iterable[str], key: bytes | None, headers: Headers) -> SizedFile:
    """The largest of the records of files, which share a key and headers. Raises `CommandError`
    for one that is too large for any topic.
    """
    shared = len(key or b"") + sum(
        len(name.encode()) + len(content or b"") for name, content in headers
    )
    found = SizedFile("", 0)
    for path in paths:
        # 0 for a pipe.
        size = os.stat(path).st_size
        _check_size(path, size)
        if size + shared > found.record_bytes:
            found = SizedFile(path, size + shared)
    return found


def records_of(paths: Iterable[str], shared: OutgoingRecord) -> Iterator[OutgoingRecord]:
    """A record for each file, whose bytes are the value."""
    for path in paths:
        try:
            with open(path, "rb") as opened:
                value = opened.read(CLI_LINE_BYTES_MAX + 1)
        except OSError as error:
            raise _unreadable(path, error) from None
        _check_size(path, len(value))
        yield msgspec.structs.replace(shared, value=value)


def _unreadable(path: str, error: OSError) -> CommandError:
    return CommandError(f"cannot read {path}: {error.strerror}")


def _check_size(path: str, size: int) -> None:
    if size > CLI_LINE_BYTES_MAX:
        raise CommandError(f"{path}: larger than {CLI_LINE_BYTES_MAX} bytes")
