"""Schema, TOML listing and reference page: complete, and the page in docs/ is the current one."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import pytest

from dragoman.config.layers import Assignment, ConfigFile, Flags, load
from dragoman.config.overrides import TOPIC_CONFIG
from dragoman.config.reference import json_schema, toml_listing, toml_value
from dragoman.config.settings import NODE_KEYS, Settings

WRITER = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "configuration_page.py"))


def leaf(schema: dict, name: str) -> dict:
    if name in schema["properties"]:
        # Quoted in a file: another key is its beginning.
        return schema["properties"][name]
    for part in name.split("."):
        schema = schema["properties"][part]
    return schema


def test_reference_page_is_current() -> None:
    assert WRITER["PAGE"].read_text() == WRITER["reference_page"](), "run `make docs`"


@pytest.mark.parametrize("name", [*NODE_KEYS, *TOPIC_CONFIG])
def test_page_has_a_row_for_every_key(name: str) -> None:
    assert f"\n| `{name}` | " in WRITER["reference_page"]()


@pytest.mark.parametrize("key", NODE_KEYS.values(), ids=lambda key: key.name)
def test_schema_describes_every_key(key) -> None:
    schema = leaf(json_schema(), key.name)
    assert schema["description"] == key.doc
    assert schema["default"] == Settings().value(key.name)
    assert schema["type"] in {"boolean", "integer", "number", "string", "array"}


def test_schema_refuses_unknown_keys_at_every_level() -> None:
    def objects(schema: dict):
        if schema.get("type") == "object":
            yield schema
            for inner in schema["properties"].values():
                yield from objects(inner)

    found = list(objects(json_schema()))
    assert len(found) > 10
    assert all(schema["additionalProperties"] is False for schema in found)


def test_schema_has_bounds_and_choices() -> None:
    partitions = leaf(json_schema(), "num.partitions")
    assert (partitions["minimum"], partitions["maximum"]) == (1, 10_000)
    assert leaf(json_schema(), "durability")["enum"] == ["fsync", "os"]
    assert leaf(json_schema(), "listen.kafka") == {"type": "string"}


def test_listing_read_as_a_file_gives_the_same_settings() -> None:
    flags = Flags(
        assignments=(
            Assignment("--set", "log.cleanup.policy", "compact,delete"),
            Assignment("--set", "max.connections", "7"),
            Assignment("--set", "max.connections.per.ip", "5"),
            Assignment("--set", "max.connections.per.ip.overrides", "10.0.0.1:3"),
        ),
        listen=("kafka=[::1]:19092",),
        advertise=("kafka=broker.example:1",),
    )
    first = load(file=None, environment={"DRAGOMAN_DATA": 'a "b" \\ c\x7f'}, flags=flags)
    listing = toml_listing(first, origins=True)
    second = load(file=ConfigFile("x", listing), environment={}, flags=Flags())
    assert second.settings.listeners == first.settings.listeners
    assert all(second.settings.value(key) == first.settings.value(key) for key in NODE_KEYS)
    assert toml_listing(second) == toml_listing(first)


def test_listing_shows_origins_as_comments() -> None:
    flags = Flags(assignments=(Assignment("--set", "num.partitions", "3"),))
    configuration = load(file=None, environment={"DRAGOMAN_NODE_ID": "7"}, flags=flags)
    lines = toml_listing(configuration, origins=True).splitlines()
    assert [line.split() for line in lines if line.startswith(("num.p", "node", "durab"))] == [
        ["durability", "=", '"fsync"', "#", "default"],
        ["node.id", "=", "7", "#", "environment", "DRAGOMAN_NODE_ID"],
        ["num.partitions", "=", "3", "#", "flag", "--set"],
    ]
    assert "#" not in toml_listing(configuration)


@pytest.mark.parametrize("value", [True, 3, 0.5, "a'b\"\n\x00\x7f\U0001f600", ("x", "y"), 1e-7])
def test_toml_value_reads_back(value) -> None:
    read = tomllib.loads(f"key = {toml_value(value)}")["key"]
    assert read == (list(value) if isinstance(value, tuple) else value)
