"""The messages of Cursus's wire as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message of a batch. A producer sends 0 as `offset`."""

    offset: int = 0
    seq_num: int = 0
    producer_id: str = ""
    key: bytes = b""
    epoch: int = 0
    payload: bytes = b""
    event_type: str = ""
    schema_version: int = 0
    aggregate_version: int = 0
    metadata: str = ""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A binary batch, in either direction. From a server, `topic` may be a pattern."""

    topic: str
    partition: int
    messages: Sequence[Message]
    acks: str = "1"
    idempotent: bool = False
    seq_start: int = 0
    seq_end: int = 0


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A text command: its word in capitals and its arguments."""

    word: str
    arguments: Mapping[str, str] = {}
    #: The bytes after `message=`, which ends the arguments; None without it.
    message: bytes | None = None
    #: The last word, for commands that end with a list of offsets.
    last: str = ""
    #: Whether it has the form of the first published protocol page, without names of arguments.
    is_positional: bool = False


class Text(msgspec.Struct, frozen=True):
    """A text reply: `OK …`, `ERROR: …`, JSON, or the reason why a stream ends."""

    text: str


class KeepAlive(msgspec.Struct, frozen=True):
    """An empty frame, by which a server shows that a stream is alive."""


class Ack(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply to a batch or a PUBLISH, as JSON with its keys in this order."""

    status: str
    last_offset: int
    producer_epoch: int
    producer_id: str
    seq_start: int
    seq_end: int
    leader: str = ""
    error: str = ""
