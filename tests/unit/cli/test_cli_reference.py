"""docs/reference/cli.md lists commands, options and statuses; here they are compared."""

from __future__ import annotations

import re
from pathlib import Path

from dragoman.cli import status
from dragoman.cli.app import build
from dragoman.cli.node_options import node_parser
from dragoman.cli.remote import DEFAULT_SERVER
from dragoman.cli.wire import DEFAULT_BOOTSTRAP

PAGE = (Path(__file__).parents[3] / "docs/reference/cli.md").read_text()


def test_commands_are_all_listed() -> None:
    app = build()
    nouns = [name for name in app if not name.startswith("-")]
    commands = {"--version", "serve", "produce", "consume", "sql"} | {
        f"{noun} {verb}" for noun in nouns for verb in app[noun] if not verb.startswith("-")
    }
    listed = re.findall(r"^\| `dragoman ([a-z-]+(?: [a-z]+)?)", PAGE, re.MULTILINE)
    assert set(listed) == commands
    assert len(listed) == len(commands)


def test_options_of_a_node_are_all_listed() -> None:
    below = PAGE.split("| option of `serve` and `config show` |", 1)[1].split("\n\n", 1)[0]
    listed = re.findall(r"^\| `(--[a-z-]+) (\S+)`", below.replace("\\|", "|"), re.MULTILINE)
    options = [
        (action.option_strings[0], action.metavar)
        for action in node_parser("serve", "")._actions
        if "--help" not in action.option_strings
    ]
    assert listed == options


def test_statuses_and_default_server_are_the_real_ones() -> None:
    for value in (status.OK, status.FAILED, status.USAGE):
        assert f"\n| {value} | " in PAGE
    assert f"default `{DEFAULT_SERVER}`" in PAGE


def test_options_of_produce_and_consume_are_all_listed() -> None:
    app = build()
    for command in ("produce", "consume"):
        listed = PAGE.split(f"| option of `{command}` |", 1)[1].split("\n\n", 1)[0]
        names = {
            name
            for argument in app[command].assemble_argument_collection()
            for name in argument.names
            if name.startswith("--")
        }
        documented = set(re.findall(r"^\| `(--[a-z-]+)", listed, re.MULTILINE))
        assert documented | {"--bootstrap"} == names


def test_default_bootstrap_is_the_real_one() -> None:
    assert f"default `{DEFAULT_BOOTSTRAP}`" in PAGE
