"""Kills of the job tier: it is restarted until all records are copied, each exactly once.

    python -m spark_torture.tier_rounds --seed 1 --kills 5  (from tests/, src on the path)

Records of many days are produced and copied; the driver kills itself, its JVM and its workers when
ranges are copied and not named yet, or named. At the end the manifest's offsets are compared with
the log's, and the hash of every file's content with that of the same records in the log; then the
log's head is deleted, and history and tail are counted.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic, TopicPartition
from dragoman.pipelines.jobs import tier
from dragoman.pipelines.jobs.tier import tiered
from dragoman.pipelines.jobs.tier_files import COLUMNS, ContentHash
from dragoman.pipelines.jobs.tier_manifest import TierFile, Twin
from dragoman.spark import session
from dragoman.testing import EphemeralBroker
from nodes.process import SOURCE

TOPIC = "orders"
PARTITIONS = 3
DAY_MS = 86_400_000
RECORDS = 10_000
FILE_RECORDS = 500
LIFE_S = 300.0


def drive() -> None:
    """The driver: dies when it has saved so many manifests, just before that, or a bit later."""
    _, _, bootstrap, root, kill = sys.argv
    left = int(kill)
    save = Twin.save

    def saving(self: Twin, manifest: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0 and int(kill) % 2:
            os.killpg(0, signal.SIGKILL)
        save(self, manifest)
        if left == 0:
            os.killpg(0, signal.SIGKILL)

    Twin.save = saving  # type: ignore[method-assign]
    tier.run(session("tier", master="local[2]"), _options(bootstrap, root), lambda _: None)
    os._exit(0)


def _options(bootstrap: str, root: str) -> tier.Options:
    return tier.Options(
        topic=TOPIC, root=root, bootstrap=bootstrap, until="latest", file_records=FILE_RECORDS
    )


class Scene:
    def __init__(self, directory: Path, seed: int) -> None:
        self._dice = random.Random(seed)
        self._root = str(directory / "tier")
        self.broker = EphemeralBroker(
            storage="directory", directory=str(directory / "broker"), listeners=("kafka",)
        ).start()
        self._bootstrap = self.broker.bootstrap_servers
        self._count = 0
        with BlockingKafkaClient(self._bootstrap) as client:
            config = {"segment.bytes": "262144", "retention.ms": "-1"}
            client.create_topic(NewTopic(name=TOPIC, partitions=PARTITIONS, config=config))

    def produce(self) -> None:
        """Records of three days, mixed at the borders."""
        dice = self._dice
        with BlockingKafkaClient(self._bootstrap) as client:
            for _ in range(RECORDS // 500):
                first, self._count = self._count, self._count + 500
                records = [
                    NewRecord(
                        key=dice.choice([None, b"%d" % number]),
                        value=dice.choice([None, b"v%d" % number]),
                        headers=(("h", b"x"),) if number % 3 else (),
                        partition=number % PARTITIONS,
                        timestamp=DAY_MS * (20_000 + number // 9_000 + dice.randint(0, 1)),
                    )
                    for number in range(first, first + 500)
                ]
                client.produce_records(TOPIC, records)

    def live(self, kill: int) -> int:
        tests = Path(__file__).parents[1]
        driver = subprocess.Popen(
            [
                *(sys.executable, "-m", "spark_torture.tier_rounds", "--drive"),
                *(self._bootstrap, self._root, str(kill)),
            ],
            env={**os.environ, "PYTHONPATH": f"{tests}:{SOURCE}"},
            start_new_session=True,
        )
        try:
            return driver.wait(LIFE_S)
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()

    # ---- judgement

    def judge(self) -> None:
        twin = Twin(self._root, TOPIC)
        manifest = twin.manifest()
        log = {partition: self._log(partition) for partition in range(PARTITIONS)}
        assert sum(map(len, log.values())) == self._count
        assert manifest.starts == dict.fromkeys(range(PARTITIONS), 0)
        assert manifest.ends == {partition: len(rows) for partition, rows in log.items()}
        for each in manifest.ranges:
            rows = log[each.partition].slice(each.start, each.end - each.start)
            assert each.rows == len(rows)
            for file in each.files:
                assert _hash(rows, file) == file.content, file.path
        named = {str(twin.directory / each.path) for each in manifest.files}
        assert named == set(map(str, twin.directory.rglob("*.parquet")))
        with BlockingKafkaClient(self._bootstrap) as client:
            ends = {TopicPartition(TOPIC, at): end for at, end in manifest.ends.items()}
            client.delete_records(ends)
        self.produce()
        spark = session("judge", master="local[2]")
        table = tiered(spark, TOPIC, root=self._root, bootstrap=self._bootstrap)
        found = table.selectExpr("count(*)", "count(DISTINCT partition, offset)").collect()[0]
        assert tuple(found) == (self._count, self._count)
        print(
            f"{self._count} records, {len(manifest.ranges)} ranges, {len(named)} files: all there"
        )

    def _log(self, partition: int) -> pa.Table:
        """A partition as the log has it, read by another client."""
        rows: list[dict[str, Any]] = []
        where = TopicPartition(TOPIC, partition)
        with BlockingKafkaClient(self._bootstrap) as client:
            end = client.list_offsets({where: -1})[where].offset
            with client.reader({where: 0}, until={where: end}) as reader:
                while some := reader.next_records():
                    rows += [_row(each) for each in some]
        from dragoman.pipelines.jobs.tier_files import SCHEMA

        return pa.Table.from_pylist(rows, schema=SCHEMA)


def _row(record: Any) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": 0,
        "headers": [{"key": name, "value": value} for name, value in record.headers],
    }


def _hash(rows: pa.Table, file: TierFile) -> str:
    """Of the records that belong into a file: those of its day."""
    day = np.datetime64(file.path.partition("/")[0].removeprefix("date="), "D")
    days = rows.column("timestamp").cast(pa.int64()).to_numpy().astype("datetime64[us]")
    content = ContentHash()
    for batch in _batches(rows.filter(pa.array(days.astype("datetime64[D]") == day))):
        content.add(batch)
    return content.hexdigest()


def _batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from rows.select(list(COLUMNS)).combine_chunks().to_batches()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=5)
    told = parser.parse_args()
    dice = random.Random(told.seed)
    with tempfile.TemporaryDirectory() as directory:
        scene = Scene(Path(directory), told.seed)
        try:
            for number in range(told.kills):
                scene.produce()
                kill = dice.randint(1, 4)
                status = scene.live(kill)
                print(f"life {number}: ended with {status} at manifest {kill}", flush=True)
                assert status == -signal.SIGKILL
            assert scene.live(0) == 0
            scene.judge()
        finally:
            scene.broker.stop()


if __name__ == "__main__":
    drive() if sys.argv[1:2] == ["--drive"] else main()
