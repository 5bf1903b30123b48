"""Control messages between a node and a process that captures: JSON, one value to a line.

The node writes commands to the process's standard input and reads reports from its standard output;
when the input ends, the process stops. Logging goes to standard error.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from dragoman.captures.definition import Definition


class _Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", omit_defaults=True):
    """The base class of lines. Tags are fixed: a class may be renamed, its tag may not."""


class KafkaLogin(msgspec.Struct, frozen=True):
    """What a process logs in to the nodes with, by SCRAM-SHA-256."""

    name: str
    password: str

    def __repr__(self) -> str:
        return f"KafkaLogin(name={self.name!r})"


class Start(_Line, frozen=True, kw_only=True, tag="start"):
    """The first line, and the only one that contains passwords."""

    definition: Definition
    #: The address at which the broker serves Kafka's protocol.
    bootstrap: str
    #: None: the node takes no logins.
    login: KafkaLogin | None = None
    #: Whether connections to nodes are encrypted, and the file with the authorities to trust;
    #: empty: those of the machine.
    is_encrypted: bool = False
    authorities: str = ""
    #: The directory for transactions that are too large for memory. It is emptied at the start.
    spool: str
    is_paused: bool = False
    #: Unique to each addition of a capture, so that the position of an earlier capture of the same
    #: name is ignored.
    incarnation: str = ""


class Pause(_Line, frozen=True, kw_only=True, tag="pause"):
    """Capture nothing until `Resume`. The slot is kept."""


class Resume(_Line, frozen=True, kw_only=True, tag="resume"):
    """Continue after `Pause`, and retry at once after a failure."""


class Rewind(_Line, frozen=True, kw_only=True, tag="rewind"):
    """Capture again from an earlier LSN on, which the slot must still retain."""

    id: str
    lsn: str


class Snapshot(_Line, frozen=True, kw_only=True, tag="snapshot"):
    """Read tables again beside the stream of changes; all if none is named."""

    id: str
    tables: tuple[str, ...] = ()


class Stop(_Line, frozen=True, kw_only=True, tag="stop"):
    """Finish the transaction in progress and exit."""


Command: TypeAlias = Start | Pause | Resume | Rewind | Snapshot | Stop

State: TypeAlias = Literal[
    "starting", "snapshotting", "streaming", "paused", "waiting", "failed", "stopped"
]


class TableProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of the snapshot of a table."""

    table: str
    rows: int = 0
    bytes: int = 0
    #: An estimate from the statistics of PostgreSQL; -1: not known.
    rows_expected: int = -1
    is_done: bool = False
    #: Estimated from the pace so far; -1: not known.
    seconds_left: float = -1.0


class Status(_Line, frozen=True, kw_only=True, tag="status"):
    """The state of the capture, about once a second and at each change of the state."""

    state: State
    #: The reason why the capture waits or has failed, with the remedy.
    problem: str = ""
    #: All changes that were committed before this LSN are in the topics.
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
    """A command with an id was executed, or was refused if there is a problem."""

    id: str
    problem: str = ""


Report: TypeAlias = Status | Done


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result of the doctor (`python -m dragoman.cdc.doctor`), which reads the definition from
    standard input and prints one finding to a line.
    """

    level: Literal["ok", "warning", "problem"]
    what: str
    #: The remedy, in a form that can be executed.
    remedy: str = ""


class DatabaseTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table of a database (`python -m dragoman.cdc.tables`, which prints one to a line), and what
    the doctor says about capturing it.
    """

    schema: str
    name: str
    #: Estimated from statistics; -1: there are none.
    rows_expected: int = -1
    #: The columns that rows are identified by.
    key: tuple[str, ...] = ()
    #: Which columns of the old row the database sends.
    replica_identity: Literal["default", "full", "index", "nothing"] = "default"
    #: Whether it is captured with all its partitions.
    is_partitioned: bool = False
    findings: tuple[Finding, ...] = ()


encode_line = msgspec.json.Encoder().encode
decode_command = msgspec.json.Decoder(Command).decode
decode_report = msgspec.json.Decoder(Report).decode
decode_finding = msgspec.json.Decoder(Finding).decode
decode_table = msgspec.json.Decoder(DatabaseTable).decode
