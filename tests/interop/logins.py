"""`make interop-logins`: what stock clients report when a broker refuses them.

    PYTHONPATH=tests python tests/interop/logins.py [--only WORDS] [PART ...]

Every case is run with every client: good ones must be let in, others must not. What a client
reports is written to docs/reference/compatibility.md. Ends with status 1 when a client was let in
or kept out wrongly, or reported another error than the page said. A client that cannot be set up
here is named and left as it was.
"""

from __future__ import annotations

import argparse
import importlib
import sys

import page
from login_results import is_known, keep

PARTS = {
    "kafka": "kafka_logins",
    "expiry": "kafka_token_expiry",
    "rocketmq": "rocketmq_logins",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="interop-logins")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--only", default="", metavar="WORDS", help="cases with these words")
    options = parser.parse_args()
    unknown = set(options.parts) - PARTS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    results = page.read()
    logins = results.setdefault("logins", {})
    found = []
    is_as_before = True
    for part in options.parts or PARTS:
        for each in importlib.import_module(PARTS[part]).run(options.only):
            is_new = not is_known(logins, each)
            is_as_before &= each.is_right and not is_new
            mark = ("" if each.is_right else "   WRONG") + ("   not as before" if is_new else "")
            print(f"{each.client}: {each.section}: {each.case}: {each.cell}{mark}", flush=True)
            found.append(each)
    keep(logins, (each for each in found if each.is_right))
    page.write(results)
    return 0 if found and is_as_before else 1


if __name__ == "__main__":
    sys.exit(main())
