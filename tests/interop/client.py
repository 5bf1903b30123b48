"""What a client library is asked to do, in the few terms that all of them share.

Every library gets one adapter: a `Client` with the methods that the library has. What the library
itself lacks is named in `lacks`; what the library has and the adapter does not is not done. Values
are such that a program in another language can be asked for them over JSON (`remote_client.py`).

    produce(topic, records, codec, acks, idempotent)      done when all are acknowledged
    consume(topic, count, committed_only) -> rows         from the first offsets, without a group
    offset_for_time(topic, partition, timestamp) -> offset
    member(group, topics, pattern, protocol, instance) -> Member
    transactor(name) -> Transactor                        registered with the coordinator

    create_topic(topic, partitions, config)   delete_topic(topic)     list_topics() -> names
    describe_topic(topic) -> partition count  create_partitions(topic, count)
    topic_config(topic) -> values             alter_topic_config(topic, key, value)
    broker_config() -> values                 describe_cluster() -> node ids
    delete_records(topic, partition, before) -> first offset
    list_offsets(topic, partition) -> [first, end]            features() -> finalized levels
    list_groups() -> names                    describe_group(group) -> [state, member count]
    delete_group(group)                       group_offsets(group) -> [[topic, partition, offset]]
    alter_group_offset(group, topic, partition, offset)
    delete_group_offset(group, topic, partition)
    list_transactions() -> {name: state}      producer_states(topic, partition) -> open or not, each
    elect_leader(topic, partition) -> error   list_reassignments() -> count
    quota(client_id) -> values                alter_quota(client_id, key, value)
    log_directory_bytes(topic) -> bytes

`broker` is there for all of them: the run provides it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from dragoman.testing import EphemeralBroker

SECONDS_MAX = 60
LARGE_BYTES_MAX = 16 << 20
#: By title: called with the client and a name of its own for topics; passes when nothing is raised.
Operations = Mapping[str, Callable[[Any, str], None]]


class Unsupported(Exception):
    """The library has no such thing."""


class NotDone(Exception):
    """The library may have it; its adapter does not ask for it."""


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int | None = None
    partition: int | None = None


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int


class Member(Protocol):
    """A consumer in a group. It makes progress only while it is polled."""

    def poll(self) -> list[Row]:
        """What came within a fraction of a second."""
        ...

    def assignment(self) -> set[tuple[str, int]]: ...

    def commit(self) -> None:
        """Everything that `poll` has returned."""
        ...

    def close(self) -> None: ...


class Transactor(Protocol):
    def begin(self) -> None: ...

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        """To partition 0, and acknowledged."""
        ...

    def send_offsets(self, member: Member) -> None:
        """What `member` has read becomes part of the transaction."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Client:
    name = ""
    version = ""
    #: Methods of this class, by name, that the library has nothing for.
    lacks: frozenset[str] = frozenset()
    #: What it is tried with, section by section, when that is not what all clients are.
    sections: Mapping[str, Operations] | None = None
    #: Listeners of the broker, the one that `servers` names first.
    listeners: tuple[str, ...] = ("kafka", "http")
    #: Provided by the run.
    broker: Any

    def __init__(self, servers: str) -> None:
        self.servers = servers

    @classmethod
    def open_broker(cls, settings: Mapping[str, str]) -> Any:
        """What it is tried with: a context manager with the calls of an `EphemeralBroker`."""
        return EphemeralBroker(storage="directory", settings=settings, listeners=cls.listeners)

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name.startswith("_"):
            raise AttributeError(name)
        reason: Exception = Unsupported(name) if name in self.lacks else NotDone(name)

        def refuse(*_: object, **__: object) -> NoReturn:
            raise reason

        return refuse

    def needs(self, method: str) -> None:
        """Say so before anything is done when the library lacks what all of it is about."""
        if method in self.lacks:
            raise Unsupported(method)

    def close(self) -> None:
        """Nothing to end, unless a library says otherwise."""


def wait_until(is_reached: Callable[[], bool], what: str) -> None:
    """Ask again and again; asking is what makes progress."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_reached():
        assert time.monotonic() < deadline, f"in vain: {what}"
