"""JSON schema and TOML listing of the configuration, both generated from its tables."""

from __future__ import annotations

import json
import math

from dragoman.config.keys import Key, Kind, Value
from dragoman.config.layers import Configuration
from dragoman.config.listeners import listener_names
from dragoman.config.settings import LISTENER_KEYS, NODE_KEYS, Settings

_SCHEMA_TYPES = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "integer",
    Kind.LONG: "integer",
    Kind.DOUBLE: "number",
    Kind.STRING: "string",
}


_BASES = "|".join(listener_names())
#: Names of further listeners of a kind.
_WITH_LABEL = f"^({_BASES})-[a-z0-9-]+$"


def json_schema() -> dict[str, object]:
    """JSON schema of the configuration file, nested as TOML nests dotted keys."""
    root = _object("Settings of a Dragoman node.")
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    root["title"] = "dragoman.toml"
    for name, key in NODE_KEYS.items():
        path = [name] if _is_quoted(name) else name.split(".")
        _place(root, path, _key_schema(key))
    properties = root["properties"]
    assert isinstance(properties, dict)
    properties["listen"] = _listener_schema("Where each listener binds: HOST:PORT, or off.")
    properties["advertise"] = _listener_schema("HOST:PORT that replies give clients of a listener.")
    properties["listener"] = _per_listener_schema()
    return root


def _object(description: str = "") -> dict[str, object]:
    schema: dict[str, object] = {"type": "object", "properties": {}, "additionalProperties": False}
    if description:
        schema["description"] = description
    return schema


def _place(parent: dict[str, object], path: list[str], leaf: dict[str, object]) -> None:
    properties = parent["properties"]
    assert isinstance(properties, dict)
    if len(path) == 1:
        properties[path[0]] = leaf
    else:
        _place(properties.setdefault(path[0], _object()), path[1:], leaf)


def _is_quoted(name: str) -> bool:
    """Whether another key is a prefix of this one: in TOML a value cannot be a table as well."""
    return any(name.startswith(f"{each}.") for each in NODE_KEYS)


def _key_schema(key: Key) -> dict[str, object]:
    default = Settings().value(key.name)
    schema: dict[str, object] = {"description": key.doc}
    if key.kind is Kind.LIST:
        words = {"enum": list(key.choices)} if key.choices else {"type": "string"}
        return schema | {"type": "array", "items": words, "minItems": 1, "default": default}
    schema |= {"type": _SCHEMA_TYPES[key.kind], "default": default}
    if key.choices:
        schema["enum"] = list(key.choices)
    if key.kind in (Kind.INT, Kind.LONG, Kind.DOUBLE):
        lowest, highest = key.bounds()
        schema |= {"minimum": lowest} if lowest > -math.inf else {}
        schema |= {"maximum": highest} if highest < math.inf else {}
    return schema


def _listener_schema(description: str) -> dict[str, object]:
    schema = _object(description)
    schema["properties"] = {name: {"type": "string"} for name in listener_names()}
    schema["patternProperties"] = {_WITH_LABEL: {"type": "string"}}
    return schema


def _per_listener_schema() -> dict[str, object]:
    schema = _object("Settings of one listener, in place of the node's.")
    keys = _object()
    for key in LISTENER_KEYS:
        own = {
            name: text for name, text in _key_schema(NODE_KEYS[key]).items() if name != "default"
        }
        _place(keys, key.split("."), own)
    schema["patternProperties"] = {f"{_WITH_LABEL}|^({_BASES})$": keys}
    return schema


# ---- TOML


def toml_listing(configuration: Configuration, *, origins: bool = False) -> str:
    """All settings as a TOML file that gives the same settings again; origins as comments."""
    settings = configuration.settings
    lines = [
        *((f"listen.{each.name}", str(each.bind)) for each in settings.listeners),
        *(
            (f"advertise.{each.name}", str(each.advertised))
            for each in settings.listeners
            if each.advertised
        ),
        *((name, settings.value(name)) for name in NODE_KEYS),
        *settings.per_listener,
    ]
    written = [
        f"{toml_value(name) if _is_quoted(name) else name} = {toml_value(value)}"
        for name, value in lines
    ]
    if not origins:
        return "\n".join(written)
    width = max(map(len, written))
    return "\n".join(
        f"{line:<{width}}  # {configuration.origins[name]}"
        for line, (name, _) in zip(written, lines, strict=True)
    )


def toml_value(value: Value) -> str:
    """A value in TOML. JSON's strings, numbers and arrays are TOML, except for an unescaped DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
