"""The options of a capture on the command line, and the definition that they make."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from dragoman.captures.definition import Definition, EnvelopeName, MaskWay
from dragoman.cli.status import USAGE, CommandError

_WAYS = ("hash", "null", "stars")
#: Has the default of each option.
_USUAL = Definition(name="usual", dsn="-", tables=("-",))
_Many: TypeAlias = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """Options of `add` and `doctor`. Lists may be given with commas, or several times.

    Parameters
    ----------
    dsn
        Address of the database, as libpq takes it; `-`: the first line of stdin. Better there or in
        the environment than on the command line, which others can see.
    tables
        Tables to capture, as schema.table with * and ?; without a schema: public.
    channels
        Channels of LISTEN and NOTIFY.
    outbox
        Table whose rows say themselves what to send and where to.
    envelope
        Form of the events.
    topic
        TABLE=TOPIC, with {database}, {schema} and {table}; the first that fits counts.
    partitions
        Partitions of topics that are made.
    key
        TABLE=COLUMN,COLUMN to take as the key in place of the replica identity.
    include
        schema.table.column with * and ?: others are left out.
    exclude
        Columns to leave out.
    mask
        COLUMN=hash, COLUMN=null or COLUMN=stars: what is shown in place of its values.
    tombstones
        A record without a value after each delete.
    transactions
        Events about transactions, in pgcdc._txn.
    schema_changes
        Events about changed tables, in pgcdc._schema.
    snapshot
        Whether what is in the tables already is sent first.
    snapshot_rows
        Rows that are read at a time.
    publication
        Publication to use; dragoman_NAME when left out.
    slot
        Replication slot to use; dragoman_NAME when left out.
    create
        Make publication and slot when they are missing.
    streaming
        Take large transactions while they are under way.
    two_phase
        Send prepared transactions when they are prepared.
    heartbeat
        Seconds between heart-beats, so that a resting database lets go of its log; 0: none.
    wal_warn
        Bytes of log kept by the database at which to warn.
    wal_limit
        Bytes of log kept by the database at which to act; 0: never.
    wal_policy
        How: stop capturing, or drop the slot.
    keep_wal
        Bytes of log to keep although it was captured, so that `rewind` can go back.
    """

    dsn: Annotated[
        str, Parameter(env_var="DRAGOMAN_CDC_DSN", show_default=False, allow_leading_hyphen=True)
    ] = field(default="", repr=False)
    tables: _Many = ()
    channels: _Many = ()
    outbox: str = _USUAL.outbox
    envelope: EnvelopeName = _USUAL.envelope
    topic: _Many = ()
    partitions: int = _USUAL.partitions
    key: _Many = ()
    include: _Many = ()
    exclude: _Many = ()
    mask: _Many = ()
    tombstones: bool = _USUAL.tombstones
    transactions: bool = _USUAL.transactions
    schema_changes: bool = _USUAL.schema_changes
    snapshot: Literal["initial", "never"] = _USUAL.snapshot
    snapshot_rows: int = _USUAL.snapshot_rows
    publication: str = _USUAL.publication
    slot: str = _USUAL.slot
    create: bool = _USUAL.create
    streaming: bool = _USUAL.streaming
    two_phase: bool = _USUAL.two_phase
    heartbeat: float = _USUAL.heartbeat_s
    wal_warn: int = _USUAL.wal_warn_bytes
    wal_limit: int = _USUAL.wal_limit_bytes
    wal_policy: Literal["stop", "drop"] = _USUAL.wal_policy
    keep_wal: int = _USUAL.keep_wal_bytes

    def definition(self, name: str) -> Definition:
        """Raises `CommandError` and `ConfigError` for options that are not valid."""
        return Definition(
            name=name,
            dsn=self._dsn(),
            tables=_listed(self.tables),
            channels=_listed(self.channels),
            outbox=self.outbox,
            envelope=self.envelope,
            topics=_pairs("--topic", self.topic),
            partitions=self.partitions,
            keys={table: _listed((text,)) for table, text in _pairs("--key", self.key).items()},
            include=_listed(self.include),
            exclude=_listed(self.exclude),
            mask={column: _way(way) for column, way in _pairs("--mask", self.mask).items()},
            tombstones=self.tombstones,
            transactions=self.transactions,
            schema_changes=self.schema_changes,
            snapshot=self.snapshot,
            snapshot_rows=self.snapshot_rows,
            publication=self.publication,
            slot=self.slot,
            create=self.create,
            streaming=self.streaming,
            two_phase=self.two_phase,
            heartbeat_s=self.heartbeat,
            wal_warn_bytes=self.wal_warn,
            wal_limit_bytes=self.wal_limit,
            wal_policy=self.wal_policy,
            keep_wal_bytes=self.keep_wal,
        )

    def _dsn(self) -> str:
        dsn = sys.stdin.readline().strip() if self.dsn == "-" else self.dsn
        if not dsn:
            raise CommandError(
                "no database is named: --dsn postgresql://USER:PASSWORD@HOST/DATABASE, or --dsn - "
                "and the address on stdin, or DRAGOMAN_CDC_DSN in the environment",
                USAGE,
            )
        return dsn


def _listed(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def _pairs(option: str, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not (name.strip() and equals and rest.strip()):
            raise CommandError(f"{option}: expected NAME=VALUE, got {value!r}", USAGE)
        found[name.strip()] = rest.strip()
    return found


def _way(text: str) -> MaskWay:
    for way in _WAYS:
        if way == text:
            return way  # type: ignore[return-value]
    raise CommandError(f"--mask: expected one of {', '.join(_WAYS)}, got {text!r}", USAGE)
