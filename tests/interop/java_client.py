"""Apache Kafka's own Java client, behind the program in `java/`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from remote_client import RemoteClient

SOURCES = Path(__file__).parent / "java"
BUILD = Path(__file__).parents[2] / "build" / "interop" / "java"
#: A JVM for short runs: no second compiler, little memory.
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
CLASS_PATH = f"{BUILD / 'classes'}{os.pathsep}{BUILD / 'jars' / '*'}"


def set_up() -> str:
    """Fetch the jars and compile, once. Why it cannot be run, or nothing."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    pom = SOURCES / "pom.xml"
    stamp = BUILD / "pom.xml"
    if not stamp.exists() or stamp.read_bytes() != pom.read_bytes():
        shutil.rmtree(BUILD, ignore_errors=True)
        BUILD.mkdir(parents=True)
        copy = ("dependency:copy-dependencies", f"-DoutputDirectory={BUILD / 'jars'}")
        subprocess.run(["mvn", "-q", "-B", "-f", pom, *copy], check=True, timeout=600)
        shutil.copy(pom, stamp)
    sources = sorted(SOURCES.glob("*.java"))
    classes = BUILD / "classes"
    subprocess.run(
        ["javac", "-cp", CLASS_PATH, "-d", classes, *sources],
        check=True,
        timeout=120,
    )
    return ""


class JavaClient(RemoteClient):
    name = "Java client"
    version = re.search(r"<kafka.version>(.+)<", (SOURCES / "pom.xml").read_text())[1]  # type: ignore[index]

    def command(self, servers: str) -> list[str]:
        return ["java", *OPTIONS, "-cp", CLASS_PATH, "Agent", servers]
