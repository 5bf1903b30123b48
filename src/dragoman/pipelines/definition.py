"""What a pipeline is told: the tables of its file as values, checked one by one.

Nothing here knows Spark: a file is refused before Spark has been started.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from dragoman.errors import ConfigError

#: Of pipelines and sinks: they name folders.
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}\Z")
#: Of sources and steps: they name tables in SQL.
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
_TRIGGER = re.compile(r"every ([1-9]\d{0,8}) ?(ms|s|m|h)\Z")
_DURATION = re.compile(r"\d+ ?(ms|s|m|h|d|(millisecond|second|minute|hour|day)s?)\Z")
_LONG = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
#: What one micro-batch takes in unless a file says otherwise: it has to fit somewhere.
BATCH_RECORDS = 200_000

OptionValue: TypeAlias = str | int | bool


class _Keys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Watermark(_Keys, frozen=True, kw_only=True):
    """How late rows may come: state older than that is let go of."""

    column: str
    delay: str

    def __post_init__(self) -> None:
        if _DURATION.match(self.delay) is None:
            raise ValueError(f"delay: expected a time such as '10m', got {self.delay!r}")

    @property
    def interval(self) -> str:
        """As Spark reads it."""
        found = re.match(r"(\d+) ?(\w+)", self.delay)
        assert found is not None
        return f"{found[1]} {_LONG.get(found[2], found[2])}"


class SparkKeys(_Keys, frozen=True, kw_only=True):
    #: Empty: that of spark-submit or spark-defaults.conf, else all cores of this machine.
    master: str = ""
    conf: dict[str, OptionValue] = {}


# ---- sources


class _Source(_Keys, frozen=True, kw_only=True, tag_field="type"):
    watermark: Watermark | None = None


class TopicSource(_Source, frozen=True, kw_only=True, tag="topic"):
    """Records of a topic: key, value, topic, partition, offset, timestamp, timestampType."""

    topic: str
    bootstrap: str = ""
    #: What the value is. Keys are text unless it is `raw`.
    decode: Literal["raw", "string", "json", "avro", "protobuf"] = "string"
    #: Fields of `decode = "json"`; else those pinned in the topic, else inferred.
    schema: str = ""
    starting: str = "earliest"
    #: False: all records that there are when a batch is made, as a table to join with.
    stream: bool = True
    headers: bool = False
    batch_records: int = BATCH_RECORDS
    #: Of the source `dragoman`, by the names it has there.
    options: dict[str, OptionValue] = {}

    def __post_init__(self) -> None:
        if self.schema and self.decode != "json":
            raise ValueError('schema is for decode = "json"')
        _check_batch_records(self.batch_records)


class CdcSource(_Source, frozen=True, kw_only=True, tag="cdc"):
    """Changes of rows, as a capture writes them: a row's columns, and what happened to it."""

    topic: str
    #: Columns of the table, as DDL.
    schema: str
    envelope: Literal["pgcdc", "debezium", "flat"] = "pgcdc"
    bootstrap: str = ""
    starting: str = "earliest"
    batch_records: int = BATCH_RECORDS
    options: dict[str, OptionValue] = {}

    def __post_init__(self) -> None:
        _check_batch_records(self.batch_records)


class TableSource(_Source, frozen=True, kw_only=True, tag="table"):
    """Files: a table as it is when the pipeline starts, or (`stream`) files as they come."""

    path: str
    format: Literal["parquet", "delta"] = "parquet"
    stream: bool = False
    #: Of Parquet files; else that of the files that are there.
    schema: str = ""

    def __post_init__(self) -> None:
        if self.format == "delta" and (self.stream or self.schema):
            raise ValueError('stream and schema are for format = "parquet"')


class PythonSource(_Source, frozen=True, kw_only=True, tag="python"):
    """Whatever a function makes of the session."""

    #: `module:function`; modules are looked for beside the file.
    function: str


Source: TypeAlias = TopicSource | CdcSource | TableSource | PythonSource


# ---- steps


class Step(_Keys, frozen=True, kw_only=True):
    """One query, or one function of the tables that it names."""

    sql: str = ""
    #: `module:function`; modules are looked for beside the file.
    python: str = ""
    #: Names of the function's tables; else its parameters have those names.
    inputs: tuple[str, ...] = ()
    watermark: Watermark | None = None

    def __post_init__(self) -> None:
        if bool(self.sql) == bool(self.python):
            raise ValueError("give one of sql and python")
        if self.inputs and self.sql:
            raise ValueError("inputs is for python; a query names its tables itself")
        if self.python and re.fullmatch(r"[\w.]+:\w+", self.python) is None:
            raise ValueError(f"python: expected 'module:function', got {self.python!r}")


# ---- sinks


class _Sink(_Keys, frozen=True, kw_only=True, tag_field="type"):
    source: str = msgspec.field(name="from")
    #: Which rows of a table that changes are written: new ones, changed ones, all of them.
    output: Literal["append", "update", "complete"] = "append"
    #: Else the pipeline's.
    trigger: str = ""

    def __post_init__(self) -> None:
        if self.trigger:
            check_trigger(self.trigger)
        self._check()

    def _check(self) -> None:
        """What a kind refuses."""


class TopicSink(_Sink, frozen=True, kw_only=True, tag="topic"):
    """Records, each exactly once."""

    topic: str
    bootstrap: str = ""
    #: json: all columns as one object. columns: those of the sink `dragoman`, as they are.
    format: Literal["json", "columns"] = "json"
    #: Columns that are the record's key: one as text, several as a JSON object.
    key: tuple[str, ...] = ()
    #: The topic is made with so many partitions when it is missing.
    partitions: int = 0
    options: dict[str, OptionValue] = {}

    def _check(self) -> None:
        if self.key and self.format == "columns":
            raise ValueError('key is for format = "json"; else a column is named key')
        if self.partitions < 0:
            raise ValueError("partitions: expected a positive number")


class ParquetSink(_Sink, frozen=True, kw_only=True, tag="parquet"):
    """Files, each row once for readers that know the folder's log, as Spark does."""

    path: str
    partition_by: tuple[str, ...] = ()

    def _check(self) -> None:
        if self.output != "append":
            raise ValueError(
                'output: files are only appended to; take type = "delta" for rows that change'
            )


class DeltaSink(_Sink, frozen=True, kw_only=True, tag="delta"):
    """A Delta table, each batch in one commit."""

    path: str
    #: With a key, rows take the place of those that have the same.
    key: tuple[str, ...] = ()
    #: Of several rows in a batch with one key, the one that has most of this column counts; the
    #: column itself is not written.
    latest_by: str = ""
    partition_by: tuple[str, ...] = ()

    def _check(self) -> None:
        if self.output == "update" and not self.key:
            raise ValueError('output = "update" needs key: which row is changed?')
        if self.output == "complete" and self.key:
            raise ValueError('key: output = "complete" writes the whole table anew')
        if self.latest_by and not self.key:
            raise ValueError("latest_by is for sinks with a key")


class PostgresSink(_Sink, frozen=True, kw_only=True, tag="postgres"):
    """A table in PostgreSQL, each batch in one transaction."""

    #: As libpq takes it; what it leaves out comes from PGHOST, PGPASSWORD and so on.
    dsn: str
    table: str
    #: With a key, rows take the place of those that have the same.
    key: tuple[str, ...] = ()
    latest_by: str = ""
    #: A column that says that the row is gone; it is not written itself.
    deleted: str = ""
    #: Whether the table is made when it is missing.
    create: bool = False

    def _check(self) -> None:
        if self.output == "update" and not self.key:
            raise ValueError('output = "update" needs key: which row is changed?')
        if self.output == "complete" and self.key:
            raise ValueError('key: output = "complete" writes the whole table anew')
        if self.latest_by and not self.key:
            raise ValueError("latest_by is for sinks with a key")
        if self.deleted and not self.latest_by:
            raise ValueError("deleted needs key and latest_by: was a row deleted, or made again?")


Sink: TypeAlias = TopicSink | ParquetSink | DeltaSink | PostgresSink


# ---- the whole


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One of the jobs of `pipelines/jobs`, with the options that its module declares."""

    type: str
    options: Any


class Head(_Keys, frozen=True, kw_only=True):
    """The file's top level: what is not a table of tables."""

    name: str
    bootstrap: str = "127.0.0.1:9092"
    #: `continuous`, `once`, or `every 10s`.
    trigger: str = "continuous"
    #: Folder for the checkpoints; else the folder of the pipeline's state.
    checkpoint: str = ""
    spark: SparkKeys = SparkKeys()
    sources: dict[str, dict[str, Any]] = {}
    steps: dict[str, dict[str, Any]] = {}
    sinks: dict[str, dict[str, Any]] = {}
    jobs: dict[str, dict[str, Any]] = {}

    def __post_init__(self) -> None:
        check_name(self.name)
        check_trigger(self.trigger)


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline whose every part was checked. Paths are absolute, addresses are filled in."""

    file: str
    name: str
    bootstrap: str
    trigger: str
    checkpoint: str
    spark: SparkKeys
    sources: dict[str, Source]
    #: In an order in which each has what it needs.
    steps: dict[str, Step]
    sinks: dict[str, Sink]
    jobs: dict[str, Job]
    #: Of a file in Python, by `steps.NAME` and so on.
    functions: dict[str, Callable[..., Any]] = {}


def check_name(name: str) -> None:
    if _NAME.match(name) is None:
        raise ValueError(
            f"{name!r} cannot be a name: use a-z, 0-9, '-', '_' and '.', at most 63 of them"
        )


def check_table_name(name: str) -> None:
    if _TABLE_NAME.match(name) is None:
        raise ValueError(f"{name!r} cannot name a table in SQL: use letters, digits and '_'")


def check_trigger(trigger: str) -> None:
    if trigger not in ("continuous", "once") and _TRIGGER.match(trigger) is None:
        raise ValueError(
            f"trigger: expected 'continuous', 'once' or a pace such as 'every 10s', got {trigger!r}"
        )


def trigger_options(trigger: str) -> dict[str, Any]:
    """As `DataStreamWriter.trigger` takes it."""
    if trigger == "once":
        return {"availableNow": True}
    if trigger == "continuous":
        return {"processingTime": "0 seconds"}
    found = _TRIGGER.match(trigger)
    if found is None:
        raise ConfigError(f"{trigger!r} is no trigger")
    return {"processingTime": f"{found[1]} {_LONG[found[2]]}"}


def _check_batch_records(count: int) -> None:
    if count < 1:
        raise ValueError("batch_records: expected a positive number")
