"""The differences of platforms: a file system without a full sync is no failed sync."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from dragoman.log import flusher_process
from dragoman.operating_system import platforms


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plain syncs that were done."""
    found: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda _: found.append("fsync"))
    monkeypatch.setattr(platforms, "FULL_SYNC", 51)
    monkeypatch.setattr(flusher_process.FullSync, "command", 51)
    return found


def fail_with(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fails(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "fcntl", fails)


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_file_system_without_a_full_sync_gets_a_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[str], number: int
) -> None:
    fail_with(monkeypatch, number)
    platforms.sync_file(3)
    platforms.sync_directory(3)
    (tmp_path / "a").touch()
    flusher_process.perform((os.fsencode(tmp_path / "a"),), (), (), (), (), 9)
    assert calls == ["fsync"] * 3


def test_full_sync_that_fails_is_not_hidden_by_a_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    fail_with(monkeypatch, errno.EIO)
    (tmp_path / "a").touch()
    with pytest.raises(OSError, match="Input/output"):
        platforms.sync_file(3)
    with pytest.raises(OSError, match="Input/output"):
        flusher_process.perform((os.fsencode(tmp_path / "a"),), (), (), (), (), 9)
    assert calls == []
