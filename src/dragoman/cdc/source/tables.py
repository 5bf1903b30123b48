"""Tables of the captured database, from its catalogue: which can be captured, and by which key.

The key that a table is read by has to be in every change of the stream, too: it is the primary key,
or the columns of the index that is the replica identity.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman.captures.definition import Definition
from dragoman.captures.patterns import any_matches
from dragoman.cdc.source.connection import Connection


class SourceTable(msgspec.Struct, frozen=True, kw_only=True):
    oid: int
    schema: str
    name: str
    is_partitioned: bool
    #: For a partition, the oids of all tables above it.
    ancestors: tuple[int, ...]
    is_unlogged: bool
    #: The replica identity: d default, f full, i index, n nothing.
    identity: str
    #: Whether the database lets rows be updated and deleted once the table is published.
    has_identity: bool
    #: The columns that the table is read by; empty if it has no key.
    key: tuple[str, ...]
    #: From statistics; -1 if there are none.
    rows_expected: int
    is_readable: bool
    is_owned: bool
    #: Whether row-level security hides rows from this role.
    hides_rows: bool

    @property
    def label(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}"


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_TABLES = """
SELECT c.oid::int8, n.nspname::text, c.relname::text, c.relkind = 'p',
  ARRAY(SELECT relid::oid::int8 FROM pg_partition_ancestors(c.oid) WHERE relid <> c.oid),
  c.relpersistence = 'u', c.relreplident::text,
  CASE WHEN c.relkind = 'p' THEN NOT EXISTS (
    SELECT FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid
    WHERE t.isleaf AND l.relkind = 'r' AND NOT ({identified}))
  ELSE ({identified_self}) END,
  coalesce((
    SELECT k.columns FROM (
      SELECT ARRAY(
        SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY u(number, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.number
        WHERE u.place <= i.indnkeyatts ORDER BY u.place) AS columns
      FROM pg_index i
      WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid
        AND i.indpred IS NULL AND i.indexprs IS NULL
        AND NOT EXISTS (
          SELECT FROM pg_attribute a WHERE a.attrelid = i.indrelid AND NOT a.attnotnull
          AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))
        AND CASE c.relreplident WHEN 'i' THEN i.indisreplident WHEN 'n' THEN false
          ELSE i.indisprimary END) k), '{{}}'),
  CASE WHEN c.relkind = 'p' THEN (
    SELECT coalesce(sum(greatest(l.reltuples, 0)), -1)::int8
    FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid WHERE t.isleaf)
  ELSE c.reltuples::int8 END,
  coalesce(has_table_privilege(c.oid, 'SELECT'), false), pg_has_role(c.relowner, 'USAGE'),
  row_security_active(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
  AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
ORDER BY n.nspname, c.relname
"""
_IDENTIFIED = """{0}.relreplident = 'f' OR EXISTS (
    SELECT FROM pg_index x WHERE x.indrelid = {0}.oid AND x.indisvalid AND x.indimmediate
    AND CASE {0}.relreplident WHEN 'd' THEN x.indisprimary WHEN 'i' THEN x.indisreplident END)"""
_QUERY = _TABLES.format(identified=_IDENTIFIED.format("l"), identified_self=_IDENTIFIED.format("c"))


async def all_tables(connection: Connection) -> list[SourceTable]:
    found = await (await connection.execute(_QUERY)).fetchall()
    fields = SourceTable.__struct_fields__
    return [msgspec.convert(dict(zip(fields, row, strict=True)), SourceTable) for row in found]


def wanted_tables(definition: Definition, tables: Iterable[SourceTable]) -> list[SourceTable]:
    """The tables that match the capture's patterns, without partitions of tables that match."""
    patterns = (*definition.tables, *([definition.outbox] if definition.outbox else ()))
    named = [each for each in tables if any_matches(patterns, each.schema, each.name)]
    oids = {each.oid for each in named}
    return [each for each in named if oids.isdisjoint(each.ancestors)]


def capturable(tables: Iterable[SourceTable]) -> list[SourceTable]:
    """The tables without those whose updates the database would refuse once they are published."""
    return [each for each in tables if each.has_identity and not each.is_unlogged]
