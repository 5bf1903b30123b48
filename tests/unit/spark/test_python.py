"""Goal: workers on this machine import Spark from where it is installed, not from its archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from dragoman.spark.python import use_python

LIBRARY = Path(pyspark.__file__).parent / "python" / "lib"


def said(python: str, *path: str) -> str:
    command = "import os, pyspark, sys; print(pyspark.__file__, sys.executable, *sys.argv[1:]);"
    command += "print(os.environ['PYTHONPATH'])"
    return subprocess.run(
        [python, "-c", command, "an argument"],
        env={**os.environ, "PYTHONPATH": ":".join(path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    ).stdout


@pytest.mark.parametrize("library", [LIBRARY, LIBRARY.resolve()])
def test_archives_of_what_is_installed_are_left_out(library: Path, tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    python = use_python(environment)
    assert environment == {"XDG_CACHE_HOME": str(tmp_path), "PYSPARK_PYTHON": python}
    py4j = next(library.glob("py4j-*"))

    found, path = said(python, f"{library}/pyspark.zip", str(py4j), "/some/where").splitlines()

    assert found == f"{pyspark.__file__} {sys.executable} an argument"
    assert path == "/some/where"
    assert said(python, "/some/where").splitlines()[1] == "/some/where"


def test_a_python_that_somebody_chose_stays(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PYSPARK_PYTHON": "/opt/python"}
    assert use_python(environment) == "/opt/python"


def test_without_a_place_for_the_script_it_is_the_python_that_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert use_python({"XDG_CACHE_HOME": str(tmp_path / "file")}) == sys.executable


def test_a_spark_that_is_not_installed_keeps_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: "/elsewhere")
    assert use_python({"XDG_CACHE_HOME": str(tmp_path)}) == sys.executable
