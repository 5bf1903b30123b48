"""What commands over HTTP log in with: options before the environment, secrets from files only."""

from __future__ import annotations

import base64
import ssl
import sys
from pathlib import Path

import pytest

from dragoman import limits
from dragoman.cli.remote import Remote
from dragoman.cli.status import USAGE, CommandError
from dragoman.cli.target import DEFAULT_URL, Target
from dragoman.config.layers import Flags, load


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("dragoman_abc\n")
    return str(path)


@pytest.fixture
def password(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text("würde: tief \r\n")
    return str(path)


def test_without_anything_the_node_of_this_machine_is_asked_without_credentials() -> None:
    found = Target().resolved({})
    assert found.server == DEFAULT_URL
    assert found.authorization() == ""


def test_token_and_password_become_headers(token: str, password: str) -> None:
    assert Target(token_file=token).resolved({}).authorization() == "Bearer dragoman_abc"
    header = Target(user="alice", password_file=password).resolved({}).authorization()
    scheme, _, encoded = header.partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(encoded).decode() == "alice:würde: tief "


def test_environment_gives_what_options_leave_out(token: str, password: str) -> None:
    environment = {
        "DRAGOMAN_SERVER": "unix:/data",
        "DRAGOMAN_TOKEN_FILE": token,
        "DRAGOMAN_USER": "alice",
        "DRAGOMAN_PASSWORD_FILE": password,
        "DRAGOMAN_CA_FILE": "/ca.pem",
    }
    found = Target().resolved(environment)
    assert (found.server, found.ca_file) == ("unix:/data", "/ca.pem")
    assert found.authorization().startswith("Bearer ")
    # An option is preferred to the other kind of credential in the environment.
    given = Target(server="http://a", user="bob", ca_file="/other.pem").resolved(environment)
    assert (given.server, given.ca_file) == ("http://a", "/other.pem")
    assert given.authorization().startswith("Basic ")


def test_node_starts_in_an_environment_of_commands() -> None:
    environment = {
        f"DRAGOMAN_{name}": "x"
        for name in ("SERVER", "TOKEN_FILE", "USER", "PASSWORD_FILE", "CA_FILE")
    }
    load(file=None, environment=environment, flags=Flags())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"user": "a", "token_file": "t"}, "exclude each other"),
        ({"password_file": "p"}, "--password-file needs --user"),
        ({"user": "a:b", "password_file": "p"}, "no colon"),
        ({"user": "a", "password_file": "/nowhere/p"}, "cannot read /nowhere/p"),
        ({"token_file": "/nowhere/t"}, "cannot read /nowhere/t"),
        ({"user": "a"}, "--user a needs --password-file"),
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(
    options: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(CommandError, match=words) as caught:
        Target(**options).resolved({}).authorization()
    assert caught.value.status == USAGE


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"\xff\xfe", b"one\ntwo\n", b"x" * (limits.CLI_SECRET_BYTES_MAX + 1)],
)
def test_file_that_is_no_secret_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    for options in ({"token_file": str(path)}, {"user": "a", "password_file": str(path)}):
        with pytest.raises(CommandError, match="expected one line") as caught:
            Target(**options).resolved({}).authorization()
        assert "two" not in str(caught.value)


def test_token_with_a_line_break_or_blank_makes_no_header(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for content in ("a b", "a\tb", "tökén", "a\rX-Header: 1"):
        path.write_text(content)
        with pytest.raises(CommandError, match="does not contain an API token") as caught:
            Target(token_file=str(path)).resolved({}).authorization()
        assert content not in str(caught.value)


def test_terminal_is_asked_for_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("getpass.getpass", lambda prompt: asked.append(prompt) or "typed")
    header = Target(user="alice").resolved({}).authorization()
    assert base64.b64decode(header.partition(" ")[2]) == b"alice:typed"
    assert asked == ["Password of alice: "]


class Terminal:
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("content", ["", "no certificate"])
def test_authorities_that_cannot_be_used_are_wrong_usage(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(content)
    with pytest.raises(CommandError, match="--ca-file"):
        Target(ca_file=str(path)).resolved({}).tls()
    with pytest.raises(CommandError, match="--ca-file"):
        Target(ca_file=str(tmp_path / "nowhere")).resolved({}).tls()
    assert Target().resolved({}).tls().verify_mode is ssl.CERT_REQUIRED


def test_url_has_no_credentials() -> None:
    for url in ("http://alice:secret@host:1", "https://alice@host"):
        with pytest.raises(CommandError, match="no credentials in the URL") as caught:
            Remote(url)
        assert "secret" not in str(caught.value)


def test_administrators_socket_takes_no_credentials(token: str) -> None:
    remote = Remote(Target(server="unix:/nowhere/data", token_file=token))
    with pytest.raises(CommandError, match="cannot reach unix:/nowhere/data: No such file"):
        remote.topics()
