"""Stands for what lists the tables of a database; the name of the first table says how."""

from __future__ import annotations

import sys

import msgspec

from dragoman.captures.control import DatabaseTable, Finding, encode_line
from dragoman.captures.definition import Definition


def main() -> int:
    definition = msgspec.json.decode(sys.stdin.read(), type=Definition)
    match definition.tables[0]:
        case "crash":
            print(f"cannot look at {definition.dsn}", file=sys.stderr)
            return 1
        case "none":
            return 0
    finding = Finding("problem", f"{definition.dsn} has no key", f"ask {definition.dsn}")
    print(encode_line(DatabaseTable(schema="s", name="bad", findings=(finding,))).decode())
    print(encode_line(DatabaseTable(schema="s", name="good", key=("id",))).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
