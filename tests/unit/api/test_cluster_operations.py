"""Goal: moves and elections of thousands of partitions are begun in bounded slices, and what was
begun when something fails is said.

Method: a real image with many partitions; a controller that answers when the loop turns.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman import limits
from dragoman.api.cluster import ClusterService
from dragoman.api.declaration import ApiError
from dragoman.api.values import Election, Moves, NewMoves, NewNode, Transfer
from dragoman.broker.errors import InvalidReplicaAssignment
from dragoman.broker.leadership import Leadership
from dragoman.cluster.events import (
    Member,
    NodeRegistered,
    PartitionPlacement,
    TopicCreated,
)
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import OutcomeUnknownError
from dragoman.outcome import Outcome
from dragoman.replication.decisions import Decisions
from dragoman.replication.messages import (
    AddNode,
    ControlReply,
    ControlRequest,
    Decision,
    ElectPreferred,
    ElectUnclean,
    Move,
    Relieve,
    RemoveNode,
    TransferMetadata,
)
from dragoman.security.access import Caller
from dragoman.security.audit import AuditEvent
from dragoman.security.authorizer import AllowAll
from dragoman.types import NodeId

MANY = 3 * limits.HTTP_CHANGES_AT_ONCE_MAX + 17


class Cluster:
    """Three nodes and a topic on the first two; what is asked for happens in the next turn."""

    def __init__(self, count: int = MANY) -> None:
        self.image = MetadataImage()
        for node in (1, 2, 3):
            self.image.apply(NodeRegistered(node_id=node, incarnation=1))
        placements = tuple(PartitionPlacement(10 + each, (1, 2)) for each in range(count))
        self.image.apply(TopicCreated(name="t", topic_id=b"t" * 16, partitions=placements))
        self.controller = Decisions(self.image)
        self.under_way = self.most_under_way = self.asked = 0
        #: From this request on nothing is accepted.
        self.fails_at: int | None = None
        self.failure: ControlReply | None = None
        self.acts: list[AuditEvent] = []
        broker: Any = SimpleNamespace(
            image=self.image,
            leadership=Leadership(self.image, self),
            authorizer=AllowAll(),
            audit=SimpleNamespace(record=self.acts.append),
            cluster=SimpleNamespace(access=self),
        )
        node: Any = SimpleNamespace(broker=broker)
        self.operations = ClusterService(node, lambda: True)

    async def request(self, request: ControlRequest) -> ControlReply | None:
        self.asked += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        is_refused = self.fails_at is not None and self.asked > self.fails_at
        turn: Outcome[None] = Outcome()
        asyncio.get_running_loop().call_soon(turn.succeed, None)
        await turn
        self.under_way -= 1
        return self.failure if is_refused else self._accepted(request)

    def _accepted(self, request: ControlRequest) -> ControlReply:
        match request:
            case Move(partition_id=number, replicas=replicas) if replicas:
                events = self.controller.reassign(number, replicas)
            case Move(partition_id=number):
                events = self.controller.cancel_move(number)
            case ElectPreferred(partition_id=number):
                events = self.controller.elect_preferred(self.image.partitions[number])
            case AddNode() | RemoveNode() | Relieve() | TransferMetadata() | ElectUnclean():
                events = []
            case _:
                raise AssertionError(request)
        for each in events:
            self.image.apply(each)
        return ControlReply(outcomes=(Decision.ACCEPTED,))

    def led_by_second(self) -> None:
        for partition in self.image.partitions.values():
            partition.set_in_sync((Member(2, 1), Member(1, 1)))
            partition.leader = 2


async def all_of(cluster: Cluster, wanted: NewMoves) -> list[Moves]:
    """As the command line asks: until nothing is left."""
    found = [await cluster.operations.move_replicas(Caller(), wanted)]
    while found[-1].remaining:
        found.append(await cluster.operations.move_replicas(Caller(), wanted))
    return found


async def test_moves_are_begun_some_at_a_time() -> None:
    cluster = Cluster()
    (moves,) = await all_of(cluster, NewMoves(nodes=(2, 3)))
    assert (len(moves.items), moves.remaining) == (MANY, 0)
    assert cluster.most_under_way == limits.HTTP_CHANGES_AT_ONCE_MAX
    assert len(cluster.image.moving) == MANY


@pytest.mark.parametrize("wanted", [NewMoves(nodes=(2, 3)), NewMoves(drain=1)])
async def test_a_request_that_has_no_time_left_counts_the_rest_and_is_repeated(
    monkeypatch: pytest.MonkeyPatch, wanted: NewMoves
) -> None:
    cluster = Cluster()
    monkeypatch.setattr(limits, "HTTP_CHANGES_SECONDS", 0.0)
    answers = await all_of(cluster, wanted)
    at_once = limits.HTTP_CHANGES_AT_ONCE_MAX
    assert [len(each.items) for each in answers] == [at_once] * 3 + [17]
    left = [MANY - at_once * turn for turn in (1, 2, 3)]
    assert [each.remaining for each in answers] == [*left, 0]
    assert cluster.asked == MANY, "each partition once"
    taken_back = await all_of(cluster, NewMoves(cancel=True))
    assert sum(len(each.items) for each in taken_back) == MANY
    assert not cluster.image.moving


async def test_a_request_is_bounded_by_number_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_CHANGES_MAX", 120)
    answers = await all_of(Cluster(), NewMoves(nodes=(2, 3)))
    assert [len(each.items) for each in answers] == [120, 120, MANY - 240]


async def test_elections_are_counted_over_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.led_by_second()
    behind = cluster.image.partitions[10]
    behind.set_in_sync((Member(2, 1),))
    monkeypatch.setattr(limits, "HTTP_CHANGES_SECONDS", 0.0)
    answers = [await cluster.operations.elect(Caller(), Election())]
    while answers[-1].remaining:
        answers.append(await cluster.operations.elect(Caller(), Election()))
    assert sum(each.elected for each in answers) == MANY - 1
    assert {each.unable for each in answers} == {1}
    assert answers[-1].detail == f"preferred leaders elected: {answers[-1].elected}; " + (
        "not in sync yet: 1"
    )
    again = await cluster.operations.elect(Caller(), Election())
    assert (again.elected, again.remaining) == (0, 0)


async def test_what_was_begun_before_a_refusal_is_said_and_nothing_more_is_begun() -> None:
    cluster = Cluster()
    at_once = limits.HTTP_CHANGES_AT_ONCE_MAX
    cluster.fails_at = at_once + 3
    cluster.failure = ControlReply(outcomes=(Decision.REFUSED,), text="not so")
    text = f"^{at_once + 3} of {MANY} moves were begun; t-{at_once + 3}: not so$"
    with pytest.raises(ApiError, match=text):
        await cluster.operations.move_replicas(Caller(), NewMoves(nodes=(2, 3)))
    assert cluster.asked == 2 * at_once
    assert len(cluster.image.moving) == cluster.fails_at


@pytest.mark.parametrize("elects", [False, True])
async def test_what_may_have_happened_while_the_controller_changed_is_asked_for_again(
    elects: bool,
) -> None:
    cluster = Cluster()
    cluster.led_by_second()
    at_once = limits.HTTP_CHANGES_AT_ONCE_MAX

    async def ask() -> tuple[int, int]:
        if elects:
            elected = await cluster.operations.elect(Caller(), Election())
            return elected.elected, elected.remaining
        moves = await cluster.operations.move_replicas(Caller(), NewMoves(nodes=(2, 3)))
        return len(moves.items), moves.remaining

    cluster.fails_at = at_once + 3
    assert await ask() == (at_once + 3, MANY - at_once - 3)
    with pytest.raises(OutcomeUnknownError):
        await ask()
    cluster.fails_at = None
    assert await ask() == (MANY - at_once - 3, 0)


async def test_a_single_refusal_is_what_it_was() -> None:
    cluster = Cluster(1)
    with pytest.raises(InvalidReplicaAssignment, match="there is no node 9"):
        await cluster.operations.move_replicas(Caller(), NewMoves(nodes=(9,)))
    cluster.fails_at = 0
    cluster.failure = ControlReply(outcomes=(Decision.REFUSED,), text="not so")
    with pytest.raises(InvalidReplicaAssignment, match=r"^not so$"):
        await cluster.operations.move_replicas(
            Caller(), NewMoves(topic="t", partition=0, nodes=(3,))
        )


def lines(cluster: Cluster) -> list[tuple[str, str, str, str]]:
    return [(each.action, each.resource, each.detail, each.result) for each in cluster.acts]


async def test_acts_about_nodes_are_in_the_audit_log() -> None:
    cluster = Cluster(1)
    operations = cluster.operations
    await operations.add_node(Caller(), NewNode(node_id=4, address="127.0.0.1:9"))
    await operations.remove_node(Caller(), NodeId(4))
    await operations.transfer(Caller(), Transfer(relieve=1, metadata_to=2))
    await operations.elect(Caller(), Election(topic="t", partition=0, unclean_node=2))
    assert lines(cluster) == [
        ("node.add", "node:4", "127.0.0.1:9", "succeeded"),
        ("node.remove", "node:4", "", "succeeded"),
        ("node.relieve", "node:1", "", "succeeded"),
        ("metadata.transfer", "node:2", "", "succeeded"),
        ("leader.elect_unclean", "topic:t", "partition 0: node 2", "succeeded"),
    ]
    cluster.fails_at = 0
    cluster.failure = ControlReply(outcomes=(Decision.REFUSED,), text="not so")
    with pytest.raises(ApiError):
        await operations.remove_node(Caller(), NodeId(1))
    assert lines(cluster)[-1] == ("node.remove", "node:1", "not so", "failed")


async def test_moves_and_elections_are_in_the_audit_log_with_their_results() -> None:
    cluster = Cluster(3)
    cluster.led_by_second()
    await cluster.operations.elect(Caller(), Election(topic="t", partition=1))
    cluster.fails_at = 3
    cluster.failure = ControlReply(outcomes=(Decision.REFUSED,), text="not so")
    with pytest.raises(ApiError):
        await cluster.operations.move_replicas(Caller(), NewMoves(nodes=(3,)))
    cluster.fails_at = None
    await cluster.operations.move_replicas(Caller(), NewMoves(cancel=True))
    assert lines(cluster) == [
        ("leader.elect", "topic:t", "partition 1: node 1", "succeeded"),
        ("replicas.move", "topic:t", "partition 0: to nodes 3", "succeeded"),
        ("replicas.move", "topic:t", "partition 1: to nodes 3", "succeeded"),
        ("replicas.move", "topic:t", "partition 2: to nodes 3: not so", "failed"),
        ("replicas.cancel", "topic:t", "partition 0: from nodes 1, 2", "succeeded"),
        ("replicas.cancel", "topic:t", "partition 1: from nodes 1, 2", "succeeded"),
    ]


async def test_the_audit_log_counts_what_is_beyond_its_bound() -> None:
    cluster = Cluster()
    await cluster.operations.move_replicas(Caller(), NewMoves(nodes=(2, 3)))
    assert len(cluster.acts) == limits.ADMINISTRATION_DETAILS_MAX + 1
    further = MANY - limits.ADMINISTRATION_DETAILS_MAX
    assert lines(cluster)[-1][2] == f"{further} further ones, of which 0 failed"
