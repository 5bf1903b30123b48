"""Goal: a metadata change is applied when it is durable, once, in order, also after a restart.

Method: a quorum of one over a real metadata log on virtual time.
"""

from __future__ import annotations

import pytest

from dragoman.cluster.events import (
    Event,
    NodeRegistered,
    ProducerIdsReserved,
    TopicDeleted,
    decode_event,
    encode_event,
)
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import ClusterError, FormatError, OutcomeUnknownError
from dragoman.outcome import start
from dragoman.world import Disk
from worlds.broker import Outcome, World


def test_proposal_is_applied_when_durable_and_not_before() -> None:
    world = World()
    outcome = Outcome()
    world.broker.quorum.propose([NodeRegistered(node_id=5, incarnation=1)]).then(outcome)
    assert 5 not in world.broker.image.nodes
    assert not outcome.is_known
    world.settle()
    assert outcome.error is None
    assert world.broker.image.nodes[5] == 1


def test_events_are_applied_in_order_before_the_proposal_completes() -> None:
    world = World()
    seen: list[object] = []
    world.broker.quorum.on_applied = lambda event, _: seen.append(event)
    events: list[Event] = [NodeRegistered(node_id=n, incarnation=1) for n in (5, 6)]
    third: Event = NodeRegistered(node_id=7, incarnation=1)
    world.broker.quorum.propose(events).then(lambda _: seen.append("first"))
    world.broker.quorum.propose([third]).then(lambda _: seen.append("second"))
    world.settle()
    assert seen == [*events, "first", third, "second"]


def test_version_counts_applied_events_and_survives() -> None:
    world = World()
    before = world.broker.quorum.version
    world.create("t")
    assert world.broker.quorum.version == before + 1
    # The start adds its own registration.
    assert world.reopened().broker.quorum.version == before + 2


def test_proposals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr("dragoman.cluster.raft_quorum.driver.METADATA_PROPOSALS_MAX", 2)
    outcomes = [Outcome() for _ in range(3)]
    for outcome in outcomes:
        world.broker.quorum.propose([ProducerIdsReserved(next_id=1)]).then(outcome)
    assert isinstance(outcomes[2].error, ClusterError)
    world.settle()
    assert [each.error for each in outcomes[:2]] == [None, None]


def test_failure_tells_all_who_wait_that_the_outcome_is_unknown() -> None:
    world = World()
    outcomes = [Outcome(), Outcome()]
    for outcome in outcomes:
        world.broker.quorum.propose([ProducerIdsReserved(next_id=1)]).then(outcome)
    world.broker.quorum.fail()
    for outcome in outcomes:
        assert isinstance(outcome.error, OutcomeUnknownError)
        assert "outcome is unknown" in str(outcome.error)


def test_replay_of_the_log_gives_the_same_image() -> None:
    world = World()
    world.create("a", 3, {"retention.ms": "5"})
    world.create("b")
    start(world.broker.topics.add_partitions("b", 4, ())).then(Outcome())
    world.settle()
    start(world.broker.topics.change_config("b", {"retention.bytes": "9"})).then(Outcome())
    world.settle()
    start(world.broker.topics.delete("a")).then(Outcome())
    world.settle()
    world.create("a", 2)
    again = World(disk=_closed(world), start=False)
    again.broker.quorum.replay()
    assert describe(again.broker.image) == describe(world.broker.image)


def _closed(world: World) -> Disk:
    world.broker.stop()
    world.store.close()
    return world.disk


def describe(image: MetadataImage) -> object:
    topics = [
        (
            topic.name,
            topic.topic_id,
            topic.config,
            topic.created_ms,
            [(p.index, p.partition_id, p.replicas, p.leader) for p in topic.partitions],
        )
        for topic in image.topics.values()
    ]
    return (image.cluster_id, topics, image.nodes, image.next_partition_id, image.next_producer_id)


def test_event_of_a_newer_release_is_refused_by_name() -> None:
    known = encode_event(TopicDeleted(topic_id=bytes(16)))
    assert decode_event(known) == TopicDeleted(topic_id=bytes(16))
    with pytest.raises(FormatError, match="newer release"):
        decode_event(known.replace(b"TopicDeleted", b"TopicExalted"))
    with pytest.raises(FormatError):
        decode_event(b"\xc1rubbish")
