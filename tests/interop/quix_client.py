"""Quix Streams: applications that read, keep state and write. They run in a virtual environment of
their own, because the library wants an older librdkafka; confluent-kafka writes their input and
reads their output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from client import SECONDS_MAX, Client, Record, Row
from confluent_client import ConfluentClient

SOURCES = Path(__file__).parent / "quix"
BUILD = Path(__file__).parents[2] / "build" / "interop" / "quix"
KEYS = 5


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


class Application:
    """One that is run several times, with the records that it is given meanwhile."""

    def __init__(self, client: QuixClient, topic: str, guarantee: str) -> None:
        self._client = client
        self._settings = {
            "servers": client.servers,
            "group": f"group-{topic}",
            "source": f"{topic}-in",
            "target": f"{topic}-out",
            "guarantee": guarantee,
        }
        self._given = 0
        client.kafka.create_topic(f"{topic}-in", 2)
        client.kafka.create_topic(f"{topic}-out", 2)

    def give(self, count: int) -> None:
        records = [
            Record(json.dumps({"number": number}).encode(), b"%d" % (number % KEYS))
            for number in range(self._given, self._given + count)
        ]
        self._given += count
        self._client.kafka.produce(self._settings["source"], records)

    def run(self, count: int, state: str) -> None:
        given = json.dumps({**self._settings, "count": count, "state": state})
        program = [BUILD / "bin" / "python", "-W", "ignore", SOURCES / "program.py", given]
        done = subprocess.run(
            program, capture_output=True, text=True, timeout=2 * SECONDS_MAX, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]

    def check(self) -> None:
        """Every record came out once, in order, counted in its key's place."""
        rows = self._client.kafka.consume(self._settings["target"], self._given, True)
        for key in range(KEYS):
            totals = _totals(rows, b"%d" % key)
            numbers = range(key, self._given, KEYS)
            expected = [(number, place) for place, number in enumerate(numbers, start=1)]
            assert totals == expected, totals


def _totals(rows: Sequence[Row], key: bytes) -> list[tuple[int, int]]:
    read = [json.loads(row.value or b"") for row in rows if row.key == key]
    return [(each["number"], each["seen"]) for each in read]


def _restarted(guarantee: str, *, keeps_state: bool = True) -> object:
    def run(client: QuixClient, topic: str) -> None:
        application = Application(client, topic, guarantee)
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            application.give(20)
            application.run(20, first)
            application.give(15)
            application.run(15, first if keeps_state else second)
        application.check()

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

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self.kafka = ConfluentClient(servers)
