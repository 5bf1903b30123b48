"""Failures: one line of text, or with `--output json` one object with a stable code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest

from dragoman.cli import main as command_line
from dragoman.cli.main import main
from dragoman.cli.status import (
    CODES,
    FAILED,
    USAGE,
    CommandError,
    ErrorDescription,
    Failure,
    complain,
    one_line_failures,
    report,
)
from dragoman.client_core.errors import (
    ConnectionLostError,
    RequestTimeoutError,
    UnreachableError,
)
from dragoman.errors import ConfigError, DirectoryInUseError, DragomanError

SOURCES = Path(command_line.__file__).parent


def printed(capsys: pytest.CaptureFixture[str]) -> ErrorDescription:
    """The failure on stderr, which is nothing else; stdout is empty."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return msgspec.json.decode(err, type=Failure, strict=True).error


def test_hint_and_request_id_are_fields_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    error = CommandError("no\nuse", code="a", hint="type b", request_id="1-2")
    report(error, is_json=True)
    assert printed(capsys) == ErrorDescription(
        code="a", message="no\nuse", hint="type b", request_id="1-2"
    )
    report(error, is_json=False)
    assert capsys.readouterr().err == "dragoman: no use; type b\n"


def test_text_shows_control_characters_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    complain("topic \x1b[31mred")
    assert capsys.readouterr().err == "dragoman: topic \\x1b[31mred\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "describe", "--output", "json"],
        ["topic", "describe", "--output=json", "--nonsense"],
        ["topic", "nonsense", "--output", "json"],
        ["topic", "create", "a/b", "--output", "json"],
        ["topic", "list", "--server", "nonsense", "--output", "json"],
        ["consume", "--json"],
        ["consume", "t", "--output", "json", "--max", "0"],
        ["consume", "t", "--output", "csv", "--output", "json", "--max", "0"],
        ["sql", "-o", "json"],
        ["config", "show", "--output", "json", "--nonsense"],
        ["config", "show", "--output", "json", "--set", "no.such.key=1"],
    ],
)
def test_wrong_usage_is_an_object_too(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == USAGE
    assert printed(capsys).code in ("usage", "config")


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "describe", "--output", "csv"],
        ["topic", "describe", "--output", "json", "--output", "table"],
        ["topic", "describe"],
        ["topic", "create", "a/b", "--", "--output", "json"],
        ["topic", "describe", "--output"],
    ],
)
def test_other_forms_have_text(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == USAGE
    assert capsys.readouterr().err.startswith("dragoman: ")


def test_dead_server_has_its_code_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    # Nothing listens at port 1 of this machine.
    assert main(["topic", "list", "--server", "http://127.0.0.1:1", "--output", "json"]) == FAILED
    found = printed(capsys)
    assert (found.code, found.hint) == ("unreachable", "is a node running there?")


def test_unexpected_error_is_named_by_its_class(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(arguments: list[str]) -> int:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(command_line, "_dispatch", fail)
    assert main(["topic", "list", "--output", "json"]) == FAILED
    found = printed(capsys)
    assert (found.code, found.message) == ("unexpected", "ZeroDivisionError: by nothing")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnreachableError("a"), "unreachable"),
        (ConnectionLostError("a"), "unreachable"),
        (RequestTimeoutError("a"), "no_answer"),
        (ConfigError("a"), "config"),
        (DirectoryInUseError("a"), "directory_in_use"),
    ],
)
def test_errors_of_clients_keep_a_stable_code(error: DragomanError, code: str) -> None:
    with pytest.raises(CommandError) as caught, one_line_failures("Kafka"):
        raise error
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("unable to get local issuer certificate", "--ca-file names the certificates to trust"),
        ("self-signed certificate", "--ca-file names the certificates to trust"),
        ("Hostname mismatch, certificate is not valid for 'b'", ""),
    ],
)
def test_refused_certificate_says_what_to_trust_and_asks_nothing_else(
    reason: str, hint: str
) -> None:
    with pytest.raises(CommandError) as caught, one_line_failures("Kafka"):
        raise UnreachableError(f"cannot reach b:9092: its certificate is refused: {reason}")
    assert caught.value.hint == hint


def test_query_without_spark_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert main(["sql", "select 1"]) == FAILED
    printed = capsys.readouterr()
    assert "pip install" in printed.err
    assert "starting" not in printed.err


def test_codes_of_the_command_line_are_listed() -> None:
    used = {
        code
        for path in SOURCES.rglob("*.py")
        for code in re.findall(r'code="([a-z_]+)"', path.read_text())
    }
    assert used | {"usage", "failed", "unreachable", "no_answer"} == set(CODES)
