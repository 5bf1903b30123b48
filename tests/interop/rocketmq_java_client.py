"""RocketMQ's own Java client in several releases, behind the program in `rocketmq/java/`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import rocketmq_operations
import rocketmq_signatures
from brokers import ServedBroker
from rocketmq_client import RocketmqClient

SOURCES = Path(__file__).parent / "rocketmq" / "java"
BUILD = Path(__file__).parents[2] / "build" / "interop" / "rocketmq-java"
#: A JVM for short runs: no second compiler, little memory. Old releases of Netty and fastjson look
#: into what newer JVMs close.
OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx512m",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Dio.netty.noUnsafe=true",
)
VERSIONS = ("4.4.0", "4.9.8", "5.3.3")


def class_path(version: str) -> str:
    folder = BUILD / version
    return f"{folder / 'classes'}{os.pathsep}{folder / 'jars' / '*'}"


def set_up() -> str:
    """Fetch the jars and compile, once. Why it cannot be run, or nothing."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    for version in VERSIONS:
        _build(version)
    return ""


def _build(version: str) -> None:
    folder, pom = BUILD / version, SOURCES / "pom.xml"
    stamp = folder / "pom.xml"
    if not stamp.exists() or stamp.read_bytes() != pom.read_bytes():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        copy = ("dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}")
        fetch = ["mvn", "-q", "-B", "-f", pom, f"-Drocketmq.version={version}", *copy]
        subprocess.run(fetch, check=True, timeout=600)
        shutil.copy(pom, stamp)
    sources = [each for each in sorted(SOURCES.glob("*.java")) if _is_for(each.stem, version)]
    compile_ = ["javac", "-nowarn", "-cp", class_path(version), "-d", folder / "classes", *sources]
    subprocess.run(compile_, check=True, timeout=120)
    shutil.copy(SOURCES / "logback.xml", folder / "classes")


def _is_for(name: str, version: str) -> bool:
    """Lite pull consumers are there from 4.6 on."""
    return name != "Pulled" or version != "4.4.0"


class RocketmqJavaClient(RocketmqClient):
    """Of one release: results are kept by name."""

    sections = rocketmq_operations.SECTIONS
    has = frozenset(
        {
            "sync",
            "one-way",
            "async",
            "batch",
            "properties",
            "delay",
            "queue",
            "first use",
            "transactions",
            "push",
            "pull",
            "clustering",
            "broadcasting",
            "orderly",
            "TAG",
            "SQL92",
            "attempts max",
        }
    )
    #: Given to the JVM beside the usual.
    options: tuple[str, ...] = ()

    def command(self, servers: str) -> list[str]:
        home = f"-Duser.home={self._home.name}"
        program = ["-cp", class_path(self.version), "Agent", servers]
        return ["java", *OPTIONS, *self.options, home, *program]


class RocketmqJava44(RocketmqJavaClient):
    """Connects to the broker by the port that its release calls VIP channel."""

    name = "RocketMQ Java, VIP channel"
    version = "4.4.0"
    has = RocketmqJavaClient.has - {"pull"}

    @classmethod
    def open_broker(cls, settings: Mapping[str, str]) -> ServedBroker:
        return ServedBroker()


class RocketmqJava49(RocketmqJavaClient):
    name = "RocketMQ Java, 4.x"
    version = "4.9.8"
    sections = rocketmq_operations.SECTIONS | rocketmq_signatures.SECTION
    refusals = {
        "wrong": r"MQBrokerException: CODE: 1 +DESC: Check signature failed for accessKey=",
        "unsigned": r"MQBrokerException: CODE: 1 +DESC: No accessKey is configured",
        "no right": r"MQBrokerException: CODE: 16 +DESC: bob may not write topic",
    }


class RocketmqJava53(RocketmqJavaClient):
    name = "RocketMQ Java, 5.x"
    version = "5.3.3"
    sections = rocketmq_operations.SECTIONS | rocketmq_signatures.SECTION
    refusals = {
        "wrong": r"MQBrokerException: CODE: 16 +DESC: check signature failed\.",
        "unsigned": r"MQBrokerException: CODE: 16 +DESC: username cannot be null\.",
        "no right": r"MQBrokerException: CODE: 16 +DESC: bob may not write topic",
    }


class RocketmqBinary(RocketmqJava53):
    name = "RocketMQ Java, binary headers"
    options = ("-Drocketmq.serialize.type=ROCKETMQ",)
