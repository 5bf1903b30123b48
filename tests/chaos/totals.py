"""What runs add up to: kept in a file between them, so that a seed continues where it was left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec


class Totals(msgspec.Struct, kw_only=True):
    cycles: int = 0
    acknowledged: dict[str, int] = {}
    faults: dict[str, int] = {}
    violations: int = 0

    def add(self, other: Totals) -> None:
        self.cycles += other.cycles
        self.violations += other.violations
        self.acknowledged = dict(Counter(self.acknowledged) + Counter(other.acknowledged))
        self.faults = dict(Counter(self.faults) + Counter(other.faults))

    def lines(self) -> list[str]:
        """A table."""
        rows = [("cycles", self.cycles)]
        rows += [(f"fault: {name}", count) for name, count in sorted(self.faults.items())]
        rows += [(f"acknowledged: {name}", n) for name, n in sorted(self.acknowledged.items())]
        rows += [("violations", self.violations)]
        return [f"{name:28}{count:>12,}" for name, count in rows]


class Book:
    """The totals of every seed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seeds: dict[int, Totals] = {}
        if path.exists():
            self.seeds = msgspec.json.decode(path.read_bytes(), type=dict[int, Totals])

    def add(self, seed: int, totals: Totals) -> None:
        self.seeds.setdefault(seed, Totals()).add(totals)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(msgspec.json.encode(self.seeds))

    def all(self) -> Totals:
        found = Totals()
        for each in self.seeds.values():
            found.add(each)
        return found
