"""The definition of a capture: which rows of which database become which records.

The command line sends a definition over HTTP. It is stored in the metadata log and passed to the
process that captures. Only that process gets the address with its password; listings and logs get
`shown`.

Patterns select tables and columns: `schema.table` and `schema.table.column`, with `*` and `?`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Literal, TypeAlias

import msgspec

from dragoman.captures.addresses import secured, without_secrets
from dragoman.config.hosts import host_matches
from dragoman.errors import MALFORMED, ConfigError
from dragoman.limits import TOPIC_PARTITIONS_MAX

EnvelopeName: TypeAlias = Literal["pgcdc", "debezium", "flat"]
#: The replacement for the values of a masked column.
MaskWay: TypeAlias = Literal["hash", "null", "stars"]
#: The internal topic of positions. Key: the name of a capture; value: JSON, written in one
#: transaction with the captured rows. The transactional ids of captures have this prefix.
POSITIONS_TOPIC = "__capture_positions"
TRANSACTIONAL_PREFIX = "__capture."
_SLOT = re.compile(r"[a-z0-9_]{1,63}\Z")
#: Bounds of numeric fields.
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
    #: The address of the database in a form that libpq accepts, with the password.
    dsn: str

    #: `schema.table`, with `*` and `?`; without a schema, `public`.
    tables: tuple[str, ...] = ()
    #: Channels of LISTEN and NOTIFY.
    channels: tuple[str, ...] = ()
    #: A table whose inserted rows are messages, with topic, key and payload.
    outbox: str = ""

    envelope: EnvelopeName = "pgcdc"
    #: By pattern of tables, a topic with `{database}`, `{schema}` and `{table}`. The first pattern
    #: that matches counts. By default the topic is `pgcdc.{table}`, or `pgcdc.{schema}.{table}`
    #: outside of `public`.
    topics: dict[str, str] = {}
    partitions: int = 8
    #: By pattern of tables, the key columns instead of those of the replica identity.
    keys: dict[str, tuple[str, ...]] = {}
    #: Patterns of `schema.table.column`. Tables in `include` have only the columns that it names.
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    mask: dict[str, MaskWay] = {}
    #: Whether a record without a value follows each delete, so that compaction removes the key.
    tombstones: bool = True
    #: Whether to send events about transactions (`pgcdc._txn`) and changed tables
    #: (`pgcdc._schema`).
    transactions: bool = False
    schema_changes: bool = False

    #: Whether existing rows are sent first.
    snapshot: Literal["initial", "never"] = "initial"
    #: The largest number of rows in a chunk of a snapshot.
    snapshot_rows: int = 20_000

    #: Names in the database; `dragoman_NAME` when empty.
    publication: str = ""
    slot: str = ""
    #: Whether publication and slot are created if they do not exist.
    create: bool = True
    #: Whether large transactions are sent while they are in progress (PostgreSQL 14 and later).
    streaming: bool = True
    #: Whether prepared transactions are sent when they are prepared, and not when committed.
    two_phase: bool = False

    #: Seconds between heartbeats, which release WAL while captured tables do not change; 0: none.
    heartbeat_s: float = 10.0
    #: Retained WAL: the bytes at which to warn and at which to act (0: never), and the action.
    wal_warn_bytes: int = 1 << 30
    wal_limit_bytes: int = 0
    wal_policy: Literal["stop", "drop"] = "stop"
    #: Bytes of captured WAL to retain, so that `rewind` can go back.
    keep_wal_bytes: int = 0

    def __post_init__(self) -> None:
        if _NAME.match(self.name) is None:
            raise ConfigError(
                f"{self.name!r} cannot name a capture: use at most {NAME_MAX} of a-z, 0-9, - and _,"
                " beginning with a letter or digit"
            )
        if not (self.tables or self.channels or self.outbox):
            raise ConfigError(
                f"capture {self.name} captures nothing: name tables, channels or an outbox"
            )
        if not self.dsn or "\0" in self.dsn:
            raise ConfigError(f"capture {self.name} has no valid address of a database")
        for slot in (self.slot, self.publication):
            if slot and _SLOT.match(slot) is None:
                raise ConfigError(
                    f"{slot!r} cannot name a slot or a publication: use at most 63 of a-z, 0-9 and"
                    " _"
                )
        for field, least, most in _BOUNDS:
            value = getattr(self, field)
            if not least <= value <= most:
                raise ConfigError(f"{field}: expected {least} to {most}, got {value}")

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
        # The address must not appear in an error or a log.
        return f"Definition(name={self.name!r})"

    def shown(self) -> dict[str, object]:
        """The fields without secrets, for listings, logs and responses."""
        built = msgspec.to_builtins(self)
        assert isinstance(built, dict)
        return built | {"dsn": without_secrets(self.dsn)}


def read_definition(data: bytes) -> Definition:
    """Decode a definition from the metadata. Raises `ConfigError` for one of a newer release."""
    try:
        return msgspec.json.decode(data, type=Definition)
    except MALFORMED as error:
        raise ConfigError(
            f"the definition cannot be decoded: {error}; if a newer release has written it, upgrade"
            " this node"
        ) from None


def secured_definition(definition: Definition, allowed_hosts: tuple[str, ...]) -> Definition:
    """The definition with its address secured. Without allowed hosts, every host is allowed.

    Raises `ConfigError` for an address that must not be used.
    """
    may_reach = partial(host_matches, allowed=allowed_hosts) if allowed_hosts else None
    return msgspec.structs.replace(definition, dsn=secured(definition.dsn, may_reach))


# ---- patterns of tables and columns


@lru_cache(1024)
def _expression(pattern: str) -> re.Pattern[str]:
    """Compile a pattern. Of the text between two stars only the first match is tried, because it is
    as good as any other. So the time is bounded by the product of both lengths.
    """
    first, *rest = [
        "".join("." if letter == "?" else re.escape(letter) for letter in piece)
        for piece in re.split(r"\*+", pattern)
    ]
    if rest:
        *middle, last = rest
        first += "".join(f"(?>.*?{piece})" for piece in middle) + f".*{last}"
    return re.compile(first, re.DOTALL)


def schema_and_name(pattern: str) -> tuple[str, str]:
    """Split a pattern. A name without a schema is in `public`."""
    schema, dot, name = pattern.partition(".")
    return (schema, name) if dot else ("public", schema)


def is_pattern(text: str) -> bool:
    return "*" in text or "?" in text


def table_matches(pattern: str, schema: str, table: str) -> bool:
    """Names are compared as they are in the catalogue: lower case unless they were quoted."""
    wanted_schema, wanted_table = schema_and_name(pattern)
    return (
        _expression(wanted_schema).fullmatch(schema) is not None
        and _expression(wanted_table).fullmatch(table) is not None
    )


def any_matches(patterns: Iterable[str], schema: str, table: str) -> bool:
    return any(table_matches(each, schema, table) for each in patterns)
