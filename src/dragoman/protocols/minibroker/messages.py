"""The messages of the minibroker wire as values: requests, replies, pushes.

Strings on the wire are unchecked bytes. Bytes that are not UTF-8 become lone surrogates
(`surrogateescape`). An empty key means no key.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """Root of all messages. The codec knows their encoding."""


# ---- requests


class Publish(_Message, frozen=True, kw_only=True):
    topic: str
    payload: bytes
    key: bytes = b""


class SubscribeHead(_Message, frozen=True, kw_only=True):
    """Subscribe to one partition, from the next record on."""

    topic: str
    partition: int


class SubscribeOffset(_Message, frozen=True, kw_only=True):
    topic: str
    partition: int
    offset: int


class SubscribeGroup(_Message, frozen=True, kw_only=True):
    """Subscribe to the partitions that the group assigns, from its committed offsets on."""

    topic: str
    group: str


class Unsubscribe(_Message, frozen=True, kw_only=True):
    topic: str


class Commit(_Message, frozen=True, kw_only=True):
    """`offset` is the next one to read."""

    topic: str
    group: str
    partition: int
    offset: int


class Quit(_Message, frozen=True, kw_only=True): ...


class Heartbeat(_Message, frozen=True, kw_only=True):
    topic: str
    group: str


# ---- replies


class Published(_Message, frozen=True, kw_only=True):
    partition: int
    offset: int


class Subscribed(_Message, frozen=True, kw_only=True):
    partitions: tuple[int, ...]


class Joined(_Message, frozen=True, kw_only=True):
    group: str
    partitions: tuple[int, ...]


class Committed(_Message, frozen=True, kw_only=True):
    offset: int


class Done(_Message, frozen=True, kw_only=True):
    """OK without a body."""


class Failed(_Message, frozen=True, kw_only=True):
    """ERR. Also sent without a request, before the server closes the connection."""

    reason: str


# ---- pushes


class Delivered(_Message, frozen=True, kw_only=True):
    """MSG: a record."""

    topic: str
    partition: int
    offset: int
    payload: bytes
    key: bytes = b""


class Rebalanced(_Message, frozen=True, kw_only=True):
    """REBALANCE: all partitions of the member from now on."""

    topic: str
    group: str
    partitions: tuple[int, ...]


Subscribe: TypeAlias = SubscribeHead | SubscribeOffset | SubscribeGroup
Request: TypeAlias = Publish | Subscribe | Unsubscribe | Commit | Quit | Heartbeat
Reply: TypeAlias = Published | Subscribed | Joined | Committed | Done | Failed
Push: TypeAlias = Delivered | Rebalanced
Message: TypeAlias = Request | Reply | Push
