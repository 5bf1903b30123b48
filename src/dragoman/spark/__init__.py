"""Topics as Spark tables: the data source and sink `dragoman`, a configured session, SQL.

    from dragoman import spark

    orders = spark.table("orders")
    spark.session().readStream.format("dragoman").options(...)

- Options are parsed into one value; schema and offsets are resolved beside the driver.
- The planner cuts ranges of offsets into Spark partitions; admission bounds a micro-batch.
- Readers take stable ranges from segment files where the data directory is visible, pinned under a
  lease, and the rest from the broker.
- The sink stages rows in task attempts and publishes them with one request.
- The session picks Java and Python, and sets what Dragoman needs.

Names are imported on first use: importing this package does not import Spark.
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
