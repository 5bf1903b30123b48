"""One job in two formats, `kafka` and `dragoman`, and what came of each: rows, or an error.

A job is options and nothing else: both formats get exactly the same. Rows are compared one by one
with their schema; of a stream also how they were divided into micro-batches; of errors only that
both fail, since the words are those of two programs.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from dragoman.spark import readable

FORMATS = ("kafka", "dragoman")
STREAM_SECONDS_MAX = 90


class Outcome(NamedTuple):
    """What a job did. `error` is empty when it ended well."""

    error: str = ""
    schema: str = ""
    rows: Sequence[tuple[Any, ...]] = ()
    #: Of a stream, the number of rows in each micro-batch that had any.
    batches: Sequence[int] = ()

    def describe(self) -> str:
        if self.error:
            return f"fails ({self.error})"
        batches = f" in batches of {', '.join(map(str, self.batches))}" if self.batches else ""
        return f"{len(self.rows)} rows{batches}"


def is_same(one: Outcome, other: Outcome) -> bool:
    if one.error or other.error:
        return bool(one.error) and bool(other.error)
    return one == other


def check_same(kafka: Outcome, ours: Outcome) -> None:
    """Say what differs first."""
    if is_same(kafka, ours):
        return
    words = f"kafka: {kafka.describe()}; dragoman: {ours.describe()}"
    if not kafka.error and not ours.error:
        if kafka.schema != ours.schema:
            words += f"; schemas {kafka.schema} and {ours.schema}"
        pairs = zip(kafka.rows, ours.rows, strict=False)
        if first := next((pair for pair in pairs if pair[0] != pair[1]), None):
            words += f"; first difference {first[0]} and {first[1]}"
    raise AssertionError(words)


def attempted(job: Callable[[], Outcome]) -> Outcome:
    try:
        return job()
    except Exception as error:  # noqa: BLE001 - an error of Spark is an outcome
        return Outcome(error=readable(error)[:200])


# ---- reads


def batch(spark: SparkSession, format_: str, options: Mapping[str, str]) -> Outcome:
    def job() -> Outcome:
        frame = spark.read.format(format_).options(**options).load()
        return Outcome(schema=frame.schema.json(), rows=_sorted(frame.collect()))

    return attempted(job)


class Stream:
    """A streaming query that is run again and again from one checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def run(self, format_: str, options: Mapping[str, str]) -> Outcome:
        """Everything there is now, with the trigger `availableNow`."""
        return attempted(lambda: self._run(format_, options))

    def _run(self, format_: str, options: Mapping[str, str]) -> Outcome:
        frame = self._spark.readStream.format(format_).options(**options).load()
        collected: list[list[tuple[Any, ...]]] = []

        def keep(some: DataFrame, _: int) -> None:
            collected.append(_sorted(some.collect()))

        query = (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(STREAM_SECONDS_MAX), "the query does not end"
        finally:
            query.stop()
        rows = sorted((row for some in collected for row in some), key=_place)
        counts = [len(some) for some in collected if some]
        return Outcome(schema=frame.schema.json(), rows=rows, batches=counts)


@contextmanager
def stream(spark: SparkSession) -> Iterator[Stream]:
    folder = Path(tempfile.mkdtemp(prefix="dragoman-interop-"))
    try:
        yield Stream(spark, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- writes


def written(format_: str, rows: DataFrame, options: Mapping[str, str], mode: str) -> str:
    """The error of a batch write; empty when it ended well."""

    def job() -> Outcome:
        writer = rows.write.format(format_).options(**options)
        (writer.mode(mode) if mode else writer).save()
        return Outcome()

    return attempted(job).error


def _sorted(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    return sorted((_plain(row) for row in rows), key=_place)


def _place(row: Sequence[Any]) -> Any:
    """Topic, partition and offset, which are columns 2 to 4 of both formats."""
    return row[2:5]


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(bytes(each) if isinstance(each, bytearray) else each for each in map(_flat, row))


def _flat(value: Any) -> Any:
    if isinstance(value, list):
        return [tuple(None if part is None else _bytes(part) for part in each) for each in value]
    return value


def _bytes(part: Any) -> Any:
    return bytes(part) if isinstance(part, bytearray) else part
