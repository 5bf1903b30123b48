"""The captures of databases that this node runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dragoman.telemetry.catalogue import Stats

if TYPE_CHECKING:
    from dragoman.captures.service import Captures


def capture_stats(captures: Captures) -> Stats:
    running = captures.states_here()
    states = Counter(each.status.state for each in running)

    def known(field: str) -> dict[tuple[str, ...], int | float]:
        values = {(each.name,): getattr(each.status, field) for each in running}
        return {name: value for name, value in values.items() if value >= 0}

    tables: Counter[tuple[str, ...]] = Counter()
    rows: Counter[tuple[str, ...]] = Counter()
    for each in running:
        for table in each.status.tables:
            tables[each.name, "done" if table.is_done else "left"] += 1
            rows[(each.name,)] += table.rows

    return {
        "capture_snapshot_tables": tables,
        "capture_snapshot_rows": rows,
        "captures": {(state,): count for state, count in states.items()},
        "capture_rows_total": {(each.name,): each.rows for each in running},
        "capture_transactions_total": known("transactions"),
        "capture_rows_per_second": known("rows_per_s"),
        "capture_lag_bytes": known("lag_bytes"),
        "capture_lag_seconds": known("lag_s"),
        "capture_retained_bytes": known("retained_bytes"),
        "capture_restarts_total": {(each.name,): each.restarts for each in running},
    }
