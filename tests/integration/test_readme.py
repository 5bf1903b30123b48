"""Goal: what README shows is what happens, and so is what the page about the demo shows.

Method: take the blocks out of the page, run the commands and the test in them on free ports, and
compare what they print with what the page says.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from demo.postgres import LocalPostgres
from demo.readings import Window, closed_windows
from dragoman.config.listeners import default_addresses
from tables.java_options import quick_spark

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
DEMO_PAGE = (ROOT / "docs" / "tutorials" / "demo.md").read_text()
COMMAND = [sys.executable, "-m", "dragoman.cli.main"]


def _block(language: str, containing: str) -> str:
    (found,) = [text for kind, text in BLOCKS if kind == language and containing in text]
    return found


def _commands(block: str) -> list[str]:
    return re.findall(r"^\$ (.+)$", block, re.MULTILINE)


def _targets() -> set[str]:
    return set(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_two_commands_come_first_and_exist() -> None:
    commands = [line.split("#")[0].split() for line in BLOCKS[0][1].splitlines()]
    assert commands == [["make", "demo"], ["make", "test"]]
    assert {"demo", "test"} <= _targets()


def test_one_sentence_and_one_picture_come_before_them() -> None:
    title, sentence, picture, *_ = [line for line in PAGE.splitlines() if line]
    assert title == "# Dragoman"
    assert re.fullmatch(r"\*\*[^.]+\.\*\*", sentence)
    assert re.fullmatch(r"!\[[^\]]+\]\(docs/overview\.svg\)", picture)


def test_three_uses_take_six_lines_each_at_most() -> None:
    uses = PAGE.partition("## Three uses")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```\w+\n(.*?)^```$", uses, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    assert max(len(block.splitlines()) for block in blocks) <= 6


def test_installation_takes_two_lines() -> None:
    """What `pip install .` installs is tested by `test_packaging.py`."""
    install, serve = _commands(_block("sh", "dragoman serve"))
    assert install == "pip install ."
    assert serve.startswith("dragoman serve ")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert "`pip install '.[all]'`" in PAGE
    assert "spark,cdc" in extras["all"][0]


@pytest.fixture(scope="module", autouse=True)
def _quick_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in quick_spark(tmp_path_factory.mktemp("spark")).items():
            patch.setenv(name, value)
        yield


class Session:
    """The broker of the page, with what it printed."""

    def __init__(self, process: subprocess.Popen[str], printed: str) -> None:
        self.process = process
        self.printed = printed
        #: By listener: where it is.
        self.bound = dict(re.findall(r"^(\S+) on (\S+),", printed, re.MULTILINE))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    *_, command = _commands(_block("sh", "dragoman serve"))
    program, *arguments = shlex.split(command)
    assert program == "dragoman"
    free = [word for name in default_addresses() for word in ("--listen", f"{name}=127.0.0.1:0")]
    process = subprocess.Popen(
        [*COMMAND, *arguments, *free],
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
    _, _, shown = _block("sh", "dragoman serve").partition("$ dragoman serve")
    _, _, shown = shown.partition("\n")
    printed = session.printed
    for name, bound in session.bound.items():
        printed = printed.replace(bound, str(default_addresses()[name]))
    assert printed == shown


@pytest.mark.parametrize("topic", ["fruit", "invoices"])
def test_commands_over_several_protocols_print_what_the_page_says(
    session: Session, tmp_path: Path, topic: str
) -> None:
    """The page's broker has the usual ports; this one has others, which each command is given."""
    program = tmp_path / "dragoman"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dragoman.cli.main "$@"\n')
    program.chmod(0o755)
    paths = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    printed = ""
    page = _block("sh", f"dragoman produce {topic}")
    for line in _commands(page):
        (protocol,) = re.findall(r"--protocol (\w+)", line) or ["kafka"]
        # Spark says much on stderr; the other commands say how many records they wrote.
        is_quiet = "dragoman sql" in line or topic == "invoices"
        result = subprocess.run(
            f"{line} --bootstrap {session.bound[protocol]}",
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if is_quiet else subprocess.STDOUT,
            text=True,
            env={**os.environ, "PATH": paths},
            timeout=200,
            check=False,
        )
        assert result.returncode == 0, f"{result.stdout}{result.stderr}"
        shown = re.sub(r" +$", "", result.stdout, flags=re.MULTILINE)
        printed += f"$ {line}\n{shown}"
    assert printed == page


def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text(_block("python", "def test_"))
    is_installed = "dragoman" in entry_points(group="pytest11").names
    plugin = () if is_installed else ("-p", "dragoman.testing.plugin")
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(*plugin, str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=200,
        check=False,
    )
    assert "1 passed" in result.stdout, result.stdout + result.stderr


def test_windows_of_the_demo_are_those_that_the_page_shows() -> None:
    """Of ten thousand readings, as `make demo` has; it compares Spark with these itself."""
    (shown,) = re.findall(r"^```text\n(.*?)^```$", DEMO_PAGE, re.MULTILINE | re.DOTALL)
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
        subprocess.run([*COMMAND, *add[1:]], env=environment, check=True, timeout=60)
        (consume,) = [shlex.split(line.removeprefix("$ ")) for line in lines if "consume" in line]
        topic = consume[consume.index("consume") + 1]
        assert topic in next(iter([line for line in lines if "materialize" in line]))
        found = subprocess.run(
            [*COMMAND, *consume[1:], "--bootstrap", session.bound["kafka"]],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert '"fruit":"apples"' in found.stdout
        remove = ["cdc", "remove", "shop", "--server", f"http://{session.bound['http']}"]
        subprocess.run([*COMMAND, *remove], check=True, timeout=60)
