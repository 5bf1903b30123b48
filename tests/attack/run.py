"""Runs attacks against one node and against three, and prints what they cost and who noticed.

    make attack                                    all of them
    make attack ARGS="--only frames --nodes 1"     some of them
    make attack ARGS="--source ../before/src"      against another version

Each attack gets nodes of its own. Beside it a Kafka producer and a liveness probe do their work;
the figures are their times, their failures, and what node 1 took.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from attack import scenarios
from attack.bystanders import Bystander, Health, KafkaProducing
from attack.target import Target, settle

_CALM_S = 2.0


class Attack(NamedTuple):
    """`strike` does harm for a bounded time. It may return a remark for the table."""

    name: str
    strike: Callable[[Target], str | None]
    #: What the nodes are started with, such as `("prlimit", "--nofile=200")`.
    limits: tuple[str, ...] = ()
    #: Only against so many nodes.
    nodes: tuple[int, ...] = (1, 3)
    #: Whether the nodes have a listener with TLS, and allow it on `any`.
    with_tls: bool = False
    #: What is done before, and not measured.
    prepare: Callable[[Target], None] = lambda _target: None


def find_attacks() -> list[Attack]:
    """Every `ATTACKS` of a module in `scenarios`: rows of the fields of
    `Attack`, from the first on."""
    found = []
    for module in sorted(each.name for each in pkgutil.iter_modules(scenarios.__path__)):
        rows = importlib.import_module(f"attack.scenarios.{module}").ATTACKS
        found += [Attack(*row) for row in rows]
    return found


def run(attack: Attack, nodes: int, source: str | None) -> str:
    with (
        tempfile.TemporaryDirectory(prefix="attack-") as root,
        Target(
            Path(root),
            nodes,
            source=source,
            limits=attack.limits,
            with_tls=attack.with_tls,
        ) as target,
        Bystander("produce", KafkaProducing(target)) as producing,
        Bystander("livez", Health(target)) as health,
    ):
        attack.prepare(target)
        for each in (producing, health):
            each.seconds.clear()
            each.failures.clear()
        settle(_CALM_S)
        calm_ms = producing.percentile_ms(0.5)
        calm = {each: len(each.seconds) for each in (producing, health)}
        for each, count in calm.items():
            del each.seconds[:count]
        before = target.resident_bytes()
        target.peak_bytes = before
        cpu, lines, leaders = target.cpu_seconds(), target.log_lines(), target.leaders()
        began = time.monotonic()
        remark = attack.strike(target) or ""
        took = time.monotonic() - began
        after = target.leaders()
        moved = [name for name, leader in leaders.items() if after.get(name) != leader]
        ended = target.ended()
        row = [
            attack.name,
            str(nodes),
            f"{took:.1f}",
            f"{calm_ms:.1f}",
            f"{producing.percentile_ms(0.99):.1f}",
            f"{producing.percentile_ms(1.0):.0f}",
            str(len(producing.failures)),
            f"{health.percentile_ms(1.0):.0f}",
            str(len(health.failures)),
            f"{(target.peak_bytes - before) / 1e6:+.0f}",
            f"{target.cpu_seconds() - cpu:.1f}",
            str(target.log_lines() - lines),
            ", ".join(moved) or "none",
            f"{'nodes ended: ' + str(ended) if ended else ''} {remark}".strip(),
        ]
        return "\n".join(["| " + " | ".join(row) + " |", *target.notes])


_HEADINGS = (
    "attack",
    "nodes",
    "s",
    "calm p50 ms",
    "produce p99 ms",
    "worst ms",
    "failed",
    "livez worst ms",
    "failed",
    "RSS MB",
    "CPU s",
    "log lines",
    "leads moved",
    "remark",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="attacks with this in their name")
    parser.add_argument("--nodes", type=int, choices=(1, 3))
    parser.add_argument("--source", help="src folder of the version to attack")
    arguments = parser.parse_args()
    print("| " + " | ".join(_HEADINGS) + " |")
    print("|" + "---|" * len(_HEADINGS), flush=True)
    for attack in find_attacks():
        if arguments.only not in attack.name:
            continue
        for nodes in attack.nodes:
            if arguments.nodes in (None, nodes):
                print(run(attack, nodes, arguments.source), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
