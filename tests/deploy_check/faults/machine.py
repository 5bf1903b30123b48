"""The machine of a runbook: its commands, of which `systemctl` and `journalctl` are those of a node
that these tests run.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from signal import Signals
from typing import Protocol
from urllib.parse import unquote

from deploy_check.command import ENVIRONMENT, ROOT


class Service(Protocol):
    """A node as systemd has it."""

    @property
    def pid(self) -> int: ...

    @property
    def log(self) -> Sequence[str]: ...

    def start(self) -> None:
        """Does nothing when it runs."""
        ...

    def stop(self) -> None: ...

    def reload(self) -> None: ...

    def signal(self, number: Signals) -> None:
        """Send it to all processes of the node."""
        ...


class Machine:
    def __init__(self, home: Path, port: int, programs: Mapping[str, Path]) -> None:
        self.services: Sequence[Service] = ()
        self._programs = home / "programs"
        self._programs.mkdir()
        shims = {name: f'exec {path} "$@"' for name, path in programs.items()}
        shims["dragoman"] = f'exec {sys.executable} -m dragoman.cli.main "$@"'
        for name in ("systemctl", "journalctl"):
            # The words of the command are the path.
            shims[name] = f"""words=$(printf '/%s' "$@")
exec curl -s -S -f "http://127.0.0.1:{port}/{name}$words" """
        for name, script in shims.items():
            file = self._programs / name
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        path = f"{self._programs}:{ENVIRONMENT['PATH']}:/usr/sbin:/sbin"
        source = {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
        return {**ENVIRONMENT, **source, "PATH": path, **variables}

    def answer(self, words: Sequence[str]) -> str:
        match words:
            case ["systemctl", "show", *_]:
                return str(self.services[0].pid)
            case ["systemctl", "kill", option, "dragoman"]:
                for service in self.services:
                    service.signal(Signals[option.removeprefix("--signal=")])
                return ""
            case ["systemctl", ("start" | "stop" | "reload") as action, "dragoman"]:
                for service in self.services:
                    getattr(service, action)()
                return ""
            case ["journalctl", "-u", "dragoman", "-n", count]:
                return "\n".join(self.services[0].log[-int(count) :])
        raise ValueError(f"not a command of this machine: {' '.join(words)}")


@contextmanager
def machine(home: Path, **programs: Path) -> Iterator[Machine]:
    """`programs` are those that the system's path lacks."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, text = 200, found.answer(unquote(self.path).strip("/").split("/"))
            except (AssertionError, OSError, ValueError) as error:
                status, text = 500, repr(error)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(f"{text}\n".encode())

        def log_request(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Machine(home, server.server_address[1], programs)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
