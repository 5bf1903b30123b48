"""Goal: nodes of neighbouring releases understand each other.

Method: the structs that nodes exchange, compared with those of every released feature level
(`level_N.json`, made by `tests/protocols/internode_structs.py`): what an older node sends is
accepted here, and what a newer one may add is no fault.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

from dragoman.cluster.events import FIRST_LEVEL, LEVELS, Event
from dragoman.log.node import FEATURE_LEVEL, FEATURE_LEVEL_MIN
from protocols.internode_structs import ROOTS, fields, name_of, smallest, structs

HERE = Path(__file__).parent
KINDS = [(root, name) for root, kind in ROOTS.items() for name in structs(kind)]


class Older(NamedTuple):
    """The fields that a struct had."""

    fields: list[str]
    required: list[str]


def released(level: int) -> dict[str, dict[str, Older]]:
    found = json.loads((HERE / f"level_{level}.json").read_text())
    return {
        root: {
            name: Older(
                fields=[each.removesuffix("?") for each in text.split()],
                required=[each for each in text.split() if not each.endswith("?")],
            )
            for name, text in kinds.items()
        }
        for root, kinds in found.items()
    }


OLDER = [
    pytest.param(root, name, older, id=f"{level}-{root}-{name}")
    for level in range(FEATURE_LEVEL_MIN, FEATURE_LEVEL + 1)
    for root, kinds in released(level).items()
    for name, older in kinds.items()
]


def decoded(root: str, name: str, value: Any) -> Any:
    struct = structs(ROOTS[root])[name].cls
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=struct)


@pytest.mark.parametrize(("root", "name", "older"), OLDER)
def test_what_an_older_node_sends_is_understood(root: str, name: str, older: Older) -> None:
    struct = structs(ROOTS[root])[name]
    for names in (older.required, older.fields):
        decoded(root, name, fields(struct, names))


@pytest.mark.parametrize(("root", "name", "older"), OLDER)
def test_what_is_sent_to_an_older_node_has_all_that_it_needs(
    root: str, name: str, older: Older
) -> None:
    struct = structs(ROOTS[root])[name]
    present = [each.encode_name for each in struct.fields]
    if struct.array_like:
        assert present[: len(older.fields)] == older.fields
    assert set(older.fields) <= set(present)
    # What may be left out here must not be wanted there.
    assert set(older.required) <= {each.encode_name for each in struct.fields if each.required}


@pytest.mark.parametrize(("root", "name"), KINDS)
def test_fields_that_a_newer_node_adds_are_ignored(root: str, name: str) -> None:
    struct = structs(ROOTS[root])[name]
    plain = smallest(struct)
    if struct.array_like:
        all_fields = fields(struct, [each.encode_name for each in struct.fields])
        assert decoded(root, name, [*all_fields, "later"]) == decoded(root, name, all_fields)
    else:
        assert decoded(root, name, {**plain, "later": [1]}) == decoded(root, name, plain)


def test_events_that_not_all_releases_know_have_a_level() -> None:
    first = released(FIRST_LEVEL)["events"]
    newer = {name_of(each) for each in get_args(Event)} - first.keys()
    assert newer <= {name_of(each) for each in LEVELS}, "see docs/guides/upgrading.md"
    assert all(FIRST_LEVEL < level <= FEATURE_LEVEL for level in LEVELS.values())
