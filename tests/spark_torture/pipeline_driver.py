"""`dragoman pipeline run`, except that its process dies at the moments of a plan.

python -m spark_torture.pipeline_driver POINT NUMBER DELAY ARGUMENTS…
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, NoReturn
from unittest import mock

from dragoman.cli.main import main
from dragoman.pipelines.sinks.delta import DeltaWriter

#: Around the commit of a table, where a batch may be lost or doubled, and anywhere else.
POINTS = ("before", "after", "anytime", "never")


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


class Mortal:
    """`DeltaWriter._write` that ends everything at its n-th call, before or after the commit."""

    def __init__(self, point: str, number: int) -> None:
        self._point = point
        self._left = number
        self._lock = threading.Lock()
        self._real = DeltaWriter._write

    def __call__(self, writer: DeltaWriter, *arguments: Any) -> None:
        with self._lock:
            self._left -= 1
            is_due = self._left == 0
        if is_due and self._point == "before":
            die()
        self._real(writer, *arguments)
        if is_due and self._point == "after":
            die()


def run() -> int:
    point, number, delay, *arguments = sys.argv[1:]
    assert point in POINTS, point
    if point == "anytime":
        timer = threading.Timer(float(delay), die)
        timer.daemon = True
        timer.start()
    mortal = Mortal(point, int(number))
    with mock.patch.object(DeltaWriter, "_write", lambda *given: mortal(*given)):
        return main(["pipeline", "run", *arguments])


if __name__ == "__main__":
    sys.exit(run())
