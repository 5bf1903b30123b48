"""A capturing process beside a test: commands go over its pipes, its reports are kept."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dragoman.captures.control import (
    Command,
    Done,
    Start,
    Status,
    Stop,
    decode_report,
    encode_line,
)
from dragoman.captures.definition import Definition

WAIT_S = 60.0


class CaptureProcess:
    """`start` it as often as it was killed."""

    def __init__(
        self,
        definition: Definition,
        bootstrap: str,
        spool: Path,
        *,
        incarnation: str = "1",
        interpreter: Sequence[str] = (sys.executable,),
    ) -> None:
        """`interpreter` is what starts Python, in whatever surroundings."""
        self._interpreter = tuple(interpreter)
        self.definition = definition
        self._start = Start(
            definition=definition, bootstrap=bootstrap, spool=str(spool), incarnation=incarnation
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._reading: threading.Thread | None = None
        self._reports: queue.SimpleQueue[Status | Done | None] = queue.SimpleQueue()
        self.status: Status | None = None
        self.done: dict[str, Done] = {}

    def start(self, *, is_paused: bool = False) -> CaptureProcess:
        self._process = subprocess.Popen(
            [*self._interpreter, "-m", "dragoman.cdc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.status = None
        self._reports = queue.SimpleQueue()
        self._reading = threading.Thread(
            target=self._read, args=(self._process, self._reports), daemon=True
        )
        self._reading.start()
        start = self._start
        if is_paused:
            start = Start(
                definition=start.definition,
                bootstrap=start.bootstrap,
                spool=start.spool,
                incarnation=start.incarnation,
                is_paused=True,
            )
        self.tell(start)
        return self

    @staticmethod
    def _read(
        process: subprocess.Popen[bytes], reports: queue.SimpleQueue[Status | Done | None]
    ) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            reports.put(decode_report(line))
        reports.put(None)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def tell(self, command: Command) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(encode_line(command) + b"\n")
        self._process.stdin.flush()

    def until(self, is_it: Callable[[CaptureProcess], bool], wait_s: float = WAIT_S) -> Status:
        """Wait for a report after which this is true."""
        deadline = time.monotonic() + wait_s
        while self.status is None or not is_it(self):
            report = self._reports.get(timeout=max(0.01, deadline - time.monotonic()))
            assert report is not None, "the process has ended"
            if isinstance(report, Done):
                self.done[report.id] = report
            else:
                self.status = report
        return self.status

    def until_state(self, state: str) -> Status:
        return self.until(lambda it: it.status is not None and it.status.state == state)

    def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._end()

    def stop(self) -> int:
        """Its exit status."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self.tell(Stop())
        return self._end()

    def _end(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        assert self._reading is not None
        try:
            status = process.wait(WAIT_S)
        finally:
            process.kill()
            process.wait()
            self._reading.join()
            process.stdin.close()
            process.stdout.close()
        return status

    def __enter__(self) -> CaptureProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
