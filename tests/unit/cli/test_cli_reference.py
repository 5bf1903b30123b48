"""docs/reference/cli.md repeats commands, options, statuses and codes; here they are compared."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

from dragoman.cli import status
from dragoman.cli.record_clients import MODULES, record_client
from dragoman.cli.record_clients.session import Feature
from dragoman.cli.target import DEFAULT_URL
from dragoman.cli.tree import commands

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/cli.md").read_text()


def test_lists_of_commands_and_options_are_those_of_the_code() -> None:
    path = ROOT / "docs" / "cli_page.py"
    specification = importlib.util.spec_from_file_location("cli_page", path)
    assert specification is not None
    assert specification.loader is not None
    program = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(program)
    assert program.with_lists(PAGE) == PAGE, "run `make docs`"
    with pytest.raises(ValueError, match="no place for the list"):
        program.with_lists("# Nothing here")


def test_every_command_and_option_says_what_it_does() -> None:
    for command in commands():
        assert inspect.getdoc(command.function), command.path
        for argument in command.app.assemble_argument_collection(parse_docstring=True):
            # argparse parses the options of `serve`.
            if argument.names and argument.show and command.path != "serve":
                assert argument.parameter.help, (command.path, argument.names)


def test_codes_of_failures_are_listed() -> None:
    table = PAGE.split("| code | failure |", 1)[1].split("\n\n", 1)[0]
    assert dict(re.findall(r"^\| `([a-z_]+)` \| (.+) \|$", table, re.MULTILINE)) == status.CODES


def test_statuses_and_default_server_are_the_real_ones() -> None:
    for value in (status.OK, status.FAILED, status.USAGE):
        assert f"\n| {value} | " in PAGE
    assert f"default `{DEFAULT_URL}`" in PAGE


def test_protocols_and_their_addresses_are_the_real_ones() -> None:
    listed = re.findall(r"^\| `([a-z]+)`(?: \(default\))? \| `([0-9.:]+)` \|$", PAGE, re.MULTILINE)
    assert listed == [(name, record_client(name).bootstrap) for name in MODULES]


def test_table_of_what_protocols_refuse_is_true() -> None:
    """The rows of `produce`, cell by cell: `yes` for what the protocol has a word for."""
    header, rows = _refusals()
    assert header == list(MODULES)
    features: dict[str, set[Feature]] = {
        "`--key`, `--key-separator`": {"key"},
        "`--partition` of `produce`": {"partition"},
        "`--header`": {"headers"},
        "timestamps, null values": {"timestamp", "null"},
        "`--codec`": {"codec"},
        "`--acks 1`, `--acks 0`": {"acks"},
    }
    for label, needed in features.items():
        for name, cell in zip(MODULES, rows[label], strict=True):
            missing = needed & record_client(name).cannot_write.keys()
            assert missing in (set(), needed)
            assert cell.startswith("no" if missing else "yes"), (label, name)
    tokens: dict[Feature, list[str]] = {
        "timestamp": ["`%T`", "`%D`"],
        "headers": ["`%h`"],
        "key": ["`%k`", "`%K`"],
    }
    for name, cell in zip(MODULES, rows["not in `--format`, null in `--json`"], strict=True):
        hidden = record_client(name).cannot_show
        shown = [token for feature in tokens if feature in hidden for token in tokens[feature]]
        assert cell == (", ".join(shown) or "nothing")


def _refusals() -> tuple[list[str], dict[str, list[str]]]:
    table = PAGE.split("| | `kafka` |", 1)[1].split("\n\n", 1)[0]
    first, _, *lines = ("| | `kafka` |" + table).splitlines()
    names = re.findall(r"`([a-z]+)`", first)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return names, {label: found for label, *found in cells}
