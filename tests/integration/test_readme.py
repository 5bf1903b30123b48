"""Goal: what README shows on its first screen is what happens.

Method: take the blocks out of the page, run the commands and the program in them on free ports,
and compare what they print with what the page says.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.postgres import LocalPostgres
from demo.readings import Window, closed_windows
from dragoman.config.listeners import default_addresses

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
KAFKA = "127.0.0.1:9092"


def _block(language: str, containing: str) -> str:
    (found,) = [text for kind, text in BLOCKS if kind == language and containing in text]
    return found


def _targets() -> set[str]:
    return set(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_two_commands_come_first_and_exist() -> None:
    commands = [line.split("#")[0].split() for line in BLOCKS[0][1].splitlines()]
    assert commands == [["make", "demo"], ["make", "test"]]
    assert {"demo", "test"} <= _targets()


class Session:
    """The broker of the page, with what it printed."""

    def __init__(self, process: subprocess.Popen[str], printed: str) -> None:
        self.process = process
        self.printed = printed
        #: By listener: where it is.
        self.bound = dict(re.findall(r"^(\S+) on (\S+),", printed, re.MULTILINE))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    command = _block("sh", "dragoman serve").splitlines()[0].removeprefix("$ ")
    program, *arguments = shlex.split(command)
    assert program == "dragoman"
    free = [word for name in default_addresses() for word in ("--listen", f"{name}=127.0.0.1:0")]
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman.cli.main", *arguments, *free],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path_factory.mktemp("readme"),
    )
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if line == "ready\n":
            break
    yield Session(process, printed)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_start_prints_what_the_page_says(session: Session) -> None:
    _, _, shown = _block("sh", "dragoman serve").partition("\n")
    printed = session.printed
    for name, bound in session.bound.items():
        printed = printed.replace(bound, str(default_addresses()[name]))
    assert printed == shown


def test_program_prints_what_the_page_says(session: Session) -> None:
    program = _block("python", "Producer")
    assert len(program.splitlines()) <= 12
    assert KAFKA in program
    shown = _block("", "orders")
    result = subprocess.run(
        [sys.executable, "-c", program.replace(KAFKA, session.bound["kafka"])],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == shown


def test_commands_over_several_protocols_print_what_the_page_says(
    session: Session, tmp_path: Path
) -> None:
    """The page's broker has the usual ports, and this one others, so each command is told."""
    program = tmp_path / "dragoman"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dragoman.cli.main "$@"\n')
    program.chmod(0o755)
    paths = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    printed = ""
    page = _block("sh", "--protocol")
    for line in re.findall(r"^\$ (.+)$", page, re.MULTILINE):
        (protocol,) = re.findall(r"--protocol (\w+)", line) or ["kafka"]
        result = subprocess.run(
            f"{line} --bootstrap {session.bound[protocol]}",
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PATH": paths},
            timeout=200,
            check=False,
        )
        assert result.returncode == 0, result.stdout
        printed += f"$ {line}\n{result.stdout}"
    assert printed == page


def test_windows_of_the_demo_are_those_that_the_page_shows() -> None:
    """Of ten thousand readings, as `make demo` has; it compares Spark with these itself."""
    shown = _block("text", "table windows")
    table, _, topic = shown.partition("topic windows")
    windows = closed_windows(10_000)
    rows = [line.rsplit(maxsplit=3) for line in table.splitlines() if "2026-" in line]
    assert [(row[0].strip(), int(row[1]), float(row[2]), float(row[3])) for row in rows] == [
        (each.window, each.readings, each.mean, each.warmest) for each in windows
    ]
    lines = [line.split(maxsplit=3) for line in topic.splitlines() if "2026-" in line]
    found = [Window(window=f"{day} {time}", **json.loads(value)) for _, day, time, value in lines]
    assert sorted(found, key=lambda each: each.window) == windows


def test_a_table_is_captured_with_the_lines_of_the_page(session: Session) -> None:
    lines = _block("sh", "cdc add").splitlines()
    (add,) = [shlex.split(line.removeprefix("$ ")) for line in lines if "cdc add" in line]
    add[add.index("--server") + 1] = f"http://{session.bound['http']}"
    with LocalPostgres() as database:
        database.run("psql", "-c", "create table orders (id int primary key, fruit text)")
        database.run("psql", "-c", "insert into orders values (1, 'apples')")
        environment = {**os.environ, "DRAGOMAN_CDC_DSN": database.dsn()}
        command = [sys.executable, "-m", "dragoman.cli.main"]
        subprocess.run([*command, *add[1:]], env=environment, check=True, timeout=60)
        topic = "pgcdc.orders"
        assert topic in next(iter([line for line in lines if "materialize" in line]))
        found = subprocess.run(
            [*command, "consume", topic, "--bootstrap", session.bound["kafka"], "--max", "1"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert '"fruit":"apples"' in found.stdout
        remove = ["cdc", "remove", "shop", "--server", f"http://{session.bound['http']}"]
        subprocess.run([*command, *remove], check=True, timeout=60)
