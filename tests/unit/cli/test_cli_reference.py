"""docs/reference/cli.md lists commands, options and statuses; here they are compared."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from dragoman.cli import status
from dragoman.cli.main import build
from dragoman.cli.record_clients import MODULES, record_client
from dragoman.cli.record_clients.session import Feature
from dragoman.cli.serve import node_parser
from dragoman.cli.target import DEFAULT_URL, Target

PAGE = (Path(__file__).parents[3] / "docs/reference/cli.md").read_text()


def test_commands_are_all_listed() -> None:
    app = build()
    nouns = [name for name in app if not name.startswith("-")]
    commands = {"--version", "serve", "produce", "consume", "sql", "console", "doctor"} | {
        # Names in camel case are `mqadmin`'s for commands that are listed.
        f"{noun} {verb}"
        for noun in nouns
        for verb in app[noun]
        if not verb.startswith("-") and verb.islower()
    }
    listed = re.findall(r"^\| `dragoman ([a-z-]+(?: [a-z-]+)?)", PAGE, re.MULTILINE)
    assert set(listed) == commands
    assert len(listed) == len(commands)


def test_options_of_a_node_are_all_listed() -> None:
    below = PAGE.split("| option of `serve` and `config show` |", 1)[1].split("\n\n", 1)[0]
    rows = re.findall(r"^\| `(--[a-z-]+)(?: (\S+))?`", below.replace("\\|", "|"), re.MULTILINE)
    listed = [(option, metavar or None) for option, metavar in rows]
    options = [
        (action.option_strings[0], action.metavar)
        for action in node_parser("serve", "")._actions
        if "--help" not in action.option_strings
    ]
    assert listed == options


def test_statuses_and_default_server_are_the_real_ones() -> None:
    for value in (status.OK, status.FAILED, status.USAGE):
        assert f"\n| {value} | " in PAGE
    assert f"default `{DEFAULT_URL}`" in PAGE


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


def test_options_of_captures_are_all_listed() -> None:
    table = PAGE.split("| option of `cdc add` and `cdc doctor` |", 1)[1].split("\n\n", 1)[0]
    documented = set(re.findall(r"^\| `(--[a-z-]+)", table, re.MULTILINE))
    names = {argument.names[0] for argument in build()["cdc"]["add"].assemble_argument_collection()}
    own = {"--check", "--detach", "--output", "--principal"} | _options_of_targets()
    assert documented == {name for name in names if name.startswith("--")} - own


def test_options_of_commands_over_http_are_all_listed() -> None:
    table = PAGE.split("| option of commands over HTTP |", 1)[1].split("\n\n", 1)[0]
    rows = table.replace("\\|", "/")
    documented = re.findall(r"^\| `(--[a-z-]+)[^|]*\| `?([A-Z_]*)", rows, re.MULTILINE)
    assert {name for name, _ in documented} == _options_of_targets() | {"--output"}
    for name, variable in documented:
        expected = "DRAGOMAN_" + name.removeprefix("--").replace("-", "_").upper()
        assert variable == ("" if name == "--output" else expected)


def _options_of_targets() -> set[str]:
    return {"--" + each.name.replace("_", "-") for each in fields(Target)}


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
        "timestamp": ["`%T`"],
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
