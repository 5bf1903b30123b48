"""Topics as Spark tables: the data source and sink `dragoman`, a configured session, SQL.

    from dragoman import spark

    orders = spark.table("orders")
    spark.session().readStream.format("dragoman").options(...)

- `options` parses options into one value; schema and offsets are resolved beside the driver.
- `planner` cuts ranges of offsets into Spark partitions; `admission` bounds a micro-batch.
- `reader` reads stable ranges from segment files where the data directory is visible, pinned under
  a lease, and all other records from the broker; `batches` and `values` decode them.
- `writer` stages rows in task attempts and publishes them with one request.
- `sessions` and `runtimes` choose Java and Python and configure Spark.

Names are loaded on first use: importing this package does not import Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.spark.failures import readable as readable
    from dragoman.spark.sessions import session as session
    from dragoman.spark.tables import create_views as create_views
    from dragoman.spark.tables import table as table

_HOMES = {
    "session": "dragoman.spark.sessions",
    "table": "dragoman.spark.tables",
    "create_views": "dragoman.spark.tables",
    "readable": "dragoman.spark.failures",
}
__all__ = ["create_views", "readable", "session", "table"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    return value
