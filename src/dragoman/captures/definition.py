"""What a capture is told to do: which rows of which database become which records.

The same values travel from the command line over HTTP into the metadata log, and from there to the
process that captures. Only that process is given the address with its password; everybody else gets
`shown`.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from dragoman.captures.addresses import without_secrets as without_secrets
from dragoman.errors import ConfigError
from dragoman.limits import TOPIC_PARTITIONS_MAX

EnvelopeName: TypeAlias = Literal["pgcdc", "debezium", "flat"]
#: What is done to a column instead of showing it.
MaskWay: TypeAlias = Literal["hash", "null", "stars"]
#: Where captures keep how far they are: key = the name, JSON as the value, in one transaction with
#: what they have captured. Transactional ids that begin like this are theirs.
POSITIONS_TOPIC = "__capture_positions"
TRANSACTIONAL_PREFIX = "__capture."
_SLOT = re.compile(r"[a-z0-9_]{1,63}\Z")
#: Least and most that numbers may be.
_BOUNDS = (
    ("partitions", 1, TOPIC_PARTITIONS_MAX),
    ("snapshot_rows", 1, 1_000_000),
    ("heartbeat_s", 0, 86_400),
    ("wal_warn_bytes", 0, 1 << 62),
    ("wal_limit_bytes", 0, 1 << 62),
    ("keep_wal_bytes", 0, 1 << 62),
)
#: PostgreSQL allows 63 characters in the names of slots and publications.
NAME_MAX = 40
_NAME = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{NAME_MAX - 1}}}\Z")


class Definition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    #: Address of the database, as libpq takes it, with the password.
    dsn: str

    #: `schema.table`, with `*` and `?`; without a schema, `public`.
    tables: tuple[str, ...] = ()
    #: Channels of LISTEN and NOTIFY.
    channels: tuple[str, ...] = ()
    #: A table whose inserted rows say themselves what to send and where to.
    outbox: str = ""

    envelope: EnvelopeName = "pgcdc"
    #: Table, with patterns → topic, with `{database}`, `{schema}` and `{table}`. The first that
    #: fits counts; a table that none fits goes to `pgcdc.{table}`, outside `public`
    #: `pgcdc.{schema}.{table}`.
    topics: dict[str, str] = {}
    partitions: int = 8
    #: Table, with patterns → columns to take as the key in place of the replica identity.
    keys: dict[str, tuple[str, ...]] = {}
    #: `schema.table.column`, with patterns. With `include`, others are left out.
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    mask: dict[str, MaskWay] = {}
    #: A record without a value after each delete, so that compaction can forget the key.
    tombstones: bool = True
    #: Events about transactions (`pgcdc._txn`) and about changed tables (`pgcdc._schema`).
    transactions: bool = False
    schema_changes: bool = False

    #: Whether what is in the tables already is sent before what changes.
    snapshot: Literal["initial", "never"] = "initial"
    #: Rows that are read at a time.
    snapshot_rows: int = 20_000

    #: Names in the database; `dragoman_NAME` when empty.
    publication: str = ""
    slot: str = ""
    #: Whether publication and slot are made when they are missing.
    create: bool = True
    #: Large transactions are taken while they are under way (PostgreSQL 14 and later).
    streaming: bool = True
    #: Prepared transactions are sent when they are prepared, not when they are committed.
    two_phase: bool = False

    #: So that a database whose captured tables rest lets go of its log; 0: never.
    heartbeat_s: float = 10.0
    #: Log that the database keeps for this capture: when to warn, when to act (0: never), and how.
    wal_warn_bytes: int = 1 << 30
    wal_limit_bytes: int = 0
    wal_policy: Literal["stop", "drop"] = "stop"
    #: Log that is kept although it was captured, so that `rewind` can go back.
    keep_wal_bytes: int = 0

    def __post_init__(self) -> None:
        if _NAME.match(self.name) is None:
            raise ConfigError(
                f"{self.name!r} cannot name a capture: use a-z, 0-9, - and _, at most {NAME_MAX}"
            )
        if not (self.tables or self.channels or self.outbox):
            raise ConfigError(f"capture {self.name} captures nothing: name tables or channels")
        if not self.dsn or "\0" in self.dsn:
            raise ConfigError(f"capture {self.name} has no address of a database")
        for slot in (self.slot, self.publication):
            if slot and _SLOT.match(slot) is None:
                raise ConfigError(f"{slot!r}: slots and publications are named with a-z, 0-9 and _")
        for field, least, most in _BOUNDS:
            if not least <= getattr(self, field) <= most:
                raise ConfigError(f"{field} must be from {least} to {most}")

    @property
    def publication_name(self) -> str:
        return self.publication or self._default_name

    @property
    def slot_name(self) -> str:
        return self.slot or self._default_name

    @property
    def _default_name(self) -> str:
        return "dragoman_" + self.name.replace("-", "_")

    @property
    def transactional_id(self) -> str:
        return TRANSACTIONAL_PREFIX + self.name

    def __repr__(self) -> str:
        # In an error or a log it must not show more.
        return f"Definition(name={self.name!r})"

    def shown(self) -> dict[str, object]:
        """For listings, logs and answers: everything but what is secret."""
        built = msgspec.to_builtins(self)
        assert isinstance(built, dict)
        return built | {"dsn": without_secrets(self.dsn)}


def read_definition(data: bytes) -> Definition:
    """As the metadata has it. Raises `ConfigError`: written by a release that knows more."""
    try:
        return msgspec.json.decode(data, type=Definition)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"the definition cannot be read: {error}; was it made by a newer release? Run that one"
        ) from None
