"""Goal: the demo's own check of the console notices a screen without data.

Method: a visitor that finds what it is given.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("confluent_kafka")

from demo.console import _empty, _Visitor
from demo.shop import GROUPS, LEFT, UNREADABLE
from demo.story import Stage

FULL: dict[str, list[dict[str, Any]]] = {
    "lists/group-usage": [
        *({"group": each, "members": 0 if each == "archive" else 1} for each in GROUPS[1:]),
        {"group": GROUPS[0], "members": 2},
        {"group": LEFT, "members": 0},
    ],
    "lists/topic-usage": [
        {"name": "%DLQ%shipping", "records": 1},
        {"name": UNREADABLE, "records": 1},
    ],
    "lists/captures": [{"status": {"state": "streaming"}}],
    "lists/pipelines": [{"state": "running"}],
    "api/v1/delayed": [{"topic": "reminders", "records": 1}],
}


def _found(lists: dict[str, list[dict[str, Any]]], *, is_small: bool = False) -> list[str]:
    visitor = SimpleNamespace(items=lambda path: lists[path])
    stage = SimpleNamespace(has_database=not is_small, has_spark=not is_small)
    return _empty(cast(_Visitor, visitor), cast(Stage, stage))


def test_nothing_is_missing_from_a_full_console() -> None:
    assert _found(FULL) == []


@pytest.mark.parametrize(
    ("path", "missing"),
    [
        ("lists/captures", ["the capture"]),
        ("lists/pipelines", ["the pipeline"]),
        ("lists/topic-usage", ["dead letters", "its dead letters"]),
        ("api/v1/delayed", ["delayed records"]),
    ],
)
def test_empty_list_is_named(path: str, missing: list[str]) -> None:
    assert _found({**FULL, path: []}) == missing


def test_groups_without_members_are_noticed() -> None:
    idle = [{**each, "members": 0} for each in FULL["lists/group-usage"]]
    assert _found({**FULL, "lists/group-usage": idle}) == ["members of groups"]
    without = [each for each in FULL["lists/group-usage"] if each["group"] != LEFT]
    assert _found({**FULL, "lists/group-usage": without}) == [f"group {LEFT}"]


def test_pipeline_that_has_failed_does_not_count() -> None:
    assert _found({**FULL, "lists/pipelines": [{"state": "failed"}]}) == ["the pipeline"]


def test_demo_without_database_and_spark_needs_neither() -> None:
    assert _found({**FULL, "lists/captures": [], "lists/pipelines": []}, is_small=True) == []
