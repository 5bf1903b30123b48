"""The broker under test: the installed `dragoman serve` in a process of its own."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.request import urlopen

from harness.processes import cpu_seconds, memory_kb, reset_memory_peak

_START_SECONDS_MAX = 120.0
_STOP_SECONDS_MAX = 120.0
_LISTENER = re.compile(r"^(\S+) on (\S+):(\d+),", re.MULTILINE)
_SENT = re.compile(r'sent_bytes_total\{listener="kafka"\} (\S+)')


class BenchmarkError(Exception):
    """The measurement cannot continue; the text has the reason."""


def installed_command() -> Path:
    """The console script beside this interpreter."""
    command = Path(sys.executable).parent / "dragoman"
    if not command.exists():
        raise BenchmarkError(
            f"{command} does not exist: install the package into this interpreter's environment"
        )
    return command


def plain_environment() -> dict[str, str]:
    """The environment without what would change the interpreter or the node's settings."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "DRAGOMAN_"))
    }


class BrokerProcess:
    """One node on one data directory. May be started, stopped and killed again and again."""

    #: Where to put a profile of every run of every broker (`--profile`); None: not profiled.
    profile_directory: Path | None = None
    _profiles = 0

    def __init__(
        self,
        directory: Path,
        *,
        durability: str = "fsync",
        settings: Mapping[str, str] | None = None,
        serve_http: bool = False,
        listener: str = "kafka",
        cluster: Sequence[str] = (),
        node_id: int = 1,
        source: Path | None = None,
    ) -> None:
        """`listener` is the one that `address` leads to; `cluster` names nodes and addresses.

        With `source`, the node runs from that folder instead of the installed package.
        """
        self._options = [
            "serve",
            f"--data={directory}",
            f"--durability={durability}",
            f"--listen={listener}=127.0.0.1:0",
            *(["--listen=http=127.0.0.1:0"] if serve_http else []),
            "--log-level=warning",
            *([f"--node-id={node_id}", f"--cluster={','.join(cluster)}"] if cluster else []),
            *(f"--set={key}={value}" for key, value in (settings or {}).items()),
        ]
        self.directory = directory
        self._source = source
        self._listener = listener
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ("", 0)
        self._http: tuple[str, int] | None = None

    def start(self) -> float:
        """Seconds from the start of the process to its line `ready`."""
        started = time.perf_counter()
        self.begin()
        self.wait_ready()
        return time.perf_counter() - started

    def begin(self) -> None:
        assert self._process is None
        environment = plain_environment()
        program = self._program()
        if self._source is not None:
            environment["PYTHONPATH"] = str(self._source)
            program = [sys.executable, "-m", "dragoman.cli.main"]
        self._process = subprocess.Popen(
            [*program, *self._options], stdout=subprocess.PIPE, bufsize=0, env=environment
        )

    def wait_ready(self) -> None:
        try:
            self._read_until_ready(time.perf_counter() + _START_SECONDS_MAX)
        except BaseException:
            self.kill()
            raise

    @classmethod
    def _program(cls) -> list[str]:
        if cls.profile_directory is None:
            return [str(installed_command())]
        cls._profiles += 1
        output = cls.profile_directory / f"{cls._profiles:03d}.prof"
        return [sys.executable, "-m", "cProfile", "-o", str(output), str(installed_command())]

    def _read_until_ready(self, deadline: float) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        # Unbuffered and cut into lines here: a selector does not see what a buffer holds.
        descriptor = self._process.stdout.fileno()
        text = b""
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\nready\n" not in text:
                if not selector.select(max(0.0, deadline - time.perf_counter())):
                    raise BenchmarkError(f"not ready within {_START_SECONDS_MAX:g} s")
                data = os.read(descriptor, 4096)
                if not data:
                    raise BenchmarkError(f"ended with status {self._process.wait()} at its start")
                text += data
        found = {each[1]: (each[2], int(each[3])) for each in _LISTENER.finditer(text.decode())}
        if self._listener not in found:
            raise BenchmarkError(f"no listener {self._listener} in {text.decode()!r}")
        self.address = found[self._listener]
        self._http = found.get("http")

    @property
    def bootstrap_servers(self) -> str:
        return "{}:{}".format(*self.address)

    @property
    def http_address(self) -> tuple[str, int]:
        assert self._http is not None
        return self._http

    def sent_bytes(self) -> float:
        """What the node has sent to Kafka clients, by its own count."""
        assert self._http is not None
        with urlopen("http://{}:{}/metrics".format(*self._http), timeout=30) as answer:
            text = answer.read().decode()
        found = _SENT.search(text)
        if found is None:
            raise BenchmarkError("the metrics do not count what was sent")
        return float(found[1])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def resident_kb(self) -> int:
        return memory_kb(self.pid)

    def resident_peak_kb(self) -> int:
        return memory_kb(self.pid, "VmHWM")

    def reset_peak(self) -> None:
        reset_memory_peak(self.pid)

    def stop(self) -> float:
        """A clean stop; returns how long it took."""
        started = time.perf_counter()
        status = self._end(signal.SIGTERM)
        if status != 0:
            raise BenchmarkError(f"a clean stop ended with status {status}")
        return time.perf_counter() - started

    def kill(self) -> None:
        if self._process is not None:
            self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None
        assert process.stdout is not None
        process.send_signal(number)
        try:
            return process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BenchmarkError(f"not stopped within {_STOP_SECONDS_MAX:g} s") from None
        finally:
            process.stdout.close()
