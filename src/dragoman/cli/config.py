"""`dragoman config`: the settings of a node, and the schema of its configuration file."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from dragoman.cli.serve import configuration, node_parser
from dragoman.config.keys import format_value
from dragoman.config.layers import Configuration
from dragoman.config.reference import json_schema, toml_listing
from dragoman.config.settings import NODE_KEYS

app = App(name="config", help="Show the settings of a node.")


class Setting(msgspec.Struct, frozen=True):
    """An item of the JSON output of `config show`."""

    key: str
    value: str
    origin: str


@app.command(help_flags=[])
def show(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> None:
    """Show the settings that `serve` would use with the same options."""
    parser = node_parser(
        "config show", "Show the settings that serve would use with the same options."
    )
    parser.add_argument("--origin", action="store_true", help="show the origin of each value")
    parser.add_argument("--output", choices=("toml", "json"), default="toml", help="output format")
    options = parser.parse_args(arguments)
    found = configuration(options)
    if options.output == "json":
        listed = msgspec.json.encode(_settings(found))
        print(msgspec.json.format(listed, indent=2).decode())
    else:
        print(toml_listing(found, origins=options.origin))


@app.command
def schema() -> None:
    """Print the JSON schema of the configuration file."""
    print(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())


def _settings(found: Configuration) -> list[Setting]:
    settings = found.settings
    values = {name: format_value(settings.value(name)) for name in NODE_KEYS}
    values |= {name: format_value(value) for name, value in settings.per_listener}
    for listener in settings.listeners:
        values[f"listen.{listener.name}"] = str(listener.bind)
        if listener.advertised is not None:
            values[f"advertise.{listener.name}"] = str(listener.advertised)
    return [Setting(name, values[name], origin) for name, origin in found.origins.items()]
