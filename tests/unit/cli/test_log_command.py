"""`dragoman log inspect|verify` with readers that only report: lines, structs and exit status."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Generator

import msgspec
import pytest

from dragoman.cli.main import main


class Segment(msgspec.Struct, frozen=True):
    path: str
    size: int


def reader(status: int):
    def read(path: str) -> Generator[str | msgspec.Struct, None, int]:
        yield f"reading {path}"
        yield Segment("a\n.log", 10)
        return status

    return read


@pytest.fixture(autouse=True)
def _readers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("dragoman.log.inspect")
    module.inspect_directory = reader(0)  # type: ignore[attr-defined]
    module.verify_directory = reader(1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dragoman.log.inspect", module)


@pytest.mark.parametrize(("verb", "status"), [("inspect", 0), ("verify", 1)])
def test_report_is_printed_and_its_status_returned(
    verb: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", verb, "dir"]) == status
    assert capsys.readouterr().out == "reading dir\npath=a\\n.log size=10\n"


def test_json_report_is_one_value_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", "dir", "--output", "json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == ["reading dir", {"path": "a\n.log", "size": 10}]


def test_directory_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "inspect"]) == 2
    assert capsys.readouterr().out == ""
