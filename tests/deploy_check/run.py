"""`make deploy-check`: runs the checks that are named, or all.

    python -m deploy_check.run [CHECK ...]

`faults:STAGE` and `faults:STAGE.ALERT,…` pick faults. A check that needs what this machine lacks is
named as not run. The exit status is 1 if one failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from deploy_check import (
    chart,
    compose,
    containers,
    dockerfile,
    faults,
    prometheus,
    unit,
    upgrade,
    wheel,
)
from deploy_check.command import CheckError, NotRun

CHECKS: dict[str, Callable[[], None]] = {
    "unit": unit.check,
    "prometheus": prometheus.check,
    "faults": faults.check,
    "dockerfile": dockerfile.check,
    "compose": compose.check,
    "chart": chart.check,
    "containers": containers.check,
    "wheel": wheel.check,
    "upgrade": upgrade.check,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make deploy-check", description=__doc__)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    chosen = parser.parse_args().checks or list(CHECKS)
    names = [each.partition(":")[0] for each in chosen]
    if unknown := set(names) - set(CHECKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
    results = {}
    for name in chosen:
        print(f"{name}:", flush=True)
        began = time.monotonic()
        try:
            check, _, limits = name.partition(":")
            if limits:
                faults.check(limits.split(","))
            else:
                CHECKS[check]()
            results[name] = f"passed in {time.monotonic() - began:.0f} s"
        except NotRun as reason:
            results[name] = f"not run: {reason}"
        except CheckError as fault:
            results[name] = f"FAILED: {fault}"
        print(f"  {results[name]}", flush=True)
    print("\n" + "\n".join(f"{name}: {line.splitlines()[0]}" for name, line in results.items()))
    return int(any(line.startswith("FAILED") for line in results.values()))


if __name__ == "__main__":
    sys.exit(main())
