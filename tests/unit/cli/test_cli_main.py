"""Dispatch, exit statuses, what each start imports, and where output goes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman import __version__
from dragoman.cli.main import build, main
from dragoman.cli.remote import Remote

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]}
COMMANDS = {
    "serve": (),
    "produce": (),
    "consume": (),
    "sql": (),
    "top": (),
    "doctor": (),
    "completion": (),
    "pipeline": ("init", "run", "list", "status", "stop"),
    "topic": ("list", "describe", "create", "alter", "partitions", "truncate", "delete"),
    "group": ("list", "describe", "delete", "reset"),
    "cluster": (
        "status",
        "add",
        "remove",
        "transfer",
        "reassign",
        "elect",
        "mlog-events",
        "unclean-elect",
        "up",
    ),
    "user": (
        "create",
        "password",
        "signing-secret",
        "enable",
        "disable",
        "delete",
        "list",
        "describe",
        "token",
    ),
    "acl": ("add", "remove", "list", "test"),
    "quota": ("list", "set", "remove", "test", "usage"),
    "security": ("mode", "status", "key"),
    "cdc": (
        "add",
        "list",
        "status",
        "pause",
        "resume",
        "run-as",
        "rewind",
        "snapshot",
        "remove",
        "doctor",
    ),
    "bench": ("produce", "consume", "latency"),
    "debug": ("bundle",),
    "context": ("list", "show", "add", "use", "remove"),
    "console": (),
    "tls": ("dev",),
    "config": ("show", "schema", "set", "unset"),
    "rocketmq": (
        "topic-list",
        "topic-route",
        "topic-status",
        "update-topic",
        "delete-topic",
        "cluster-list",
        "broker-status",
        "consumer-progress",
        "consumer-connection",
        "producer-connection",
        "reset-offset-by-time",
        "update-sub-group",
        "delete-sub-group",
        "query-msg-by-id",
        "query-msg-by-key",
        "query-msg-by-unique-key",
        "query-msg-by-offset",
        "send-message",
        "dlq-list",
        "dlq-resend",
        "create-user",
        "update-user",
        "delete-user",
        "list-user",
        "create-acl",
        "delete-acl",
        "list-acl",
    ),
    "import": ("minibroker",),
    "log": ("inspect", "verify", "repair", "adopt"),
}


def dragoman(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "dragoman.cli.main", *arguments],
        capture_output=True,
        text=True,
        env=ENVIRONMENT | environment,
        check=False,
    )


def test_version_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dragoman {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_all_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert all(f" {noun} " in out for noun in COMMANDS)


@pytest.mark.parametrize(
    "command",
    [[noun] for noun in COMMANDS] + [[noun, verb] for noun in COMMANDS for verb in COMMANDS[noun]],
    ids=" ".join,
)
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    captured = capsys.readouterr()
    assert "usage: dragoman " + " ".join(command) in captured.out.replace("Usage", "usage")
    assert captured.err == ""


def test_the_tree_holds_exactly_the_documented_commands() -> None:
    app = build()
    nouns = {name for name in app if not name.startswith("-")}
    assert nouns == COMMANDS.keys()
    for noun, verbs in COMMANDS.items():
        found = {name for name in app[noun] if not name.startswith("-")}
        # `mqadmin` has other names for the same.
        aliases = {_camel(verb) for verb in verbs} if noun == "rocketmq" else set()
        assert found == {*verbs, *aliases}


def _camel(verb: str) -> str:
    first, *rest = verb.split("-")
    return first + "".join(word.capitalize() for word in rest)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tpic"], 'Did you mean "topic"?'),
        (["topic", "lst"], 'Did you mean "list"?'),
        (["topic", "describe"], "NAME"),
        (["topic", "list", "--output", "xml"], "table"),
        (["topic", "list", "--bogus"], "--bogus"),
        (["topic", "list", "extra"], "extra"),
        (["topic", "create", "t", "--partitions", "two"], "two"),
        (["topic", "create", "t", "--partitions", "0"], '"0" for --partitions. Must be >= 1'),
        (["topic", "create", "t", "--replication-factor", "-1"], "--replication-factor. Must be"),
        (["topic", "create", ".."], "Kafka clients cannot use a topic named '..'"),
        (["topic", "create", "a" * 250], "1 to 249 ASCII letters"),
        (["topic", "describe", "\udcff"], "an argument has bytes that are not UTF-8: '\\udcff'"),
        (["cluster", "up", "--data", __file__], "--data: "),
        (["cluster", "up", "--data", f"{__file__}/x"], "Not a directory"),
        (["topic", "create", "t", "--config", "novalue"], "--config: expected KEY=VALUE"),
        (["topic", "delete"], "expected the name of at least one topic"),
        (["topic", "list", "--server", "ftp://x"], "--server: expected a URL"),
        (
            ["cdc", "add", "shop", "--tables", "t"],
            "the address of the database is missing",
        ),
        (["cdc", "add", "shop", "--dsn", "host=h"], "captures nothing: name tables"),
        (["cdc", "add", "a b", "--dsn", "host=h", "--tables", "t"], "cannot name a capture"),
        (["cdc", "add", "s", "--dsn", "host=h", "--tables", "t", "--mask", "c=x"], "--mask: exp"),
        (["cdc", "add", "s", "--dsn", "host=h", "--tables", "t", "--key", "c"], "--key: expected"),
        (["cdc", "doctor"], "expected the name of a capture, or --dsn DSN"),
        (["cdc", "doctor", "--dsn", "host=h"], "expected the name of a capture, or --dsn DSN"),
        (["cdc", "doctor", "--local"], "--local needs --dsn DSN"),
        (["serve", "--bogus"], "--bogus"),
        (["serve", "extra"], "extra"),
        (["serve", "--data"], "--data"),
        (["serve", "--dat", "x"], "--dat"),
        (["serve", "--set", "num.partition=3"], "did you mean 'num.partitions'?"),
        (["serve", "--set", "num.partitions"], "--set: expected NAME=VALUE"),
        (["serve", "--durability", "none"], "durability: expected one of fsync, os, got 'none'"),
        (["serve", "--listen", "console-b=127.0.0.1:1"], "unknown listener 'console-b'"),
        (["serve", "--config", "/does/not/exist"], "cannot read /does/not/exist"),
        (["config", "show", "--output", "xml"], "xml"),
        (["config", "show", "--node-id", "x"], "node.id: expected"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_on_stderr_and_status_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dragoman: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_process_exits_with_the_status() -> None:
    assert dragoman("--version").returncode == 0
    wrong = dragoman("serve", "--bogus")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)


def test_environment_of_the_process_is_read() -> None:
    shown = dragoman("config", "show", "--origin", DRAGOMAN_NUM_PARTITIONS="3")
    assert "# environment DRAGOMAN_NUM_PARTITIONS" in shown.stdout
    assert dragoman("config", "show", DRAGOMAN_NUM_PARTITION="3").returncode == 2


def test_reader_that_stops_early_is_no_error() -> None:
    process = subprocess.run(
        f"{sys.executable} -m dragoman.cli.main config schema | head -1",
        shell=True,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert (process.stdout, process.stderr) == ("{\n", "")


def test_another_broken_pipe_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: Remote) -> list[object]:
        raise BrokenPipeError("of a connection")

    monkeypatch.setattr(Remote, "topics", broken)
    assert main(["topic", "list"]) == 1
    assert "BrokenPipeError: of a connection" in capsys.readouterr().err


PRINTING = ("--version", "--help", "serve --help", "config schema", "config show --output csv")


@pytest.mark.parametrize("command", PRINTING)
def test_full_disk_is_one_line_and_status_1(command: str) -> None:
    status, err = redirected(f"{command} > /dev/full")
    assert status == 1
    assert err.startswith("dragoman: OSError: [Errno 28]")
    assert err.count("\n") == 1


@pytest.mark.parametrize("stream", ["0<&-", ">&-", "2>&-", "0<&- >&- 2>&-", "2> /dev/full"])
@pytest.mark.parametrize("command", PRINTING)
def test_closed_streams_are_no_error(command: str, stream: str) -> None:
    assert redirected(f"{command} {stream}") == (0, "")


def test_refusal_that_cannot_be_printed_has_its_status() -> None:
    assert redirected("bogus 2>&-") == (2, "")
    assert redirected("bogus 2> /dev/full") == (1, "")


def redirected(words: str) -> tuple[int, str]:
    """Exit status and stderr of a command with redirections; its output is dropped."""
    done = subprocess.run(
        f"{sys.executable} -m dragoman.cli.main {words}",
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [["topic", "list"], ["serve", "--log-level", "debug"]])
def test_error_that_no_command_expects_is_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("dragoman.cli.main._dispatch", fail)
    assert main(arguments) == 1
    *trace, line = capsys.readouterr().err.splitlines()
    assert line.startswith("dragoman: RuntimeError: two lines")
    is_debug = arguments[0] == "serve"
    assert bool(trace) is is_debug
    assert ("DRAGOMAN_LOG_LEVEL=debug" in line) is not is_debug
    monkeypatch.setenv("DRAGOMAN_LOG_LEVEL", "debug")
    assert main(arguments) == 1
    assert "Traceback" in capsys.readouterr().err


def test_serve_loads_neither_the_rich_parser_nor_http() -> None:
    script = """
import sys, types
process = types.ModuleType("dragoman.process")
process.run = lambda settings, announce: 0
sys.modules["dragoman.process"] = process
from dragoman.cli.main import main
assert main(["serve", "--set", "num.partitions=3", "--listen", "kafka=127.0.0.1:0"]) == 0
heavy = {"rich", "cyclopts", "uvicorn", "starlette", "http.client", "json"}
assert heavy.isdisjoint(sys.modules), heavy & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=ENVIRONMENT)
