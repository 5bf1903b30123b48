"""The definition of a pipeline: the tables of its file as checked values.

This module does not import Spark, so an invalid file is refused before Spark starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from dragoman.errors import ConfigError

#: Names of pipelines and sinks, which become names of folders.
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}\Z")
#: Names of sources and steps, which become names of tables in SQL.
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
_TRIGGER = re.compile(r"every ([1-9]\d{0,8}) ?(ms|s|m|h)\Z")
_DURATION = re.compile(r"\d+ ?(ms|s|m|h|d|(millisecond|second|minute|hour|day)s?)\Z")
_LONG = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
#: Records in one micro-batch by default; sinks may hold all of them in memory.
BATCH_RECORDS = 200_000

OptionValue: TypeAlias = str | int | bool


class _Keys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Watermark(_Keys, frozen=True, kw_only=True):
    """How late rows may arrive. Older state is dropped."""

    column: str
    delay: str

    def __post_init__(self) -> None:
        if _DURATION.match(self.delay) is None:
            raise ValueError(f"delay: expected a time such as '10m', got {self.delay!r}")

    @property
    def interval(self) -> str:
        """The delay as an interval of Spark."""
        found = re.match(r"(\d+) ?(\w+)", self.delay)
        assert found is not None
        return f"{found[1]} {_LONG.get(found[2], found[2])}"


class SparkKeys(_Keys, frozen=True, kw_only=True):
    #: Empty: the master of spark-submit or spark-defaults.conf, else all cores of this machine.
    master: str = ""
    conf: dict[str, OptionValue] = {}


class SecurityKeys(_Keys, frozen=True, kw_only=True):
    """TLS and the login at the file's own broker."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "SASL_SSL"
    #: Authorities that are trusted. Empty: those of the machine.
    ca: str = ""
    certificate: str = ""
    #: Empty: it is in the certificate's file.
    key: str = ""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-256"
    user: str = ""
    #: A reference, because files of pipelines are shared and Spark shows options.
    password: str = ""

    def __post_init__(self) -> None:
        if not self.is_encrypted and (self.ca or self.certificate or self.key):
            raise ValueError(
                f"ca, certificate and key are for SSL and SASL_SSL, not {self.protocol}"
            )
        if self.key and not self.certificate:
            raise ValueError("key needs certificate")
        if self.has_login and not (self.user and self.password):
            raise ValueError(f"user and password are needed for {self.protocol}")
        if not self.has_login and (self.user or self.password):
            raise ValueError(f"user and password are for SASL_SSL, not {self.protocol}")
        if self.password and not self.password.startswith(("file:", "env:")):
            raise ValueError("password: expected file:PATH or env:NAME, not the password itself")

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_login(self) -> bool:
        return self.protocol.startswith("SASL")


# ---- sources


class _Source(_Keys, frozen=True, kw_only=True, tag_field="type"):
    watermark: Watermark | None = None


class TopicSource(_Source, frozen=True, kw_only=True, tag="topic"):
    """Records of a topic: key, value, topic, partition, offset, timestamp, timestampType."""

    topic: str
    bootstrap: str = ""
    #: How values are decoded. Keys are text unless it is `raw`.
    decode: Literal["raw", "string", "json", "avro", "protobuf"] = "string"
    #: Fields for `decode = "json"`. Empty: those pinned in the topic, else inferred.
    schema: str = ""
    starting: str = "earliest"
    #: False: all records that exist when a batch is made, as a table to join with.
    stream: bool = True
    headers: bool = False
    batch_records: int = BATCH_RECORDS
    #: Further options of the source `dragoman`.
    options: dict[str, OptionValue] = {}

    def __post_init__(self) -> None:
        if self.schema and self.decode != "json":
            raise ValueError('schema is for decode = "json"')
        _check_batch_records(self.batch_records)


class CdcSource(_Source, frozen=True, kw_only=True, tag="cdc"):
    """Changes of rows as a capture writes them: the columns of the row and those of the change."""

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
    """Files: a table as of the pipeline's start or, with `stream`, new files as they arrive."""

    path: str
    format: Literal["parquet", "delta"] = "parquet"
    stream: bool = False
    #: The schema of Parquet files. Empty: that of the existing files.
    schema: str = ""

    def __post_init__(self) -> None:
        if self.format == "delta" and (self.stream or self.schema):
            raise ValueError('stream and schema are for format = "parquet"')


class PythonSource(_Source, frozen=True, kw_only=True, tag="python"):
    """A table that a function of the session returns."""

    #: `module:function`; modules beside the file take precedence.
    function: str


Source: TypeAlias = TopicSource | CdcSource | TableSource | PythonSource


# ---- steps


class Step(_Keys, frozen=True, kw_only=True):
    """A query, or a function of tables."""

    sql: str = ""
    #: `module:function`; modules beside the file take precedence.
    python: str = ""
    #: The function's tables. Empty: those that its parameters name.
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
    #: Which rows of a changing result to write: final ones, changed ones, or all.
    output: Literal["append", "update", "complete"] = "append"
    #: Empty: the trigger of the pipeline.
    trigger: str = ""

    def __post_init__(self) -> None:
        if self.trigger:
            check_trigger(self.trigger)
        self._check()

    def _check(self) -> None:
        """Raises `ValueError` for keys that do not fit together."""


class TopicSink(_Sink, frozen=True, kw_only=True, tag="topic"):
    """Records of a topic, each written exactly once."""

    topic: str
    bootstrap: str = ""
    #: json: all columns as one object. columns: the table has the columns of the sink `dragoman`.
    format: Literal["json", "columns"] = "json"
    #: Columns of the record's key: one as text, several as a JSON object.
    key: tuple[str, ...] = ()
    #: Number of partitions to create a missing topic with; 0: a missing topic is an error.
    partitions: int = 0
    options: dict[str, OptionValue] = {}

    def _check(self) -> None:
        if self.key and self.format == "columns":
            raise ValueError('key is for format = "json"; else a column is named key')
        if self.partitions < 0:
            raise ValueError("partitions: expected a positive number")


class ParquetSink(_Sink, frozen=True, kw_only=True, tag="parquet"):
    """Files, with each row once for readers that know the folder's log, as Spark does."""

    path: str
    partition_by: tuple[str, ...] = ()

    def _check(self) -> None:
        if self.output != "append":
            raise ValueError(
                'output: files are append-only; use type = "delta" for rows that change'
            )


class DeltaSink(_Sink, frozen=True, kw_only=True, tag="delta"):
    """A Delta table, each batch in one commit."""

    path: str
    #: With a key, a row replaces the row with the same key.
    key: tuple[str, ...] = ()
    #: If rows of a batch have the same key, the row with the greatest value of this column is
    #: written, without the column itself.
    latest_by: str = ""
    partition_by: tuple[str, ...] = ()

    def _check(self) -> None:
        if self.output == "update" and not self.key:
            raise ValueError('output = "update" needs key, which identifies the changed row')
        if self.output == "complete" and self.key:
            raise ValueError('key: output = "complete" rewrites the whole table')
        if self.latest_by and not self.key:
            raise ValueError("latest_by is for sinks with a key")


class PostgresSink(_Sink, frozen=True, kw_only=True, tag="postgres"):
    """A table in PostgreSQL, each batch in one transaction."""

    #: A connection string of libpq; missing parts come from PGHOST, PGPASSWORD and so on.
    dsn: str
    table: str
    #: With a key, a row replaces the row with the same key.
    key: tuple[str, ...] = ()
    latest_by: str = ""
    #: A column that is true for a deleted row. The column itself is not written.
    deleted: str = ""
    #: Whether a missing table is created.
    create: bool = False

    def _check(self) -> None:
        if self.output == "update" and not self.key:
            raise ValueError('output = "update" needs key, which identifies the changed row')
        if self.output == "complete" and self.key:
            raise ValueError('key: output = "complete" rewrites the whole table')
        if self.latest_by and not self.key:
            raise ValueError("latest_by is for sinks with a key")
        if self.deleted and not self.latest_by:
            raise ValueError("deleted needs key and latest_by, which order a delete and an insert")


Sink: TypeAlias = TopicSink | ParquetSink | DeltaSink | PostgresSink


# ---- the pipeline


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One of the jobs of `pipelines/jobs`, with the options that its module declares."""

    type: str
    options: Any


class Head(_Keys, frozen=True, kw_only=True):
    """The top level of a file."""

    name: str
    bootstrap: str = "127.0.0.1:9092"
    #: `continuous`, `once`, or `every 10s`.
    trigger: str = "continuous"
    #: Folder of the checkpoints. Empty: the folder of the pipeline's state.
    checkpoint: str = ""
    spark: SparkKeys = SparkKeys()
    security: SecurityKeys | None = None
    sources: dict[str, dict[str, Any]] = {}
    steps: dict[str, dict[str, Any]] = {}
    sinks: dict[str, dict[str, Any]] = {}
    jobs: dict[str, dict[str, Any]] = {}

    def __post_init__(self) -> None:
        check_name(self.name)
        check_trigger(self.trigger)


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline whose parts were checked. Paths are absolute, and addresses are filled in."""

    file: str
    name: str
    bootstrap: str
    trigger: str
    checkpoint: str
    spark: SparkKeys
    security: SecurityKeys | None = None
    sources: dict[str, Source]
    #: In the order of their dependencies.
    steps: dict[str, Step]
    sinks: dict[str, Sink]
    jobs: dict[str, Job]
    #: Part, such as `steps.NAME`, → function.
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
    """The arguments of `DataStreamWriter.trigger`."""
    if trigger == "once":
        return {"availableNow": True}
    if trigger == "continuous":
        return {"processingTime": "0 seconds"}
    found = _TRIGGER.match(trigger)
    if found is None:
        raise ConfigError(f"{trigger!r} is not a trigger")
    return {"processingTime": f"{found[1]} {_LONG[found[2]]}"}


def _check_batch_records(count: int) -> None:
    if count < 1:
        raise ValueError("batch_records: expected a positive number")
