"""What a node and the process that captures for it say to each other: JSON, one value to a line.

The node writes commands to the process's standard input and reads reports from its standard output;
when the input ends, the process stops. Logging goes to standard error.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from dragoman.captures.definition import Definition


class _Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", omit_defaults=True):
    """Base of the lines. Their tags are fixed: a class may be renamed, its tag may not."""


class Start(_Line, frozen=True, kw_only=True, tag="start"):
    """The first line, and the only one with a password in it."""

    definition: Definition
    #: Where the broker speaks Kafka's protocol.
    bootstrap: str
    #: For transactions that are too large for memory; emptied at start.
    spool: str
    is_paused: bool = False
    #: Another one each time a capture is added: a position that one of the same name has left
    #: behind says nothing about this one.
    incarnation: str = ""


class Pause(_Line, frozen=True, kw_only=True, tag="pause"):
    """Capture nothing more until `Resume`; the slot stays."""


class Resume(_Line, frozen=True, kw_only=True, tag="resume"):
    """Go on."""


class Rewind(_Line, frozen=True, kw_only=True, tag="rewind"):
    """Capture again what came after a position, as far as the database still has it."""

    id: str
    lsn: str


class Snapshot(_Line, frozen=True, kw_only=True, tag="snapshot"):
    """Send again what is in these tables (all: none named), beside what changes meanwhile."""

    id: str
    tables: tuple[str, ...] = ()


class Stop(_Line, frozen=True, kw_only=True, tag="stop"):
    """Finish the transaction that is under way and end."""


Command: TypeAlias = Start | Pause | Resume | Rewind | Snapshot | Stop

State: TypeAlias = Literal[
    "starting", "snapshotting", "streaming", "paused", "waiting", "failed", "stopped"
]


class TableProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the snapshot of a table is."""

    table: str
    rows: int = 0
    bytes: int = 0
    #: By PostgreSQL's statistics; -1: not known.
    rows_expected: int = -1
    is_done: bool = False
    #: Until it is done, by the pace so far; -1: not known.
    seconds_left: float = -1.0


class Status(_Line, frozen=True, kw_only=True, tag="status"):
    """How things are, about once a second and whenever the state changes."""

    state: State
    #: Why it waits or has failed, with what to do about it.
    problem: str = ""
    #: Everything up to here is in the log.
    lsn: str = ""
    #: Bytes of the database's log that are still to come, and the age of the last change taken.
    lag_bytes: int = -1
    lag_s: float = -1.0
    #: Log that the database keeps because of the slot.
    retained_bytes: int = -1
    #: Since the process started.
    rows: int = 0
    transactions: int = 0
    bytes: int = 0
    rows_per_s: float = 0.0
    tables: tuple[TableProgress, ...] = ()
    #: Warnings that hold now: retained log, tables without a key.
    warnings: tuple[str, ...] = ()


class Done(_Line, frozen=True, kw_only=True, tag="done"):
    """A command with an id was carried out, or, with a problem, refused."""

    id: str
    problem: str = ""


Report: TypeAlias = Status | Done


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found when a database was looked at. Whoever looks (`python -m dragoman.cdc.doctor`)
    or takes away what was made there (`python -m dragoman.cdc.removal`) gets the definition on
    standard input, and prints one to a line.
    """

    level: Literal["ok", "warning", "problem"]
    what: str
    #: What to do about it, ready to be run.
    remedy: str = ""


encode_line = msgspec.json.Encoder().encode
decode_command = msgspec.json.Decoder(Command).decode
decode_report = msgspec.json.Decoder(Report).decode
decode_finding = msgspec.json.Decoder(Finding).decode
