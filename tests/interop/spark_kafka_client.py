"""Spark's own Kafka connector beside the formats of this package: the same jobs, row by row.

Both run in one Spark session against one broker. Where they differ on purpose, the page of the
source says so, and the difference is checked, too: what is written there must stay true.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import spark_formats as formats
import spark_jobs as jobs
import spark_scenes as scenes
from client import Client, Operations
from confluent_client import ConfluentClient

from dragoman.spark import session

SOURCES = Path(__file__).parent / "spark_kafka"
BUILD = Path(__file__).parents[2] / "build" / "interop" / "spark-kafka"


def set_up() -> str:
    """Fetch the jars, once. Why it cannot be run, or nothing."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    pom, stamp = SOURCES / "pom.xml", BUILD / "pom.xml"
    if not stamp.exists() or stamp.read_bytes() != pom.read_bytes():
        shutil.rmtree(BUILD, ignore_errors=True)
        BUILD.mkdir(parents=True)
        copy = ("dependency:copy-dependencies", f"-DoutputDirectory={BUILD / 'jars'}")
        subprocess.run(["mvn", "-q", "-B", "-f", pom, *copy], check=True, timeout=600)
        shutil.copy(pom, stamp)
    return ""


class SparkKafkaClient(Client):
    name = "Spark's Kafka connector"
    version = re.search(r"<connector.version>(.+)<", (SOURCES / "pom.xml").read_text())[1]  # type: ignore[index]

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self.stock = ConfluentClient(servers)
        jobs.fill(self.stock)
        self.spark = session(
            "dragoman interop",
            master="local[2]",
            config={
                "spark.driver.memory": "1g",
                "spark.jars": ",".join(map(str, sorted((BUILD / "jars").glob("*.jar")))),
                "spark.sql.shuffle.partitions": "2",
            },
        )
        # What is wrong with a job is looked at here, not printed.
        self.spark.sparkContext.setLogLevel("OFF")

    def batch(self, format_: str, options: Mapping[str, str]) -> formats.Outcome:
        return formats.batch(self.spark, format_, self._with_servers(options))

    def stream(self, format_: str, options: Mapping[str, str]) -> formats.Outcome:
        with formats.stream(self.spark) as stream:
            return stream.run(format_, self._with_servers(options))

    def _with_servers(self, options: Mapping[str, str]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, **options}

    def close(self) -> None:
        self.spark.stop()


# ---- operations


def _same(read: Callable[..., formats.Outcome], options: Mapping[str, str]) -> Any:
    def run(client: SparkKafkaClient, _: str) -> None:
        formats.check_same(*(read(client, format_, options) for format_ in formats.FORMATS))

    return run


def _different(read: Callable[..., formats.Outcome], job: jobs.Difference) -> Any:
    def run(client: SparkKafkaClient, _: str) -> None:
        kafka, ours = (read(client, format_, job.options) for format_ in formats.FORMATS)
        found = _in_short(kafka), _in_short(ours)
        assert found == (job.kafka, job.ours), f"kafka: {found[0]}, dragoman: {found[1]}"

    return run


def _in_short(outcome: formats.Outcome) -> str | int:
    return "fails" if outcome.error else len(outcome.rows)


def _operations() -> dict[str, Operations]:
    batch, stream = SparkKafkaClient.batch, SparkKafkaClient.stream
    return {
        "Spark, both formats alike: batches": {
            title: _same(batch, options) for title, options in jobs.BATCH.items()
        },
        "Spark, both formats alike: streams": {
            title: _same(stream, options) for title, options in jobs.STREAM.items()
        },
        "Spark, both formats alike: streams over restarts": dict(scenes.STREAMS),
        "Spark, both formats alike: writes": dict(scenes.WRITES),
        "Spark, differences on purpose": {
            **{title: _different(batch, job) for title, job in jobs.DIFFERENT_BATCH.items()},
            **{title: _different(stream, job) for title, job in jobs.DIFFERENT_STREAM.items()},
            **scenes.DIFFERENT,
        },
    }


SparkKafkaClient.sections = _operations()
