"""Goal: lists of topics and groups say what they hold and how far they are, of the whole cluster in
one request to each node; callers see only what they may describe.

Method: the services of two nodes that lead different partitions, in virtual time.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.api.cluster import ClusterService
from dragoman.api.declaration import PageLimit
from dragoman.api.topics import TopicService
from dragoman.api.usage import UsageService
from dragoman.api.usage_values import GroupUsage, TopicUsage
from dragoman.api.values import NewTopic
from dragoman.broker.errors import InvalidConfig, TopicExists
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.cluster.events import NodeConfigChanged
from dragoman.cluster.metadata import EVERY_NODE, MetadataImage
from dragoman.config.overrides import TOPIC_CONFIG
from dragoman.errors import DragomanError
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import AllowAll
from dragoman.types import GroupId, Offset, Partition, TopicName
from worlds.access import Denies
from worlds.http import Services, ask
from worlds.two_nodes import Pair

CALLER = Caller()
ALL = PageLimit(1000)


class Two:
    """Node 1 leads partition 0 of `t`, node 2 leads partition 1; each has ten records. Group `g`
    has committed offset 4 of both; `u` is an empty topic.
    """

    def __init__(self) -> None:
        self.pair = Pair()
        self.services = {node: Services(world) for node, world in self.pair.worlds.items()}
        self.pair.create("t", 1, 2)
        self.pair.create("u", 2)
        for index, node in enumerate((1, 2)):
            world = self.pair.worlds[node]
            replica = world.broker.partitions.find("t", index)
            for number in range(10):
                world.advance(1)
                world.write(replica, b"%d" % number)
        self.usage = UsageService(self.pair.one.broker)

    def commit(self, group: str) -> None:
        offsets = tuple(
            OffsetCommit(topic=TopicName("t"), partition=Partition(index), offset=Offset(4))
            for index in (0, 1)
        )
        errors: list[DragomanError | None] = []
        groups = self.pair.one.broker.coordination.groups
        request = CommitRequest(group_id=GroupId(group), offsets=offsets)
        groups.commit_anywhere(request, errors.append, caller=CALLER)
        self.pair.settle()
        assert errors == [None]

    def topics(self, caller: Caller = CALLER, after: str = "", limit: PageLimit = ALL) -> Any:
        return ask(self.pair, self.usage.topic_usage(caller, after, limit))

    def groups(self, caller: Caller = CALLER, after: str = "", limit: PageLimit = ALL) -> Any:
        return ask(self.pair, self.usage.group_usage(caller, after, limit))


@pytest.fixture
def two() -> Two:
    return Two()


def test_topics_are_measured_on_all_nodes(two: Two) -> None:
    two.commit("g")
    found = {each.name: each for each in two.topics().items}
    assert found["t"].records == 20
    assert found["t"].size_bytes > 0
    assert (found["t"].partitions, found["t"].groups) == (2, 1)
    assert found["u"] == TopicUsage(
        name="u",
        partitions=1,
        replication_factor=1,
        internal=False,
        records=0,
        size_bytes=0,
        groups=0,
    )


def test_topics_come_a_page_at_a_time(two: Two) -> None:
    first = two.topics(limit=PageLimit(1))
    assert ([each.name for each in first.items], first.next) == (["t"], "t")
    second = two.topics(after="t", limit=PageLimit(1))
    assert ([each.name for each in second.items], second.next) == (["u"], None)


def test_topic_of_a_silent_node_has_no_figures(two: Two) -> None:
    two.pair.lines[1].is_cut = True
    found = two.topics()
    assert {each.name: each.records for each in found.items} == {"t": None, "u": None}
    assert found.unreachable == (2,)


def test_lag_of_a_group_is_of_all_its_partitions(two: Two) -> None:
    two.commit("g")
    two.commit("h")
    (one, other) = two.groups().items
    assert one == GroupUsage(
        group="g", protocol=one.protocol, state="Empty", members=0, topics=("t",), lag_records=12
    )
    assert other.group == "h"
    first = two.groups(limit=PageLimit(1))
    assert ([each.group for each in first.items], first.next) == (["g"], "g")


def test_lag_is_not_known_when_a_leader_is_silent(two: Two) -> None:
    two.commit("g")
    coordinator = next(
        node
        for node, world in two.pair.worlds.items()
        if "g" in {each.group_id for each in world.broker.coordination.groups.table}
    )
    usage = UsageService(two.pair.worlds[coordinator].broker)
    two.pair.lines[coordinator].is_cut = True
    (group,) = ask(two.pair, usage.group_usage(CALLER, "", ALL)).items
    assert (group.topics, group.lag_records) == (("t",), None)


def test_group_with_too_many_offsets_has_no_lag(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    two.commit("g")
    monkeypatch.setattr("dragoman.api.node_usage.HTTP_COMMITS_MAX", 1)
    (group,) = two.groups().items
    assert (group.group, group.lag_records) == ("g", None)


def test_offsets_in_a_deleted_topic_are_no_lag(two: Two) -> None:
    two.commit("g")
    for world in two.pair.worlds.values():
        del world.broker.image.topics["t"]
    (group,) = two.groups().items
    assert group.lag_records in (0, None)


def test_caller_sees_what_it_may_describe(two: Two) -> None:
    two.commit("g")
    hidden = Denies(
        (Operation.DESCRIBE, Resource.TOPIC, "t"), (Operation.DESCRIBE, Resource.GROUP, "h")
    )
    two.commit("h")
    for world in two.pair.worlds.values():
        world.broker.authorizer = hidden
    assert {each.name for each in two.topics().items} == {"__consumer_offsets", "u"}
    (group,) = two.groups().items
    assert (group.group, group.topics, group.lag_records) == ("g", (), 0)


# ---- settings


def test_changed_settings_are_listed_and_unknown_ones_hidden() -> None:
    image = MetadataImage()
    everywhere = {"log.retention.ms": "1000", "plugin.password": "secret"}
    image.apply(NodeConfigChanged(node_id=EVERY_NODE, config=everywhere))
    image.apply(NodeConfigChanged(node_id=2, config={"log.retention.ms": "2000"}))
    broker = SimpleNamespace(image=image, authorizer=AllowAll())
    node: Any = SimpleNamespace(broker=broker)
    found = ClusterService(node, lambda: True).changed_settings(CALLER).items
    assert [(each.node_id, each.name, each.value) for each in found] == [
        (None, "log.retention.ms", "1000"),
        (None, "plugin.password", None),
        (2, "log.retention.ms", "2000"),
    ]


# ---- creation, checked only


def test_checked_creation_creates_nothing(two: Two) -> None:
    service: TopicService = two.services[1].topics
    wanted = NewTopic(name="v", partitions=2, replication_factor=1)
    assert ask(two.pair, service.create_topic(CALLER, wanted, True)) is None
    assert "v" not in two.pair.one.broker.image.topics


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (NewTopic(name="t"), TopicExists),
        (NewTopic(name="v", config={"retention.ms": "soon"}), InvalidConfig),
    ],
)
def test_checked_creation_is_refused_as_the_creation_is(
    two: Two, wanted: NewTopic, error: type[DragomanError]
) -> None:
    for validate_only in (True, False):
        with pytest.raises(error):
            ask(two.pair, two.services[1].topics.create_topic(CALLER, wanted, validate_only))


def test_topic_keys_are_all_described(two: Two) -> None:
    found = two.services[1].topics.list_topic_keys(CALLER).items
    assert [each.name for each in found] == sorted(TOPIC_CONFIG)
    assert all(each.meaning for each in found)
