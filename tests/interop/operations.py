"""What every client is asked to do, in terms of the few things a client can do.

An operation passes when nothing is raised. `Unsupported` means that the client itself cannot do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS_MAX = 30


class Unsupported(Exception):
    """The client has no such operation, or not in this installation."""


class Row(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class Client(Protocol):
    """One library. Every method may raise `Unsupported`."""

    name: str
    version: str

    def create_topic(self, servers: str, topic: str, partitions: int) -> None: ...

    def delete_topic(self, servers: str, topic: str) -> None: ...

    def list_topics(self, servers: str) -> set[str]: ...

    def produce(
        self, servers: str, topic: str, values: Sequence[bytes], *, codec: str, idempotent: bool
    ) -> None:
        """Keyed by position, acknowledged by all, done when it returns."""
        ...

    def transact(
        self, servers: str, topic: str, values: Sequence[bytes], *, commit: bool
    ) -> None: ...

    def consume(
        self, servers: str, topic: str, count: int, *, committed_only: bool = False
    ) -> list[Row]:
        """From the first offsets of all partitions, without a group."""
        ...

    def consume_in_group(self, servers: str, topic: str, group: str, count: int) -> list[Row]:
        """So many records as a member, committed one by one."""
        ...

    def offset_for_time(self, servers: str, topic: str, partition: int, timestamp: int) -> int: ...


def _values(count: int) -> list[bytes]:
    return [b"value %d" % number for number in range(count)]


def _check_rows(rows: list[Row], values: list[bytes]) -> None:
    assert sorted(row.value or b"" for row in rows) == sorted(values), "other values came back"
    for partition in {row.partition for row in rows}:
        offsets = [row.offset for row in rows if row.partition == partition]
        assert offsets == sorted(set(offsets)), f"offsets of partition {partition}: {offsets}"


def create_and_delete(client: Client, servers: str, topic: str) -> None:
    client.create_topic(servers, topic, PARTITIONS)
    client.delete_topic(servers, topic)


def list_topics(client: Client, servers: str, topic: str) -> None:
    client.create_topic(servers, topic, PARTITIONS)
    assert topic in client.list_topics(servers)


def _round_trip(codec: str, *, idempotent: bool) -> Callable[[Client, str, str], None]:
    def run(client: Client, servers: str, topic: str) -> None:
        client.create_topic(servers, topic, PARTITIONS)
        values = _values(200)
        client.produce(servers, topic, values, codec=codec, idempotent=idempotent)
        _check_rows(client.consume(servers, topic, len(values)), values)

    return run


def produce_to_unknown_topic(client: Client, servers: str, topic: str) -> None:
    client.produce(servers, topic, _values(10), codec="none", idempotent=False)
    _check_rows(client.consume(servers, topic, 10), _values(10))


def group_goes_on(client: Client, servers: str, topic: str) -> None:
    """A second member takes what the first has left."""
    client.create_topic(servers, topic, PARTITIONS)
    values = _values(40)
    client.produce(servers, topic, values, codec="none", idempotent=False)
    first = client.consume_in_group(servers, topic, f"group-{topic}", 15)
    second = client.consume_in_group(servers, topic, f"group-{topic}", 25)
    _check_rows([*first, *second], values)


def committed_only(client: Client, servers: str, topic: str) -> None:
    client.create_topic(servers, topic, PARTITIONS)
    client.transact(servers, topic, [b"taken back"] * 10, commit=False)
    client.transact(servers, topic, _values(10), commit=True)
    _check_rows(client.consume(servers, topic, 10, committed_only=True), _values(10))


def offset_for_time(client: Client, servers: str, topic: str) -> None:
    client.create_topic(servers, topic, 1)
    client.produce(servers, topic, _values(20), codec="none", idempotent=False)
    rows = client.consume(servers, topic, 20)
    wanted = rows[-1].timestamp
    expected = next(row.offset for row in rows if row.timestamp >= wanted)
    assert client.offset_for_time(servers, topic, 0, wanted) == expected


OPERATIONS: dict[str, Callable[[Client, str, str], None]] = {
    "create and delete a topic": create_and_delete,
    "list topics": list_topics,
    "topic created on first use": produce_to_unknown_topic,
    **{f"produce and read, {codec}": _round_trip(codec, idempotent=False) for codec in CODECS},
    "idempotent producer": _round_trip("none", idempotent=True),
    "offset by time": offset_for_time,
    "group, commit, go on": group_goes_on,
    "transactions, read committed": committed_only,
}
