"""Tables, publication and slot of a capture in its database.

The catalogue determines which tables can be captured, and by which key. Every change in the stream
must contain the key that a table is read by, so it is the primary key, or the columns of the
replica identity index.

Dragoman marks the publications that it creates by their comment, and changes or drops no others. A
slot is created once. When a slot disappears, changes are lost with it, so it is not created again:
an operator removes the capture and adds it again, with a new snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from dragoman.captures.definition import Definition, any_matches
from dragoman.cdc.source.connection import Connection, SourceError, refusal


class SourceTable(msgspec.Struct, frozen=True, kw_only=True):
    oid: int
    schema: str
    name: str
    is_partitioned: bool
    #: For a partition, the oids of all its ancestors.
    ancestors: tuple[int, ...]
    is_unlogged: bool
    #: The replica identity: d default, f full, i index, n nothing.
    identity: str
    #: Whether the database permits UPDATE and DELETE once the table is published.
    has_identity: bool
    #: The columns that the table is read by; empty if it has no key.
    key: tuple[str, ...]
    #: Estimated from statistics; -1 if there are none.
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
    """The tables, except those whose updates the database would refuse once published."""
    return [each for each in tables if each.has_identity and not each.is_unlogged]


PLUGIN = "pgoutput"
#: Operations that a publication must send. Every publication that Dragoman creates sends them.
OPERATIONS = ("insert", "update", "delete", "truncate")
_MADE_HERE = "made by dragoman for the capture "


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    is_made_here: bool
    is_for_all: bool
    #: The subset of `OPERATIONS` that the publication sends.
    operations: tuple[str, ...]
    is_via_root: bool
    tables: tuple[str, ...]


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    plugin: str
    database: str
    active_pid: int
    #: `reserved`, `extended`, `unreserved` or `lost`; empty when no WAL is reserved yet.
    wal_status: str
    confirmed_lsn: str
    #: Bytes of WAL that the slot retains.
    retained_bytes: int


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Publication and slot as they are now."""

    #: Tables that are to be captured and are published.
    tables: tuple[SourceTable, ...]
    slot: Slot | None
    #: Labels of tables that this call has added to the publication.
    added: tuple[str, ...] = ()
    #: Whether the capture adds tables to the publication, rather than an administrator.
    is_publishing: bool = False
    #: Whether this call has created the slot, so that nothing was captured before.
    is_new: bool
    warnings: tuple[str, ...]


async def rows(connection: Connection, query: str, *arguments: object) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query.encode(), arguments or None)).fetchall()


def size_text(count: int) -> str:
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << bits:
            return f"{count / (1 << bits):.1f} {unit}"
    return f"{count} bytes"


async def find_publication(connection: Connection, name: str) -> Publication | None:
    found = await rows(
        connection,
        "SELECT puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot,"
        " coalesce(obj_description(oid, 'pg_publication'), '')"
        " FROM pg_publication WHERE pubname = %s",
        name,
    )
    if not found:
        return None
    is_for_all, *sent, is_via_root, comment = found[0]
    tables = await rows(
        connection,
        "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s",
        name,
    )
    return Publication(
        is_made_here=comment.startswith(_MADE_HERE),
        is_for_all=is_for_all,
        operations=tuple(name for name, is_sent in zip(OPERATIONS, sent, strict=True) if is_sent),
        is_via_root=is_via_root,
        tables=tuple(label for (label,) in tables),
    )


async def find_slot(connection: Connection, name: str) -> Slot | None:
    found = await rows(
        connection,
        "SELECT coalesce(plugin, ''), coalesce(database, ''), coalesce(active_pid, 0),"
        " coalesce(wal_status, ''), coalesce(confirmed_flush_lsn::text, ''),"
        " coalesce(pg_wal_lsn_diff(CASE WHEN"
        " pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,"
        " restart_lsn), 0)::int8"
        " FROM pg_replication_slots WHERE slot_name = %s",
        name,
    )
    if not found:
        return None
    return msgspec.convert(dict(zip(Slot.__struct_fields__, found[0], strict=True)), Slot)


async def prepare(
    connection: Connection, definition: Definition, *, is_known: bool = False
) -> Prepared:
    """Create what is missing, if the definition allows it, and add new tables that match.

    `is_known`: changes were captured through the slot before, so it must exist.
    """
    try:
        return await _prepare(connection, definition, is_known=is_known)
    except psycopg.Error as error:
        raise refusal(error, definition.dsn) from None


async def _prepare(connection: Connection, definition: Definition, *, is_known: bool) -> Prepared:
    wanted = wanted_tables(definition, await all_tables(connection))
    tables = capturable(wanted)
    warnings = [_left_out(each) for each in wanted if each not in tables]
    if not (definition.tables or definition.outbox):
        return Prepared(tables=(), slot=None, is_new=False, warnings=())
    published, added = await publish(connection, definition, tables, is_known=is_known)
    missing = [each.label for each in tables if each.label not in published.tables]
    if missing:
        warnings.append(
            f"not in the publication {definition.publication_name}, so not captured:"
            f" {', '.join(missing)}"
        )
    slot = await find_slot(connection, definition.slot_name)
    is_new = slot is None
    if slot is None:
        slot = await _create_slot(connection, definition, is_known=is_known)
    _check_slot(slot, definition, connection.info.dbname)
    return Prepared(
        tables=tuple(each for each in tables if each.label in published.tables),
        slot=slot,
        added=added,
        is_publishing=published.is_made_here and not published.is_for_all,
        is_new=is_new,
        warnings=tuple(warnings),
    )


def _left_out(table: SourceTable) -> str:
    if table.is_unlogged:
        return (
            f"{table.label} is not captured: it is unlogged"
            f" (ALTER TABLE {table.quoted} SET LOGGED;)"
        )
    return (
        f"{table.label} is not captured: without a key, the database would refuse updates of it"
        f" once it is published (add a primary key, or ALTER TABLE {table.quoted} REPLICA IDENTITY"
        " FULL;)"
    )


async def publish(
    connection: Connection,
    definition: Definition,
    tables: list[SourceTable],
    *,
    is_known: bool = False,
) -> tuple[Publication, tuple[str, ...]]:
    """Add the tables to the publication if Dragoman created it. Returns the publication, and the
    labels of the tables that were added.
    """
    name = definition.publication_name
    found = await find_publication(connection, name)
    if found is None:
        if is_known:
            raise SourceError(
                f"the publication {name} is gone, and changes since then were not captured",
                f"`dragoman cdc remove {definition.name}` and add it again: a new snapshot replaces"
                " the lost changes",
            )
        if not definition.create:
            raise SourceError(
                f"the publication {name} does not exist", f"CREATE PUBLICATION {name} FOR TABLE …;"
            )
        await _create_publication(connection, definition, tables)
    elif not await _extend_publication(connection, name, found, tables):
        return found, ()
    made = await find_publication(connection, name)
    assert made is not None
    before = () if found is None else found.tables
    labels = [each.label for each in tables if each.label in made.tables]
    return made, tuple(label for label in labels if label not in before)


async def _create_publication(
    connection: Connection, definition: Definition, tables: list[SourceTable]
) -> None:
    name = sql.Identifier(definition.publication_name)
    # Created even without tables, because the slot must begin somewhere and tables may follow.
    of = sql.SQL(" FOR TABLE {}").format(_listed(tables)) if tables else sql.SQL("")
    async with connection.transaction():
        await connection.execute(
            sql.SQL("CREATE PUBLICATION {}{} WITH (publish_via_partition_root = true)").format(
                name, of
            )
        )
        await connection.execute(
            sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(
                name, sql.Literal(_MADE_HERE + definition.name)
            )
        )


async def _extend_publication(
    connection: Connection, name: str, found: Publication, tables: list[SourceTable]
) -> bool:
    """Returns whether tables were added."""
    # A table of another owner must not block the other tables.
    added = [each for each in tables if each.label not in found.tables and each.is_owned]
    if not added or found.is_for_all or not found.is_made_here:
        return False
    try:
        await connection.execute(
            sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(
                sql.Identifier(name), _listed(added)
            )
        )
    except psycopg.errors.ReadOnlySqlTransaction:
        return False  # a standby receives the change from its primary
    except psycopg.errors.UndefinedTable:
        return False  # dropped a moment ago; the next attempt adds the others
    return True


def _listed(tables: list[SourceTable]) -> sql.Composed:
    return sql.SQL(", ").join([sql.Identifier(each.schema, each.name) for each in tables])


async def _create_slot(connection: Connection, definition: Definition, *, is_known: bool) -> Slot:
    name = definition.slot_name
    if is_known:
        raise SourceError(
            f"the slot {name} is gone, and with it changes that were not captured yet",
            f"`dragoman cdc remove {definition.name}` and add it again: a new snapshot replaces the"
            " lost changes",
        )
    if not definition.create:
        raise SourceError(
            f"the slot {name} does not exist",
            f"SELECT pg_create_logical_replication_slot('{name}', '{PLUGIN}');",
        )
    arguments: list[object] = [name, PLUGIN, False, definition.two_phase]
    # A failover slot survives on a standby; the server refuses it together with two_phase.
    if connection.info.server_version >= 170000 and not definition.two_phase:
        arguments.append(True)
    places = ", ".join(["%s"] * len(arguments))
    await rows(connection, f"SELECT pg_create_logical_replication_slot({places})", *arguments)
    made = await find_slot(connection, name)
    assert made is not None
    return made


def _check_slot(slot: Slot, definition: Definition, database: str) -> None:
    name = definition.slot_name
    if slot.plugin != PLUGIN or slot.database != database:
        raise SourceError(
            f"the slot {name} has the plugin {slot.plugin or 'none'} and the database"
            f" {slot.database or 'none'}, expected {PLUGIN} and {database}",
            "name another slot with --slot",
        )
    if slot.wal_status == "lost":
        raise SourceError(
            f"the database has removed WAL that the slot {name} had retained"
            " (max_slot_wal_keep_size), and with it changes that were not captured yet",
            f"`dragoman cdc remove {definition.name}` and add it again: a new snapshot replaces the"
            " lost changes",
        )


async def remove(connection: Connection, definition: Definition) -> None:
    """Drop the slot, and the publication if Dragoman created it."""
    try:
        if await find_slot(connection, definition.slot_name) is not None:
            await drop_slot(connection, definition.slot_name)
        publication = await find_publication(connection, definition.publication_name)
        if publication is not None and publication.is_made_here:
            await connection.execute(
                sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(definition.publication_name))
            )
    except psycopg.Error as error:
        raise refusal(error, definition.dsn) from None


async def take_over(connection: Connection, definition: Definition, session: str) -> None:
    """Terminate the session of this name that holds the slot. It belongs to a process of the same
    capture that is fenced but may not know it, because its node is frozen or partitioned.

    Without the privilege to terminate it, the capture waits for the session to end. Raises
    `SourceError`.
    """
    query = (
        "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
        " JOIN pg_stat_replication ON pid = active_pid"
        " WHERE slot_name = %s AND application_name = %s"
    )
    try:
        await rows(connection, query, definition.slot_name, session)
    except psycopg.errors.InsufficientPrivilege:
        return
    except psycopg.Error as error:
        raise refusal(error, definition.dsn) from None


async def drop_slot(connection: Connection, name: str) -> None:
    """Drop a slot. A session that still holds it, such as that of a lost connection, is
    terminated.
    """
    await rows(
        connection,
        "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
        " WHERE slot_name = %s AND active_pid IS NOT NULL",
        name,
    )
    await rows(connection, "SELECT pg_drop_replication_slot(%s)", name)
