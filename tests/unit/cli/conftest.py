"""Commands over HTTP against a broker in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from dragoman.cli.main import main
from dragoman.testing import EphemeralBroker


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    def words(self) -> list[list[str]]:
        """The words of each line of a table."""
        return [line.split() for line in self.out.splitlines() if line.strip(" ─━")]


Command = Callable[..., Ran]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def command(
    broker: EphemeralBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Runs a command over HTTP. `answer` is typed on a terminal."""

    def run(*arguments: str, answer: str | None = None, server: str = broker.http_url) -> Ran:
        typed = io.StringIO() if answer is None else _Terminal(f"{answer}\n")
        monkeypatch.setattr(sys, "stdin", typed)
        status = main([*arguments, "--server", server])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="package")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Options of a user without any rights, and of the broker that enforces them."""
    users = {"root": "root-password", "eve": "eve-password"}
    settings = {"super.users": "User:root"}
    file = tmp_path_factory.mktemp("eve") / "password"
    file.write_text(users["eve"])
    file.chmod(0o600)
    with EphemeralBroker(users=users, settings=settings) as running:
        yield ["--server", running.http_url, "--user", "eve", "--password-file", str(file)]
