"""Faults of pipelines: a node, and a pipeline on Spark that reports to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import Producer

from deploy_check.command import ENVIRONMENT, ROOT
from deploy_check.faults.prometheus import Prometheus
from deploy_check.faults.served import SingleNode, dragoman
from deploy_check.faults.trial import Fault, Raised

_PIPELINE = "copy"
_RECORDS = 200_000
_FILE = """
name = "copy"
bootstrap = "{bootstrap}"
trigger = "continuous"

[sources.orders]
type = "topic"
topic = "orders"
batch_records = 100

[sinks.copies]
type = "topic"
from = "orders"
topic = "copies"
"""


@contextmanager
def stage(home: Path, prometheus: Prometheus) -> Iterator[tuple[Fault, ...]]:
    with SingleNode(home / "node") as served:
        prometheus.scrape(served.http)
        for topic in ("orders", "copies"):
            dragoman("topic", "create", topic, "--partitions", "1", "--server", served.url)
        producer = Producer({"bootstrap.servers": served.kafka})
        for _ in range(_RECORDS):
            producer.produce("orders", b"{}")
            producer.poll(0)
        producer.flush(60)
        faults = _Faults(home, served, prometheus)
        faults.run()
        try:
            yield (
                Fault("DragomanPipelineStalls", "its Java stands still", faults.stalls),
                Fault("DragomanPipelineFailed", "`kill -9` of its processes", faults.failed),
            )
        finally:
            faults.kill()


class _Faults:
    def __init__(self, home: Path, served: SingleNode, prometheus: Prometheus) -> None:
        self._home = home
        self._served = served
        self._prometheus = prometheus
        self._file = home / "pipeline.toml"
        self._file.write_text(_FILE.format(bootstrap=served.kafka))
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        where = ("--state", str(self._home / "state"), "--master", "local[1]")
        command = ("pipeline", "run", str(self._file), "--server", self._served.url, *where)
        with (self._home / "pipeline.log").open("ab") as log:
            self._process = subprocess.Popen(
                (sys.executable, "-m", "dragoman.cli.main", *command),
                cwd=self._home,
                env={**ENVIRONMENT, "PYTHONPATH": str(ROOT / "src")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        rows = f'dragoman_pipeline_rows_total{{pipeline="{_PIPELINE}"}}'
        self._prometheus.until(f"{rows} > 0", "the pipeline does not run")

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=60)

    def _raised(self, **labels: str) -> Raised:
        variables = self._served.variables(PIPELINE=_PIPELINE)
        about = {"instance": self._served.http, **labels}
        return Raised(about, variables, [self._served.service])

    def stalls(self) -> Iterator[Raised]:
        java = self._java()
        os.kill(java, signal.SIGSTOP)
        try:
            yield self._raised(pipeline=_PIPELINE)
        finally:
            os.kill(java, signal.SIGCONT)
        yield self._raised()

    def _java(self) -> int:
        """The process of Spark, which is in the pipeline's process group or session."""
        assert self._process is not None
        for process in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                number = int(process.name)
                is_java = b"java" in (process / "cmdline").read_bytes().partition(b"\0")[0]
                if is_java and os.getsid(number) == self._process.pid:
                    return number
        raise AssertionError("the pipeline has no Java")

    def failed(self) -> Iterator[Raised]:
        self.kill()
        yield self._raised(state="died")
        self.run()
        yield self._raised()
