"""The rules of alerts with a faster clock.

An hour of Prometheus is two minutes here: `for`, ranges and the bounds that are ages are divided by
thirty. `for` has at most ten seconds and a range at least four, which hold four scrapes. One bound
is an amount that no test would wait for: the gigabytes of WAL. Nothing else is changed, and the
same is done to the queries of runbooks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from deploy_check.command import ROOT

SPEED = 30
_FOR_S_MAX = 10
_RANGE_S_MIN = 4
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: Ages in expressions, and the one amount.
_BOUNDS = {
    "4 * 3600": "4 * 120",
    "group_lag_seconds) > 900": "group_lag_seconds) > 30",
    "capture_lag_seconds > 300": "capture_lag_seconds > 10",
    "10737418240": "4194304",
}
FILE = ROOT / "deploy" / "prometheus" / "alerts.yml"


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]


def faster(expression: str) -> str:
    for slow, fast in _BOUNDS.items():
        expression = expression.replace(slow, fast)
    return re.sub(
        r"\[(\d+)([smhd])\]",
        lambda found: f"[{max(_RANGE_S_MIN, _seconds(found[1], found[2]) // SPEED)}s]",
        expression,
    )


def write_faster(file: Path) -> None:
    changed = []
    for rule in rules():
        seconds = _seconds(rule["for"][:-1], rule["for"][-1])
        held = min(_FOR_S_MAX, seconds // SPEED)
        changed.append({**rule, "expr": faster(rule["expr"]), "for": f"{held}s"})
    group = {"name": "faster", "interval": "1s", "rules": changed}
    file.write_text(yaml.safe_dump({"groups": [group]}))


def _seconds(count: str, unit: str) -> int:
    return int(count) * _UNITS[unit]
