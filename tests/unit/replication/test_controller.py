"""Goal: the controller at work decides one thing at a time, and fences those who are silent.

Method: a quorum that agrees on the test's command, on virtual time.
"""

from __future__ import annotations

import pytest

from dragoman.cluster.events import Event, Member, PartitionPlacement, TopicCreated
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import ClusterError, OutcomeUnknownError
from dragoman.limits import CONTROL_DECISIONS_MAX
from dragoman.outcome import Outcome
from dragoman.replication import controller as controller
from dragoman.replication.controller import Controller
from dragoman.replication.messages import (
    ControlReply,
    ControlRequest,
    Decision,
    ElectPreferred,
    HandOver,
    Heartbeat,
    InSyncChange,
    InSyncChanges,
    Move,
    Registration,
)
from dragoman.testing.sim.scheduler import SimScheduler


class Quorum:
    leader = 1
    version = 0

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.proposed: list[tuple[list[Event], Outcome[None]]] = []

    def propose(self, events: list[Event]) -> Outcome[None]:
        outcome: Outcome[None] = Outcome()
        self.proposed.append((events, outcome))
        return outcome

    def agree(self) -> None:
        while self.proposed:
            self.agree_once()

    def agree_once(self) -> None:
        events, outcome = self.proposed.pop(0)
        for each in events:
            self._image.apply(each)
        outcome.succeed(None)


class World:
    def __init__(self) -> None:
        self.image = MetadataImage()
        self.scheduler = SimScheduler()
        self.quorum = Quorum(self.image)
        self.controller = Controller(self.image, self.quorum, self.scheduler, session_s=3.0)
        self.replies: list[ControlReply | None] = []
        self.controller.begin()
        for node in (1, 2, 3):
            self.ask(registration(node))
        self.quorum.agree()
        placement = PartitionPlacement(1, (1, 2, 3))
        self.image.apply(TopicCreated(name="t", topic_id=b"t" * 16, partitions=(placement,)))
        self.replies.clear()

    def ask(self, request: ControlRequest) -> None:
        self.controller.ask(request).then(self.replies.append)

    @property
    def outcomes(self) -> list[Decision | None]:
        return [each.outcomes[0] if each is not None else None for each in self.replies]


def registration(node: int, life: str = "1") -> Registration:
    return Registration(node_id=node, directory=str(node), life=life, is_intact=True)


def change(partition_epoch: int, *nodes: int) -> InSyncChanges:
    members = tuple(Member(each, 1) for each in nodes)
    wish = InSyncChange(1, 0, partition_epoch, members)
    return InSyncChanges(leader=Member(1, 1), changes=(wish,))


@pytest.fixture
def world() -> World:
    return World()


def test_the_second_of_two_equal_wishes_finds_that_it_was_late(world: World) -> None:
    world.ask(change(0, 1, 2))
    world.ask(change(0, 1, 3))
    assert world.replies == []
    world.quorum.agree()
    assert world.outcomes == [Decision.ACCEPTED, Decision.CONFLICT]
    assert world.image.partitions[1].in_sync == (1, 2)


def test_one_request_cannot_change_a_partition_twice(world: World) -> None:
    wish = change(0, 1, 2).changes[0]
    world.ask(InSyncChanges(leader=Member(1, 1), changes=(wish, wish)))
    world.quorum.agree()
    assert world.replies == [ControlReply(outcomes=(Decision.ACCEPTED, Decision.CONFLICT))]


def test_a_silent_node_is_fenced_and_others_are_not(world: World) -> None:
    for _ in range(8):
        world.scheduler.advance(1.0)
        for node in (2, 3):
            world.ask(Heartbeat(member=Member(node, 1)))
        world.quorum.agree()
    assert world.image.fenced == {1}
    assert world.image.partitions[1].leader == 2
    world.replies.clear()
    world.ask(Heartbeat(member=Member(1, 1)))
    world.ask(Heartbeat(member=Member(2, 7)))
    assert world.outcomes == [Decision.REFUSED, Decision.REFUSED]
    world.ask(registration(1))
    world.quorum.agree()
    assert world.image.fenced == set()


def test_an_unknown_fate_ends_the_work(world: World) -> None:
    world.ask(change(0, 1, 2))
    world.ask(HandOver(member=Member(1, 1)))
    world.quorum.proposed.pop()[1].fail(OutcomeUnknownError("the leader changed"))
    assert world.outcomes == [None, None]
    world.ask(Heartbeat(member=Member(1, 1)))
    assert world.outcomes[-1] is None
    world.controller.begin()
    world.ask(HandOver(member=Member(1, 1)))
    world.quorum.agree()
    assert world.image.partitions[1].leader == 2


def test_a_decision_that_was_refused_is_not_the_end(world: World) -> None:
    world.ask(change(0, 1, 2))
    world.ask(HandOver(member=Member(1, 1)))
    world.quorum.proposed.pop()[1].fail(ClusterError("too many metadata changes are waiting"))
    assert world.outcomes == [None]
    world.quorum.agree()
    assert world.image.partitions[1].leader == 2


def test_a_node_whose_fencing_was_refused_is_fenced_later(world: World) -> None:
    world.scheduler.advance(3.4)
    world.quorum.proposed.pop(0)[1].fail(ClusterError("too many metadata changes are waiting"))
    world.scheduler.advance(0.5)
    world.quorum.agree()
    world.quorum.agree()
    assert world.image.fenced == {1, 2, 3}


def test_a_partition_made_while_its_leader_went_gets_another(world: World) -> None:
    world.controller.fence(Member(1, 1))
    placement = PartitionPlacement(2, (1, 2, 3))
    created = TopicCreated(name="u", topic_id=b"u" * 16, partitions=(placement,))
    # Agreed on before the fence, which was decided without it.
    world.image.apply(created)
    world.controller.settle([world.image.partitions[2]])
    world.quorum.agree()
    world.quorum.agree()
    assert world.image.fenced == {1}
    assert world.image.partitions[2].leader == 2
    assert world.image.partitions[2].in_sync == (2, 3)


def test_leaders_are_balanced_and_moves_are_finished_in_time(world: World) -> None:
    world.ask(HandOver(member=Member(1, 1)))
    world.quorum.agree()
    partition = world.image.partitions[1]
    members = (Member(2, 1), Member(3, 1), Member(1, 1))
    wish = InSyncChange(1, partition.leader_epoch, partition.partition_epoch, members)
    world.ask(InSyncChanges(leader=Member(2, 1), changes=(wish,)))
    controller = world.controller.controller
    decided = world.controller.decide(
        lambda: (controller.reassign(1, (1, 2)), ControlReply(outcomes=()))
    )
    decided.then(world.replies.append)
    for _ in range(70):
        world.quorum.agree()
        world.scheduler.advance(1.0)
        for node in (1, 2, 3):
            world.ask(Heartbeat(member=Member(node, 1)))
    assert (partition.leader, partition.replicas, partition.target) == (1, (1, 2), ())


def test_requests_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "CONTROL_REQUESTS_MAX", 2)
    for _ in range(4):
        world.ask(change(0, 1, 2))
    assert world.outcomes == [None]


# ---- many partitions at once


def with_partitions(count: int) -> World:
    """Partition 1 of topic `t`, and others of topic `u`, each on nodes 1 and 2."""
    world = World()
    placements = tuple(PartitionPlacement(10 + each, (1, 2)) for each in range(count))
    world.image.apply(TopicCreated(name="u", topic_id=b"u" * 16, partitions=placements))
    return world


def test_moves_of_many_partitions_take_few_rounds_of_the_quorum() -> None:
    count = 2 * CONTROL_DECISIONS_MAX + 10
    world = with_partitions(count)
    for each in range(count):
        world.ask(Move(partition_id=10 + each, replicas=(2, 3)))
    rounds = 0
    while len(world.replies) < count:
        world.quorum.agree_once()
        rounds += 1
        assert rounds < 10
    # The first came alone; the rest waited for it, and for each other.
    assert rounds == 4
    assert set(world.outcomes) == {Decision.ACCEPTED}
    assert all(world.image.partitions[10 + each].target == (2, 3) for each in range(count))


def test_what_is_asked_twice_of_a_partition_is_decided_one_after_the_other() -> None:
    world = with_partitions(3)
    world.ask(Move(partition_id=10, replicas=(1, 2, 3)))
    for replicas in ((2, 3), (3, 1)):
        world.ask(Move(partition_id=11, replicas=replicas))
    world.ask(Move(partition_id=12, replicas=(9,)))
    world.ask(Move(partition_id=12, replicas=(3, 2)))
    world.quorum.agree_once()
    assert world.outcomes == [Decision.ACCEPTED]
    world.quorum.agree_once()
    assert world.image.partitions[11].target == (2, 3)
    assert world.image.partitions[12].target == (), "it comes behind the second move of the other"
    world.quorum.agree_once()
    assert world.image.partitions[11].target == (3, 1)
    assert world.image.partitions[12].target == (3, 2)
    assert sorted(map(str, world.outcomes)) == sorted(
        map(str, [Decision.ACCEPTED] * 4 + [Decision.REFUSED])
    )


def test_requests_about_nodes_are_not_decided_with_others() -> None:
    """A fence changes every partition: what comes behind it is decided on the image that has it."""
    world = with_partitions(2)
    world.ask(Move(partition_id=10, replicas=(1, 2, 3)))
    world.ask(Move(partition_id=11, replicas=(1, 2, 3)))
    world.controller.fence(Member(1, 1))
    world.ask(ElectPreferred(partition_id=11))
    world.quorum.agree()
    assert world.image.fenced == {1}
    assert world.image.partitions[11].leader == 2


def test_a_round_whose_fate_is_unknown_leaves_all_of_it_unanswered() -> None:
    world = with_partitions(4)
    for each in range(4):
        world.ask(Move(partition_id=10 + each, replicas=(2, 3)))
    world.quorum.agree_once()
    _, outcome = world.quorum.proposed.pop()
    outcome.fail(OutcomeUnknownError("the quorum is gone"))
    assert world.outcomes == [Decision.ACCEPTED, None, None, None]


def test_who_asks_again_while_it_is_answered_waits_for_its_turn() -> None:
    world = with_partitions(3)

    def again(reply: ControlReply | None) -> None:
        world.replies.append(reply)
        world.ask(Move(partition_id=12, replicas=(2, 3)))

    world.ask(Move(partition_id=10, replicas=(2, 3)))
    world.ask(Move(partition_id=11, replicas=(2, 3)))
    world.controller.ask(Move(partition_id=12, replicas=(9,))).then(again)
    world.quorum.agree()
    assert world.image.partitions[11].target == (2, 3)
    assert world.image.partitions[12].target == (2, 3)
    assert len(world.replies) == 4


def test_a_decision_that_breaks_does_not_end_all_others() -> None:
    """A fault in one decision must not leave a controller that decides nothing for ever."""
    world = with_partitions(2)
    world.ask(Move(partition_id=10, replicas=(2, 3)))

    def broken() -> tuple[list[Event], ControlReply]:
        raise ZeroDivisionError

    world.ask(Move(partition_id=11, replicas=(2, 3)))
    world.controller.decide(broken, 12).then(world.replies.append)
    with pytest.raises(ZeroDivisionError):
        world.quorum.agree()
    world.ask(Move(partition_id=11, replicas=(2, 3)))
    world.quorum.agree()
    assert world.image.partitions[11].target == (2, 3)
    assert world.outcomes == [Decision.ACCEPTED, None, Decision.ACCEPTED]
