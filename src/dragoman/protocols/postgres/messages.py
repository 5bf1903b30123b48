"""The messages of `pgoutput`, protocol 1 to 4. Times are microseconds since 1970; LSNs are
integers.

`xid` is 0 outside a streamed block, where `Begin` names the transaction. A row is a list with the
text of each column, `None` for NULL, or `UNCHANGED`.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec


class Unchanged(enum.Enum):
    UNCHANGED = "unchanged"


#: A large value that an update did not change: the server does not send it.
UNCHANGED: Final = Unchanged.UNCHANGED
Row: TypeAlias = list[bytes | Unchanged | None]


class Identity(enum.StrEnum):
    """Which columns of the old row the WAL contains for an update or delete (REPLICA IDENTITY)."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


class _Message(msgspec.Struct, frozen=True):
    """Fields are positional, because a message is built for every row."""


class Begin(_Message, frozen=True):
    #: The LSN of the transaction's commit, which is `Commit.lsn`.
    final_lsn: int
    time_us: int
    xid: int


class Commit(_Message, frozen=True):
    lsn: int
    #: The LSN after the transaction; it is confirmed when the whole transaction is durable.
    end_lsn: int
    time_us: int


class Origin(_Message, frozen=True):
    """The transaction was replicated from another server, where its LSN is `lsn`."""

    lsn: int
    name: str


class Column(_Message, frozen=True):
    name: str
    type_oid: int
    #: Modifier of the type, such as a length; -1 for none.
    modifier: int = -1
    #: Whether the column is part of the replica identity.
    is_key: bool = False


class Relation(_Message, frozen=True):
    """The columns of a table, for the messages that follow."""

    xid: int
    id: int
    schema: str
    name: str
    identity: Identity
    columns: tuple[Column, ...]


class Type(_Message, frozen=True):
    """The name of a type that is not built in."""

    xid: int
    oid: int
    schema: str
    name: str


class Insert(_Message, frozen=True, gc=False):
    xid: int
    relation_id: int
    new: Row


class Update(_Message, frozen=True, gc=False):
    xid: int
    relation_id: int
    new: Row
    #: With identity FULL, the whole old row; otherwise its key, and only if the key has changed.
    old: Row | None
    is_old_whole: bool


class Delete(_Message, frozen=True, gc=False):
    xid: int
    relation_id: int
    #: Without identity FULL, columns outside the key are NULL.
    old: Row
    is_old_whole: bool


class Truncate(_Message, frozen=True):
    xid: int
    relation_ids: tuple[int, ...]
    is_cascading: bool
    restarts_identity: bool


class LogicalMessage(_Message, frozen=True):
    """A message of `pg_logical_emit_message`."""

    xid: int
    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


class StreamStart(_Message, frozen=True):
    """Messages up to `StreamStop` belong to a transaction that has not ended."""

    xid: int
    is_first: bool


class StreamStop(_Message, frozen=True): ...


class StreamCommit(_Message, frozen=True):
    xid: int
    lsn: int
    end_lsn: int
    time_us: int


class StreamAbort(_Message, frozen=True):
    xid: int
    #: The subtransaction that is rolled back; `xid` for the whole transaction.
    sub_xid: int
    #: 0 unless the session uses parallel streaming.
    lsn: int = 0
    time_us: int = 0


class BeginPrepare(_Message, frozen=True):
    lsn: int
    end_lsn: int
    time_us: int
    xid: int
    gid: str


class Prepare(_Message, frozen=True):
    lsn: int
    end_lsn: int
    time_us: int
    xid: int
    gid: str


class CommitPrepared(_Message, frozen=True):
    lsn: int
    end_lsn: int
    time_us: int
    xid: int
    gid: str


class RollbackPrepared(_Message, frozen=True):
    #: The LSN at which the prepared transaction ended.
    prepare_end_lsn: int
    end_lsn: int
    prepare_time_us: int
    time_us: int
    xid: int
    gid: str


class StreamPrepare(_Message, frozen=True):
    lsn: int
    end_lsn: int
    time_us: int
    xid: int
    gid: str


Message: TypeAlias = (
    Begin
    | Commit
    | Origin
    | Relation
    | Type
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | BeginPrepare
    | Prepare
    | CommitPrepared
    | RollbackPrepared
    | StreamPrepare
)
