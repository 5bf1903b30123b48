"""Secrets of clients: resolved from where references point to, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.client.cursus import CursusSettings
from dragoman.client.rocketmq import AccessKey, ClientSettings, PlainAccess, UserInfo
from dragoman.client_core.credentials import Login, resolved
from dragoman.errors import ConfigError

SECRET = "correct horse"


def test_a_secret_may_be_given_as_it_is() -> None:
    assert resolved(SECRET) == SECRET


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_may_be_in_a_file(tmp_path: Path, end: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(f"{SECRET}{end}".encode())
    assert resolved(f"file:{file}") == SECRET


def test_a_secret_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_SECRET", SECRET)
    assert resolved("env:OUR_SECRET") == SECRET


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"x" * 5000])
def test_bad_files_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(ConfigError):
        resolved(f"file:{file}")


@pytest.mark.parametrize("reference", ["", "env:NOT_SET_ANYWHERE", "file:/no/such/file", "file:/"])
def test_references_to_nothing_are_refused(reference: str) -> None:
    with pytest.raises(ConfigError):
        resolved(reference)


@pytest.mark.parametrize(
    "value",
    [
        AccessKey("alice", SECRET, SECRET),
        Login("alice", SECRET),
        ClientSettings(credentials=AccessKey("alice", SECRET)),
        ClientSettings(access_key="alice", secret_key=SECRET),
        CursusSettings(login=Login("alice", SECRET)),
        PlainAccess(access_key="alice", secret_key=SECRET),
        UserInfo(username="alice", password=SECRET),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_secret_is_shown(value: object) -> None:
    for text in (repr(value), str(value), f"{[value]}"):
        assert SECRET not in text
        assert "alice" in text


def test_one_form_of_credentials_is_expected() -> None:
    with pytest.raises(ConfigError):
        ClientSettings(credentials=AccessKey("a", "b"), access_key="a", secret_key="b")
