"""Torture of a capture: it, its database and its broker are killed again and again under load.

    PYTHONPATH=src:tests:examples python -m torture.captures --seed 1 --rounds 30

Prints what was written and found; fails when anything is lost, doubled or out of order.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from captures.kills import Kills, Kind

#: The process is what is killed most.
KINDS: tuple[Kind, ...] = ("capture", "capture", "capture", "postgres", "broker")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--kinds", default="", help="only these, with commas")
    told = parser.parse_args()
    kinds = tuple(told.kinds.split(",")) if told.kinds else KINDS
    dice = random.Random(told.seed)
    with tempfile.TemporaryDirectory() as directory:
        scene = Kills(Path(directory), told.seed)
        try:
            for number in range(told.rounds):
                kind = dice.choice(kinds)
                scene.round(kind)  # type: ignore[arg-type]
                print(f"round {number}: {kind} killed, {scene.writer.committed} committed")
            scene.check()
        finally:
            scene.close()
    changes = sum(len(each) for each in scene.writer.history.values())
    print(
        f"{scene.writer.committed} transactions, {changes} changes and {len(scene.writer.bulk)}"
        f" bulk rows over {told.rounds} kills: each once and in order"
    )


if __name__ == "__main__":
    main()
