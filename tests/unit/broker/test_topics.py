"""Goal: only topics that keep every rule come into being, change or go, and ids are never reused.

Method: a broker on virtual time; each refusal once, changes that overlap, restarts in between.
"""

from __future__ import annotations

import pytest

from dragoman import limits
from dragoman.broker.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicName,
    Overloaded,
    TooManyPartitions,
    TopicDeletionDisabled,
    TopicExists,
    UnknownTopic,
)
from dragoman.broker.topics import NewTopic, check_name
from dragoman.cluster.events import NodeRegistered
from dragoman.config.settings import Settings
from dragoman.log.store import Durability
from dragoman.outcome import start
from worlds.broker import Outcome, World


def partition_ids(world: World, name: str) -> list[int]:
    return [each.partition_id for each in world.broker.image.topics[name].partitions]


def delete(world: World, name: str) -> Outcome:
    outcome = Outcome()
    start(world.broker.topics.delete(name)).then(outcome)
    world.settle()
    return outcome


# ---- names


@pytest.mark.parametrize(
    "name",
    [
        "__cluster_metadata",
        "__consumer_offsets",
        "__transaction_state",
        "__publications",
        "__staged_records",
    ],
)
def test_internal_topic_names_are_refused(world: World, name: str) -> None:
    outcome = world.create_outcome(NewTopic(name=name))
    assert isinstance(outcome, InvalidTopicName)
    assert name not in world.broker.image.topics


@pytest.mark.parametrize(
    "name", ["a", "a.b_c-d", "%RETRY%group", "größe", "x" * 249, "ü" * 124, " ", "a/b", "__x"]
)
def test_names_of_up_to_249_bytes_of_text_are_taken(world: World, name: str) -> None:
    assert world.create_outcome(NewTopic(name=name)) is None
    again = world.reopened()
    assert name in again.broker.image.topics
    again.write(again.broker.partitions.find(name, 0), b"v")


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "ü" * 125, "a\0b", "\ud800"])
def test_other_names_are_refused(world: World, name: str) -> None:
    assert isinstance(world.create_outcome(NewTopic(name=name)), InvalidTopicName)
    assert not world.broker.image.topics
    with pytest.raises(InvalidTopicName):
        check_name(name)


def test_names_that_look_alike_on_disk_stay_apart(world: World) -> None:
    names = ["a/b", "a~b", "a b", "x" * 200 + "1", "x" * 200 + "2"]
    for name in names:
        world.write(world.create(name)[0], name.encode())
    again = world.reopened()
    for name in names:
        log = again.broker.partitions.find(name, 0).log
        assert [record.value for record in log.iterate(0, 1)] == [name.encode()]


# ---- counts, factors, assignments


@pytest.mark.parametrize("count", [0, -2, limits.TOPIC_PARTITIONS_MAX + 1, 1 << 31])
def test_partition_count_out_of_bounds_is_refused(world: World, count: int) -> None:
    error = world.create_outcome(NewTopic(name="t", partition_count=count))
    assert isinstance(error, InvalidPartitions)


def test_count_and_factor_default_to_the_settings() -> None:
    world = World(Settings(num_partitions=3))
    assert world.create_outcome(NewTopic(name="t")) is None
    assert len(world.broker.image.topics["t"].partitions) == 3
    assert [each.replicas for each in world.broker.image.topics["t"].partitions] == [(1,)] * 3


@pytest.mark.parametrize("factor", [0, -2, 2, 32767])
def test_replication_factor_that_cannot_be_is_refused(world: World, factor: int) -> None:
    error = world.create_outcome(NewTopic(name="t", replication_factor=factor))
    assert isinstance(error, InvalidReplicationFactor)
    assert "replication.factor.lenient" in str(error)


def test_default_factor_above_the_number_of_nodes_is_refused() -> None:
    world = World(Settings(default_replication_factor=2))
    assert isinstance(world.create_outcome(NewTopic(name="t")), InvalidReplicationFactor)


def test_lenient_node_takes_as_many_replicas_as_there_are_nodes() -> None:
    world = World(Settings(replication_factor_lenient=True))
    assert world.create_outcome(NewTopic(name="t", replication_factor=3)) is None
    assert world.broker.image.topics["t"].partitions[0].replicas == (1,)
    assert isinstance(
        world.create_outcome(NewTopic(name="u", replication_factor=0)), InvalidReplicationFactor
    )


def test_replicas_are_spread_over_the_nodes(world: World) -> None:
    for node in (2, 3):
        world.broker.image.apply(NodeRegistered(node_id=node, incarnation=1))
    new = NewTopic(name="t", partition_count=6, replication_factor=2)
    assert world.create_outcome(new) is None
    placed = [each.replicas for each in world.broker.image.topics["t"].partitions]
    assert all(len(set(replicas)) == 2 for replicas in placed)
    assert sorted(replicas[0] for replicas in placed) == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    "assignment", [((),), ((1, 1),), ((2,),), ((1,), ()), ((1,), (1, 7)), ((-1,),)]
)
def test_assignment_to_other_than_live_distinct_nodes_is_refused(
    world: World, assignment: tuple[tuple[int, ...], ...]
) -> None:
    error = world.create_outcome(NewTopic(name="t", assignment=assignment))
    assert isinstance(error, InvalidReplicaAssignment)


@pytest.mark.parametrize("extra", [{"partition_count": 1}, {"replication_factor": 1}])
def test_assignment_excludes_count_and_factor(world: World, extra: dict[str, int]) -> None:
    error = world.create_outcome(NewTopic(name="t", assignment=((1,),), **extra))
    assert isinstance(error, InvalidReplicaAssignment)


def test_assignment_is_kept_as_given(world: World) -> None:
    assert world.create_outcome(NewTopic(name="t", assignment=((1,), (1,)))) is None
    assert [each.replicas for each in world.broker.image.topics["t"].partitions] == [(1,), (1,)]


def test_assignment_of_too_many_partitions_is_refused(world: World) -> None:
    too_many = ((1,),) * (limits.TOPIC_PARTITIONS_MAX + 1)
    assert isinstance(
        world.create_outcome(NewTopic(name="t", assignment=too_many)), InvalidPartitions
    )


# ---- configuration


@pytest.mark.parametrize(
    "config",
    [
        {"no.such.key": "1"},
        {"retention.ms": "soon"},
        {"max.message.bytes": "-1"},
        {"cleanup.policy": "shred"},
    ],
)
def test_bad_configuration_is_refused(world: World, config: dict[str, str]) -> None:
    assert isinstance(world.create_outcome(NewTopic(name="t", config=config)), InvalidConfig)
    assert not world.broker.image.topics


def test_changed_configuration_reaches_open_partitions_and_survives(world: World) -> None:
    (replica,) = world.create("t", config={"max.message.bytes": "100"})
    outcome = Outcome()
    start(world.broker.topics.change_config("t", {"max.message.bytes": "200"})).then(outcome)
    world.settle()
    assert outcome.error is None
    assert replica.config.max_message_bytes == 200
    assert replica.log.config is replica.config
    assert world.reopened().broker.partitions.find("t", 0).config.max_message_bytes == 200


def test_bad_change_of_configuration_changes_nothing(world: World) -> None:
    (replica,) = world.create("t", config={"max.message.bytes": "100"})
    outcome = Outcome()
    start(world.broker.topics.change_config("t", {"max.message.bytes": "x"})).then(outcome)
    world.settle()
    assert isinstance(outcome.error, InvalidConfig)
    assert replica.config.max_message_bytes == 100


# ---- overlapping changes


def test_second_creation_of_the_same_name_is_refused(world: World) -> None:
    world.create("t")
    assert isinstance(world.create_outcome(NewTopic(name="t")), TopicExists)


def test_second_concurrent_change_is_retriable(world: World) -> None:
    first, second = Outcome(), Outcome()
    start(world.broker.topics.create(NewTopic(name="t"))).then(first)
    start(world.broker.topics.create(NewTopic(name="t"))).then(second)
    assert isinstance(second.error, Overloaded)
    assert not first.is_known
    world.settle()
    assert first.error is None
    start(world.broker.topics.delete("t")).then(first := Outcome())
    for change in (
        lambda done: start(world.broker.topics.delete("t")).then(done),
        lambda done: start(world.broker.topics.add_partitions("t", 2, ())).then(done),
        lambda done: start(world.broker.topics.change_config("t", {})).then(done),
    ):
        outcome = Outcome()
        change(outcome)
        assert isinstance(outcome.error, Overloaded)
    world.settle()
    assert first.error is None
    assert "t" not in world.broker.image.topics


def test_change_after_a_refused_one_is_taken(world: World) -> None:
    world.create("t")
    assert isinstance(world.create_outcome(NewTopic(name="t")), TopicExists)
    assert delete(world, "t").error is None


def test_topics_created_in_one_turn_get_different_ids(world: World) -> None:
    outcomes = [Outcome() for _ in range(5)]
    for index, outcome in enumerate(outcomes):
        new = NewTopic(name=f"t{index}", partition_count=3)
        start(world.broker.topics.create(new)).then(outcome)
    world.settle()
    assert [each.error for each in outcomes] == [None] * 5
    topics = world.broker.image.topics.values()
    assert len({topic.topic_id for topic in topics}) == 5
    ids = [each.partition_id for topic in topics for each in topic.partitions]
    assert sorted(ids) == list(range(1, 16))


def test_ensure_creates_once_for_all_who_ask_in_the_same_turn(world: World) -> None:
    outcomes = [Outcome() for _ in range(3)]
    for outcome in outcomes:
        start(world.broker.topics.ensure(NewTopic(name="t"))).then(outcome)
    assert not any(each.is_known for each in outcomes)
    world.settle()
    assert [each.error for each in outcomes] == [None] * 3
    assert partition_ids(world, "t") == [1]
    late = Outcome()
    start(world.broker.topics.ensure(NewTopic(name="t"))).then(late)
    assert late.error is None


def test_ensure_is_content_with_a_topic_that_another_node_makes_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = world.broker.topics
    create = topics.create

    async def be_slower(new: NewTopic) -> None:
        await create(new)
        raise TopicExists("topic 't' exists already")

    monkeypatch.setattr(topics, "create", be_slower)
    outcome = Outcome()
    start(topics.ensure(NewTopic(name="t"))).then(outcome)
    world.settle()
    assert outcome.error is None
    assert partition_ids(world, "t") == [1]


def test_all_who_ensure_hear_of_the_failure(world: World) -> None:
    outcomes = [Outcome() for _ in range(3)]
    for outcome in outcomes:
        start(world.broker.topics.ensure(NewTopic(name="t", partition_count=0))).then(outcome)
    world.settle()
    assert all(isinstance(each.error, InvalidPartitions) for each in outcomes)


# ---- deletion


def test_deleted_topic_is_gone_with_its_files(world: World) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"v")
    world.store.checkpoint_now()
    assert world.disk.names(replica.log.directory)
    assert delete(world, "t").error is None
    assert not world.disk.exists(replica.log.directory)
    with pytest.raises(UnknownTopic):
        world.broker.partitions.find("t", 0)
    assert "t" not in world.reopened().broker.image.topics


def test_deletion_of_an_unopened_partition_removes_its_files(world: World) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"v")
    again = world.reopened()
    assert again.disk.names(replica.log.directory)
    assert delete(again, "t").error is None
    assert not again.disk.exists(replica.log.directory)


def test_unknown_topic_cannot_be_deleted_or_changed(world: World) -> None:
    assert isinstance(delete(world, "t").error, UnknownTopic)
    for change in (
        lambda done: start(world.broker.topics.add_partitions("t", 2, ())).then(done),
        lambda done: start(world.broker.topics.change_config("t", {})).then(done),
    ):
        outcome = Outcome()
        change(outcome)
        assert isinstance(outcome.error, UnknownTopic)


def test_deletion_can_be_switched_off() -> None:
    world = World(Settings(delete_topic_enable=False))
    world.create("t")
    assert isinstance(delete(world, "t").error, TopicDeletionDisabled)
    assert "t" in world.broker.image.topics


@pytest.mark.parametrize("kill", [False, True])
def test_ids_of_deleted_topics_never_come_back(world: World, kill: bool) -> None:
    world.create("t", 3)
    old_id = world.broker.image.topics["t"].topic_id
    delete(world, "t")
    again = world.reopened(kill=kill)
    again.create("t", 2)
    assert partition_ids(again, "t") == [4, 5]
    assert again.broker.image.topics["t"].topic_id != old_id
    assert old_id not in again.broker.image.topics_by_id


def test_recreated_topic_is_empty(world: World) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"old")
    delete(world, "t")
    (again,) = world.create("t")
    assert again.log.log_end_offset == 0
    assert world.reopened(kill=True).broker.partitions.find("t", 0).log.log_end_offset == 0


# ---- more partitions


def test_partitions_are_added_behind_the_old_ones(world: World) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"v")
    outcome = Outcome()
    start(world.broker.topics.add_partitions("t", 3, ())).then(outcome)
    world.settle()
    assert outcome.error is None
    assert partition_ids(world, "t") == [1, 2, 3]
    assert world.broker.partitions.find("t", 0) is replica
    world.write(world.broker.partitions.find("t", 2), b"w")
    assert partition_ids(world.reopened(), "t") == [1, 2, 3]


@pytest.mark.parametrize("total", [0, 1, 2, limits.TOPIC_PARTITIONS_MAX + 1])
def test_partitions_only_ever_grow(world: World, total: int) -> None:
    world.create("t", 2)
    outcome = Outcome()
    start(world.broker.topics.add_partitions("t", total, ())).then(outcome)
    world.settle()
    assert isinstance(outcome.error, InvalidPartitions)


@pytest.mark.parametrize("assignment", [((1,),), ((1,), (2,)), ((1,), (1,), (1,))])
def test_added_partitions_need_a_fitting_assignment(
    world: World, assignment: tuple[tuple[int, ...], ...]
) -> None:
    world.create("t")
    outcome = Outcome()
    start(world.broker.topics.add_partitions("t", 3, assignment)).then(outcome)
    world.settle()
    assert isinstance(outcome.error, InvalidReplicaAssignment)


# ---- how many partitions there may be


def bounded(request: int = 100, node: int = 100) -> World:
    settings = Settings(max_partitions_per_request=request, max_partitions_per_node=node)
    return World(settings, durability=Durability.OS)


def test_one_topic_may_not_have_more_partitions_than_a_request_may_make() -> None:
    world = bounded(request=5)
    assert world.create_outcome(NewTopic(name="t", partition_count=5)) is None
    error = world.create_outcome(NewTopic(name="u", partition_count=6))
    assert isinstance(error, TooManyPartitions)
    assert "max.partitions.per.request" in str(error)
    by_hand = NewTopic(name="u", assignment=((1,),) * 6)
    assert isinstance(world.create_outcome(by_hand), TooManyPartitions)


def test_node_has_no_more_replicas_than_it_may() -> None:
    world = bounded(node=10)
    assert world.create_outcome(NewTopic(name="t", partition_count=8)) is None
    error = world.create_outcome(NewTopic(name="u", partition_count=3))
    assert isinstance(error, TooManyPartitions)
    assert "max.partitions.per.node" in str(error)
    outcome = Outcome()
    start(world.broker.topics.add_partitions("t", 11, ())).then(outcome)
    world.settle()
    assert isinstance(outcome.error, TooManyPartitions)
    assert world.create_outcome(NewTopic(name="u", partition_count=2)) is None


def test_topics_that_are_being_created_count() -> None:
    world = bounded(node=10)
    outcomes = [Outcome() for _ in range(4)]
    for at, outcome in enumerate(outcomes):
        start(world.broker.topics.create(NewTopic(name=f"t{at}", partition_count=4))).then(outcome)
    world.settle()
    assert [outcome.error is None for outcome in outcomes] == [True, True, False, False]
    assert len(world.broker.image.partitions) <= 10


def test_room_comes_back_when_topics_go() -> None:
    world = bounded(node=10)
    world.create("t", 10)
    outcome = Outcome()
    start(world.broker.topics.delete("t")).then(outcome)
    world.settle()
    assert outcome.error is None
    assert world.create_outcome(NewTopic(name="u", partition_count=10)) is None


def test_second_creation_that_is_refused_leaves_the_first_counted() -> None:
    world = bounded(node=10)
    first, again, other = Outcome(), Outcome(), Outcome()
    start(world.broker.topics.create(NewTopic(name="t", partition_count=8))).then(first)
    start(world.broker.topics.create(NewTopic(name="t", partition_count=8))).then(again)
    start(world.broker.topics.create(NewTopic(name="u", partition_count=8))).then(other)
    world.settle()
    assert first.error is None
    assert again.error is not None
    assert isinstance(other.error, TooManyPartitions)


def test_the_nodes_own_topics_are_made_all_the_same() -> None:
    world = bounded(node=10)
    world.create("t", 10)
    internal = NewTopic(name="__own", partition_count=50, is_internal=True)
    assert world.create_outcome(internal) is None
