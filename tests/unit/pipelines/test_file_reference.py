"""docs/reference/pipeline-file.md and the files in the guide are held against the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.pipelines import definition
from dragoman.pipelines.pipeline_file import JOBS, load

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reference" / "pipeline-file.md").read_text()
GUIDE = (DOCS / "guides" / "pipelines.md").read_text()
#: Keys that stand for all kinds, above them.
COMMON = {"watermark", "from", "output", "trigger"}


def section(heading: str, level: int) -> str:
    found = re.search(
        rf"^{'#' * level} {re.escape(heading)}\n(.*?)(?=^#{{2,{level}}} |\Z)",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
    assert found is not None, heading
    return found[1]


@pytest.mark.parametrize(
    ("table", "kinds"),
    [("sources", definition.Source.__args__), ("sinks", definition.Sink.__args__)],  # type: ignore[attr-defined]
)
def test_every_key_of_every_kind_is_there(table: str, kinds: tuple[Any, ...]) -> None:
    whole = section(f"`[{table}.NAME]`", 2)
    for kind in kinds:
        tag = kind.__struct_config__.tag
        text = whole.partition(f'### `type = "{tag}"`\n')[2].partition("\n### ")[0]
        for field in msgspec.structs.fields(kind):
            place = whole if field.encode_name in COMMON else text
            assert f"`{field.encode_name}" in place, (tag, field.encode_name)


def test_every_key_of_the_top_level_and_of_steps_is_there() -> None:
    top = section("Top level", 2)
    for name in definition.Head.__struct_fields__:
        if name not in ("sources", "steps", "sinks", "jobs", "spark"):
            assert f"| `{name}` |" in top
    for name in definition.SparkKeys.__struct_fields__:
        assert f"| `spark.{name}` |" in top
    steps = section("`[steps.NAME]`", 2)
    assert all(f"| `{name}` |" in steps for name in definition.Step.__struct_fields__)
    assert all(f"`{job}`" in section("`[jobs.NAME]`", 2) for job in JOBS)


def test_defaults_are_the_real_ones() -> None:
    assert f"| `batch_records` | `{definition.BATCH_RECORDS}` |" in PAGE
    assert f'| `bootstrap` | `"{definition.Head(name="a").bootstrap}"` |' in PAGE


def test_the_file_of_the_guide_loads(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(toml|python)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    files = [(kind, text) for kind, text in blocks if "name = " in text or "name=" in text]
    assert len(files) == 2
    for kind, text in files:
        path = tmp_path / f"pipeline.{'py' if kind == 'python' else 'toml'}"
        path.write_text(text)
        assert load(str(path)).sinks
