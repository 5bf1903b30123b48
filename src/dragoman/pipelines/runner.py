"""Runs a pipeline, from its definition to its end.

Each sink is a streaming query with its own checkpoint. After a crash the next driver resumes from
there: it recomputes the batch in progress from the same records, and the sink recognises a batch
that it already has.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.errors import DragomanError
from dragoman.pipelines.brokers import check_topics, with_security
from dragoman.pipelines.dataflow import Tables, as_text
from dragoman.pipelines.definition import (
    Definition,
    DeltaSink,
    Job,
    ParquetSink,
    PostgresSink,
    Sink,
    TopicSink,
    trigger_options,
)
from dragoman.pipelines.reporter import Listener, Reporter
from dragoman.pipelines.sinks.batches import Writer, failing_plainly
from dragoman.pipelines.state import Progress, StateFolder, Status, new_status
from dragoman.spark.failures import is_gone, readable, without_gateway_logs
from dragoman.spark.sessions import PUSHDOWN, default_master, register_source, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


_TICK_S = 0.2
#: Time for the Python processes of a query to start before the next query starts.
_START_S = 30.0
_BEFORE_PROCESSES = ("Initializing", "Getting offsets")
#: Spark's error for a Python process that started too slowly.
_TOO_SLOW = "Python worker failed to connect back"
_RESTARTS = 10
#: Time for Spark to report the last batch.
_LAST_REPORT_S = 5.0
#: Time for the current batch when a pipeline is stopped.
STOP_PATIENCE_S = 30.0


class PipelineError(DragomanError):
    """A pipeline failed while it ran."""


class _Stopped(Exception):  # noqa: N818 (not an error)
    """Ends a job because the pipeline is being stopped."""


class Run:
    """One run of a pipeline. `stop` may be called from a signal handler or another thread."""

    def __init__(
        self,
        definition: Definition,
        folder: StateFolder,
        watch: Callable[[Status], object] = lambda _: None,
    ) -> None:
        self._definition = with_security(definition)
        self._folder = folder
        master = definition.spark.master or default_master()
        status = new_status(definition.name, definition.file, master)
        self._reporter = Reporter(folder, status, watch)
        self._stopping = threading.Event()
        self._queries: dict[str, StreamingQuery] = {}
        self._starts: dict[str, Callable[[], StreamingQuery]] = {}
        self._restarts: dict[str, int] = {}

    def stop(self) -> bool:
        """Stop after the current batch; False when it was called before."""
        was_stopping = self._stopping.is_set()
        self._stopping.set()
        return not was_stopping

    def run(self, on_started: Callable[[], None] = lambda: None) -> None:
        """Run until all queries are done, one fails, or the pipeline is stopped.

        `on_started` is called once Spark has started. Raises `PipelineFileError` for errors in the
        file and `PipelineError` for later failures.
        """
        with self._folder.held():
            self._folder.check_file(self._definition.file)
            self._reporter.publish("starting")
            try:
                check_topics(self._definition)
                spark = pipeline_session(self._definition, self._folder)
                on_started()
                with without_gateway_logs():
                    self._guarded(spark)
            except BaseException as error:
                self._reporter.publish("failed", readable(error) or type(error).__name__)
                raise
            self._reporter.publish("stopped" if self._stopping.is_set() else "done")

    def check(self) -> None:
        """Check everything that can be checked without starting a query. Raises like `run`."""
        check_topics(self._definition)
        spark = pipeline_session(self._definition, self._folder)
        Tables(spark, self._definition).build()

    # ---- from start to end

    def _guarded(self, spark: SparkSession) -> None:
        """Run the pipeline, and distinguish the end of Spark itself from a failure of the pipeline.

        Spark's JVM may end at the same time, whatever a query does: a service manager signals all
        processes of a service, and `spark-submit` is the parent of this process.
        """
        try:
            listener = Listener(self._reporter)
            spark.streams.addListener(listener)
            try:
                self._live(spark)
            finally:
                self._end_queries()
                spark.streams.removeListener(listener)
        except Exception:
            if not is_gone(spark):
                raise
            if not self._stopping.is_set():
                raise PipelineError(
                    "Spark has ended: its JVM was stopped or killed; the next run resumes from the "
                    "checkpoints"
                ) from None
            for name in self._queries:
                # The next run recomputes the current batch from the same records.
                self._reporter.part_state(name, "stopped")

    def _live(self, spark: SparkSession) -> None:
        tables = Tables(spark, self._definition)
        frames = tables.build()
        for name, sink in self._definition.sinks.items():
            if self._stopping.is_set():
                return
            with tables.errors_of(f"sinks.{name}"):
                self._reporter.part(Progress(part=name, state="starting"))
                self._start(name, partial(self._started, name, frames[name], sink))
        self._reporter.publish("running")
        for name, job in self._definition.jobs.items():
            if self._stopping.is_set():
                break
            self._job(spark, name, job)
        self._await()

    def _started(self, name: str, frame: DataFrame, sink: Sink) -> StreamingQuery:
        writer = Writer(self._definition.name, name)
        writing = _writing(frame, sink, writer)
        checkpoint = self._checkpoint(name)
        return (
            writing.queryName(name)
            .outputMode(sink.output)
            .option("checkpointLocation", checkpoint)
            .trigger(**trigger_options(sink.trigger or self._definition.trigger))
            .start()
        )

    def _checkpoint(self, part: str) -> str:
        if self._definition.checkpoint:
            return f"{self._definition.checkpoint.rstrip('/')}/{part}"
        return self._folder.checkpoint(part)

    def _job(self, spark: SparkSession, name: str, job: Job) -> None:
        defaults = {"checkpoint": self._checkpoint(name), "trigger": self._definition.trigger}
        filled: dict[str, Any] = {
            key: value for key, value in defaults.items() if getattr(job.options, key, None) == ""
        }
        options = msgspec.structs.replace(job.options, **filled)
        run: Any = import_module(f"dragoman.pipelines.jobs.{job.type}").run

        own_thread = threading.get_ident()

        def report(progress: Progress) -> None:
            # A stream's batches run in threads of Spark, and a stream is stopped through its query.
            if threading.get_ident() != own_thread:
                self._reporter.note(name, progress.note)
                return
            self._reporter.part(msgspec.structs.replace(progress, part=name))
            self._reporter.publish()
            if self._stopping.is_set():
                raise _Stopped
            self._raise_failure()

        self._reporter.part(Progress(part=name, state="starting"))
        try:
            query = run(spark, options, report)
            if query is not None:
                self._start(name, partial(run, spark, options, report), query)
        except _Stopped:
            self._reporter.part_state(name, "stopped")
            return
        except Exception as error:
            if not isinstance(error, DragomanError) and not _is_sparks(error):
                raise
            self._reporter.part_state(name, "failed", readable(error))
            raise PipelineError(f"jobs.{name}: {readable(error)}") from None
        if query is None:
            self._reporter.part_state(name, "done")

    def _start(
        self,
        name: str,
        start: Callable[[], StreamingQuery],
        started: StreamingQuery | None = None,
    ) -> None:
        """Start a query and wait until its Python processes have started.

        Spark gives a Python process ten seconds to start, which is too little for many at once.
        """
        self._starts[name] = start
        query = self._queries[name] = started or start()
        self._reporter.part_state(name, "running")
        self._reporter.bind(str(query.id), name)
        deadline = time.monotonic() + _START_S
        while query.isActive and time.monotonic() < deadline and not self._stopping.is_set():
            if not query.status["message"].startswith(_BEFORE_PROCESSES):
                return
            self._reporter.publish()
            time.sleep(_TICK_S)

    def _await(self) -> None:
        deadline: float | None = None
        finished: dict[str, int] = {}
        while active := [name for name, query in self._queries.items() if query.isActive]:
            self._raise_failure()
            if self._stopping.is_set():
                if deadline is None:
                    self._reporter.publish("stopping")
                    deadline = time.monotonic() + STOP_PATIENCE_S
                    finished = {name: self._reporter.batches(name) for name in active}
                for name in active:
                    is_between = not self._queries[name].status["isTriggerActive"]
                    is_done = is_between or self._reporter.batches(name) > finished[name]
                    if is_done or time.monotonic() > deadline:
                        self._queries.pop(name).stop()
                        self._reporter.part_state(name, "stopped")
            self._reporter.publish()
            time.sleep(_TICK_S)
        self._raise_failure()
        reports_end = time.monotonic() + _LAST_REPORT_S
        while not self._reporter.has_all() and time.monotonic() < reports_end:
            time.sleep(_TICK_S)
        for name in self._queries:
            self._reporter.part_state(name, "done")

    def _raise_failure(self) -> None:
        for name, query in self._queries.items():
            error = None if query.isActive else query.exception()
            if error is not None:
                table = "jobs" if name in self._definition.jobs else "sinks"
                problem = readable(error)
                if _TOO_SLOW in problem and self._restarts.get(name, 0) < _RESTARTS:
                    self._restarts[name] = self._restarts.get(name, 0) + 1
                    self._start(name, self._starts[name])
                    return
                self._reporter.part_state(name, "failed", problem)
                if not problem.startswith(f"{table}.{name}"):
                    problem = f"{table}.{name}: {problem}"
                raise PipelineError(problem)

    def _end_queries(self) -> None:
        for query in self._queries.values():
            if query.isActive:
                query.stop()


def _writing(frame: DataFrame, sink: Sink, writer: Writer) -> DataStreamWriter:
    match sink:
        case TopicSink():
            from dragoman.pipelines.sinks.topic import TopicWriter, options_of, records

            written = records(frame, sink)
            if sink.output != "append":
                return written.writeStream.foreachBatch(failing_plainly(TopicWriter(sink)))
            return written.writeStream.format("dragoman").options(**options_of(sink))
        case ParquetSink():
            writing = frame.writeStream.format("parquet").option("path", sink.path)
            return writing.partitionBy(*sink.partition_by) if sink.partition_by else writing
        case DeltaSink():
            from dragoman.pipelines.sinks.delta import DeltaWriter

            return frame.writeStream.foreachBatch(failing_plainly(DeltaWriter(sink, writer)))
        case PostgresSink():
            from dragoman.pipelines.sinks.postgres import PostgresWriter

            return frame.writeStream.foreachBatch(failing_plainly(PostgresWriter(sink, writer)))


def _is_sparks(error: Exception) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j."))


#: Spark's log goes to a file, because it is long and concerns Spark's internals.
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def pipeline_session(definition: Definition, folder: StateFolder) -> SparkSession:
    from pyspark.sql import SparkSession

    # Spark's workers must find modules beside the file as well.
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    directory = os.path.dirname(definition.file)
    if directory not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (directory, *path)))
    settings = {
        "spark.sql.session.timeZone": "UTC",
        PUSHDOWN: "true",
        # The command shows the progress of the pipeline instead.
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": (
            f'"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}" "-Ddragoman.log={folder.log}"'
        ),
        "spark.sql.warehouse.dir": str(folder.path / "warehouse"),
        **as_text(definition.spark.conf),
    }
    running = SparkSession.getActiveSession() or session(
        f"dragoman {definition.name}", master=definition.spark.master or None, config=settings
    )
    own = running.newSession()
    for name, value in settings.items():
        # Static settings can only be set when Spark starts.
        if own.conf.isModifiable(name):
            own.conf.set(name, value)
    register_source(own)
    return own
