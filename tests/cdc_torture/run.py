"""`make cdc-torture`: a minute of load, kills, restarts, changed tables and emptied topics.

Prints what was done and found; ends with a traceback when anything is not as it happened.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from cdc_torture.events import MARK, TOPICS, Reader
from cdc_torture.judge import judge_changes, judge_order, judge_state
from cdc_torture.oracle import Oracle
from cdc_torture.pipeline import Pipeline
from cdc_torture.source import TABLES, Source
from dragoman.client.kafka import EARLIEST, LATEST, BlockingKafkaClient, TopicPartition
from nodes.process import SOURCE, ServedNode

_WAIT_S = 240.0
_NAME = "torture"
_ROUNDS = 6
#: That topics are made with.
_PARTITIONS = 8


class Torture:
    def __init__(self, folder: Path, seed: int, seconds: int, rate: int) -> None:
        self._random = Random(seed)
        self._seconds, self._rate = seconds, rate
        self.kills = 0
        self._marks = 0
        self.source = Source(folder, seed)
        self.oracle = Oracle(self.source, list(TABLES))
        self.node = ServedNode(
            *("--data", str(folder / "data"), "--listen", "http=127.0.0.1:0"),
            *("--listen", "kafka=127.0.0.1:0", "--set", "log.retention.check.interval.ms=500"),
        ).ready()
        self.api = f"http://{self.node.listeners['http']}"
        self.bootstrap = self.node.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.pipeline = Pipeline(folder, self.bootstrap)

    # ---- the capture

    def dragoman(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "dragoman.cli.main", *arguments, "--server", self.api],
            env={**os.environ, "PYTHONPATH": SOURCE, "DRAGOMAN_CDC_DSN": self.source.dsn},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def status(self) -> dict[str, Any]:
        found = json.loads(self.dragoman("cdc", "status", _NAME, "--output", "json"))
        return found.get("status") or {}

    def process(self) -> int | None:
        """The process that captures, if there is one just now."""
        children = Path(f"/proc/{self.node.process.pid}/task/{self.node.process.pid}/children")
        for each in children.read_text().split():
            try:
                words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
            except FileNotFoundError:
                continue
            if b"dragoman.cdc" in words:
                return int(each)
        return None

    def kill_capture(self) -> None:
        # One that has done nothing is started again later and later.
        self.wait(
            lambda: self.status().get("rows") or self.source.is_idle, "rows that were captured"
        )
        number = self.wait(self.process, "a capturing process")
        os.kill(number, signal.SIGKILL)
        self.kills += 1

    def wait(self, look: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + _WAIT_S
        while not (found := look()):
            assert time.monotonic() < deadline, f"no {what}: {self.node.log[-20:]}"
            time.sleep(0.05)
        return found

    # ---- the run

    def run(self) -> None:
        tables = ",".join(TABLES)
        self.dragoman(
            *("cdc", "add", _NAME, "--tables", tables),
            *("--snapshot-rows", "300", "--detach"),
        )
        self.wait(lambda: self._log_end() > 0, "snapshot")
        self.kill_capture()
        reader = Reader(self.bootstrap)
        self.wait(self._is_snapshot_done, "end of the snapshot")
        self.pipeline.start()
        for number in range(_ROUNDS):
            self._round(number, reader)
        self._catch_up(reader)
        reader.close()
        self._judge(reader)

    def _is_snapshot_done(self) -> bool:
        return all(each.get("is_done") for each in self.status().get("tables", [{}]))

    def _round(self, number: int, reader: Reader) -> None:
        restarts = number in (1, 4)
        self.source.load(self._seconds // _ROUNDS, self._rate)
        for _ in range(2):
            goal = len(reader.events) + self._random.randrange(50, 500)
            self.wait(lambda goal=goal: len(reader.events) >= goal or self.source.is_idle, "events")
            if not self.source.is_idle:
                self.kill_capture()
        if restarts:
            self.source.restart()
        self.source.wait()
        self.source.change_schema()
        if number in (0, 2, 4):
            self.pipeline.kill_and_start()
        if number == 3:
            self._catch_up(reader)
            self._empty_topics()

    def _ends(self, where: int) -> dict[tuple[str, int], int]:
        with BlockingKafkaClient(self.bootstrap) as client:
            # They are made when the capture starts.
            made = TOPICS.keys() & self._admin.list_topics(timeout=10).topics.keys()
            wanted = {TopicPartition(topic, n): where for topic in made for n in range(_PARTITIONS)}
            found = client.list_offsets(wanted)
        return {(each.topic, each.partition): at.offset for each, at in found.items()}

    def _log_end(self) -> int:
        return sum(self._ends(LATEST).values())

    def _catch_up(self, reader: Reader) -> None:
        """Until consumer and pipeline have read everything that is committed in the database."""
        self._marks += 1
        mark = f"{MARK}{self._marks}"
        self.source.execute(f"insert into stock.levels values ('{mark}', 0)")
        self.wait(lambda: mark in reader.marks, mark)
        # What a new column is by default in rows that are there is not in the database's log.
        self.dragoman("cdc", "snapshot", _NAME, "--tables", "public.orders")
        for table in TABLES:
            self._wait_for_table(table)
        self.wait(self._is_snapshot_done, "end of the snapshot")
        ends = self._ends(LATEST)
        self.wait(
            lambda: all(reader.ends.get(at, 0) >= end for at, end in ends.items()),
            "level consumer",
        )

    def _wait_for_table(self, table: str) -> None:
        rows = self.source.rows(table)
        found = ""

        def is_equal() -> bool:
            nonlocal found
            found = self.pipeline.difference(table, rows)
            return not found

        try:
            self.wait(is_equal, "equal table")
        except AssertionError as error:
            raise AssertionError(found) from error

    def _empty_topics(self) -> None:
        """As retention would, all at once: what is captured must not depend on what is kept."""
        self._configure({"segment.ms": "100", "retention.ms": "1"})
        self.wait(lambda: self._ends(EARLIEST) == self._ends(LATEST), "empty topics")
        self._configure({"segment.ms": "604800000", "retention.ms": "-1"})

    def _configure(self, settings: dict[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        wanted = [
            ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
            for topic in TOPICS
        ]
        for each in self._admin.incremental_alter_configs(wanted).values():
            each.result()

    def _judge(self, reader: Reader) -> None:
        changes = self.oracle.changes()
        count = judge_changes(reader.events, changes)
        judge_order(reader.events)
        for table in TABLES:
            judge_state(reader.events, table, self.source.rows(table))
        snapshots = sum(each.operation == "SNAPSHOT" for each in reader.events)
        print(
            f"{self.source.transactions:,} transactions, {count:,} changes and {snapshots:,} rows "
            f"of the snapshot, each once and in order; {self.kills} kills of the capture, "
            f"{self.source.restarts} restarts of the database, topics emptied once; the tables of "
            f"a pipeline that was killed {self.pipeline.kills} times equal the database's"
        )

    def close(self) -> None:
        self.pipeline.kill()
        self.node.kill()
        self.source.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=150)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torture = Torture(Path(folder), options.seed, options.seconds, options.rate)
        try:
            torture.run()
        finally:
            torture.close()


if __name__ == "__main__":
    main()
