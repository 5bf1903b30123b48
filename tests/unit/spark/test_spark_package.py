"""Goal: the package's names are what they say, in whatever order they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("first", ["table", "session", "create_views", "readable"])
def test_names_are_functions_whichever_is_used_first(first: str) -> None:
    program = (
        "import sys; from dragoman import spark\n"
        "assert 'pyspark' not in sys.modules\n"
        f"assert callable(spark.{first})\n"
        "assert all(callable(getattr(spark, name)) for name in spark.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=200)


def test_unknown_names_are_errors() -> None:
    from dragoman import spark

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        spark.nothing  # type: ignore[attr-defined]


def test_a_commit_loads_no_arrays() -> None:
    """Every micro-batch is committed by a new process, which would load them first."""
    program = (
        "import sys; import dragoman.spark.writer\n"
        "assert not {'numpy', 'pyarrow'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=200)
