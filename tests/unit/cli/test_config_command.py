"""`dragoman config show|schema`."""

from __future__ import annotations

import json
import os
import tomllib

import pytest

from dragoman.cli.main import main
from dragoman.config.reference import json_schema
from dragoman.config.settings import NODE_KEYS


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("DRAGOMAN_")]:
        monkeypatch.delenv(variable)


def test_show_is_toml_with_all_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--set", "num.partitions=3", "--listen", "http=off"]) == 0
    shown = tomllib.loads(capsys.readouterr().out)
    assert shown["num"]["partitions"] == 3
    assert shown["listen"]["kafka"] == "127.0.0.1:9092"
    assert "http" not in shown["listen"]
    assert shown["transaction"]["state"]["log"]["num"]["partitions"] == 50


def test_show_origin_says_where_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--origin", "--durability", "os"]) == 0
    shown = capsys.readouterr().out.splitlines()
    lines = {line.split(" = ")[0].strip('"'): line for line in shown}
    assert lines["durability"].endswith("# flag --durability")
    assert lines["data"].endswith("# default")
    assert NODE_KEYS.keys() <= lines.keys()


def test_show_json_has_key_value_and_origin(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--advertise", "kafka=broker.example:1", "--output", "json")
    assert main(["config", "show", *arguments]) == 0
    shown = {each["key"]: each for each in json.loads(capsys.readouterr().out)}
    assert shown["advertise.kafka"] == {
        "key": "advertise.kafka",
        "value": "broker.example:1",
        "origin": "flag --advertise",
    }
    assert shown["delete.topic.enable"]["value"] == "true"


def test_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(json_schema()))
