"""Settings of Spark that were made outside of this program, which win over the ones made here.

Spark reads them itself when it starts; what a session sets comes after and would replace them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from dragoman.limits import SPARK_DEFAULTS_BYTES_MAX

_FILE = "spark-defaults.conf"
_LINE = re.compile(r"\s*(spark\.[^\s=:]+)[\s=:]+(.*?)\s*$")


def settings_elsewhere(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What `spark-defaults.conf` and `PYSPARK_SUBMIT_ARGS` say."""
    return _in_file(environment) | _in_arguments(environment)


def _in_file(environment: Mapping[str, str]) -> dict[str, str]:
    folder = environment.get("SPARK_CONF_DIR") or (
        os.path.join(home, "conf") if (home := environment.get("SPARK_HOME")) else ""
    )
    if not folder:
        return {}
    try:
        with Path(folder, _FILE).open(errors="replace") as file:
            lines = file.read(SPARK_DEFAULTS_BYTES_MAX).splitlines()
    except OSError:
        return {}
    return {found[1]: found[2] for line in lines if (found := _LINE.match(line))}


def _in_arguments(environment: Mapping[str, str]) -> dict[str, str]:
    try:
        words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError:
        return {}
    found = {}
    for word, following in pairwise(words):
        if word in ("--conf", "-c"):
            name, _, value = following.partition("=")
            found[name] = value
        elif word == "--master":
            found["spark.master"] = following
    return found
