"""Goal: every option of a job is in the reference, and importing a job's module is cheap.

Method: the page's tables; a process of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

JOBS = ("materialize", "tier", "replay", "profile")
PAGE = Path(__file__).parents[4] / "docs" / "reference" / "jobs.md"


@pytest.mark.parametrize("job", JOBS)
def test_reference_has_every_option(job: str) -> None:
    section = PAGE.read_text().partition(f"\n## {job}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    options = import_module(f"dragoman.pipelines.jobs.{job}").Options
    assert documented == {field.name for field in msgspec.structs.fields(options)}


def test_options_need_neither_spark_nor_arrow() -> None:
    imports = "; ".join(f"import dragoman.pipelines.jobs.{job}" for job in JOBS)
    check = "import sys; print({'pyspark', 'pyarrow', 'deltalake', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{imports}; {check}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_readers_of_tables_are_found_in_the_package() -> None:
    package = import_module("dragoman.pipelines")
    for name in package.__all__:
        assert callable(getattr(package, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing
