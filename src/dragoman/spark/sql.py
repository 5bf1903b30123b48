"""SQL over topics: creates a view for each topic that a query reads, and returns the result.

Spark itself finds the tables that a query reads: it analyzes the query and reports an unknown
table, for which a view of the topic is created before Spark analyzes the query again. So aliases,
names in a WITH clause, columns, strings and comments are never mistaken for topics.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dragoman.errors import ConfigError, DragomanError
from dragoman.spark.failures import readable, without_spark_logs
from dragoman.spark.sessions import PUSHDOWN, register_source, session
from dragoman.spark.tables import frame, topic_names

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame, SparkSession

_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
#: The parts of a name as Spark prints it; a backquote inside is doubled.
_PART = re.compile(r"`((?:[^`]|``)*)`")
#: EXPLAIN does not fail: its result contains the error.
_EXPLAIN = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*explain\b", re.IGNORECASE | re.DOTALL)
_IN_PLAN = re.compile(rf"\[{_NOT_FOUND}[^\]]*\] The table or view (`.+?`) cannot be found")


class Query:
    """A query and its result, which is computed when it is read."""

    def __init__(
        self,
        text: str,
        *,
        bootstrap: str = "",
        path: str = "",
        decode: str = "string",
        master: str | None = None,
        config: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`decode` is an option of the source, or `raw`; keys are text unless it is `raw`.

        `options` are further options of the source, such as those for TLS and the login.
        """
        further = options or {}
        # Topics are listed first, so that an unreachable broker is reported before Spark starts.
        topics = topic_names(bootstrap=bootstrap, path=path, **further)
        # A separate session, without views of other queries, which may be of another broker.
        spark = session("dragoman sql", master=master, config=config).newSession()
        spark.conf.set(PUSHDOWN, "true")
        register_source(spark)
        given = further if decode == "raw" else {**further, "decode": decode}
        views = TopicViews(spark, topics, bootstrap=bootstrap, path=path, options=given)
        self._frame: DataFrame = views.analyzed(text)

    @property
    def columns(self) -> list[str]:
        return self._frame.columns

    def rows(self) -> Iterator[Sequence[Any]]:
        """Rows, one partition at a time, so that the result need not fit in memory."""
        yield from self._frame.toLocalIterator(prefetchPartitions=True)

    def dictionaries(self) -> Iterator[dict[str, Any]]:
        for row in self._frame.toLocalIterator(prefetchPartitions=True):
            yield row.asDict(recursive=True)

    def write_parquet(self, directory: str) -> None:
        """Write a directory of files. Raises an error of Spark if it exists."""
        self._frame.write.parquet(directory)


class TopicViews:
    """Views of topics in a session, created when a query first reads them."""

    def __init__(
        self,
        spark: SparkSession,
        topics: Sequence[str],
        *,
        bootstrap: str,
        path: str,
        options: Mapping[str, str],
    ) -> None:
        """`options` are those of the source; without `decode` keys are bytes."""
        self._spark = spark
        self._topics = topics
        self._bootstrap = bootstrap
        self._path = path
        self._options = options
        self._made: set[str] = set()

    def analyzed(self, text: str) -> DataFrame:
        """Raises `ConfigError` for a table that is not a topic, and Spark's own errors."""
        from pyspark.errors import AnalysisException

        while True:
            try:
                with without_spark_logs():
                    found = self._spark.sql(text)
                topic = self._missing(_missing_in_plan(found)) if _EXPLAIN.match(text) else ""
                if not topic:
                    return found
            except AnalysisException as error:
                topic = self._missing(missing_table(error))
                if not topic:
                    raise
            self._make(topic)

    def _missing(self, parts: Sequence[str]) -> str:
        """The topic to create a view of; empty if it is another error.

        Some commands do not see views at all, and report one that exists as missing.
        """
        topic = topic_named(parts, self._topics) if parts else ""
        return "" if topic in self._made else topic

    def _make(self, topic: str) -> None:
        from pyspark.errors import PySparkException

        try:
            view = frame(
                self._spark, topic, self._bootstrap, self._path, self._options, stream=False
            )
            if "decode" in self._options:
                view = view.withColumn("key", view["key"].cast("string"))
        except (PySparkException, DragomanError) as error:
            problem = readable(error)
            about = "" if repr(topic) in problem else f"topic {topic!r}: "
            raise ConfigError(f"{about}{problem}") from None
        view.createOrReplaceTempView(f"`{topic}`")
        self._made.add(topic)


def missing_table(error: AnalysisException) -> list[str]:
    """The parts of the name that Spark did not find; empty for another error."""
    if not (error.getCondition() or "").startswith(_NOT_FOUND):
        return []
    return _parts((error.getMessageParameters() or {}).get("relationName", ""))


def _missing_in_plan(explained: DataFrame) -> list[str]:
    """The parts of the name that Spark did not find, from the output of EXPLAIN."""
    # A plan is one row, an error is a row for each of its lines.
    found = _IN_PLAN.search("\n".join(row[0] for row in explained.collect()))
    return _parts(found[1]) if found is not None else []


def _parts(name: str) -> list[str]:
    return [part.replace("``", "`") for part in _PART.findall(name)]


def topic_named(parts: Sequence[str], topics: Sequence[str]) -> str:
    """The topic that a table's name refers to; SQL ignores case.

    Raises `ConfigError` when no topic matches, or more than one.
    """
    name = ".".join(parts)
    alike = [topic for topic in topics if topic.lower() == name.lower()]
    if len(alike) > 1:
        raise ConfigError(
            f"topics {' and '.join(map(repr, alike))} differ only in case, which SQL ignores"
        )
    if alike and len(parts) > 1:
        # Without backquotes the dots separate catalog, schema and table.
        raise ConfigError(f"write `{alike[0]}` in backquotes for the topic {alike[0]!r}")
    if not alike:
        near = difflib.get_close_matches(name, topics, n=1)
        hint = f"; is `{near[0]}` meant?" if near else ""
        raise ConfigError(f"there is no topic {name!r}{hint}")
    return alike[0]
