"""Kafka Connect: a file becomes a topic, the topic becomes a file.

Workers are Kafka's own, from the same jars as the Java client. In distributed mode they keep
everything in three compacted topics.
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import java_client
from client import SECONDS_MAX, Client, wait_until
from confluent_client import ConfluentClient

set_up = java_client.set_up
_KINDS = {"source": "FileStreamSource", "sink": "FileStreamSink"}


class Worker:
    """A process, with the connectors that it is given. Ends with `with`; what it keeps stays."""

    def __init__(self, folder: Path, mode: str, settings: Mapping[str, str], *files: Path) -> None:
        self._port = _free_port()
        properties = folder / f"worker-{self._port}.properties"
        _write(
            properties,
            {
                "key.converter": "org.apache.kafka.connect.storage.StringConverter",
                "value.converter": "org.apache.kafka.connect.storage.StringConverter",
                "offset.flush.interval.ms": "200",
                "listeners": f"http://127.0.0.1:{self._port}",
                **settings,
            },
        )
        program = ["-cp", java_client.CLASS_PATH, f"org.apache.kafka.connect.cli.Connect{mode}"]
        self._output = (folder / f"worker-{self._port}.log").open("w+")
        self._process = subprocess.Popen(
            ["java", *java_client.OPTIONS, *program, properties, *files],
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self) -> Self:
        wait_until(self._is_ready, "a Connect worker answers")
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def _is_ready(self) -> bool:
        if self._process.poll() is not None:
            self._output.seek(0)
            raise AssertionError(f"the worker ended: {self._output.read()[-2000:]}")
        try:
            return "version" in self.ask("GET", "/")
        except urllib.error.URLError:
            time.sleep(0.1)
            return False

    def ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as reply:
            return json.loads(reply.read() or b"null")

    def put(self, config: Mapping[str, str]) -> None:
        """A connector, once the worker has joined its group."""

        def is_taken() -> bool:
            try:
                self.ask("PUT", f"/connectors/{config['name']}/config", config)
            except urllib.error.HTTPError as error:
                # Rebalancing, or not yet able to write to its topics: retriable.
                if error.code not in (409, 500, 503):
                    raise AssertionError(error.read().decode()) from None
                time.sleep(0.2)
                return False
            return True

        wait_until(is_taken, "a worker takes a connector")

    def is_running(self, name: str) -> bool:
        try:
            tasks = self.ask("GET", f"/connectors/{name}/status")["tasks"]
        except urllib.error.HTTPError:
            tasks = []
        assert all(task["state"] != "FAILED" for task in tasks), tasks
        time.sleep(0.1)
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)


class Pipe:
    """Two files with a topic between them."""

    def __init__(self, folder: Path, topic: str) -> None:
        self._files = {"source": folder / "source.txt", "sink": folder / "sink.txt"}
        self._topic = topic
        self._lines: list[str] = []

    def config(self, end: str, **more: str) -> dict[str, str]:
        return {
            "name": f"{end}-{self._topic}",
            "connector.class": _KINDS[end],
            "tasks.max": "1",
            "file": str(self._files[end]),
            "topic" if end == "source" else "topics": self._topic,
            **more,
        }

    def give(self, count: int) -> None:
        new = [f"line {number}" for number in range(len(self._lines), len(self._lines) + count)]
        self._lines += new
        with self._files["source"].open("a") as file:
            file.writelines(f"{line}\n" for line in new)

    def check(self) -> None:
        """All lines arrive, once and in order."""

        def has_all() -> bool:
            time.sleep(0.05)
            return len(self._read()) >= len(self._lines)

        wait_until(has_all, f"{len(self._lines)} lines in the sink")
        assert self._read() == self._lines

    def _read(self) -> Sequence[str]:
        sink = self._files["sink"]
        return sink.read_text().splitlines() if sink.exists() else []


def standalone(client: ConnectClient, topic: str) -> None:
    """Lines that come while no worker runs are carried by the next one, and only those."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pipe = Pipe(folder, topic)
        connectors = [folder / "source.properties", folder / "sink.properties"]
        for path in connectors:
            _write(path, pipe.config(path.stem))
        settings = {
            "bootstrap.servers": client.servers,
            "offset.storage.file.filename": str(folder / "offsets"),
        }
        for count in (50, 30):
            pipe.give(count)
            with Worker(folder, "Standalone", settings, *connectors):
                pipe.check()


def _distributed_settings(client: ConnectClient, topic: str, **more: str) -> dict[str, str]:
    kept = ("config", "offset", "status")
    return {
        "bootstrap.servers": client.servers,
        "group.id": f"connect-{topic}",
        **{f"{each}.storage.topic": f"{topic}-{each}" for each in kept},
        **{f"{each}.storage.replication.factor": "1" for each in kept},
        "scheduled.rebalance.max.delay.ms": "0",
        "heartbeat.interval.ms": "500",
        "session.timeout.ms": "6000",
        **more,
    }


def distributed(client: ConnectClient, topic: str) -> None:
    """What a worker needs to continue is in its topics: the second one gets no configuration."""
    settings = _distributed_settings(client, topic)
    with tempfile.TemporaryDirectory() as name:
        pipe = Pipe(Path(name), topic)
        pipe.give(50)
        with Worker(Path(name), "Distributed", settings) as worker:
            for end in _KINDS:
                worker.put(pipe.config(end))
            pipe.check()
        pipe.give(30)
        with Worker(Path(name), "Distributed", settings):
            pipe.check()
    for each in ("config", "offset", "status"):
        assert client.kafka.topic_config(f"{topic}-{each}")["cleanup.policy"] == "compact"


def two_workers(client: ConnectClient, topic: str) -> None:
    """Both connectors continue when one of two workers leaves."""
    settings = _distributed_settings(client, topic)
    with tempfile.TemporaryDirectory() as name:
        pipe = Pipe(Path(name), topic)
        pipe.give(20)
        with Worker(Path(name), "Distributed", settings) as stays:
            with Worker(Path(name), "Distributed", settings) as leaves:
                configs = [pipe.config(end) for end in _KINDS]
                for config in configs:
                    leaves.put(config)
                pipe.check()
                for config in configs:
                    wait_until(lambda name=config["name"]: stays.is_running(name), "tasks run")
            pipe.give(20)
            pipe.check()


def exactly_once_source(client: ConnectClient, topic: str) -> None:
    """The source writes lines and its offsets in one transaction."""
    more = {"exactly.once.source.support": "enabled"}
    settings = _distributed_settings(client, topic, **more)
    with tempfile.TemporaryDirectory() as name:
        pipe = Pipe(Path(name), topic)
        for count in (50, 30):
            pipe.give(count)
            with Worker(Path(name), "Distributed", settings) as worker:
                worker.put(pipe.config("source", **{"exactly.once.support": "required"}))
                committed = {"consumer.override.isolation.level": "read_committed"}
                worker.put(pipe.config("sink", **committed))
                pipe.check()
    _, end = client.kafka.list_offsets(topic, 0)
    assert end > 80, "no markers: the lines were not written in transactions"


class ConnectClient(Client):
    name = "Kafka Connect"
    version = java_client.JavaClient.version
    sections = {
        "Kafka Connect": {
            "standalone: file, topic, file; a restart goes on": standalone,
            "distributed: its three topics, REST, a restart goes on": distributed,
            "distributed: two workers, one leaves": two_workers,
            "distributed: source with transactions, exactly once": exactly_once_source,
        }
    }

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self.kafka = ConfluentClient(servers)


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
