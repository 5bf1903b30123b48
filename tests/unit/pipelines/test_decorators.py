"""Goal: a file in Python declares the same pipelines as one in TOML, and is refused as plainly."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import ConfigError
from dragoman.pipelines.definition import TopicSource
from dragoman.pipelines.pipeline_file import load

GOOD = """
from dragoman.pipelines import pipeline, sink, source, transform

pipeline(name="orders", trigger="once", bootstrap="broker:9092")

@source(type="topic", topic="orders", decode="json")
def orders(records):
    return records.select("value.*")

@source
def numbers(spark):
    return spark.range(3)

@sink(type="delta", path="large")
def table(joined):
    return joined

@transform
def joined(orders, numbers):
    return "select * from orders join numbers using (id)"

@transform(inputs=["joined"], watermark={"column": "at", "delay": "1h"})
def late(frame):
    return frame
"""
HEAD = 'from dragoman.pipelines import *\npipeline(name="a")\n'


def test_functions_become_parts(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(GOOD)

    found = load(str(tmp_path / "orders.py"))

    assert found.trigger == "once"
    assert isinstance(found.sources["orders"], TopicSource)
    assert found.sources["orders"].bootstrap == "broker:9092"
    assert list(found.steps) == ["joined", "late"]
    assert found.sinks["table"].source == "joined"
    assert found.functions["steps.joined"](None, None).startswith("select")
    assert set(found.functions) == {
        *("sources.orders", "sources.numbers", "steps.joined", "steps.late", "sinks.table")
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def (:", "line 1: "),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("a = 1", "declares no pipeline"),
        (HEAD + "@transform\ndef a(b): pass", "nothing is written anywhere"),
        (
            HEAD + "@source\ndef a(spark): pass\n@sink(type='delta', path='p')\ndef o(a, b): pass",
            "sinks.o: takes one table, its only parameter",
        ),
        (
            HEAD + "@source\ndef a(spark): pass\n@sink(type='delta', path='p')\ndef o(b): pass",
            "sinks.o: unknown from: source or step 'b'; expected a",
        ),
        (HEAD + "@source\ndef a(s): pass\n" * 2, "sources.a is declared twice"),
        (
            HEAD
            + "@source\ndef a(spark): pass\n@transform\ndef t(aa): pass\n"
            + "@sink(type='delta', path='p')\ndef o(a): pass",
            "steps.t: unknown input 'aa'; is 'a' meant?",
        ),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(text)

    with pytest.raises(ConfigError) as refused:
        load(str(path))

    assert str(refused.value).startswith(f"{path}: ")
    assert problem in str(refused.value)


def test_a_file_that_is_imported_by_hand_declares_nothing(tmp_path: Path) -> None:
    names: dict[str, object] = {}

    exec(GOOD, names)

    assert callable(names["joined"])
