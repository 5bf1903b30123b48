"""How soon things are there: a node, a broker inside a test, the command line."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

from harness.broker import BrokerProcess, installed_command, plain_environment
from harness.context import Context, memory_metrics

_IMPORT = """
import time
started = time.perf_counter()
import {module}
print((time.perf_counter() - started) * 1e3)
"""

_EPHEMERAL = """
import time
started = time.perf_counter()
from dragoman.testing import EphemeralBroker
imported = time.perf_counter()
broker = EphemeralBroker(storage={storage!r})
broker.start()
first = time.perf_counter()
broker.stop()
stopped = time.perf_counter()
broker.start()
again = time.perf_counter()
broker.stop()
print((imported - started) * 1e3, (first - imported) * 1e3, (again - stopped) * 1e3)
"""


def run(context: Context) -> None:
    times = context.scaled(11, 2)
    _serve(context, times)
    _ephemeral(context, times)
    _command_line(context, times)


def _serve(context: Context, times: int) -> None:
    fresh: list[float] = []
    again: list[float] = []
    stop: list[float] = []
    memory: dict[str, float] = {}
    for _ in range(times):
        directory = context.directory("start")
        broker = BrokerProcess(directory)
        fresh.append(broker.start())
        memory = memory_metrics(broker)
        stop.append(broker.stop())
        again.append(broker.start())
        broker.stop()
        shutil.rmtree(directory)
    context.add(
        "serve on an empty directory",
        {"ready_ms": median(fresh) * 1e3, "ready_max_ms": max(fresh) * 1e3, **memory},
    )
    context.add(
        "serve after a clean stop",
        {"ready_ms": median(again) * 1e3, "stop_ms": median(stop) * 1e3},
    )


def _ephemeral(context: Context, times: int) -> None:
    for storage, label in (("memory", "in memory"), ("directory", "in a directory")):
        rows = [_python(_EPHEMERAL.format(storage=storage)) for _ in range(times)]
        imported, first, second = (median(column) for column in zip(*rows, strict=True))
        context.add(
            f"EphemeralBroker {label}",
            {"import_ms": imported, "start_ms": first, "start_again_ms": second},
        )


def _command_line(context: Context, times: int) -> None:
    bare = [_wall([sys.executable, "-c", "pass"]) for _ in range(times)]
    shown = [_wall([str(installed_command()), "--version"]) for _ in range(times)]
    helped = [_wall([str(installed_command()), "topic", "--help"]) for _ in range(times)]
    imported = [_python(_IMPORT.format(module="dragoman.cli.main"))[0] for _ in range(times)]
    whole = [_python(_IMPORT.format(module="dragoman.cli.main"))[0] for _ in range(times)]
    served = [_python(_IMPORT.format(module="dragoman.server"))[0] for _ in range(times)]
    context.add(
        "command line",
        {
            "import_ms": median(whole),
            "import_entry_ms": median(imported),
            "import_server_ms": median(served),
            "version_ms": median(shown) * 1e3,
            "topic_help_ms": median(helped) * 1e3,
            "bare_python_ms": median(bare) * 1e3,
        },
    )


def _python(program: str) -> list[float]:
    output = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env=plain_environment(),
        timeout=60,
    ).stdout
    return [float(each) for each in output.split()]


def _wall(command: list[str]) -> float:
    return _timed(
        lambda: subprocess.run(
            command, check=True, capture_output=True, env=plain_environment(), timeout=60
        )
    )


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
