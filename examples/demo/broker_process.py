"""A broker as a process of its own: the command a user would type, on a directory of its own."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time

from dragoman.cli.status import USAGE, CommandError
from dragoman.config.listeners import LISTENER_NAMES

#: Who logs in at the console; as long as there is no user, it only reads.
CONSOLE_USER = CONSOLE_PASSWORD = "demo"
_START_SECONDS_MAX = 30.0
_STOP_SECONDS_MAX = 30.0
_LOG_NAME = "demo-broker.log"
_LOG_LINES_SHOWN = 10
_LISTENERS = (
    "kafka",
    "minibroker",
    "cursus",
    "mlog",
    "rocketmq",
    "rocketmq-broker",
    "http",
    "console",
)


class _UsageError(CommandError):
    """The broker could not do what it was started for, such as to listen on a port."""


class BrokerProcess:
    """`dragoman serve` with the listeners the demo uses. Every failure is a `CommandError`."""

    def __init__(self, directory: str) -> None:
        self.data = os.path.join(directory, "data")
        self._log_path = os.path.join(directory, _LOG_NAME)
        self._process: subprocess.Popen[bytes] | None = None
        #: Addresses in use; the same after a restart, so that clients find the broker again.
        self._addresses: dict[str, str] = {}
        self._takes_any_port = False

    def address(self, listener: str) -> str:
        return self._addresses[listener]

    @property
    def bootstrap_servers(self) -> str:
        return self.address("kafka")

    @property
    def http_url(self) -> str:
        return f"http://{self.address('http')}"

    @property
    def console_url(self) -> str:
        return f"http://{self.address('console')}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Seconds from the command to `ready`."""
        assert self._process is None
        begun = time.monotonic()
        try:
            self._start(begun)
        except _UsageError:
            if self._addresses or self._takes_any_port:
                raise
            # Another program has taken a port since it was found free.
            self._takes_any_port = True
            self._forget()
            self._start(begun)
        return time.monotonic() - begun

    def _start(self, begun: float) -> None:
        with open(self._log_path, "ab") as log:
            # A session of its own: an interrupt at the terminal is for the demo, which stops the
            # broker when it is done with it.
            self._process = subprocess.Popen(
                self._command(),
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,
            )
        self._await_ready(begun + _START_SECONDS_MAX)

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "dragoman.cli.main", "serve", "--data", self.data]
        for name in _LISTENERS:
            port = 0 if self._takes_any_port else _usual_or_any_port(name)
            address = self._addresses.get(name) or f"127.0.0.1:{port}"
            command += ["--listen", f"{name}={address}"]
        return command

    def _await_ready(self, deadline: float) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        said = b""
        while b"ready\n" not in said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise CommandError(f"the broker was not ready within {_START_SECONDS_MAX:.0f} s")
            chunk = os.read(descriptor, 4096)
            if not chunk:
                status = self._process.wait()
                kind = _UsageError if status == USAGE else CommandError
                raise kind(f"the broker ended with status {status}")
            said += chunk
        for line in said.decode().splitlines():
            name, separator, rest = line.partition(" on ")
            if separator:
                self._addresses[name] = rest.partition(",")[0]

    def wait(self) -> None:
        """Until the broker ends by itself, which it should not."""
        assert self._process is not None
        raise CommandError(f"the broker ended with status {self._process.wait()}")

    def stop(self) -> int:
        """Ask it to stop and return its exit status."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise CommandError(
                f"the broker did not stop within {_STOP_SECONDS_MAX:.0f} s"
            ) from None
        self._forget()
        return status

    def kill(self) -> None:
        """End it without a chance to clean up; harmless when it does not run."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._forget()

    def _forget(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def last_log_lines(self) -> list[str]:
        return last_lines(self._log_path)


def last_lines(path: str) -> list[str]:
    """The end of a log, as much as is shown."""
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            return log.read().splitlines()[-_LOG_LINES_SHOWN:]
    except FileNotFoundError:
        return []


def _environment() -> dict[str, str]:
    """Without settings for some other broker of the user's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}


def _usual_or_any_port(listener: str) -> int:
    """The default port, which is easiest to connect to, or 0 when it is taken."""
    port = next(row.port for row in LISTENER_NAMES if row.name == listener)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port
