"""Lives of a tortured query, one after the other, and what must be true of them all.

While drivers and brokers die, a consumer of uncommitted records follows the output: it may never
see a value twice, nor one of an attempt that lost. At the end the output is the input, once, and in
order for each key.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
from confluent_kafka import Consumer, TopicPartition

from dragoman.client.kafka import (
    LATEST,
    BlockingKafkaClient,
    ClientSettings,
    Isolation,
    NewRecord,
    NewTopic,
)
from nodes.process import SOURCE, ServedNode
from spark_torture.faults import KILLS_DRIVER, LOSER, PLAN, Plan, Point

PATH = f"{Path(__file__).parents[1]}:{SOURCE}"
PARTITIONS = 2
KEYS = 7
ROWS_PER_LIFE = 300
LIFE_S = 240.0
PATIENT = ClientSettings(operation_timeout_s=60)


class Figures(msgspec.Struct):
    lives: int = 0
    driver_kills: int = 0
    broker_kills: int = 0
    rows: int = 0
    #: How often something happened, by what.
    points: dict[str, int] = msgspec.field(default_factory=dict)


class Broker:
    """A node that is started again, on the same port and directory, whenever it is killed."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self._directory = directory
        self._plan = plan
        self._is_over = False
        self.kills = 0
        self._node = self._serve(0)
        self.bootstrap_servers = self._node.bootstrap_servers
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _serve(self, port: int) -> ServedNode:
        node = ServedNode(
            *("--data", str(self._directory), "--listen", f"kafka=127.0.0.1:{port}"),
            *("--listen", "http=off"),
            module="spark_torture.broker",
            environment={PLAN: str(self._plan.path), "PYTHONPATH": PATH},
        ).ready()
        self._plan.write_pid("broker.pid", node.process.pid)
        return node

    def _keep(self) -> None:
        port = int(self.bootstrap_servers.rpartition(":")[2])
        while True:
            self._node.process.wait()
            self._node.kill()
            if self._is_over:
                return
            self.kills += 1
            self._node = self._serve(port)

    def stop(self) -> None:
        self._is_over = True
        if self._node.process.poll() is None:
            self._node.process.send_signal(signal.SIGKILL)
        self._thread.join(60)


class Watcher:
    """Reads the output as it grows, committed or not."""

    def __init__(self, bootstrap: str) -> None:
        self.values: list[bytes] = []
        self.wrong: list[bytes] = []
        self._seen: set[bytes] = set()
        self._is_over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "watcher",
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
                "reconnect.backoff.max.ms": 200,
                # Brokers that are gone are what this is about.
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition("out", index, 0) for index in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._is_over.is_set():
            for message in self._consumer.consume(500, timeout=0.2):
                if message.error() is not None:
                    continue
                value = message.value() or b""
                if value in self._seen or LOSER in value:
                    self.wrong.append(value)
                self._seen.add(value)
                self.values.append(value)
        self._consumer.close()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(60)


class Torture:
    def __init__(self, directory: Path, seed: int) -> None:
        self.figures = Figures()
        self._random = Random(seed)
        self._home = directory / "home"
        self._home.mkdir()
        plan = Plan(bootstrap="", directory=str(self._home))
        plan.save()
        self._broker = Broker(directory / "data", plan)
        self._bootstrap = self._broker.bootstrap_servers
        with BlockingKafkaClient(self._bootstrap, PATIENT) as client:
            for topic in ("in", "out"):
                client.create_topic(NewTopic(name=topic, partitions=PARTITIONS))
        self._watcher = Watcher(self._bootstrap)

    def __enter__(self) -> Torture:
        return self

    def __exit__(self, *_: object) -> None:
        self._watcher.stop()
        self._broker.stop()

    # ---- lives

    def live(self, point: Point, *, with_batch_job: bool = False) -> None:
        """Feed the query and let it run until its fault ends it, or until all is read."""
        self._feed()
        delay_s = self._random.uniform(0, 6 if point is Point.ANYTIME else 0.02)
        plan = Plan(
            bootstrap=self._bootstrap,
            directory=str(self._home),
            point=point,
            batch_id=self._next_batch() + self._random.randrange(3),
            delay_s=delay_s,
            with_batch_job=with_batch_job,
        )
        status, output = self._run(plan)
        figures = self.figures
        figures.lives += 1
        was_killed = status == -signal.SIGKILL
        if point is not Point.ANYTIME:
            assert was_killed == (point in KILLS_DRIVER), (point, status, output)
        if not was_killed:
            is_failure = point is Point.EXPIRED
            assert (status != 0) == is_failure, (point, status, output)
            assert not is_failure or "are gone" in output, output
        figures.driver_kills += was_killed
        figures.broker_kills = self._broker.kills
        figures.points[point.name] = figures.points.get(point.name, 0) + 1
        assert self._watcher.wrong == []

    def _run(self, plan: Plan) -> tuple[int, str]:
        (self._home / "done").unlink(missing_ok=True)
        plan.save()
        environment = {**os.environ, PLAN: str(plan.path), "PYTHONPATH": PATH}
        log = self._home / "driver.log"
        with log.open("wb") as output:
            driver = subprocess.Popen(
                [sys.executable, "-m", "spark_torture.driver"],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = driver.wait(LIFE_S)
            finally:
                self._end(driver)
        return status, log.read_text(errors="replace")[-20_000:]

    def _end(self, driver: subprocess.Popen[bytes]) -> None:
        """Whatever is left of this life, such as a Java process whose program died."""
        try:
            os.killpg(driver.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        driver.wait(60)

    def _feed(self) -> None:
        first = self.figures.rows
        records = [
            NewRecord(key=b"key %d" % (number % KEYS), value=b"%d" % number)
            for number in range(first, first + ROWS_PER_LIFE)
        ]
        with BlockingKafkaClient(self._bootstrap, PATIENT) as client:
            client.produce_records("in", records)
        self.figures.rows += ROWS_PER_LIFE

    def _next_batch(self) -> int:
        """The batch that a driver begins with: the one after the last that Spark committed."""
        commits = self._home / "checkpoint" / "commits"
        ids = [int(each.name) for each in commits.glob("*") if each.name.isdecimal()]
        return max(ids, default=-1) + 1

    # ---- judgement

    def judge(self) -> None:
        """Everything that went in has come out, once, and in order for each key."""
        found = self._read("out")
        by_key: dict[bytes, list[bytes]] = {}
        for key, value in found:
            by_key.setdefault(key, []).append(value)
        expected: dict[bytes, list[bytes]] = {}
        for number in range(self.figures.rows):
            expected.setdefault(b"key %d" % (number % KEYS), []).append(b"%d seen" % number)
        assert by_key == expected
        self._watcher.stop()
        assert self._watcher.wrong == []
        assert len(self._watcher.values) <= len(found)

    def judge_counts(self) -> None:
        counts = dict(self._read("counts"))
        assert sum(int(value) for value in counts.values()) == self.figures.rows
        assert len(counts) == KEYS

    def _read(self, topic: str) -> Sequence[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        with BlockingKafkaClient(self._bootstrap, PATIENT) as client:
            starts = dict.fromkeys(client.topic(topic).all_partitions(), 0)
            ends = client.list_offsets(dict.fromkeys(starts, LATEST))
            until = {where: at.offset for where, at in ends.items()}
            isolation = Isolation.READ_UNCOMMITTED
            with client.reader(starts, until=until, isolation=isolation) as reader:
                while records := reader.next_records():
                    found += [(each.key or b"", each.value or b"") for each in records]
        return found
