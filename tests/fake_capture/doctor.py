"""Stands for what looks at a database; what it finds is in the name of the first table."""

from __future__ import annotations

import sys
import time

import msgspec

from dragoman.captures.control import Finding, encode_line
from dragoman.captures.definition import Definition


def main() -> int:
    definition = msgspec.json.decode(sys.stdin.read(), type=Definition)
    match definition.tables[0]:
        case "crash":
            print(f"cannot look at {definition.dsn}", file=sys.stderr)
            return 1
        case "hang":
            time.sleep(600)
        case "problem":
            remedy = "ALTER SYSTEM SET wal_level = logical"
            print(encode_line(Finding(level="problem", what="wal_level", remedy=remedy)).decode())
        case "warning":
            print(encode_line(Finding(level="warning", what=f"{definition.dsn} is slow")).decode())
    print(encode_line(Finding(level="ok", what="connected")).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
