"""The demo's Spark job as a process of its own: started, listened to, and killed in the end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from demo.broker_process import last_lines
from demo.spark_job import Failed, Said, Settings
from dragoman.errors import DragomanError

#: For Spark to start, and again for its queries: many times what an idle machine takes.
_SILENCE_SECONDS_MAX = 300.0
_LOG_NAME = "demo-spark.log"

Kind = TypeVar("Kind", bound=Said)


class SparkJobError(DragomanError):
    """Spark did not start, or did not do its work. `log_lines` are the last that it wrote."""

    def __init__(self, message: str, log_lines: list[str]) -> None:
        super().__init__(message)
        self.log_lines = log_lines


class SparkProcess:
    """Runs the job once. Every failure is a `SparkJobError`."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.join(directory, "spark")
        self._log_path = os.path.join(directory, _LOG_NAME)
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""

    def start(self, settings: Settings) -> None:
        assert self._process is None
        scratch = os.path.join(self.directory, "scratch")
        os.makedirs(scratch)
        arguments = ["-m", "demo.spark_job", msgspec.json.encode(settings).decode()]
        with open(self._log_path, "ab") as log:
            # A session of its own: an interrupt at the terminal is for the demo, which ends Spark
            # with everything that it has started.
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=_environment(scratch),
                start_new_session=True,
            )

    def hear(self, kind: type[Kind]) -> Kind:
        """Wait for what the job says next."""
        said = msgspec.json.decode(self._next_line(), type=Said)
        if isinstance(said, Failed):
            raise self._error(f"Spark: {said.reason}")
        assert isinstance(said, kind), said
        return said

    def _next_line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + _SILENCE_SECONDS_MAX
        while b"\n" not in self._heard:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise self._error(f"Spark said nothing for {_SILENCE_SECONDS_MAX:.0f} s")
            chunk = os.read(descriptor, 65536)
            if not chunk:
                raise self._error(f"Spark ended with status {self._process.wait()}")
            self._heard += chunk
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _error(self, message: str) -> SparkJobError:
        return SparkJobError(message, last_lines(self._log_path))

    def kill(self) -> None:
        """End it with its Java, wherever it is; harmless when it does not run."""
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None


def _environment(scratch: str) -> dict[str, str]:
    """Python finds this package wherever the demo was started."""
    folders = [str(Path(__file__).parents[1])]
    if inherited := os.environ.get("PYTHONPATH"):
        folders.append(inherited)
    return {**os.environ, "TMPDIR": scratch, "PYTHONPATH": os.pathsep.join(folders)}
