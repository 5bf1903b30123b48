"""Quix Streams: applications that read, keep state and write.

They run in a virtual environment of their own, because the library wants an older librdkafka.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from client import SECONDS_MAX, Client
from totals import Totals

SOURCES = Path(__file__).parent / "quix"
BUILD = Path(__file__).parents[2] / "build" / "interop" / "quix"


def set_up() -> str:
    """Install it, once."""
    wanted, stamp = (SOURCES / "requirements.txt").read_bytes(), BUILD / "installed.txt"
    if not stamp.exists() or stamp.read_bytes() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", BUILD], check=True, timeout=120)
        install = ["install", "--quiet", "--disable-pip-version-check", "-r"]
        requirements = SOURCES / "requirements.txt"
        subprocess.run([BUILD / "bin" / "pip", *install, requirements], check=True, timeout=600)
        stamp.write_bytes(wanted)
    return ""


def _run(servers: str, totals: Totals, guarantee: str, state: str, count: int) -> None:
    given = {
        "servers": servers,
        "group": totals.group,
        "source": totals.source,
        "target": totals.target,
        "guarantee": guarantee,
        "state": state,
        "count": count,
    }
    program = [BUILD / "bin" / "python", "-W", "ignore", SOURCES / "program.py", json.dumps(given)]
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=2 * SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def _restarted(guarantee: str, *, keeps_state: bool = True) -> Callable[[QuixClient, str], None]:
    def run(client: QuixClient, topic: str) -> None:
        totals = Totals(client.servers, topic)
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            for count, state in ((20, first), (15, first if keeps_state else second)):
                totals.give(count)
                _run(client.servers, totals, guarantee, state, count)
        totals.check()

    return run


class QuixClient(Client):
    name = "Quix Streams"
    version = (SOURCES / "requirements.txt").read_text().strip().partition("==")[2]
    sections = {
        "Quix Streams": {
            "read, transform, write; a restart goes on": _restarted("at-least-once"),
            "exactly once, with transactions": _restarted("exactly-once"),
            "state from its changelog topic": _restarted("at-least-once", keeps_state=False),
        }
    }
