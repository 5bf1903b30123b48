"""Topics as DataFrames and views, in one call."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dragoman.client.kafka import BlockingKafkaClient, ClientSettings
from dragoman.errors import ConfigError
from dragoman.spark.options import security_of
from dragoman.spark.sessions import session
from dragoman.spark.storage import StoredLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_CONNECT_SECONDS = 10.0
_FILES = {"path", "avroSchemaFile", "descriptorFile"}


def table(
    topic: str,
    *,
    bootstrap: str = "",
    path: str = "",
    stream: bool = False,
    spark: SparkSession | None = None,
    **options: str,
) -> DataFrame:
    """A topic as a DataFrame of all its current records, or (`stream`) a stream of all records.

    `bootstrap` is the broker, by default the one on this machine; `path` alone reads the data
    directory of a broker without the broker. `options` are further options of the source.
    """
    return frame(spark or session(), topic, bootstrap, path, options, stream=stream)


def frame(
    spark: SparkSession,
    topic: str,
    bootstrap: str,
    path: str,
    options: Mapping[str, str],
    *,
    stream: bool,
) -> DataFrame:
    """Like `table`, with the options in a mapping, since some of their names have dots."""
    given = dict(options)
    if path:
        given["path"] = path
    for name in _FILES & given.keys():
        # Spark's processes may have a different working directory.
        given[name] = os.path.abspath(given[name])
    if bootstrap or not path:
        given["kafka.bootstrap.servers"] = bootstrap or DEFAULT_BOOTSTRAP
    if stream:
        given.setdefault("startingOffsets", "earliest")
    reader = spark.readStream if stream else spark.read
    return reader.format("dragoman").options(**given).option("subscribe", topic).load()


def topic_names(*, bootstrap: str = "", path: str = "", **options: str) -> list[str]:
    """All topics that are not internal, sorted. Raises `UnreachableError`, `ConfigError`.

    Of further `options` of the source, those for TLS and the login are used.
    """
    if path and not bootstrap:
        return sorted(StoredLog(path, committed_only=True).topics())
    security = security_of(options)
    settings = ClientSettings(
        client_id="dragoman-spark",
        operation_timeout_s=_CONNECT_SECONDS,
        tls=security.tls,
        login=security.login,
    )
    with BlockingKafkaClient(bootstrap or DEFAULT_BOOTSTRAP, settings) as client:
        topics = client.cluster().topics.values()
        return sorted(topic.name for topic in topics if not topic.is_internal)


def create_views(
    topics: Iterable[str] | None = None,
    *,
    bootstrap: str = "",
    path: str = "",
    spark: SparkSession | None = None,
    **options: str,
) -> list[str]:
    """Create a temporary view named after each topic, for SQL. Returns the names.

    A view shows the records that exist when a query runs. Creating a view takes a moment, so name
    the topics if there are many.
    """
    active = spark or session()
    known = topic_names(bootstrap=bootstrap, path=path, **options)
    names = known if topics is None else list(topics)
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no topic {name!r}")
        view = frame(active, name, bootstrap, path, options, stream=False)
        # In backquotes a name may have dots and dashes.
        view.createOrReplaceTempView(f"`{name}`")
    return names
