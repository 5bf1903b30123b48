"""The sink with faults: it does what the real one does, and at one point something dies.

Every task also stages a losing attempt, whose values say so: none may ever be read.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, MutableMapping
from enum import StrEnum
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from dragoman.client.kafka import EARLIEST, LATEST, BlockingKafkaClient
from dragoman.spark.datasource import DragomanDataSource
from dragoman.spark.writer import DragomanStreamWriter, StagedMessage, _stage

#: Names the file with the plan of this life.
PLAN = "SPARK_TORTURE_PLAN"
STAGING_TOPIC = "__staged_records"
LOSER = b"loser"


class Point(StrEnum):
    """What happens, by the row of the failure table that it stands for."""

    NOTHING = "nothing"
    #: A task dies, or has a twin.
    TASK_DIES = "a task dies when it has staged"
    #: The driver dies before the decision.
    STAGING = "the driver dies while tasks stage"
    STAGED = "the driver dies when a task has staged"
    BEFORE = "the driver dies before it publishes"
    #: The driver dies after it, or before Spark's commit log.
    PUBLISHING = "the driver dies while it publishes"
    AFTER = "the driver dies when it has published"
    ANYTIME = "the driver dies at any time"
    #: Coordinator or leader dies while publishing.
    BROKER = "the broker dies while the driver publishes"
    #: Two drivers on one checkpoint.
    TWO_DRIVERS = "another driver publishes the same batch"
    #: Staging expired before the commit.
    EXPIRED = "what was staged is gone before the commit"


KILLS_DRIVER = frozenset(
    {
        Point.STAGING,
        Point.STAGED,
        Point.BEFORE,
        Point.PUBLISHING,
        Point.AFTER,
        Point.ANYTIME,
    }
)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One life of the driver. The fault comes in the first batch from `batch_id` on."""

    bootstrap: str
    directory: str
    point: Point = Point.NOTHING
    batch_id: int = 0
    #: Of what happens while something else is under way.
    delay_s: float = 0.0
    #: After the stream, also run a batch job.
    with_batch_job: bool = False

    @property
    def home(self) -> Path:
        return Path(self.directory)

    @property
    def path(self) -> Path:
        return self.home / "plan.json"

    def save(self) -> None:
        aside = self.home / "plan.new"
        aside.write_bytes(msgspec.json.encode(self))
        aside.rename(self.path)

    @property
    def all_is_old(self) -> Path:
        """While this file is there, nothing that is staged is young enough to stay."""
        return self.home / "old"

    def write_pid(self, name: str, pid: int) -> None:
        aside = self.home / f"{name}.new"
        aside.write_text(str(pid))
        aside.rename(self.home / name)

    def kill(self, name: str) -> None:
        os.kill(int((self.home / name).read_text()), signal.SIGKILL)

    def kill_driver(self) -> None:
        """All of it at once: the program and the Java process that it started.

        In this order: without Java the program ends by itself, with a status of its own, and
        Spark's daemon takes the worker that does this along.
        """
        self.kill("driver.pid")
        self.kill("jvm.pid")

    def is_due(self, batch_id: int, *points: Point) -> bool:
        return self.point in points and batch_id >= self.batch_id

    def is_first(self) -> bool:
        """Whether this has not happened in this life yet."""
        try:
            (self.home / "done").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def load_plan() -> Plan:
    return msgspec.json.decode(Path(os.environ[PLAN]).read_bytes(), type=Plan)


class TorturedSource(DragomanDataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "tortured"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return TorturedWriter(dict(self.options), schema)


class TorturedWriter(DragomanStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        plan = load_plan()
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        rows = list(iterator)
        losing = super().write(iter([_as_loser(each) for each in rows]))
        if plan.is_due(batch_id, Point.STAGING) and losing.staged.pieces:  # type: ignore[attr-defined]
            plan.kill_driver()
        if plan.is_due(batch_id, Point.TASK_DIES) and plan.is_first():
            os.kill(os.getpid(), signal.SIGKILL)
        message = super().write(iter(rows))
        if plan.is_due(batch_id, Point.STAGED) and rows:
            plan.kill_driver()
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        plan = load_plan()
        if plan.is_due(batchId, Point.BEFORE):
            plan.kill_driver()
        if plan.is_due(batchId, Point.EXPIRED) and plan.is_first():
            self._drop_staged(plan)
        publishing = threading.Thread(target=super().commit, args=(messages, batchId))
        if plan.is_due(batchId, Point.PUBLISHING):
            publishing.start()
            time.sleep(plan.delay_s)
            plan.kill_driver()
        if plan.is_due(batchId, Point.BROKER) and plan.is_first():
            publishing.start()
            time.sleep(plan.delay_s)
            plan.kill("broker.pid")
            publishing.join()
        # After the one that was interrupted this is a repeat, which must do no harm.
        super().commit(messages, batchId)
        if plan.is_due(batchId, Point.AFTER):
            plan.kill_driver()
        if plan.is_due(batchId, Point.TWO_DRIVERS):
            self._publish_losers(messages, batchId)

    def _publish_losers(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """The other driver staged the same batch and comes second."""
        staged = [each.staged for each in messages if isinstance(each, StagedMessage)]
        rows = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [LOSER]})
        late = _stage(iter([rows]), self._options, staged[0].writer_id, staged[0].query_id)
        super().commit([late], batch_id)

    def _drop_staged(self, plan: Plan) -> None:
        """Return when nothing is left in staging."""
        plan.all_is_old.touch()
        with BlockingKafkaClient(plan.bootstrap) as client:
            partitions = client.topic(STAGING_TOPIC).all_partitions()
            while client.list_offsets(dict.fromkeys(partitions, EARLIEST)) != client.list_offsets(
                dict.fromkeys(partitions, LATEST)
            ):
                pass
        plan.all_is_old.unlink()


def _as_loser(rows: pa.RecordBatch) -> pa.RecordBatch:
    at = rows.schema.get_field_index("value")
    values = pa.array([LOSER] * rows.num_rows, rows.schema.field(at).type)
    return rows.set_column(at, rows.schema.field(at), values)
