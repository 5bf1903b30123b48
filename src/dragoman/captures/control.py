"""Control messages between a node and a process that captures: JSON, one value to a line.

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
    #: The address at which the broker serves Kafka's protocol.
    bootstrap: str
    #: The directory for transactions that are too large for memory. It is emptied at the start.
    spool: str
    is_paused: bool = False
    #: Differs each time a capture is added, so that the position of an earlier capture of the same
    #: name is ignored.
    incarnation: str = ""


class Pause(_Line, frozen=True, kw_only=True, tag="pause"):
    """Capture nothing more until `Resume`; the slot stays."""


class Resume(_Line, frozen=True, kw_only=True, tag="resume"):
    """Continue after `Pause`, and retry at once after a failure."""


class Rewind(_Line, frozen=True, kw_only=True, tag="rewind"):
    """Capture again from a position on, which the database must still have."""

    id: str
    lsn: str


class Snapshot(_Line, frozen=True, kw_only=True, tag="snapshot"):
    """Read these tables again, or all if none is named, beside the stream of changes."""

    id: str
    tables: tuple[str, ...] = ()


class Stop(_Line, frozen=True, kw_only=True, tag="stop"):
    """Finish the transaction in progress and end."""


Command: TypeAlias = Start | Pause | Resume | Rewind | Snapshot | Stop

State: TypeAlias = Literal[
    "starting", "snapshotting", "streaming", "paused", "waiting", "failed", "stopped"
]


class TableProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the snapshot of a table is."""

    table: str
    rows: int = 0
    bytes: int = 0
    #: From the statistics of PostgreSQL; -1: not known.
    rows_expected: int = -1
    is_done: bool = False
    #: Estimated from the pace so far; -1: not known.
    seconds_left: float = -1.0


class Status(_Line, frozen=True, kw_only=True, tag="status"):
    """How things are, about once a second and whenever the state changes."""

    state: State
    #: The reason why the capture waits or has failed, with the remedy.
    problem: str = ""
    #: Everything that was committed before this LSN is in the log.
    lsn: str = ""
    #: Bytes of WAL that are not captured yet, and the age of the last captured change.
    lag_bytes: int = -1
    lag_s: float = -1.0
    #: WAL that the database retains because of the slot.
    retained_bytes: int = -1
    #: Totals since the process started.
    rows: int = 0
    transactions: int = 0
    bytes: int = 0
    rows_per_s: float = 0.0
    tables: tuple[TableProgress, ...] = ()
    #: Current warnings, such as retained WAL and tables without a key.
    warnings: tuple[str, ...] = ()


class Done(_Line, frozen=True, kw_only=True, tag="done"):
    """A command with an id was carried out, or was refused if there is a problem."""

    id: str
    problem: str = ""


Report: TypeAlias = Status | Done


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found when a database was looked at. Whoever looks (`python -m dragoman.cdc.doctor`)
    or takes away what was made there (`python -m dragoman.cdc.doctor`) gets the definition on
    standard input, and prints one to a line.
    """

    level: Literal["ok", "warning", "problem"]
    what: str
    #: The remedy, ready to be executed.
    remedy: str = ""


encode_line = msgspec.json.Encoder().encode
decode_command = msgspec.json.Decoder(Command).decode
decode_report = msgspec.json.Decoder(Report).decode
decode_finding = msgspec.json.Decoder(Finding).decode
