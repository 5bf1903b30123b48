"""What a capture needs in the database: a publication of its tables, and a slot.

A publication that was made here says so in its comment, and only such a one is changed or dropped.
A slot is made once. One that was there and is gone has taken changes with it, so it is never made
again by itself: whoever starts the capture decides that, with a new snapshot.
"""

from __future__ import annotations

from typing import Any

import msgspec
import psycopg
from psycopg import sql

from dragoman.captures.definition import Definition
from dragoman.cdc.source.connection import Connection, SourceError, refusal
from dragoman.cdc.source.tables import SourceTable, all_tables, capturable, wanted_tables

PLUGIN = "pgoutput"
#: What a publication has to send, and what every one sends that was made here.
OPERATIONS = ("insert", "update", "delete", "truncate")
_MADE_HERE = "made by dragoman for the capture "


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    is_made_here: bool
    is_for_all: bool
    #: Of `OPERATIONS`.
    operations: tuple[str, ...]
    is_via_root: bool
    tables: tuple[str, ...]


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    plugin: str
    database: str
    active_pid: int
    #: reserved, extended, unreserved or lost; empty when nothing is reserved yet.
    wal_status: str
    confirmed_lsn: str
    #: Log that is kept because of it.
    retained_bytes: int


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What is in place now."""

    #: To be captured, and published.
    tables: tuple[SourceTable, ...]
    slot: Slot | None
    #: Of these, those that the publication did not have before.
    added: tuple[str, ...] = ()
    #: Whether tables are added to the publication here; if not, somebody else does so.
    is_publishing: bool = False
    #: Whether the slot was made just now: nothing was captured before.
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
    """Makes what is missing, if the definition allows it, and adds tables that match by now.

    `is_known`: something was captured through the slot before, so it has to be there.
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
        slot = await _make_slot(connection, definition, is_known=is_known)
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
    """The publication with these tables in it, as far as it was made here; and those it lacked."""
    name = definition.publication_name
    found = await find_publication(connection, name)
    identifiers = [sql.Identifier(each.schema, each.name) for each in tables]
    if found is None:
        if is_known:
            raise SourceError(
                f"the publication {name} is gone, and what has changed since was not captured",
                f"`dragoman cdc remove {definition.name}` and add it again: a new snapshot makes up"
                " for what is missing",
            )
        if not definition.create:
            raise SourceError(
                f"there is no publication {name}", f"CREATE PUBLICATION {name} FOR TABLE …;"
            )
        # Without tables it is made too: the slot has to begin somewhere, and some may come.
        of = (
            sql.SQL(" FOR TABLE {}").format(sql.SQL(", ").join(identifiers))
            if tables
            else sql.SQL("")
        )
        async with connection.transaction():
            await connection.execute(
                sql.SQL("CREATE PUBLICATION {}{} WITH (publish_via_partition_root = true)").format(
                    sql.Identifier(name), of
                )
            )
            await connection.execute(
                sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(
                    sql.Identifier(name), sql.Literal(_MADE_HERE + definition.name)
                )
            )
    else:
        added = [
            identifier
            for identifier, table in zip(identifiers, tables, strict=True)
            # One table of somebody else's must not hold up all the others.
            if table.label not in found.tables and table.is_owned
        ]
        if not added or found.is_for_all or not found.is_made_here:
            return found, ()
        try:
            await connection.execute(
                sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(
                    sql.Identifier(name), sql.SQL(", ").join(added)
                )
            )
        except psycopg.errors.ReadOnlySqlTransaction:
            return found, ()  # a standby, which is told of it by the primary
        except psycopg.errors.UndefinedTable:
            return found, ()  # dropped a moment ago; the others are added with the next look
    made = await find_publication(connection, name)
    assert made is not None
    before = () if found is None else found.tables
    labels = [each.label for each in tables if each.label in made.tables]
    return made, tuple(label for label in labels if label not in before)


async def _make_slot(connection: Connection, definition: Definition, *, is_known: bool) -> Slot:
    name = definition.slot_name
    if is_known:
        raise SourceError(
            f"the slot {name} is gone, and with it changes that were not captured yet",
            f"`dragoman cdc remove {definition.name}` and add it again: a new snapshot makes up for"
            " what is missing",
        )
    if not definition.create:
        raise SourceError(
            f"there is no slot {name}",
            f"SELECT pg_create_logical_replication_slot('{name}', '{PLUGIN}');",
        )
    arguments: list[object] = [name, PLUGIN, False, definition.two_phase]
    # Then a standby can take over with the slot; the server refuses both at once.
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
            f"the slot {name} is of plugin {slot.plugin or 'none'} and database"
            f" {slot.database or 'none'}, not of {PLUGIN} and {database}",
            "give the capture another one with --slot",
        )
    if slot.wal_status == "lost":
        raise SourceError(
            f"the database has thrown away log that the slot {name} had kept"
            " (max_slot_wal_keep_size), and with it changes that were not captured yet",
            f"`dragoman cdc remove {definition.name}` and add it again: a new snapshot makes up for"
            " what is missing",
        )


async def remove(connection: Connection, definition: Definition) -> None:
    """Drops the slot, and the publication if it was made here."""
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
    """End a session of that name that holds the slot: a process of the same capture that cannot
    write any more, and may not know it yet because its node is frozen or cut off.

    Who may not do that has to wait for it. Raises `SourceError`.
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
    """A connection that is gone may hold the slot for a moment longer: it is ended."""
    await rows(
        connection,
        "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
        " WHERE slot_name = %s AND active_pid IS NOT NULL",
        name,
    )
    await rows(connection, "SELECT pg_drop_replication_slot(%s)", name)
