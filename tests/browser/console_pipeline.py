"""A pipeline that runs elsewhere, as far as a node knows: it reports every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self

NAME: Final = "orders-by-shop"
_INTERVAL_S: Final = 5.0


class ReportedPipeline:
    """`ask` sends a request to the node."""

    def __init__(self, ask: Callable[[str, str, object], Any]) -> None:
        self._ask = ask
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._report()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(_INTERVAL_S):
            # A node that is away gets the next report.
            with suppress(OSError):
                self._report()

    def _report(self) -> None:
        now = time.time_ns() // 1_000_000
        part = {"state": "running", "batches": 42, "batch_ms": 180, "at_ms": now}
        self._ask(
            "POST",
            "/api/v1/pipelines",
            {
                "name": NAME,
                "file": "orders/pipeline.toml",
                "state": "running",
                "host": "worker-1",
                "master": "local[2]",
                "pid": 4711,
                "started_ms": now - 3_600_000,
                "updated_ms": now,
                "parts": [
                    {
                        **part,
                        "part": "table",
                        "rows": 91_200,
                        "rows_per_s": 25.4,
                        "lag_records": 12,
                    },
                    {
                        **part,
                        "part": "totals",
                        "rows": 880,
                        "rows_per_s": 0.2,
                        "lag_records": 3,
                        "state_rows": 5200,
                        "state_bytes": 1 << 20,
                    },
                ],
            },
        )
