"""The tables of a database, with what the doctor says about each, for a user who chooses some.

`python -m dragoman.cdc.tables` reads a definition as JSON from stdin and prints each table as a
line of JSON, whether or not the definition names it. It changes nothing in the database. Why it
could not be asked goes to standard error.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec
import psycopg

from dragoman.captures.control import DatabaseTable, encode_line
from dragoman.captures.definition import Definition
from dragoman.cdc.doctor import check_table
from dragoman.cdc.source.connection import SourceError, connect, refusal
from dragoman.cdc.source.publication import SourceTable, all_tables
from dragoman.limits import CAPTURE_TABLES_LISTED_MAX

#: By what the catalogue calls them.
_IDENTITIES: Final[dict[str, Literal["default", "full", "index", "nothing"]]] = {
    "d": "default",
    "f": "full",
    "i": "index",
    "n": "nothing",
}


async def tables_of(definition: Definition) -> list[DatabaseTable]:
    """Raises `SourceError`, without a password."""
    connection = await connect(definition.dsn, name=definition.name)
    async with connection:
        try:
            return list(listed(await all_tables(connection)))
        except psycopg.Error as error:
            raise refusal(error, definition.dsn) from None


def listed(everything: Iterable[SourceTable]) -> Iterator[DatabaseTable]:
    """In order of name. Partitions are captured as the table that they belong to."""
    whole = (each for each in everything if not each.ancestors)
    for table in sorted(whole, key=lambda each: (each.schema, each.name)):
        yield DatabaseTable(
            schema=table.schema,
            name=table.name,
            rows_expected=table.rows_expected,
            key=table.key,
            replica_identity=_IDENTITIES[table.identity],
            is_partitioned=table.is_partitioned,
            findings=tuple(
                each for each in check_table(table, is_exact=True) if each.level != "ok"
            ),
        )


async def _main() -> int:
    definition = msgspec.json.decode(sys.stdin.buffer.read(), type=Definition)
    try:
        found = await tables_of(definition)
    except SourceError as error:
        remedy = f": {error.remedy}" if error.remedy else ""
        sys.stderr.write(f"{error.what}{remedy}\n")
        return 1
    for table in found[: CAPTURE_TABLES_LISTED_MAX + 1]:
        sys.stdout.buffer.write(encode_line(table) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
