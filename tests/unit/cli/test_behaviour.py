"""Every command: its help, its forms, things that do not exist, dead and silent servers, no rights.

Method: the commands in this process, by the rows of `command_line.rows`, against brokers in other
threads. A command without a row fails, and docs/reference/cli-behaviour.md shows the rows.
"""

from __future__ import annotations

import csv
import io
import os
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from command_line.page import PAGE, page
from command_line.rows import NOT_RUN, NOTHING, ROWS, Row, Side, side
from dragoman import limits
from dragoman.cli import kafka_client
from dragoman.cli.main import main
from dragoman.cli.rocketmq import command as rocketmq_command
from dragoman.cli.status import FAILED, OK, Failure
from dragoman.cli.tree import Command, commands
from dragoman.testing import EphemeralBroker
from protocols.minibroker_directory import write_example

LISTENERS = ("kafka", "http", "rocketmq", "rocketmq-broker")
COMMANDS = commands()
#: Nothing listens at port 1 of this machine.
DEAD = "127.0.0.1:1"


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def code(self) -> str:
        """That of the failure, which is all of stderr."""
        return msgspec.json.decode(self.err, type=Failure).error.code


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty folder and environment."""
    for name in list(os.environ):
        if name.startswith(("DRAGOMAN_", "ROCKETMQ_", "NAMESRV_")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("DRAGOMAN_CONTEXTS", str(home / "contexts.toml"))
    for user in ("alice", "eve"):
        (home / f"{user}.password").write_text(f"{user}-password")
    write_example(home / "minibroker")

    def _run(command: str, words: str, *options: str, stdin: str = "") -> Ran:
        replaced = words.replace("HOME", str(home)).replace("DATA", str(tmp_path / "data"))
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        err = io.StringIO()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        status = main([*command.split(), *shlex.split(replaced), *options])
        out.flush()
        printed = out.detach().getvalue()  # type: ignore[attr-defined]
        return Ran(status, printed.decode(), err.getvalue())

    return _run


def options_of(where: Side, address: dict[str, str]) -> list[str]:
    match where:
        case "http":
            return ["--server", f"http://{address['http']}"]
        case "broker":
            return ["-b", address["kafka"]]
        case "rocketmq":
            return ["-n", address["rocketmq"]]
        case "nothing":
            return []


def addresses(broker: EphemeralBroker) -> dict[str, str]:
    return {name: broker.address(name) for name in LISTENERS}


@pytest.fixture(scope="module")
def open_node() -> Iterator[dict[str, str]]:
    with EphemeralBroker(listeners=LISTENERS) as broker:
        yield addresses(broker)


@pytest.fixture(scope="module")
def locked_node() -> Iterator[dict[str, str]]:
    users = {"root": "root-password", "eve": "eve-password"}
    settings = {"super.users": "User:root"}
    with EphemeralBroker(listeners=LISTENERS, users=users, settings=settings) as broker:
        yield addresses(broker)


@pytest.fixture
def silent_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address where connections are accepted and nothing is answered, and short time-outs."""
    monkeypatch.setattr(limits, "CLI_TIMEOUT_SECONDS", 0.2)
    for module in (kafka_client, rocketmq_command):
        settings: Any = vars(module)["_SETTINGS"]
        times = (each for each in settings.__struct_fields__ if each.endswith("_timeout_s"))
        short = msgspec.structs.replace(settings, **dict.fromkeys(times, 0.2))
        monkeypatch.setattr(module, "_SETTINGS", short)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def rows(*, which: Callable[[Command, Row], object]) -> list[Any]:
    return [
        pytest.param(each, ROWS[each.path], id=each.path)
        for each in COMMANDS
        if each.path in ROWS and which(each, ROWS[each.path])
    ]


def connects(command: Command, row: Row) -> bool:
    return side(command) != "nothing" and row.not_here not in NOT_RUN


# ---- the table


def test_every_command_has_a_row() -> None:
    assert {each.path for each in COMMANDS} == set(ROWS)


def test_page_shows_the_rows() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.path)
def test_help_ends_with_examples(command: Command, run: Run) -> None:
    ran = run(command.path, "--help")
    assert (ran.status, ran.err) == (OK, "")
    shown = ran.out.partition("\nExamples:\n")[2].splitlines()
    assert [line.strip() for line in shown] == command.examples
    assert command.examples


def test_every_command_with_data_has_all_forms() -> None:
    for command in COMMANDS:
        given = {
            choice
            for argument in command.app.assemble_argument_collection()
            if "--output" in argument.names
            for choice in argument.get_choices() or ()
        }
        # argparse parses those of `config show`.
        if command.path == "config show":
            continue
        expected = set() if ROWS[command.path].no_json else {"table", "json", "csv"}
        assert expected <= given, command.path
        assert bool(given) == bool(expected), command.path


# ---- forms


@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize(
    ("command", "row"), rows(which=lambda _, row: not (row.not_here or row.no_json))
)
def test_form_parses(command: Command, row: Row, form: str, run: Run, tmp_path: Path) -> None:
    where = side(command)
    if where == "nothing":
        if "DATA" in row.words:
            with EphemeralBroker(directory=str(tmp_path / "data"), storage="directory"):
                pass
        ran = _run_row(command, row, form, run, {})
    else:
        with EphemeralBroker(listeners=LISTENERS) as broker:
            ran = _run_row(command, row, form, run, addresses(broker))
    assert ran.status == OK, ran.err
    if form == "csv":
        header, *cells = csv.reader(io.StringIO(ran.out, newline=""))
        assert header
        assert {len(each) for each in cells} <= {len(header)}
    elif command.path in ("consume", "log inspect"):
        for line in ran.out.splitlines():
            msgspec.json.decode(line)
    else:
        msgspec.json.decode(ran.out)
    assert ran.out


def _run_row(command: Command, row: Row, form: str, run: Run, address: dict[str, str]) -> Ran:
    by_path = {each.path: each for each in COMMANDS}
    for line in row.setup.splitlines():
        words, _, source = line.partition(" < ")
        path = max((each for each in by_path if words.startswith(each)), key=len)
        options = options_of(side(by_path[path]), address)
        done = run(path, words.removeprefix(path), *options, stdin=f"{source}\n" if source else "")
        assert done.status == OK, done.err
    options = options_of(side(command), address)
    return run(command.path, row.words, *options, "--output", form, stdin=row.stdin)


# ---- failures


def fails(run: Run, command: Command, words: str, *options: str, stdin: str = "") -> Ran:
    """The run with JSON. As text, the failure is one line without a traceback."""
    text = run(command.path, words, *options, stdin=stdin)
    assert text.err.splitlines()[-1].startswith("dragoman: "), text
    assert "Traceback" not in text.err
    form = [] if ROWS[command.path].no_json else ["--output", "json"]
    ran = run(command.path, words, *options, *form, stdin=stdin)
    assert ran.status == text.status
    return ran


@pytest.mark.parametrize(
    ("command", "row"), rows(which=lambda _, row: row.unknown and row.unknown_code)
)
def test_thing_that_does_not_exist_is_named(
    command: Command, row: Row, run: Run, open_node: dict[str, str]
) -> None:
    ran = fails(run, command, row.unknown, *options_of(side(command), open_node))
    assert (ran.status, ran.code) == (row.unknown_status, row.unknown_code)


@pytest.mark.parametrize(
    ("command", "row"), rows(which=lambda _, row: row.unknown and not row.unknown_code)
)
def test_change_of_nothing_succeeds_as_with_mqadmin(
    command: Command, row: Row, run: Run, open_node: dict[str, str]
) -> None:
    options = (*options_of(side(command), open_node), "--output", "json")
    assert run(command.path, row.unknown, *options).status == OK


@pytest.mark.parametrize(("command", "row"), rows(which=connects))
def test_dead_server_is_said(command: Command, row: Row, run: Run) -> None:
    options = options_of(side(command), dict.fromkeys(LISTENERS, DEAD))
    if row.finds_faults:
        ran = run(command.path, row.words, *options)
        assert ran.status == FAILED
        assert "cannot reach" in ran.out
        return
    ran = fails(run, command, row.words, *options, stdin=row.stdin)
    assert (ran.status, ran.code) == (FAILED, "unreachable")


@pytest.mark.parametrize(("command", "row"), rows(which=connects))
def test_silent_server_ends_in_time(
    command: Command, row: Row, run: Run, silent_server: str
) -> None:
    options = options_of(side(command), dict.fromkeys(LISTENERS, silent_server))
    if row.finds_faults:
        ran = run(command.path, row.words, *options)
        assert ran.status == FAILED
        assert "has not answered" in ran.out
        return
    ran = fails(run, command, row.words, *options, stdin=row.stdin)
    assert ran.status == FAILED
    assert ran.code == "no_answer"


@pytest.mark.parametrize(("command", "row"), rows(which=connects))
def test_user_without_rights_is_refused(
    command: Command, row: Row, run: Run, locked_node: dict[str, str]
) -> None:
    options = options_of(side(command), locked_node)
    if side(command) in ("http", "broker"):
        options += ["--user", "eve", "--password-file", "eve.password"]
    if row.finds_faults or row.denied == NOTHING:
        ran = run(command.path, row.words, *options, "--output", "json")
        assert msgspec.json.decode(ran.out) or row.denied == NOTHING
        assert "Traceback" not in ran.err
        return
    ran = fails(run, command, row.words, *options, stdin=row.stdin)
    assert (ran.status, ran.code) == (FAILED, row.denied)
