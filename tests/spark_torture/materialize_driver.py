"""The driver of `table_updates.py`: tables of a topic, and a kill at some point of a batch.

    python -m spark_torture.materialize_driver BOOTSTRAP TOPIC HOME TRIGGER KILL TABLES

KILL counts the points that are passed (before a batch is looked up, before it is written, when it
is written, before Spark learns of it); there the driver, its JVM and its workers die. 0: no kill.
TABLES are `current`, `history` or both, with a comma.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragoman.pipelines.jobs import materialize, table_updates
from dragoman.pipelines.jobs.delta import KeyedTable
from dragoman.spark import session


class _Killer:
    def __init__(self, points: int) -> None:
        self._left = points

    def passed(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.killpg(0, signal.SIGKILL)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.passed()
            result = function(*args, **kwargs)
            self.passed()
            return result

        return call


def main() -> None:
    bootstrap, topic, home, trigger, points, tables = sys.argv[1:]
    killer = _Killer(int(points))
    KeyedTable.put = killer.around(KeyedTable.put)  # type: ignore[method-assign]
    apply = killer.around(table_updates.Materializer.apply)
    table_updates.Materializer.apply = apply  # type: ignore[method-assign]
    spark = session(
        "materialized",
        master="local[2]",
        config={
            "spark.driver.memory": "1g",
            "spark.local.dir": f"{home}/scratch",
            "spark.sql.warehouse.dir": f"{home}/warehouse",
        },
    )
    queries = []
    for name in tables.split(","):
        options = materialize.Options(
            topic=topic,
            table=str(Path(home) / name),
            bootstrap=bootstrap,
            trigger=trigger,
            history=name == "history",
            # Without further faults the work is done in few steps.
            batch_records=4_000 if int(points) else 100_000,
            tidy_every=5,
        )
        queries.append(materialize.run(spark, options, lambda _: None))
        # Spark gives a process of Python ten seconds to start, which two at once may not meet.
        while queries[-1].isActive and queries[-1].lastProgress is None:
            queries[-1].awaitTermination(0.1)
    for query in queries:
        query.awaitTermination()
    # Spark's own farewell shall not decide about the status.
    os._exit(0)


if __name__ == "__main__":
    main()
