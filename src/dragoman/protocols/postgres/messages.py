"""The messages of `pgoutput`, protocol 1 to 4. Times are microseconds since 1970, as LSNs integers.

`xid` is 0 outside a streamed block: there the transaction is the one that `Begin` has named.
A row is a list with the text of each column, `None` for NULL, or `UNCHANGED`.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec


class Unchanged(enum.Enum):
    UNCHANGED = "unchanged"


#: A large value that an update did not touch: the server has not read it, so it is not known here.
UNCHANGED: Final = Unchanged.UNCHANGED
Row: TypeAlias = list[bytes | Unchanged | None]


class Identity(enum.StrEnum):
    """What the server writes about the old row of an update or delete."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


class _Message(msgspec.Struct, frozen=True):
    """Built by position: there is one for every row."""


class Begin(_Message, frozen=True):
    #: Where the transaction's commit is: `Commit.lsn`.
    final_lsn: int
    time_us: int
    xid: int


class Commit(_Message, frozen=True):
    lsn: int
    #: Where the next transaction may begin; what is confirmed when all of this one is kept.
    end_lsn: int
    time_us: int


class Origin(_Message, frozen=True):
    """The transaction came from another server, which has it at `lsn`."""

    lsn: int
    name: str


class Column(_Message, frozen=True):
    name: str
    type_oid: int
    #: Modifier of the type, such as a length; -1 for none.
    modifier: int = -1
    #: Whether it is part of the replica identity.
    is_key: bool = False


class Relation(_Message, frozen=True):
    """How a table looks from here on."""

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
    #: Whole with identity FULL; otherwise only when the key has changed, and only the key.
    old: Row | None
    is_old_whole: bool


class Delete(_Message, frozen=True, gc=False):
    xid: int
    relation_id: int
    #: Columns outside the key are NULL unless the row is whole.
    old: Row
    is_old_whole: bool


class Truncate(_Message, frozen=True):
    xid: int
    relation_ids: tuple[int, ...]
    is_cascading: bool
    restarts_identity: bool


class LogicalMessage(_Message, frozen=True):
    """From `pg_logical_emit_message`."""

    xid: int
    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


class StreamStart(_Message, frozen=True):
    """What follows up to `StreamStop` belongs to transactions that are still under way."""

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
    #: The same as `xid` when all of it is undone.
    sub_xid: int
    #: 0 unless the server was asked for parallel streaming.
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
    #: Where the prepared transaction had ended.
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
