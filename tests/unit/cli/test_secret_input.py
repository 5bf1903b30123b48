"""Goal: a new secret comes from where its reference says, and is never shown."""

from __future__ import annotations

import getpass
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman import limits
from dragoman.cli.secret_input import new_secret
from dragoman.cli.status import USAGE, CommandError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets a person type lines into a terminal."""

    def type_lines(*lines: str) -> None:
        left = list(lines)
        monkeypatch.setattr(sys, "stdin", Terminal())
        monkeypatch.setattr(getpass, "getpass", lambda _: left.pop(0))

    return type_lines


def test_terminal_is_asked_twice(typed: Callable[..., None]) -> None:
    typed("s3cret", "s3cret")
    assert new_secret("password", "") == "s3cret"
    typed("s3cret", "s3cert")
    with pytest.raises(CommandError, match="not repeated correctly"):
        new_secret("password", "")


def test_without_a_terminal_a_reference_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(CommandError, match="file:PATH, env:NAME or stdin") as refused:
        new_secret("password", "")
    assert refused.value.status == USAGE


def test_references_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("würde tief\r\n")
    assert new_secret("password", f"file:{tmp_path}/secret") == "würde tief"
    assert new_secret("password", "env:SECRET", {"SECRET": "from here"}) == "from here"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"line\n")))
    assert new_secret("password", "stdin") == "line"


@pytest.mark.parametrize(
    "reference", ["s3cret", "file:", "env:", "env:NONE", "file:/no/such/s3cret.txt", "STDIN"]
)
def test_what_is_no_reference_is_refused(reference: str) -> None:
    with pytest.raises(CommandError) as refused:
        new_secret("password", reference, {})
    assert refused.value.status == USAGE
    assert "s3cret" not in str(refused.value) or reference.startswith("file:")


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"two\nlines", b"\xff", b"x" * (limits.CLI_SECRET_BYTES_MAX + 1)]
)
def test_secret_is_one_bounded_line_of_text(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_bytes(data)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    for reference in (f"file:{tmp_path}/secret", "stdin"):
        with pytest.raises(CommandError, match="one line of text"):
            new_secret("password", reference)
