"""Goal: it makes no difference for the metadata how nodes agree on them.

Method: the same scenarios with one voter, with three voters and with a real etcd; answers, events
and the image in the end are those of a list that needs no agreement, and hence of each other.
"""

from __future__ import annotations

import pytest

from differential.etcd import WithEtcd
from differential.scenario import (
    NODES,
    Depose,
    History,
    Leave,
    Model,
    Proposal,
    Propose,
    Restart,
    Return,
    Step,
    draw,
    play,
)
from differential.voters import Voters
from dragoman.cluster.etcd.leadership import Leadership
from dragoman.cluster.events import (
    Event,
    GroupConfigChanged,
    LeaderChanged,
    NodeRegistered,
    PartitionPlacement,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from dragoman.outcome import Outcome
from nodes.etcd import RealEtcd


def change(name: str) -> Event:
    return GroupConfigChanged(group_id=name, config={"consumer.session.timeout.ms": name})


def one(*events: Event, at: int = 1, expected: int | None = None) -> Propose:
    return Propose((Proposal(at, events, expected),))


def topic(name: str, *partitions: int) -> TopicCreated:
    placements = tuple(PartitionPlacement(each, NODES) for each in partitions)
    return TopicCreated(name=name, topic_id=name.encode(), partitions=placements)


SCRIPTED: dict[str, list[Step]] = {
    "the life of a topic": [
        one(topic("orders", 1, 2)),
        one(TopicConfigChanged(topic_id=b"orders", config={"retention.ms": "5"}), at=2),
        one(
            PartitionsAdded(topic_id=b"orders", partitions=(PartitionPlacement(3, NODES),)),
            LeaderChanged(
                partition_id=3, leader=2, leader_epoch=1, in_sync=(2, 3), partition_epoch=1
            ),
            at=3,
        ),
        one(topic("others", 4), expected=0),
        one(TopicDeleted(topic_id=b"orders"), expected=0, at=2),
        one(topic("orders", 5), expected=0, at=3),
    ],
    "two nodes want the same version": [
        Propose(tuple(Proposal(at, (change(f"{at}"),), 0) for at in (2, 3))),
        Propose(tuple(Proposal(at, (change(f"{at}"),), 0) for at in (3, 1))),
        Propose(tuple(Proposal(at, (change(f"{at}"),), 0) for at in (1, 2, 3))),
    ],
    "versions that are past or to come": [
        one(change("a"), change("b"), expected=0),
        one(change("past"), expected=-1, at=2),
        one(change("to come"), expected=1, at=3),
        Propose(
            (
                Proposal(1, (change("c"), change("d")), None),
                Proposal(2, (change("too early"),), 1),
                Proposal(3, (change("e"),), 2),
                Proposal(1, (change("f"),), 3),
            )
        ),
    ],
    "every node is started again, and again": [
        step
        for round_ in range(3)
        for node in NODES
        for step in (
            one(*(change(f"{round_}-{node}-{n}") for n in range(3)), at=node),
            Restart(node),
            one(NodeRegistered(node_id=node, incarnation=round_), expected=0, at=node),
        )
    ],
    "leaders come and go with changes under way": [
        step
        for number, is_crash in enumerate((False, True, False))
        for step in (
            one(change(f"before {number}")),
            Depose(is_crash, Proposal(1 + number, (change(f"during {number}"), change("more")))),
            one(change(f"after {number}"), expected=0, at=2),
        )
    ],
    "a node misses more than the log keeps": [
        one(change("first")),
        Leave(3),
        *(one(topic(f"t{n}", 2 * n + 1, 2 * n + 2), expected=0, at=1 + n % 2) for n in range(30)),
        Return(3),
        one(change("last"), at=3, expected=0),
    ],
    "many at once": [
        Propose(
            tuple(
                Proposal(1 + n % 3, (ProducerIdsReserved(next_id=n), change(f"g{n % 5}")), None)
                for n in range(150)
            )
        ),
        Propose(tuple(Proposal(1 + n % 3, (change(f"h{n}"),), n) for n in range(20))),
    ],
}
RANDOM = range(24)


async def compare(steps: list[Step], etcd: RealEtcd, prefix: str) -> History:
    model = Model()
    for step in steps:
        model.take(step)
    wanted = model.history()
    for voters in (1, 3):
        assert await play(steps, Voters(voters, snapshot_records=20)) == wanted
    assert await play(steps, WithEtcd(etcd, prefix, snapshot_entries=10)) == wanted
    return wanted


@pytest.mark.parametrize("name", SCRIPTED)
async def test_scripted_scenario(name: str, etcd: RealEtcd) -> None:
    history = await compare(SCRIPTED[name], etcd, f"/{name}")
    assert "agreed" in history.outcomes


@pytest.mark.parametrize("seed", RANDOM)
async def test_random_scenario(seed: int, etcd: RealEtcd) -> None:
    await compare(draw(seed), etcd, f"/random-{seed}")


async def test_difference_is_noticed(etcd: RealEtcd, monkeypatch: pytest.MonkeyPatch) -> None:
    careful = Leadership.propose

    def careless(self: Leadership, events: list[Event], _expected: object) -> Outcome[None]:
        return careful(self, events, None)

    monkeypatch.setattr(Leadership, "propose", careless)
    with pytest.raises(AssertionError):
        await compare(SCRIPTED["two nodes want the same version"], etcd, "/careless")


def test_random_scenarios_have_everything() -> None:
    steps = [step for seed in RANDOM for step in draw(seed)]
    assert {type(step) for step in steps} == {Propose, Depose, Restart, Leave, Return}
    assert {step.is_crash for step in steps if isinstance(step, Depose)} == {False, True}
    model = Model()
    kinds: set[type[Event]] = set()
    for seed in RANDOM:
        model = Model()
        for step in draw(seed):
            model.take(step)
        kinds |= {type(event) for event in model.events}
        assert {"agreed", "conflict"} == set(model.outcomes)
    assert len(kinds) == 12
