"""Layers of settings: a TOML file, the environment over it, and flags over both.

    file          num.partitions = 3            [listen] kafka = "127.0.0.1:9092"
    environment   DRAGOMAN_NUM_PARTITIONS=3     DRAGOMAN_LISTEN=kafka=127.0.0.1:9092,http=off
    flags         --set num.partitions=3        --listen kafka=127.0.0.1:9092

Every layer is checked completely, also where a higher one overrides it: a mistake behind an
override would show only when the override is removed. The origin of each value is kept for
`dragoman config show --origin`. Nothing here reads files or the environment; both arrive as
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from dragoman.config.consistency import check_consistent
from dragoman.config.hosts import own_address, parse_nodes
from dragoman.config.keys import Value, near_match
from dragoman.config.listeners import (
    Address,
    Listener,
    check_distinct,
    default_address,
    default_addresses,
    in_order,
    listener_key,
    overlay,
    parse_advertise,
    parse_listen,
    row_of,
    split_assignment,
    split_listener_key,
)
from dragoman.config.settings import LISTENER_KEYS, NODE_KEYS, Settings, node_key, with_values
from dragoman.errors import ConfigError

ENVIRONMENT_PREFIX = "DRAGOMAN_"
#: The variable with the path of the configuration file, which the command line reads.
ENVIRONMENT_FILE = "DRAGOMAN_CONFIG"
ENVIRONMENT_LISTEN = "DRAGOMAN_LISTEN"
ENVIRONMENT_ADVERTISE = "DRAGOMAN_ADVERTISE"
_ENVIRONMENT_SPECIAL = (ENVIRONMENT_FILE, ENVIRONMENT_LISTEN, ENVIRONMENT_ADVERTISE)
#: What commands and Spark read. A node may be started from the same shell.
_ENVIRONMENT_OF_COMMANDS = frozenset(
    f"{ENVIRONMENT_PREFIX}{name}"
    for name in (
        "SERVER",
        "BOOTSTRAP",
        "TOKEN_FILE",
        "USER",
        "PASSWORD_FILE",
        "CA_FILE",
        "CONTEXT",
        "CONTEXTS",
        "CDC_DSN",
        "SPARK_RECORDS",
    )
)

Parsed = TypeVar("Parsed")


class ConfigFile(msgspec.Struct, frozen=True):
    path: str
    text: str


class Assignment(msgspec.Struct, frozen=True):
    """One key set on the command line by `option`, which is `--set` or a flag of its own."""

    option: str
    key: str
    text: str


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command line, in order. The last assignment to a key wins."""

    assignments: tuple[Assignment, ...] = ()
    listen: tuple[str, ...] = ()
    advertise: tuple[str, ...] = ()


class Configuration(msgspec.Struct, frozen=True):
    """Settings, and the origin of every value.

    Origins are keyed by key, and by `listen.NAME` and `advertise.NAME` for listeners.
    """

    settings: Settings
    origins: dict[str, str]


class _Layer(msgspec.Struct):
    """The checked values of one layer, with the origin of each under the same name."""

    values: dict[str, Value]
    listen: dict[str, Address | None]
    advertise: dict[str, Address]
    origins: dict[str, str]


def load(*, file: ConfigFile | None, environment: Mapping[str, str], flags: Flags) -> Configuration:
    """Settings from all layers. Raises a `ConfigError` that names the fault and its place."""
    layers = [_environment_layer(environment), _flags_layer(flags)]
    if file is not None:
        layers.insert(0, _file_layer(file))
    values: dict[str, Value] = {}
    opened = default_addresses()
    advertised: dict[str, Address] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        values |= layer.values
        opened = overlay(opened, layer.listen)
        advertised |= layer.advertise
        origins |= layer.origins
    own = _own_peer_address(values)
    if own is not None and not any("peer" in layer.listen for layer in layers):
        # A cluster needs this listener, even if other listeners are named.
        opened["peer"] = own
        origins["listen.peer"] = origins["cluster" if "cluster" in values else "metadata.quorum"]
    if own is not None and "peer" not in opened:
        raise ConfigError("listen: a node of a cluster needs its listener peer")
    settings = _settle(values, _listeners(opened, advertised))
    return Configuration(settings, _all_origins(settings, origins))


def _own_peer_address(values: Mapping[str, Value]) -> Address | None:
    """The address at which other nodes reach this one; None when there are no others."""
    entries = values.get("cluster", ())
    node_id = values.get("node.id", Settings().node_id)
    assert isinstance(entries, tuple)
    assert isinstance(node_id, int)
    if not entries and values.get("metadata.quorum") == "etcd":
        return default_address("peer")
    return own_address(parse_nodes(entries), node_id) if entries else None


def environment_name(key: str) -> str:
    """`DRAGOMAN_NUM_PARTITIONS` for `num.partitions`."""
    return ENVIRONMENT_PREFIX + key.replace(".", "_").upper()


def _settle(values: Mapping[str, Value], listeners: tuple[Listener, ...]) -> Settings:
    check_distinct(listeners)
    fields = with_values(Settings(), values)
    settings = msgspec.structs.replace(
        Settings(), **fields, listeners=listeners, explicit=frozenset(values)
    )
    check_consistent(settings)
    return settings


def _listeners(
    opened: Mapping[str, Address], advertised: Mapping[str, Address]
) -> tuple[Listener, ...]:
    return tuple(
        Listener(
            name=name,
            bind=opened[name],
            advertised=advertised.get(name),
        )
        for name in in_order(opened)
    )


def _all_origins(settings: Settings, given: Mapping[str, str]) -> dict[str, str]:
    names = [
        *(f"listen.{listener.name}" for listener in settings.listeners),
        *(f"advertise.{each.name}" for each in settings.listeners if each.advertised),
        *NODE_KEYS,
        *(name for name, _ in settings.per_listener),
    ]
    return {name: given.get(name, "default") for name in names}


def _add_key(layer: _Layer, name: str, raw: object, origin: str) -> None:
    key = node_key(name)
    if key is None:
        raise ConfigError(f"unknown key {name!r} ({origin}){near_match(name, _similar(name))}")
    layer.values[name] = _located(origin, lambda: key.read(raw))
    layer.origins[name] = origin


def _similar(name: str) -> Iterable[str]:
    """Keys that a misspelt name may mean."""
    parts = split_listener_key(name)
    if parts is None:
        return NODE_KEYS
    return [listener_key(parts[0], each) for each in LISTENER_KEYS]


def _add_listen(layer: _Layer, name: str, text: object, origin: str) -> None:
    if name in layer.listen:
        raise ConfigError(f"listener {name!r} is given twice ({origin})")
    layer.listen[name] = _located(origin, lambda: parse_listen(name, text))
    layer.origins[f"listen.{name}"] = origin


def _add_advertise(layer: _Layer, name: str, text: object, origin: str) -> None:
    if name in layer.advertise:
        raise ConfigError(f"the advertised address of {name!r} is given twice ({origin})")
    layer.advertise[name] = _located(origin, lambda: parse_advertise(name, text))
    layer.origins[f"advertise.{name}"] = origin


def _located(origin: str, parse: Callable[[], Parsed]) -> Parsed:
    """Parse; an error names the origin of the text."""
    try:
        return parse()
    except ConfigError as error:
        raise ConfigError(f"{error} ({origin})") from None


# ---- file


def _file_layer(file: ConfigFile) -> _Layer:
    # Imported here: most nodes start without a file.
    import tomllib

    origin = f"file {file.path}"
    try:
        document = tomllib.loads(file.text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file.path} is not TOML: {error}") from None
    layer = _Layer({}, {}, {}, {})
    for name, text in _listener_table(document.pop("listen", {}), "listen", origin):
        _add_listen(layer, name, text, origin)
    for name, text in _listener_table(document.pop("advertise", {}), "advertise", origin):
        _add_advertise(layer, name, text, origin)
    for name, raw in _flatten(document, ""):
        if name in layer.values:
            raise ConfigError(f"{name} is given twice ({origin})")
        _add_key(layer, name, raw, origin)
    return layer


def _listener_table(table: object, name: str, origin: str) -> Iterable[tuple[str, object]]:
    if not isinstance(table, dict):
        raise ConfigError(f'{name}: expected a table such as kafka = "127.0.0.1:9092" ({origin})')
    return table.items()


def _flatten(table: Mapping[str, object], prefix: str) -> Iterable[tuple[str, object]]:
    """TOML reads `a.b = 1` as tables within tables; keys here are the dotted names."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


# ---- environment


def _environment_layer(environment: Mapping[str, str]) -> _Layer:
    layer = _Layer({}, {}, {}, {})
    key_of = {environment_name(key): key for key in NODE_KEYS}
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == ENVIRONMENT_FILE:
            continue
        if variable in _ENVIRONMENT_OF_COMMANDS:
            continue
        origin = f"environment {variable}"
        if variable == ENVIRONMENT_LISTEN:
            for name, address in _assignments(text, origin):
                _add_listen(layer, name, address, origin)
        elif variable == ENVIRONMENT_ADVERTISE:
            for name, address in _assignments(text, origin):
                _add_advertise(layer, name, address, origin)
        elif variable in key_of:
            _add_key(layer, key_of[variable], text, origin)
        elif (own := _listener_variable(variable)) is not None:
            _add_key(layer, own, text, origin)
        elif not _is_service_link(variable):
            known = [*key_of, *_ENVIRONMENT_SPECIAL, *sorted(_ENVIRONMENT_OF_COMMANDS)]
            hint = near_match(variable, known)
            raise ConfigError(f"unknown environment variable {variable!r}{hint}")
    return layer


def _listener_variable(variable: str) -> str | None:
    """`listener.kafka-tls.ssl.key.file` for `DRAGOMAN_LISTENER_KAFKA_TLS_SSL_KEY_FILE`."""
    for key in LISTENER_KEYS:
        prefix, suffix = f"{ENVIRONMENT_PREFIX}LISTENER_", "_" + key.replace(".", "_").upper()
        if variable.startswith(prefix) and variable.endswith(suffix):
            name = variable[len(prefix) : -len(suffix)].lower().replace("_", "-")
            if row_of(name) is not None:
                return listener_key(name, key)
    return None


def _assignments(text: str, origin: str) -> list[tuple[str, str]]:
    return [split_assignment(origin, part) for part in text.split(",") if part.strip()]


def _is_service_link(variable: str) -> bool:
    """Whether Kubernetes made this variable for a service whose name begins with `dragoman`.

    It sets X_SERVICE_HOST, X_SERVICE_PORT[_NAME], X_PORT and X_PORT_9092_TCP[_ADDR|_PORT|_PROTO] in
    every container of the namespace; they say nothing about this node.
    """
    import re

    link = (
        r"DRAGOMAN(_\w+)?_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_(ADDR|PORT|PROTO))?)?)"
    )
    return re.fullmatch(link, variable) is not None


# ---- flags


def _flags_layer(flags: Flags) -> _Layer:
    layer = _Layer({}, {}, {}, {})
    for assignment in flags.assignments:
        _add_key(layer, assignment.key, assignment.text, f"flag {assignment.option}")
    for text in flags.listen:
        _add_listen(layer, *split_assignment("--listen", text), "flag --listen")
    for text in flags.advertise:
        _add_advertise(layer, *split_assignment("--advertise", text), "flag --advertise")
    return layer
