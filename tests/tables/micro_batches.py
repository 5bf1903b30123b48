"""Processes that bring the micro-batches of a history into tables, and die at some point of one.

    python -m tables.micro_batches FOLDER SEED

As Spark does, one notes a batch when that is done and begins after the last one noted. Each is
killed at a later point than the one before (before a batch, before its commit, after its commit,
before it is noted), until one lives to the end; how many did not is printed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from random import Random
from typing import Any

from dragoman.pipelines.jobs.delta import KeyedTable
from dragoman.pipelines.jobs.materialize import Options
from dragoman.pipelines.jobs.table_updates import Materializer
from tables.changelogs import Event, history, records, shuffled

#: Of the points that are passed, and of the processes.
KILLED_AT_MAX = 9
KILLS_MAX = 100


def batches(seed: int) -> list[list[Event]]:
    random = Random(seed)
    return shuffled(random, history(random, 120, keys=9))


class Killer:
    def __init__(self, points: int) -> None:
        self._left = points

    def passed(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def live(folder: Path, seed: int, points: int) -> None:
    killer = Killer(points)
    put = KeyedTable.put

    def putting(self: KeyedTable, *args: Any, **kwargs: Any) -> None:
        killer.passed()
        put(self, *args, **kwargs)
        killer.passed()

    KeyedTable.put = putting  # type: ignore[method-assign]
    noted = folder / "noted"
    first = int(noted.read_text()) + 1 if noted.exists() else 0
    jobs = [
        Materializer(
            Options(
                topic="t",
                table=str(folder / name),
                envelope="pgcdc",
                history=name == "history",
                tidy_every=2,
                keep_hours=0,
                forget_deletes_hours=0,
            )
        )
        for name in ("current", "history")
    ]
    for number, batch in list(enumerate(batches(seed)))[first:]:
        killer.passed()
        for job in jobs:
            job.apply(records(batch), number, "writer")
        killer.passed()
        aside = folder / "noted.new"
        aside.write_text(str(number))
        aside.replace(noted)


def main() -> None:
    folder, seed, kills = Path(sys.argv[1]), int(sys.argv[2]), 0
    while True:
        # What is imported is there already; threads are not, as nothing has been done yet.
        child = os.fork()
        if child == 0:
            live(folder, seed, 1 + kills % KILLED_AT_MAX)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            break
        assert status == -signal.SIGKILL, f"a process ended with {status}"
        kills += 1
        assert kills < KILLS_MAX, "it never gets on"
    print(kills)


if __name__ == "__main__":
    main()
