"""Goal: what README shows on its first screen is what happens.

Method: take the blocks out of the page, run the commands and the program in them on free ports,
and compare what they print with what the page says.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
KAFKA, HTTP = "127.0.0.1:9092", "127.0.0.1:8080"


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
        self.kafka, self.http = re.findall(r"on (\S+),", printed)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    command = _block("sh", "serve").splitlines()[0].removeprefix("$ ")
    program, *arguments = shlex.split(command)
    assert program == "dragoman"
    free = ("--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0")
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
    _, _, shown = _block("sh", "serve").partition("\n")
    assert session.printed.replace(session.kafka, KAFKA).replace(session.http, HTTP) == shown


def test_program_prints_what_the_page_says(session: Session) -> None:
    program = _block("python", "Producer")
    assert len(program.splitlines()) <= 12
    assert KAFKA in program
    shown = _block("", "orders")
    result = subprocess.run(
        [sys.executable, "-c", program.replace(KAFKA, session.kafka)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == shown
