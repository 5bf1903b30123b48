"""A thousand consumers with nothing to read: CPU of the broker while their fetches are parked."""

from __future__ import annotations

import time

from harness import loads
from harness.context import Context, memory_metrics
from harness.loads import Load
from harness.wire import create_topics

_CONSUMERS = 1000


def run(context: Context) -> None:
    seconds = context.scaled(10.0, 1.0)
    with context.broker() as broker:
        create_topics(broker.address, ["empty"], 1)
        before = broker.resident_kb()
        # 500 ms is what stock clients ask for; with a minute, none comes back while it is measured.
        for wait_ms in (500, 60_000):
            with Load(loads.idle_consumers, broker.address, "empty", _CONSUMERS, wait_ms) as load:
                time.sleep(0.5)
                cpu, started = broker.cpu_seconds(), time.perf_counter()
                time.sleep(seconds)
                elapsed = time.perf_counter() - started
                share = (broker.cpu_seconds() - cpu) / elapsed
                resident = broker.resident_kb()
                answered = load.finish()
            context.add(
                f"{_CONSUMERS} consumers, fetches wait {wait_ms} ms",
                {
                    "cpu_percent": share * 100,
                    "fetches_per_s": answered / elapsed,
                    "kb_each": (resident - before) / _CONSUMERS,
                    **memory_metrics(broker),
                },
            )
