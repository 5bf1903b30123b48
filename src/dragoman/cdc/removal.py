"""Drops the slot and the publication of a capture that is removed.

`python -m dragoman.cdc.removal` reads the definition as JSON from standard input, and prints one
finding.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from dragoman.captures.control import Finding
from dragoman.captures.definition import Definition
from dragoman.cdc.source.connection import SourceError, connect
from dragoman.cdc.source.publication import remove


async def drop_all(definition: Definition) -> Finding:
    try:
        async with await connect(definition.dsn, name=definition.name) as connection:
            await remove(connection, definition)
    except SourceError as error:
        return Finding(
            "problem",
            f"slot and publication of {definition.name} are still in the database: {error.what}",
            f"there: SELECT pg_drop_replication_slot('{definition.slot_name}');"
            f" DROP PUBLICATION {definition.publication_name};",
        )
    return Finding("ok", f"slot and publication of {definition.name} are gone")


def main() -> int:
    definition = msgspec.json.decode(sys.stdin.buffer.read(), type=Definition)
    finding = asyncio.run(drop_all(definition))
    sys.stdout.buffer.write(msgspec.json.encode(finding) + b"\n")
    return int(finding.level == "problem")


if __name__ == "__main__":
    sys.exit(main())
