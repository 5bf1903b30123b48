"""Which Python runs beside Spark on one machine: this one, without Spark's archive of itself.

Spark puts an archive of its own modules first, and Python compiles what it imports from an archive
anew in every process: a second for each, of ten that Spark waits for one. The same modules are
installed, with compiled forms beside them.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path

from dragoman.spark.launchers import launcher

_SCRIPT = """#!/bin/sh
# Spark's archives of modules that are installed as well, and load faster from there.
for library in "{seen}" "{real}"; do
  PYTHONPATH=${{PYTHONPATH#"$library"/pyspark.zip:}}
  PYTHONPATH=${{PYTHONPATH#"$library"/py4j-*-src.zip:}}
done
export PYTHONPATH
exec "{python}" "$@"
"""


def use_python(environment: MutableMapping[str, str] = os.environ) -> str:
    """Have `PYSPARK_PYTHON` name a Python for workers on this machine, unless it does."""
    if environment.get("PYSPARK_PYTHON") in (None, "", sys.executable):
        environment["PYSPARK_PYTHON"] = str(_without_archives(environment))
    return environment["PYSPARK_PYTHON"]


def _without_archives(environment: MutableMapping[str, str]) -> Path:
    python = Path(sys.executable)
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return python
    home = Path(found.origin).parent
    # Where Spark was unpacked by hand, the archive may be all there is of it.
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    if home.parent.resolve() not in installed:
        return python
    library = home / "python" / "lib"
    # Spark follows symbolic links to find itself, Python does not.
    text = _SCRIPT.format(seen=library, real=library.resolve(), python=python)
    try:
        return launcher("python", python, text, environment)
    except OSError:
        # A home that cannot be written to: then it takes longer.
        return python
