"""Goal: a node that executes a request for a client of another node decides itself, by the caller
that the request carries. A request without a caller is refused, so that a caller that is forgotten
opens nothing; only nodes of a release without rules may send one.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec
import pytest

import dragoman.captures.control
from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.delayed.store import DecideDelayed, DelayRecord
from dragoman.broker.errors import ClusterNotAuthorized, GroupNotAuthorized, NotAuthorized
from dragoman.broker.groups.coordinator import CommitOffsets
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.broker.groups.remote_members import JoinMember
from dragoman.broker.leader_queues import Append, Relay
from dragoman.cluster.events import LEVEL_IN_FORCE
from dragoman.errors import DragomanError
from dragoman.log.batch import Record, build_batch
from dragoman.log.node import SECURITY_LEVEL
from dragoman.outcome import start
from dragoman.protocols.cursus.handlers.relayed import (
    Relayed,
    RelayedBatch,
    StagedMessage,
    StagedOffsets,
)
from dragoman.protocols.cursus.messages import Batch, Command, Message
from dragoman.protocols.rocketmq.handlers.rpc import NodeRequest
from dragoman.rpc import Node, Request
from dragoman.security.access import Caller, Principal
from worlds.access import Denies
from worlds.broker import World
from worlds.cursus import messages, service_of
from worlds.rights import right

CALLER: Final = Caller(Principal("User", "alice"), "10.0.0.7", is_proven=True)
WRITE, READ, READ_GROUP = right("write topic t"), right("read topic t"), right("read group g")


@pytest.fixture
def rules() -> Denies:
    return Denies()


@pytest.fixture
def world(rules: Denies) -> World:
    made = World(authorizer=rules)
    made.create("t")
    service_of(made)
    return made


def exchange(world: World, request: Any, *body: bytes) -> Any:
    """The reply of the node to itself, or its refusal."""
    found: list[Any] = []
    start(world.broker.rpc.exchange(request, Node(1), body)).then(found.append)
    world.settle()
    return found[0] if found else None


def _batch() -> bytes:
    return bytes(build_batch([Record(key=b"k", value=b"v", timestamp=1)]))


_COMMIT = CommitRequest(
    group_id="g", offsets=(OffsetCommit(topic="t", partition=0, offset=1),), owner="minibroker"
)
_JOIN = JoinMember(group_id="g", owner="minibroker", member_id="m", topic="t")
_DELAY = DelayRecord(topic="t", partition=0, when_ms=1 << 50, is_held=True)


@pytest.mark.parametrize(
    ("request_", "body", "denied"),
    [
        (Append(topic="t", partition=0), _batch(), WRITE),
        (CommitOffsets(request=_COMMIT), b"", READ),
        (CommitOffsets(request=_COMMIT), b"", READ_GROUP),
        (_JOIN, b"", READ_GROUP),
        (_DELAY, _batch(), WRITE),
    ],
    ids=lambda each: type(each).__name__,
)
def test_request_is_decided_where_it_is_executed(
    world: World, rules: Denies, request_: Any, body: bytes, denied: Any
) -> None:
    rules.denied = {denied}
    carried = msgspec.structs.replace(request_, caller=CALLER)
    refused = exchange(world, carried, *([body] if body else []))
    kind = GroupNotAuthorized if denied is READ_GROUP else NotAuthorized
    assert type(refused) is kind
    assert "alice may not" in str(refused)
    assert CALLER in rules.callers
    own = msgspec.structs.replace(request_, caller=NODE_ITSELF)
    assert not isinstance(exchange(world, own, *([body] if body else [])), DragomanError)
    rules.denied = set()
    assert not isinstance(exchange(world, carried, *([body] if body else [])), DragomanError)


def test_decision_about_a_held_record_needs_the_right_to_write(world: World, rules: Denies) -> None:
    held = exchange(world, msgspec.structs.replace(_DELAY, caller=CALLER), _batch()).answer
    decide = DecideDelayed(
        partition_id=held.partition_id, offset=held.offset, is_release=True, caller=CALLER
    )
    rules.denied = {WRITE}
    assert isinstance(exchange(world, decide), NotAuthorized)
    rules.denied = set()
    assert not isinstance(exchange(world, decide), DragomanError)


_RELAYED: Final = RelayedBatch(
    Batch(topic="t", partition=0, messages=messages("m"), acks="1"), is_counted=False
)
_STAGED: Final = StagedMessage("t", 0, Message(payload=b"m"), "x", 1, 0)
_OFFSETS: Final = StagedOffsets(
    Command(
        word="SEND_OFFSETS_TO_TXN",
        arguments={
            "transactional_id": "x",
            "producerId": "txn-0000000000000001",
            "topic": "t",
            "group": "g",
            "member": "m",
            "generation": "1",
        },
        last="P0:1",
    )
)


@pytest.mark.parametrize(
    ("relayed", "denied"),
    [(_RELAYED, WRITE), (_STAGED, WRITE), (_OFFSETS, READ_GROUP), (_OFFSETS, READ)],
    ids=lambda each: type(each).__name__,
)
def test_relayed_request_of_cursus_is_decided_where_it_is_executed(
    world: World, rules: Denies, relayed: Any, denied: Any
) -> None:
    def refused(carried: Any) -> bool:
        reply = exchange(world, Relay(protocol="cursus"), msgspec.msgpack.encode(carried))
        text = str(reply) if isinstance(reply, DragomanError) else bytes(reply.body).decode()
        return "NOT_AUTHORIZED_FOR_" in text

    rules.denied = {denied}
    carried = msgspec.structs.replace(relayed, caller=CALLER)
    assert refused(carried)
    assert not refused(msgspec.structs.replace(relayed, caller=NODE_ITSELF))
    rules.denied = set()
    assert not refused(carried)


# ---- requests without a caller

_SAMPLES: Final[dict[type, tuple[Any, bytes]]] = {
    Append: (Append(topic="t", partition=0), _batch()),
    CommitOffsets: (CommitOffsets(request=_COMMIT), b""),
    JoinMember: (_JOIN, b""),
    DelayRecord: (_DELAY, _batch()),
    DecideDelayed: (DecideDelayed(partition_id=0, offset=0), b""),
    RelayedBatch: (Relay(protocol="cursus"), msgspec.msgpack.encode(_RELAYED)),
    StagedMessage: (Relay(protocol="cursus"), msgspec.msgpack.encode(_STAGED)),
    StagedOffsets: (Relay(protocol="cursus"), msgspec.msgpack.encode(_OFFSETS)),
}


def _is_refused(world: World, kind: type) -> bool:
    request, body = _SAMPLES[kind]
    reply = exchange(world, request, *([body] if body else []))
    return isinstance(reply, ClusterNotAuthorized)


def test_every_request_with_a_caller_is_in_the_table() -> None:
    assert dragoman.captures.control, "its requests are declared"
    declared = {*Request.__subclasses__(), *NodeRequest.__subclasses__(), *get_args(Relayed)}
    carrying = {
        each
        for each in declared
        if each.__module__.startswith("dragoman.") and "caller" in each.__struct_fields__
    }
    assert carrying == _SAMPLES.keys()


@pytest.mark.parametrize("kind", _SAMPLES)
def test_request_without_a_caller_is_refused(world: World, kind: type) -> None:
    """Also while no rules are enforced, so that a caller that is forgotten is noticed."""
    assert world.broker.image.feature_level >= SECURITY_LEVEL
    assert _is_refused(world, kind)


@pytest.mark.parametrize("kind", _SAMPLES)
def test_nodes_of_a_release_without_rules_need_not_name_a_caller(world: World, kind: type) -> None:
    world.broker.image.features[LEVEL_IN_FORCE] = SECURITY_LEVEL - 1
    assert not _is_refused(world, kind)
