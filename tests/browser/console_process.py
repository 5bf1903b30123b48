"""The process of a console, as a node starts it: killed and started again on the same port."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import Self

import msgspec

from dragoman.config.console import ConsoleSettings, KafkaTarget
from dragoman.testing import EphemeralBroker


class ConsoleProcess:
    """`url` stays the same over `start` and `kill`."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = msgspec.json.encode(settings) + b"\n"
        # A listener that outlives the process: what connects meanwhile waits for the next one.
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}{settings.base_path}/"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._listener.close()

    def start(self) -> None:
        number = self._listener.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dragoman.console", str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(number,),
        )
        assert self._process.stdin is not None
        self._process.stdin.write(self._settings)
        self._process.stdin.flush()

    def kill(self) -> None:
        """Its sessions are gone with it."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.kill()
        process.wait()
        process.stdin.close()


def settings_of(node: EphemeralBroker, **more: object) -> ConsoleSettings:
    """Of a console of this node."""
    kafka = KafkaTarget(bootstrap=node.bootstrap_servers)
    given = {"server": node.http_url, "kafka": kafka, **more}
    return msgspec.convert(given, ConsoleSettings)


def start_console(stack: ExitStack, node: EphemeralBroker) -> str:
    """The URL of a console that runs until the stack is left."""
    return stack.enter_context(ConsoleProcess(settings_of(node))).url
