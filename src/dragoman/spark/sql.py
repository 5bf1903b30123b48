"""SQL over topics: a view for each topic that a query names, and the rows that come out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dragoman.spark.sessions import session
from dragoman.spark.tables import frame, topic_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WORD = re.compile(r"`([^`]+)`|([\w.]+)")


class Query:
    """A query and its result, which is computed when it is taken."""

    def __init__(
        self,
        text: str,
        *,
        bootstrap: str = "",
        path: str = "",
        decode: str = "string",
        master: str | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """`decode` is an option of the source, or `raw`; keys are text unless it is `raw`."""
        # First the topics: a broker that is not there is told before Spark has been started.
        named = topics_in(text, topic_names(bootstrap=bootstrap, path=path))
        spark = session("dragoman sql", master=master, config=config)
        options = {} if decode == "raw" else {"decode": decode}
        for name in named:
            view = frame(spark, name, bootstrap, path, options, stream=False)
            if decode != "raw":
                view = view.withColumn("key", view["key"].cast("string"))
            view.createOrReplaceTempView(f"`{name}`")
        self._frame: DataFrame = spark.sql(text)

    @property
    def columns(self) -> list[str]:
        return self._frame.columns

    def rows(self) -> Iterator[Sequence[Any]]:
        """As they come, a partition at a time: a result need not fit in memory."""
        yield from self._frame.toLocalIterator(prefetchPartitions=True)

    def dictionaries(self) -> Iterator[dict[str, Any]]:
        for row in self._frame.toLocalIterator(prefetchPartitions=True):
            yield row.asDict(recursive=True)

    def write_parquet(self, directory: str) -> None:
        """A directory of files. Raises an error of Spark when it is there already."""
        self._frame.write.parquet(directory)


def topics_in(text: str, topics: Sequence[str]) -> list[str]:
    """Topics that a query mentions, wherever it does; capital letters do not count in SQL."""
    known = {name.lower(): name for name in topics}
    found: dict[str, None] = {}
    for quoted, word in _WORD.findall(text):
        # A column may be written with its table's name: orders.value.
        for candidate in (quoted or word, word.partition(".")[0]):
            if candidate.lower() in known:
                found[known[candidate.lower()]] = None
    return list(found)
