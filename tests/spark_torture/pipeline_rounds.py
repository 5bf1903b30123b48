"""Lives of a pipeline from a topic to Delta tables, each killed but the last, and the judgement.

    python -m spark_torture.pipeline_rounds --kills 20 --seed 1

One table gets every record with its offset, the other the number and sum of each key's records: a
batch that is lost or written twice shows in both.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from deltalake import DeltaTable

from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic
from dragoman.testing import EphemeralBroker
from nodes.process import SOURCE

PATH = f"{Path(__file__).parents[1]}:{SOURCE}"
KEYS = 7
ROWS_PER_LIFE = 200
LIFE_S = 400.0
FILE = """
name = "tortured"
bootstrap = "{bootstrap}"
trigger = "once"

[spark]
master = "local[2]"
conf = {{ "spark.driver.memory" = "1g", "spark.sql.shuffle.partitions" = 2 }}

[sources.numbers]
type = "topic"
topic = "numbers"
batch_records = 100

[steps.sums]
sql = "select key, count(*) as n, sum(cast(value as bigint)) as total from numbers group by key"

[sinks.records]
type = "delta"
from = "numbers"
path = "records"

[sinks.sums]
type = "delta"
from = "sums"
path = "sums"
key = ["key"]
output = "update"
"""


class Rounds:
    def __init__(self, directory: Path, seed: int) -> None:
        self.kills = 0
        self.rows = 0
        self._directory = directory
        self._random = Random(seed)
        self._broker = EphemeralBroker(storage="directory", directory=str(directory / "data"))

    def __enter__(self) -> Rounds:
        self._broker.start()
        with BlockingKafkaClient(self._broker.bootstrap_servers) as client:
            client.create_topic(NewTopic(name="numbers", partitions=2))
        text = FILE.format(bootstrap=self._broker.bootstrap_servers)
        (self._directory / "pipeline.toml").write_text(text)
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.stop()

    def live(self, point: str) -> None:
        """Send some records and let the pipeline run until it dies or has read them all."""
        self._feed()
        number = self._random.randint(1, 3)
        delay_s = self._random.uniform(2, 40)
        # Java is handed a path in there, too.
        arguments = [str(self._directory), "--state", str(self._directory / "the state")]
        command = [sys.executable, "-m", "spark_torture.pipeline_driver"]
        log = self._directory / "driver.log"
        with log.open("wb") as output:
            driver = subprocess.Popen(
                [*command, point, str(number), str(delay_s), *arguments],
                env={**os.environ, "PYTHONPATH": PATH},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = driver.wait(LIFE_S)
            finally:
                _end(driver)
        was_killed = status == -signal.SIGKILL
        if point != "anytime":
            assert was_killed == (point != "never"), (point, status, log.read_text()[-5000:])
        assert was_killed or status == 0, (status, log.read_text()[-5000:])
        self.kills += was_killed

    def _feed(self) -> None:
        records = [
            NewRecord(key=b"key %d" % (number % KEYS), value=b"%d" % number)
            for number in range(self.rows, self.rows + ROWS_PER_LIFE)
        ]
        with BlockingKafkaClient(self._broker.bootstrap_servers) as client:
            client.produce_records("numbers", records)
        self.rows += ROWS_PER_LIFE

    def judge(self) -> None:
        """Each record is in the table once, and the sums are those of all records."""
        rows = DeltaTable(self._directory / "records").to_pyarrow_table().to_pylist()
        assert sorted(int(row["value"]) for row in rows) == list(range(self.rows))
        places = {(row["partition"], row["offset"]) for row in rows}
        assert len(places) == self.rows
        sums = DeltaTable(self._directory / "sums").to_pyarrow_table().to_pylist()
        expected = {}
        for key in range(KEYS):
            numbers = range(key, self.rows, KEYS)
            expected[f"key {key}"] = (len(numbers), sum(numbers))
        assert {row["key"]: (row["n"], row["total"]) for row in sums} == expected


def _end(driver: subprocess.Popen[bytes]) -> None:
    """Whatever is left of this life, such as a Java process whose program died."""
    try:
        os.killpg(driver.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    driver.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory, Rounds(Path(directory), given.seed) as rounds:
        random = Random(given.seed)
        while rounds.kills < given.kills:
            rounds.live(random.choice(("before", "after", "anytime")))
            print(f"{rounds.kills} kills, {rounds.rows} records", flush=True)
        rounds.live("never")
        rounds.judge()
        minutes = (time.monotonic() - started) / 60
        print(f"{rounds.kills} kills, {rounds.rows} records, each once; {minutes:.1f} minutes")


if __name__ == "__main__":
    main()
