"""The request of a query, and its answer: one JSON value to a line."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

import msgspec
from msgspec import Meta

from dragoman import limits
from dragoman.client.kafka import SaslLogin, SaslMechanism, TlsSettings


class QueryRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a browser asks."""

    query: Annotated[str, Meta(min_length=1, max_length=limits.CONSOLE_QUERY_CHARS_MAX)]
    #: How many records of the topics are read, in all.
    records: Annotated[int, Meta(ge=1, le=limits.CONSOLE_QUERY_RECORDS_MAX)] = 200_000
    #: Which of them, where a topic has more.
    side: Literal["newest", "oldest"] = "newest"
    seconds: Annotated[int, Meta(ge=1, le=limits.CONSOLE_QUERY_SECONDS_MAX)] = 60
    rows: Annotated[int, Meta(ge=1, le=limits.CONSOLE_QUERY_ROWS_MAX)] = 1000


class QueryLogin(msgspec.Struct, frozen=True, kw_only=True):
    mechanism: SaslMechanism
    name: str
    password: str

    def __repr__(self) -> str:
        return f"QueryLogin(name={self.name!r})"

    @classmethod
    def of(cls, login: SaslLogin) -> Self:
        return cls(mechanism=login.mechanism, name=login.name, password=login.password)


class QueryJob(msgspec.Struct, frozen=True, kw_only=True):
    """The one line on the standard input of the process."""

    request: QueryRequest
    bootstrap: str
    tls: TlsSettings | None = None
    #: None: the listener takes no logins, or the caller has not logged in.
    login: QueryLogin | None = None


# ---- the answer


Cell: TypeAlias = bool | int | float | str | None


class _Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"): ...


class TopicRead(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    #: Records that were read, and offsets that the topic has.
    records: int
    offsets: int
    bytes: int
    #: Whether the topic has records that were not read.
    is_part: bool


class Reading(_Line, frozen=True, kw_only=True, tag="reading"):
    """How far the topics are read."""

    topics: tuple[TopicRead, ...]


class Columns(_Line, frozen=True, kw_only=True, tag="columns"):
    names: tuple[str, ...]
    #: Types by the names of the engine.
    types: tuple[str, ...]


class Rows(_Line, frozen=True, kw_only=True, tag="rows"):
    """Cells are null, booleans, numbers or text; whole numbers beyond 2^53 are text."""

    rows: list[list[Cell]]


class End(_Line, frozen=True, kw_only=True, tag="end"):
    rows: int
    #: Whether the result has more rows than are shown.
    is_cut: bool
    #: Cells that show only the beginning of their text.
    cut_cells: int
    #: Seconds until the topics were read, and in all.
    read_s: float
    total_s: float
    #: The most memory that the process has held.
    memory_bytes: int


class Problem(_Line, frozen=True, kw_only=True, tag="problem"):
    code: str
    detail: str
    #: Where in the query, in characters; null if it is not about a place.
    position: int | None = None


Line: TypeAlias = Reading | Columns | Rows | End | Problem

decode_job = msgspec.json.Decoder(QueryJob).decode
decode_line = msgspec.json.Decoder(Line).decode
encode = msgspec.json.Encoder().encode
