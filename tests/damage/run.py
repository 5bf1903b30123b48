"""Damage data directories in every way and print what became of them: kind, damage, verdicts.

PYTHONPATH=tests python -m damage.run --images 200 --seed 1
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from random import Random

from damage.image import Image, build
from damage.judge import Verdict, judge
from damage.wounds import WOUNDS, Wound, inflict, kind_of


def cases(images: list[Image], count: int, seed: int) -> Iterator[tuple[Image, Wound, Verdict]]:
    """Every kind of file with every damage in turn, in clean and killed directories."""
    random = Random(seed)
    done = round_number = 0
    while done < count:
        image = images[round_number % len(images)]
        round_number += 1
        for kind in sorted({kind_of(path) for path in image.files}):
            for how in WOUNDS:
                wounded = inflict(image.files, kind, how, random)
                if wounded is None:
                    continue
                if done == count:
                    return
                done += 1
                yield image, wounded[1], judge(image, *wounded)


def table(found: list[tuple[Image, Wound, Verdict]]) -> str:
    rows: dict[tuple[str, str], Counter[str]] = {}
    for _, wound, verdict in found:
        rows.setdefault((wound.kind, wound.how), Counter())[verdict.result] += 1
    lines = [f"{'FILE':20} {'DAMAGE':8} VERDICTS"]
    for (kind, how), counts in sorted(rows.items()):
        told = ", ".join(f"{result}: {count}" for result, count in sorted(counts.items()))
        lines.append(f"{kind:20} {how:8} {told}")
    totals = Counter(verdict.result for *_, verdict in found)
    lines.append("")
    lines += [f"{count:5} {result}" for result, count in totals.most_common()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only failures of this kind of file are shown")
    options = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    images = [build("killed", is_clean=False), build("clean", is_clean=True)]
    found = []
    for image, wound, verdict in cases(images, options.images, options.seed):
        found.append((image, wound, verdict))
        if verdict.result == "FAILED" and wound.kind.startswith(options.only):
            where = f"{wound.path} at {wound.position} {wound.other}"
            print(f"FAILED {image.name}: {wound.how} of {where}: {verdict.detail}", flush=True)
    print(table(found))
    return 1 if any(verdict.result == "FAILED" for *_, verdict in found) else 0


if __name__ == "__main__":
    sys.exit(main())
