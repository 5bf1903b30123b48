"""`dragoman serve` as a process of its own, on free ports, watched through its output."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

SOURCE = str(Path(__file__).parents[2] / "src")
#: Modules that stand for `dragoman.cli.main` may be here.
_TESTS = str(Path(__file__).parents[1])
WAIT_S = 60.0
_LISTENER = re.compile(r"(\S+) on (\S+), advertised as (.+)")

#: A plain line of the log, after its time.
_ORDINARY = re.compile(r"\S+Z (INFO|DEBUG) ")


class ServedNode:
    """Starts on construction; `ready` reads up to the line of that name."""

    def __init__(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        module: str = "dragoman.cli.main",
        launcher: Sequence[str] = (sys.executable,),
    ) -> None:
        """`launcher` ends with the interpreter."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("DRAGOMAN_")}
        self.process = subprocess.Popen(
            [*launcher, "-m", module, "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**inherited, "PYTHONPATH": f"{SOURCE}:{_TESTS}", **(environment or {})},
            # A process group of its own: the node and its helper process.
            start_new_session=True,
        )
        self.output: list[str] = []
        self.log: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._logged = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_log, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._logged:
                self.log.append(line.rstrip("\n"))
                self._logged.notify_all()

    def wait_for_log(self, text: str) -> None:
        """Wait for a line of the log with this text."""
        with self._logged:
            found = self._logged.wait_for(lambda: any(text in each for each in self.log), WAIT_S)
        assert found, (text, self.log)

    @property
    def complaints(self) -> list[str]:
        """The lines of the log that are not the ordinary course of things."""
        return [each for each in self.log if not _ORDINARY.match(each)]

    def __enter__(self) -> ServedNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def ready(self) -> ServedNode:
        while True:
            line = self._lines.get(timeout=WAIT_S)
            if line is None:
                status = self.finish()
                raise AssertionError(f"the node ended with {status}: {self.log}")
            self.output.append(line)
            if line == "ready":
                return self

    @property
    def listeners(self) -> dict[str, str]:
        """Name to bound address, as announced."""
        found = [_LISTENER.fullmatch(line) for line in self.output]
        return {each[1]: each[2] for each in found if each}

    @property
    def bootstrap_servers(self) -> str:
        return self.listeners["kafka"]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        """Clean stop; the exit status."""
        self.signal(signal.SIGTERM)
        return self.finish()

    def finish(self) -> int:
        """Wait for the end and read the rest of the output."""
        status = self.process.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        while not self._lines.empty():
            line = self._lines.get()
            if line is not None:
                self.output.append(line)
        self._close()
        return status

    def kill(self) -> None:
        """`kill -9`, the node alone; what it started must notice by itself."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        self._close()

    def _close(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def serve(data: Path | str, *arguments: str, port: int = 0) -> ServedNode:
    """A node on that directory with Kafka on a free port, ready."""
    listen = ("--listen", f"kafka=127.0.0.1:{port}")
    node = ServedNode("--data", str(data), *listen, *arguments)
    try:
        return node.ready()
    except BaseException:
        node.kill()
        raise
