"""The doctor: whether a database can be captured, and the exact remedy for every problem.

`python -m dragoman.cdc.doctor` reads a definition as JSON from stdin and prints each finding as a
line of JSON. It is a process of its own so that the caller need not import the database driver. It
changes nothing in the database, except with the argument `remove`: then it drops the slot and the
publication of a capture that is being removed.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from dragoman.captures.control import Finding
from dragoman.captures.definition import Definition, is_pattern, schema_and_name, table_matches
from dragoman.cdc.events import Encoder
from dragoman.cdc.source.connection import (
    WAL_LEVEL_REMEDY,
    Connection,
    SourceError,
    connect,
    refusal,
)
from dragoman.cdc.source.publication import (
    OPERATIONS,
    PLUGIN,
    Publication,
    SourceTable,
    all_tables,
    capturable,
    find_publication,
    find_slot,
    remove,
    rows,
    size_text,
    wanted_tables,
)
from dragoman.errors import ConfigError, DragomanError
from dragoman.plural import plural

#: The first release whose pgoutput streams transactions in progress.
RELEASE_MIN = 14
#: The first release that sends changes from a standby.
_STANDBY_RELEASE = 16
#: Age of an open transaction above which the doctor warns: it delays the creation of a slot, and
#: the slot's progress.
OLD_TRANSACTION_S = 60
#: Free space on the database's disk below which the doctor warns.
ROOM_MIN_BYTES = 2 << 30
_LISTED_MAX = 20


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the server and the privileges of the role that are checked."""

    version: int
    is_standby: bool
    wal_level: str
    slots: int
    slots_max: int
    senders: int
    senders_max: int
    #: Maximum bytes of WAL that a slot may retain; -1 for no limit.
    slot_keep_bytes: int
    user: str
    may_replicate: bool
    may_create: bool
    database: str
    encoding: str


_SERVER = """
SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
  current_setting('wal_level'), (SELECT count(*) FROM pg_replication_slots),
  current_setting('max_replication_slots')::int,
  (SELECT count(*) FROM pg_stat_replication), current_setting('max_wal_senders')::int,
  coalesce((SELECT CASE WHEN setting = '-1' THEN -1 ELSE setting::int8 * 1048576 END
   FROM pg_settings WHERE name = 'max_slot_wal_keep_size'), -1),
  current_user::text,
  (SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user)
  OR EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_replication'
             AND pg_has_role(oid, 'MEMBER')),
  has_database_privilege(current_database(), 'CREATE'), current_database()::text,
  current_setting('server_encoding')
"""


_ADDED_COLUMNS = """
SELECT attrelid, string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute
 WHERE attrelid = ANY(%s) AND attnum > 0 AND NOT attisdropped AND atthasmissing
 GROUP BY attrelid ORDER BY attrelid
"""


async def examine(definition: Definition) -> AsyncIterator[Finding]:
    """Yield each finding as soon as it is known. No finding contains a password."""
    try:
        connection = await connect(definition.dsn, name=definition.name)
    except SourceError as error:
        yield Finding("problem", error.what, error.remedy)
        return
    async with connection:
        try:
            server = await describe_server(connection)
            yield Finding("ok", f"connected to {server.database} as {server.user}")
            for finding in check_server(server, definition):
                yield finding
            if server.version // 10_000 < RELEASE_MIN:
                return  # the next queries need a catalogue of a later release
            async for finding in _check_tables(connection, definition, server):
                yield finding
            if definition.tables or definition.outbox:
                async for finding in _check_slot(connection, definition, server):
                    yield finding
            async for finding in _check_log(connection, definition, server):
                yield finding
        except psycopg.Error as error:
            refused = refusal(error, definition.dsn)
            yield Finding("problem", refused.what, refused.remedy)


async def describe_server(connection: Connection) -> Server:
    (found,) = await rows(connection, _SERVER)
    return msgspec.convert(dict(zip(Server.__struct_fields__, found, strict=True)), Server)


def check_server(server: Server, definition: Definition) -> Iterator[Finding]:
    release = server.version // 10_000
    if release < RELEASE_MIN:
        yield Finding(
            "problem",
            f"PostgreSQL {release} is too old",
            f"upgrade to {RELEASE_MIN} or later",
        )
        return
    yield Finding("ok", f"PostgreSQL {release}")
    if not (definition.tables or definition.outbox):
        return  # LISTEN does not need logical replication
    if definition.two_phase and release < 15:
        yield Finding(
            "problem",
            f"PostgreSQL {release} cannot send prepared transactions",
            "leave out --two-phase, or upgrade to 15 or later",
        )
    if server.encoding == "SQL_ASCII":
        yield Finding(
            "warning",
            f"{server.database} is in SQL_ASCII: text that is not UTF-8 ends the capture",
            "move to a database in UTF8, or make sure that all text is UTF-8",
        )
    yield from _check_replication(server)
    yield from _check_role(server, definition)
    if server.is_standby:
        is_possible = definition.snapshot == "never" and release >= _STANDBY_RELEASE
        yield Finding(
            "warning" if is_possible else "problem",
            "this server is a standby: it allows neither publications nor snapshots",
            "name the primary in the DSN, or all servers with target_session_attrs=read-write",
        )


def _check_replication(server: Server) -> Iterator[Finding]:
    if server.wal_level != "logical":
        yield Finding(
            "problem",
            f"wal_level is {server.wal_level}; logical replication needs logical",
            WAL_LEVEL_REMEDY,
        )
    else:
        yield Finding("ok", "wal_level is logical")
    for name, used, most in (
        ("max_replication_slots", server.slots, server.slots_max),
        ("max_wal_senders", server.senders, server.senders_max),
    ):
        if used >= most:
            yield Finding(
                "warning" if name == "max_replication_slots" else "problem",
                f"all {most} of {name} are in use",
                f"ALTER SYSTEM SET {name} = {most + 5}; then restart PostgreSQL",
            )
        else:
            yield Finding("ok", f"{used} of {most} {name} in use")


def _check_role(server: Server, definition: Definition) -> Iterator[Finding]:
    if not server.may_replicate:
        yield Finding(
            "problem",
            f"the role {server.user} may not replicate",
            f'ALTER ROLE "{server.user}" REPLICATION; (on RDS: GRANT rds_replication TO'
            f' "{server.user}";)',
        )
    else:
        yield Finding("ok", f"the role {server.user} may replicate")
    if definition.create and not server.may_create:
        yield Finding(
            "warning",
            f"the role {server.user} may not create publications in {server.database}",
            f'GRANT CREATE ON DATABASE "{server.database}" TO "{server.user}"; or create the'
            f" publication {definition.publication_name} as another role",
        )


# ---- tables and their publication


async def _check_tables(
    connection: Connection, definition: Definition, server: Server
) -> AsyncIterator[Finding]:
    everything = await all_tables(connection)
    for finding in check_tables(definition, everything):
        yield finding
    wanted = capturable(wanted_tables(definition, everything))
    publication = await find_publication(connection, definition.publication_name)
    if not (definition.tables or definition.outbox):
        return
    for finding in check_publication(definition, publication, wanted, server):
        yield finding
    for finding in check_topics(definition, server.database, wanted):
        yield finding
    if await find_slot(connection, definition.slot_name) is not None:
        async for finding in _added_columns(connection, definition, wanted):
            yield finding


def check_topics(
    definition: Definition, database: str, wanted: list[SourceTable]
) -> Iterator[Finding]:
    """Warn about tables that would share a topic because of dots in their names."""
    encoder = Encoder(definition, database=database, system="")
    try:
        encoder.topics_to_be((each.schema, each.name) for each in wanted)
    except ConfigError as error:
        yield Finding("problem", str(error))
    for text in encoder.warnings[:_LISTED_MAX]:
        yield Finding("warning", text)


async def _added_columns(
    connection: Connection, definition: Definition, wanted: list[SourceTable]
) -> AsyncIterator[Finding]:
    """Warn about columns that were added with a default. PostgreSQL marks them until it rewrites
    the table.
    """
    labels = {each.oid: each.label for each in wanted}
    found = await rows(connection, _ADDED_COLUMNS, list(labels))
    for oid, names in found[:_LISTED_MAX]:
        yield Finding(
            "warning",
            f"{names} was added to {labels[oid]} with a default: earlier records do not contain it,"
            " unless a snapshot was taken since",
            f"dragoman cdc snapshot {definition.name} --tables {labels[oid]}",
        )


def check_tables(definition: Definition, everything: list[SourceTable]) -> Iterator[Finding]:
    patterns = (*definition.tables, *((definition.outbox,) if definition.outbox else ()))
    for pattern in patterns:
        named = [each for each in everything if table_matches(pattern, each.schema, each.name)]
        if not named:
            schema, name = schema_and_name(pattern)
            yield Finding(
                "warning" if is_pattern(pattern) else "problem",
                f"no table is called {schema}.{name}",
                f"check the name; `\\dt {schema}.*` in psql lists the tables"
                + (" (tables that are created later are captured)" if is_pattern(pattern) else ""),
            )
        is_exact = not is_pattern(pattern)
        for table in named[:_LISTED_MAX]:
            yield from check_table(table, is_exact=is_exact)
        if len(named) > _LISTED_MAX:
            yield Finding("ok", f"{len(named) - _LISTED_MAX} more tables match {pattern}")


def check_table(table: SourceTable, *, is_exact: bool) -> Iterator[Finding]:
    bad: Literal["warning", "problem"] = "problem" if is_exact else "warning"
    if table.is_unlogged:
        yield Finding(
            bad,
            f"{table.label} is unlogged, so its changes are not in the WAL",
            f"ALTER TABLE {table.quoted} SET LOGGED;",
        )
        return
    if not table.has_identity:
        yield Finding(
            bad,
            f"{table.label} has no primary key or replica identity: once it is published, the"
            " database refuses UPDATE and DELETE on it, so it is left out",
            f"ALTER TABLE {table.quoted} ADD PRIMARY KEY (…); or, if there is none,"
            f" ALTER TABLE {table.quoted} REPLICA IDENTITY FULL;",
        )
        return
    if not table.is_readable:
        yield Finding(
            bad,
            f"{table.label} may not be read, so it has no snapshot",
            f'GRANT USAGE ON SCHEMA "{table.schema}" TO current_role; GRANT SELECT ON'
            f" {table.quoted} TO current_role; (as its owner, with this role's name)",
        )
    if table.hides_rows:
        yield Finding(
            "warning",
            f"policies hide rows of {table.label} from this role: its snapshot would fail",
            "ALTER ROLE … BYPASSRLS; or capture as the owner of the table",
        )
    if not table.key:
        yield Finding(
            "warning",
            f"{table.label} has no key: its snapshot is read at once while the stream waits, and"
            " records of one row may go to different partitions",
            f"ALTER TABLE {table.quoted} ADD PRIMARY KEY (…);",
        )
    else:
        parts = " (its partitions are captured as this table)" if table.is_partitioned else ""
        yield Finding("ok", f"{table.label} has the key {', '.join(table.key)}{parts}")


def check_publication(
    definition: Definition,
    publication: Publication | None,
    wanted: list[SourceTable],
    server: Server,
) -> Iterator[Finding]:
    name = definition.publication_name
    listed = ", ".join(each.quoted for each in wanted)
    if publication is None:
        foreign = [each for each in wanted if not each.is_owned]
        if definition.create and server.may_create and not foreign:
            yield Finding("ok", f"the publication {name} is made when the capture starts")
        elif definition.create and foreign:
            yield Finding(
                "problem",
                f"{foreign[0].label} belongs to another role, so this one cannot publish it",
                f"as owner or superuser: CREATE PUBLICATION {name} FOR TABLE {listed}"
                " WITH (publish_via_partition_root = true);",
            )
        else:
            yield Finding(
                "problem",
                f"there is no publication {name}",
                f"CREATE PUBLICATION {name} FOR TABLE {listed}"
                " WITH (publish_via_partition_root = true);",
            )
        return
    missing = [each for each in wanted if each.label not in publication.tables]
    unsent = [each for each in OPERATIONS if each not in publication.operations]
    if unsent:
        yield Finding(
            "problem",
            f"the publication {name} does not send {', '.join(unsent)}",
            f"ALTER PUBLICATION {name} SET (publish = '{', '.join(OPERATIONS)}');",
        )
    if not publication.is_via_root and any(each.is_partitioned for each in wanted):
        yield Finding(
            "warning",
            f"the publication {name} sends changes of partitions under the partitions' names",
            f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true);",
        )
    elif missing and not (publication.is_made_here and all(each.is_owned for each in missing)):
        yield Finding(
            "problem",
            f"the publication {name} lacks {', '.join(each.label for each in missing)}",
            f"ALTER PUBLICATION {name} ADD TABLE {', '.join(each.quoted for each in missing)};",
        )
    else:
        yield Finding(
            "ok", f"the publication {name} has {plural(len(publication.tables), 'table')}"
        )


# ---- the slot, what delays it, and what retains WAL


async def _check_slot(
    connection: Connection, definition: Definition, server: Server
) -> AsyncIterator[Finding]:
    name = definition.slot_name
    slot = await find_slot(connection, name)
    if slot is None:
        if not definition.create:
            remedy = f"SELECT pg_create_logical_replication_slot('{name}', '{PLUGIN}');"
            yield Finding("problem", f"the slot {name} does not exist", remedy)
            return
        if server.slots < server.slots_max:
            yield Finding("ok", f"the slot {name} is created when the capture starts")
        else:
            yield Finding(
                "problem",
                f"no slot is left for {name}: all {server.slots_max} max_replication_slots are in"
                " use",
                f"ALTER SYSTEM SET max_replication_slots = {server.slots_max + 5}; then restart"
                " PostgreSQL, or drop an unused slot (SELECT * FROM pg_replication_slots)",
            )
        async for finding in _old_transactions(connection):
            yield finding
        return
    if slot.plugin != PLUGIN or slot.database != server.database:
        yield Finding(
            "problem",
            f"the slot {name} has the plugin {slot.plugin or 'none'} and the database"
            f" {slot.database or 'none'}",
            "name another slot with --slot",
        )
    elif slot.wal_status == "lost":
        yield Finding(
            "problem",
            f"the slot {name} is lost: the database has removed WAL that it had retained",
            f"SELECT pg_drop_replication_slot('{name}'); then add the capture again, with a new"
            " snapshot, and raise max_slot_wal_keep_size",
        )
    elif slot.active_pid:
        yield Finding(
            "warning",
            f"the slot {name} is in use by the session {slot.active_pid}, of this capture or"
            " another client",
            f"SELECT * FROM pg_stat_replication WHERE pid = {slot.active_pid}; one slot serves one"
            " capture",
        )
    else:
        yield Finding("ok", f"the slot {name} exists and is free")
    if slot.retained_bytes > definition.wal_warn_bytes > 0:
        yield Finding(
            "warning",
            f"the database retains {size_text(slot.retained_bytes)} of WAL for the slot {name}",
            "let the capture run, or drop the slot if it is not needed",
        )


async def _old_transactions(connection: Connection) -> AsyncIterator[Finding]:
    """Warn about old transactions: creating a slot waits until all open transactions have ended."""
    old = await rows(
        connection,
        "SELECT pid, state, extract(epoch FROM now() - xact_start)::int FROM pg_stat_activity"
        " WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()"
        " AND xact_start < now() - make_interval(secs => %s) ORDER BY xact_start LIMIT 5",
        OLD_TRANSACTION_S,
    )
    for pid, state, seconds in old:
        yield Finding(
            "warning",
            f"the session {pid} has been in a transaction for {seconds} s ({state}): the slot is"
            " created only after its end",
            f"end it, or: SELECT pg_terminate_backend({pid});",
        )
    prepared = await rows(connection, "SELECT gid FROM pg_prepared_xacts ORDER BY prepared LIMIT 5")
    for (gid,) in prepared:
        yield Finding(
            "warning",
            f"the prepared transaction {gid} is neither committed nor rolled back: the slot is"
            " created only after its end",
            f"COMMIT PREPARED '{gid}'; or ROLLBACK PREPARED '{gid}';",
        )


async def _check_log(
    connection: Connection, definition: Definition, server: Server
) -> AsyncIterator[Finding]:
    """Check that retained WAL is bounded, and that the disk has space for it."""
    if not (definition.tables or definition.outbox):
        return
    if server.slot_keep_bytes < 0 and not definition.wal_limit_bytes:
        yield Finding(
            "warning",
            "the WAL that the database retains while the capture does not run has no limit: its"
            " disk could fill up",
            "set --wal-limit of the capture, or ALTER SYSTEM SET max_slot_wal_keep_size = '50GB';"
            " SELECT pg_reload_conf();",
        )
    elif 0 <= server.slot_keep_bytes <= definition.wal_warn_bytes:
        yield Finding(
            "warning",
            f"the database removes WAL beyond {size_text(server.slot_keep_bytes)}, which loses the"
            f" slot, before the warning at {size_text(definition.wal_warn_bytes)}",
            f"ALTER SYSTEM SET max_slot_wal_keep_size = '{definition.wal_warn_bytes * 4 >> 20}MB';"
            " SELECT pg_reload_conf();",
        )
    else:
        yield Finding("ok", "the WAL that is retained for the capture is bounded")
    room = await _room(connection, definition)
    if room is None:
        return
    if room < ROOM_MIN_BYTES:
        yield Finding(
            "warning",
            f"the database's disk has only {size_text(room)} left",
            "free some space for its WAL",
        )
    else:
        yield Finding("ok", f"the database's disk has {size_text(room)} left")


async def _room(connection: Connection, definition: Definition) -> int | None:
    """Free bytes on the database's disk. None unless the database is on this machine and the role
    may see its path.
    """
    host = str(conninfo_to_dict(definition.dsn).get("host") or "")
    if host not in {"", "localhost", "127.0.0.1", "::1"} and not host.startswith("/"):
        return None
    try:
        ((directory,),) = await rows(connection, "SELECT current_setting('data_directory')")
        usage = shutil.disk_usage(Path(directory) / "pg_wal")
    except (psycopg.errors.InsufficientPrivilege, OSError):
        return None
    return usage.free


# ---- removal


async def drop_all(definition: Definition) -> Finding:
    """Drop the slot and the publication that were created for a capture."""
    try:
        async with await connect(definition.dsn, name=definition.name) as connection:
            await remove(connection, definition)
    except SourceError as error:
        return Finding(
            "problem",
            f"slot and publication of {definition.name} are still in the database: {error.what}",
            f"in the database: SELECT pg_drop_replication_slot('{definition.slot_name}');"
            f" DROP PUBLICATION {definition.publication_name};",
        )
    return Finding("ok", f"slot and publication of {definition.name} are dropped")


async def _main(*arguments: str) -> int:
    given = sys.stdin.buffer.read()
    try:
        definition = msgspec.json.decode(given, type=Definition)
    except (msgspec.DecodeError, DragomanError) as error:
        _print(Finding("problem", f"the definition is not valid: {error}"))
        return 1
    if arguments == ("remove",):
        findings = [await drop_all(definition)]
        _print(findings[0])
    else:
        findings = []
        async for finding in examine(definition):
            _print(finding)
            findings.append(finding)
    return int(any(each.level == "problem" for each in findings))


def _print(finding: Finding) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(finding) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*sys.argv[1:])))
