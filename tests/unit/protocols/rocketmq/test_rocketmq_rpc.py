"""Requests between nodes on behalf of RocketMQ clients."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import cast, get_args

import pytest

from dragoman.broker.errors import Overloaded
from dragoman.broker.leader_queues import Relayed
from dragoman.errors import DecodeError, DragomanError
from dragoman.outcome import start
from dragoman.protocols.rocketmq.handlers.node import node_of
from dragoman.protocols.rocketmq.handlers.rpc import (
    RELAY,
    Count,
    DeleteGroup,
    Listing,
    LookUpMembers,
    NodeRpc,
    Request,
    encode,
)
from dragoman.protocols.rocketmq.handlers.service import REQUESTS
from dragoman.rpc import Node, Reply, Rpc
from dragoman.types import Buffer
from worlds.broker import World

PACKAGE = "dragoman.protocols.rocketmq.handlers"


class OtherNode:
    """Answers every request with the same bytes."""

    def __init__(self, answer: bytes = b"") -> None:
        self.answer = answer
        self.asked: list[tuple[object, Node, bytes]] = []

    async def exchange(
        self, request: object, at: Node, body: Sequence[Buffer] = ()
    ) -> Reply[Relayed]:
        self.asked.append((request, at, b"".join(body)))
        return Reply(Relayed(), (self.answer,))


def rpc(other: OtherNode) -> NodeRpc:
    made = NodeRpc(1, cast(Rpc, other))
    made.serve(LookUpMembers, _members)
    made.serve(DeleteGroup, _refuse)
    return made


async def _members(request: LookUpMembers) -> Listing:
    return Listing(number=len(request.group))


async def _refuse(request: DeleteGroup) -> Count:
    raise Overloaded(request.group)


def test_a_request_for_this_node_is_handled_at_once() -> None:
    other = OtherNode()
    found = start(rpc(other).call(LookUpMembers(group="abc"), 1))
    assert found.result() == Listing(number=3)
    refused = start(rpc(other).call(DeleteGroup(group="abc"), 1))
    with pytest.raises(Overloaded, match="abc"):
        refused.result()
    assert not other.asked


def test_a_request_for_another_node_is_sent_to_it() -> None:
    other = OtherNode(encode(Listing(number=7)))
    request = LookUpMembers(group="abc")
    assert start(rpc(other).call(request, 2)).result() == Listing(number=7)
    assert other.asked == [(RELAY, Node(2), encode(request))]


def test_an_answer_of_another_kind_is_not_taken() -> None:
    other = OtherNode(encode(Count(1)))
    with pytest.raises(DecodeError, match="not an answer of another node"):
        start(rpc(other).call(LookUpMembers(group="abc"), 2)).result()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (encode(LookUpMembers(group="abc")), encode(Listing(number=3))),
        (encode(DeleteGroup(group="abc")), Overloaded),
        (b"\xc1", DecodeError),
    ],
)
def test_another_nodes_request_is_answered(body: bytes, expected: bytes | type) -> None:
    answers: list[bytes | DragomanError] = []
    start(rpc(OtherNode()).answer(memoryview(body))).then(answers.append)
    (answer,) = answers
    assert answer == expected if isinstance(expected, bytes) else isinstance(answer, expected)


def test_every_request_between_nodes_has_a_handler() -> None:
    served = node_of(World().broker).rpc.request_types
    assert set(served) == set(get_args(Request))


@pytest.mark.parametrize("name", REQUESTS.values())
def test_every_request_has_a_handler(name: str) -> None:
    module, _, function = name.partition(".")
    assert callable(getattr(import_module(f"{PACKAGE}.{module}"), function))
