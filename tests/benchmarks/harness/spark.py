"""Topics full of rows for Spark, and Spark in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from harness.broker import BenchmarkError, BrokerProcess, plain_environment

_BENCHMARKS = str(Path(__file__).parents[1])
_SECONDS_MAX = 1800.0
_ROWS_PER_BATCH = 1000
_BATCHES_PER_ROUND = 100


def fill(broker: BrokerProcess, topics: Mapping[str, str], rows: int, partitions: int) -> None:
    """The same rows in a topic for each codec: keys of 12 bytes, distinct JSON of about 100."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from dragoman.client.kafka import BlockingKafkaClient, NewTopic
    from dragoman.log.compression import codec_by_name
    from dragoman.spark.batches import encode_batches

    rng = np.random.default_rng(Random(1).getrandbits(32))

    def text(numbers: Any) -> Any:
        return pc.cast(pa.array(numbers), pa.string())

    def some(count: int) -> pa.RecordBatch:
        kinds = pa.array(["view", "click", "order", "refund"]).take(rng.integers(0, 4, count))
        value = pc.binary_join_element_wise(
            '{"user": ', text(rng.integers(0, 10**6, count)),
            ', "event": "', kinds,
            '", "amount": ', text(rng.integers(0, 10**5, count) / 100),
            ', "session": "', text(rng.integers(0, 2**62, count)), '"}', "",
        )  # fmt: skip
        number = text(rng.integers(10**7, 10**8, count))
        key = pc.binary_join_element_wise("key-", number, "")
        return pa.record_batch(
            {"key": pc.cast(key, pa.binary()), "value": pc.cast(value, pa.binary())}
        )

    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        for name in topics.values():
            client.create_topic(
                NewTopic(name=name, partitions=partitions, config={"segment.bytes": str(64 << 20)})
            )
        for round_ in range(-(-rows // (_ROWS_PER_BATCH * _BATCHES_PER_ROUND))):
            for batch in range(_BATCHES_PER_ROUND):
                count = min(
                    _ROWS_PER_BATCH, rows - (round_ * _BATCHES_PER_ROUND + batch) * _ROWS_PER_BATCH
                )
                if count <= 0:
                    break
                table = some(count)
                for codec, name in topics.items():
                    for _, data in encode_batches(
                        table,
                        codec=codec_by_name(codec),
                        now_ms=1_700_000_000_000 + round_,
                        batch_bytes_max=1 << 20,
                    ):
                        client.produce(name, batch % partitions, data)


def run_job(
    job: str, given: Mapping[str, object], environment: Mapping[str, str] | None = None
) -> dict[str, dict[str, float]]:
    with started_job(job, given, environment) as process:
        return _result(process)


@contextmanager
def started_job(
    job: str, given: Mapping[str, object], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.spark_job", job],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=plain_environment() | {"PYTHONPATH": _BENCHMARKS} | dict(environment or {}),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(given))
        process.stdin.close()
        process.stdin = None
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


def _result(process: subprocess.Popen[str]) -> dict[str, dict[str, float]]:
    output, _ = process.communicate(timeout=_SECONDS_MAX)
    if process.returncode:
        raise BenchmarkError(f"the Spark job ended with status {process.returncode}")
    found: dict[str, dict[str, float]] = json.loads(output.splitlines()[-1])
    return found


def end_job(process: subprocess.Popen[str], stop: Path) -> dict[str, dict[str, float]]:
    """Have a stream stop, and its figures."""
    stop.touch()
    return _result(process)
