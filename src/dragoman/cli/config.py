"""`dragoman config`: the settings of a node, those that change while it runs, and the schema of its
configuration file.
"""

from __future__ import annotations

from typing import Annotated, get_args

import msgspec
from cyclopts import App, Parameter

from dragoman.api.values import NewSettings, Told
from dragoman.cli.output import Output, OutputForm, show_change
from dragoman.cli.output import show as show_data
from dragoman.cli.remote import DEFAULT_SERVER, Remote, Server
from dragoman.cli.serve import configuration, node_parser
from dragoman.cli.status import USAGE, CommandError
from dragoman.config.keys import format_value
from dragoman.config.layers import Configuration
from dragoman.config.reference import json_schema, toml_listing
from dragoman.config.settings import NODE_KEYS

app = App(name="config", help="Show the settings of a node, and change those of running nodes.")
_PATH = "/api/v1/cluster/settings"
_Node = Annotated[int | None, Parameter(help="The node; without it, all nodes.")]


class Setting(msgspec.Struct, frozen=True):
    """An item of the JSON output of `config show`."""

    key: str
    value: str
    origin: str


@app.command(help_flags=[])
def show(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> None:
    """Show the settings that `serve` would use with the same options.

    Examples
    --------
    dragoman config show --origin
    dragoman config show --config dragoman.toml --output json
    """
    parser = node_parser(
        "config show", "Show the settings that serve would use with the same options.", show
    )
    parser.add_argument("--origin", action="store_true", help="show the origin of each value")
    parser.add_argument(
        "--output",
        choices=get_args(OutputForm),
        default="table",
        help="form of the data on stdout; table is TOML that --config reads",
    )
    options = parser.parse_args(arguments)
    found = configuration(options)
    listing = toml_listing(found, origins=options.origin)
    show_data(options.output, _settings(found), Setting, listing)


@app.command
def schema() -> None:
    """Print the JSON schema of the configuration file.

    Examples
    --------
    dragoman config schema > dragoman.schema.json
    """
    print(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())


@app.command(name="set")
def set_values(
    *settings: str,
    node: _Node = None,
    server: Server = DEFAULT_SERVER,
    output: Output = "table",
) -> None:
    """Change settings of running nodes, at once and for later starts.

    Takes keys that docs/reference/configuration.md marks as live.

    Parameters
    ----------
    settings
        KEY=VALUE, for one setting each.

    Examples
    --------
    dragoman config set log.retention.ms=86400000 --node 1
    """
    if not settings:
        raise CommandError("SETTINGS: expected at least one KEY=VALUE", USAGE)
    values = dict(_assignment(each) for each in settings)
    _change(NewSettings(node_id=node, values=values), server, output)


@app.command
def unset(
    *keys: str, node: _Node = None, server: Server = DEFAULT_SERVER, output: Output = "table"
) -> None:
    """Return settings of running nodes to the values with which the nodes were started.

    Parameters
    ----------
    keys
        Keys that were changed by `set`.

    Examples
    --------
    dragoman config unset log.retention.ms
    """
    if not keys:
        raise CommandError("KEYS: expected at least one key", USAGE)
    _change(NewSettings(node_id=node, unset=keys), server, output)


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise CommandError(f"expected KEY=VALUE, got {text!r}", USAGE)
    return key.strip(), value.strip()


def _change(wanted: NewSettings, server: Server, output: Output) -> None:
    result = Remote(server).post(_PATH, wanted, Told)
    show_change(output, result.detail, result, Told)


def _settings(found: Configuration) -> list[Setting]:
    settings = found.settings
    values = {name: format_value(settings.value(name)) for name in NODE_KEYS}
    values |= {name: format_value(value) for name, value in settings.per_listener}
    for listener in settings.listeners:
        values[f"listen.{listener.name}"] = str(listener.bind)
        if listener.advertised is not None:
            values[f"advertise.{listener.name}"] = str(listener.advertised)
    return [Setting(name, values[name], origin) for name, origin in found.origins.items()]
