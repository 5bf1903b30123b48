"""Goal: topics are configured, extended, truncated and deleted over HTTP, from any node, and a
request that is only checked changes nothing.

Method: the services of two nodes that lead different partitions, in virtual time.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.node_rpc import NodeCalls
from dragoman.api.problems import status_of
from dragoman.api.topic_values import NewPartitions, TopicChange, Truncation
from dragoman.api.topics import TopicService
from dragoman.broker.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopicName,
    NotAuthorized,
    NotLeader,
    UnknownTopic,
)
from dragoman.broker.leader_queues import Relay
from dragoman.broker.replica_marks import marks_of
from dragoman.errors import ClusterError, DragomanError, OffsetOutOfRangeError
from dragoman.net.future import settled
from dragoman.outcome import Outcome
from dragoman.replication.errors import RecordsNotDeletable
from dragoman.rpc import Node
from dragoman.security.access import Caller
from worlds.broker import World
from worlds.http import Services, ask
from worlds.two_nodes import Pair

CALLER = Caller()
ALL = PageLimit(1000)


class Two:
    """Node 1 leads partition 0 of `t`, node 2 leads partition 1; each has ten records."""

    def __init__(self) -> None:
        self.pair = Pair()
        self.services = {node: Services(world) for node, world in self.pair.worlds.items()}
        self.pair.create("t", 1, 2)
        for index, node in enumerate((1, 2)):
            world = self.pair.worlds[node]
            replica = world.broker.partitions.find("t", index)
            for number in range(10):
                world.advance(1)
                world.write(replica, b"%d" % number)

    @property
    def topics(self) -> TopicService:
        return self.services[1].topics

    def ask(self, work: Any) -> Any:
        return ask(self.pair, work)

    def starts(self) -> list[int]:
        return [
            self.pair.worlds[node].broker.partitions.find("t", index).log.log_start_offset
            for index, node in enumerate((1, 2))
        ]


@pytest.fixture
def two() -> Two:
    return Two()


# ---- configuration


def test_configuration_is_changed_key_by_key(two: Two) -> None:
    set_two = TopicChange(set={"retention.ms": "1000", "segment.bytes": "9999"})
    two.ask(two.topics.alter_topic(CALLER, "t", set_two, False))
    one_less = TopicChange(set={"retention.ms": "2000"}, unset=("segment.bytes",))
    found = two.ask(two.topics.alter_topic(CALLER, "t", one_less, False))
    own = {each.name: each.value for each in found.items if each.source == "topic"}
    assert own == {"retention.ms": "2000"}
    assert two.topics.topic_configuration(CALLER, "t").items == found.items
    assert two.pair.two.broker.image.topics["t"].config == own


def test_checked_change_changes_nothing(two: Two) -> None:
    change = TopicChange(set={"retention.ms": "1000"})
    found = two.ask(two.topics.alter_topic(CALLER, "t", change, True))
    assert found.validated_only
    assert ("retention.ms", "1000", "topic") in [(e.name, e.value, e.source) for e in found.items]
    assert two.pair.one.broker.image.topics["t"].config == {}


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        TopicChange(set={"retention.msec": "1"}),
        TopicChange(unset=("nothing",)),
        TopicChange(set={"retention.ms": "soon"}),
        TopicChange(set={"retention.ms": "-2"}),
        TopicChange(set={"cleanup.policy": "burn"}),
        TopicChange(set={"retention.ms": "1"}, unset=("retention.ms",)),
    ],
)
def test_bad_change_is_refused(two: Two, change: TopicChange, validate_only: bool) -> None:
    with pytest.raises(InvalidConfig):
        two.ask(two.topics.alter_topic(CALLER, "t", change, validate_only))
    assert two.pair.one.broker.image.topics["t"].config == {}


# ---- partitions


def test_partitions_are_added(two: Two) -> None:
    checked = two.ask(two.topics.add_partitions(CALLER, "t", NewPartitions(total=5), True))
    assert (checked.before, checked.total, checked.validated_only) == (2, 5, True)
    assert len(two.pair.one.broker.image.topics["t"].partitions) == 2
    two.ask(two.topics.add_partitions(CALLER, "t", NewPartitions(total=5), False))
    assert [len(each.broker.image.topics["t"].partitions) for each in two.pair.worlds.values()] == [
        5,
        5,
    ]


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    ("name", "total", "error"),
    [
        ("t", 2, InvalidPartitions),
        ("t", 1, InvalidPartitions),
        ("nope", 3, ApiError),
        ("__consumer_offsets", 3, InvalidTopicName),
    ],
)
def test_bad_number_of_partitions_is_refused(
    two: Two, name: str, total: int, error: type[DragomanError], validate_only: bool
) -> None:
    two.pair.create_internal("__consumer_offsets")
    with pytest.raises(error):
        two.ask(two.topics.add_partitions(CALLER, name, NewPartitions(total=total), validate_only))


@pytest.mark.parametrize("body", [b"{}", b'{"total": 0}', b'{"total": 10001}', b'{"total": null}'])
def test_impossible_numbers_do_not_reach_the_broker(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=NewPartitions)


# ---- truncation


def test_truncation_reaches_the_leaders_of_all_partitions(two: Two) -> None:
    wanted = Truncation(offsets={0: 3, 1: -1})
    checked = two.ask(two.topics.truncate_topic(CALLER, "t", wanted, True))
    assert [(each.before, each.after) for each in checked.items] == [(0, 3), (0, 10)]
    assert two.starts() == [0, 0]
    done = two.ask(two.topics.truncate_topic(CALLER, "t", wanted, False))
    assert done.items == checked.items
    assert two.starts() == [3, 10]
    again = two.ask(two.topics.truncate_topic(CALLER, "t", Truncation(offsets={0: 1}), False))
    assert [(each.before, each.after) for each in again.items] == [(3, 3)]


def test_truncation_by_time_keeps_the_first_record_of_that_time(two: Two) -> None:
    log = two.pair.one.broker.partitions.find("t", 0).log
    times = [each.timestamp for each in log.iterate(0, 10)]
    wanted = Truncation(before=f"@{times[4]}")
    done = two.ask(two.topics.truncate_topic(CALLER, "t", wanted, False))
    # The records of partition 1 were written later.
    assert [each.after for each in done.items] == [4, 0]
    late = Truncation(before="2200-01-01T00:00:00Z", partitions=(1,))
    done = two.ask(two.topics.truncate_topic(CALLER, "t", late, False))
    assert [(each.partition, each.after) for each in done.items] == [(1, 10)]
    assert two.starts() == [4, 10]


@pytest.mark.parametrize(
    ("before", "starts"),
    [
        ("earliest", [2, 0]),
        (0, [2, 0]),
        (7, [7, 7]),
        ("1000", [10, 10]),
        ("+3", [5, 3]),
        ("-3", [7, 7]),
        ("-100", [2, 0]),
        ("latest", [10, 10]),
        ("@-52w", [2, 0]),
    ],
)
def test_place_of_a_truncation_is_one_in_each_partition(
    two: Two, before: int | str, starts: list[int]
) -> None:
    two.ask(two.topics.truncate_topic(CALLER, "t", Truncation(offsets={0: 2}), False))
    wanted = Truncation(before=before)
    checked = two.ask(two.topics.truncate_topic(CALLER, "t", wanted, True))
    assert ([each.after for each in checked.items], two.starts()) == (starts, [2, 0])
    two.ask(two.topics.truncate_topic(CALLER, "t", wanted, False))
    assert two.starts() == starts


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (Truncation(), ApiError),
        (Truncation(offsets={0: 1}, before=1), ApiError),
        (Truncation(offsets={0: 1}, partitions=(0,)), ApiError),
        (Truncation(before="yesterday"), ApiError),
        (Truncation(before="@-1"), ApiError),
        (Truncation(before=f"@{1 << 63}"), ApiError),
        (Truncation(before="9" * 60), ApiError),
        (Truncation(offsets={2: 1}), UnknownTopic),
        (Truncation(before=1, partitions=(2,)), UnknownTopic),
        # The other partition could be truncated, and is not.
        (Truncation(offsets={0: 3, 1: 11}), OffsetOutOfRangeError),
    ],
)
def test_bad_truncation_is_refused_as_a_whole(
    two: Two, wanted: Truncation, error: type[DragomanError], validate_only: bool
) -> None:
    with pytest.raises(error):
        two.ask(two.topics.truncate_topic(CALLER, "t", wanted, validate_only))
    assert two.starts() == [0, 0]


def test_compacted_and_internal_topics_are_not_truncated(two: Two) -> None:
    two.pair.create_internal("__consumer_offsets")
    everything = Truncation(offsets={0: -1})
    with pytest.raises(InvalidTopicName):
        two.ask(two.topics.truncate_topic(CALLER, "__consumer_offsets", everything, False))
    compact = TopicChange(set={"cleanup.policy": "compact"})
    two.ask(two.topics.alter_topic(CALLER, "t", compact, False))
    with pytest.raises(RecordsNotDeletable):
        two.ask(two.topics.truncate_topic(CALLER, "t", Truncation(offsets={1: 5}), True))


def test_leader_that_does_not_answer_is_an_error(two: Two) -> None:
    two.pair.lines[1].is_cut = True
    with pytest.raises(ClusterError):
        two.ask(two.topics.truncate_topic(CALLER, "t", Truncation(offsets={0: 1, 1: 1}), False))
    assert two.starts() == [0, 0]


def test_node_of_an_older_release_is_named(two: Two) -> None:
    del two.pair.two.broker.leader_queues.protocols["http"]
    with pytest.raises(ClusterError, match="TruncatePartition is not served by every node yet"):
        two.ask(two.topics.truncate_topic(CALLER, "t", Truncation(offsets={1: 1}), False))
    use = two.ask(two.topics.delete_topic(CALLER, "t", True))
    assert use.unreachable == (2,)


def test_garbage_from_another_node_is_refused(two: Two) -> None:
    async def send(body: bytes) -> object:
        broker = two.pair.one.broker
        return await settled(broker.rpc.begin(Relay(protocol="http"), Node(2), (body,)))

    for body in (b"", b"\xff", b"\x80", msgspec.msgpack.encode({"type": "Unknown"})):
        with pytest.raises(DragomanError):
            two.ask(send(body))


# ---- deletion


def test_checked_deletion_counts_what_would_go(two: Two) -> None:
    use = two.ask(two.topics.delete_topic(CALLER, "t", True))
    sizes = [
        marks_of(two.pair.worlds[node].broker.partitions.find("t", index).log).size
        for index, node in enumerate((1, 2))
    ]
    assert (use.partitions, use.records, use.size_bytes) == (2, 20, sum(sizes))
    assert (use.groups, use.unreachable) == ((), ())
    assert "t" in two.pair.one.broker.image.topics
    assert two.ask(two.topics.delete_topic(CALLER, "t", False)) is None
    assert "t" not in two.pair.two.broker.image.topics


def test_internal_and_unknown_topics_are_not_deleted(two: Two) -> None:
    two.pair.create_internal("__consumer_offsets")
    for validate_only in (True, False):
        with pytest.raises(NotAuthorized):
            two.ask(two.topics.delete_topic(CALLER, "__consumer_offsets", validate_only))
        with pytest.raises((UnknownTopic, ApiError)):
            two.ask(two.topics.delete_topic(CALLER, "nope", validate_only))


# ---- description


def test_partitions_are_described_a_page_at_a_time() -> None:
    world = World()
    topics = Services(world).topics
    world.create("t", 5)
    first = ask(world, topics.describe_topic(CALLER, "t", "", PageLimit(2)))
    assert ([each.partition for each in first.partitions], first.next) == ([0, 1], "1")
    second = ask(world, topics.describe_topic(CALLER, "t", first.next, PageLimit(3)))
    assert ([each.partition for each in second.partitions], second.next) == ([2, 3, 4], None)
    for bad in ("x", "-1", "9" * 20, "²"):
        with pytest.raises(ApiError):
            ask(world, topics.describe_topic(CALLER, "t", bad, ALL))


@pytest.mark.parametrize("kill", [False, True])
def test_description_after_a_restart_is_right_and_opens_as_little_as_it_can(kill: bool) -> None:
    world = World()
    for replica in world.create("t", 3)[:2]:
        world.write(replica, b"value", b"another")
    before = ask(world, Services(world).topics.describe_topic(CALLER, "t", "", ALL))
    again = world.reopened(kill=kill)
    opened = len(list(again.broker.partitions))
    after = ask(again, Services(again).topics.describe_topic(CALLER, "t", "", ALL))
    assert after == before
    if not kill:
        assert len(list(again.broker.partitions)) == opened


def test_manifest_that_is_not_of_the_last_stop_is_not_believed() -> None:
    """Two starts lie between the clean stop and the description; the one between ended badly."""
    world = World()
    (replica,) = world.create("t")
    world.write(replica, b"value")
    second = world.reopened()
    second.write(second.broker.partitions.find("t", 0), b"more", b"records")
    second.store.flush(second.broker.partitions.find("t", 0).log)
    third = second.reopened(kill=True).reopened()
    found = ask(third, Services(third).topics.describe_topic(CALLER, "t", "", ALL))
    assert found.partitions[0].log_end_offset == 3


def test_leaders_describe_the_partitions_that_have_no_replica_here(two: Two) -> None:
    two.ask(two.topics.truncate_topic(CALLER, "t", Truncation(offsets={1: 4}), False))
    found = two.ask(two.topics.describe_topic(CALLER, "t", "", ALL))
    assert [(each.log_start_offset, each.log_end_offset) for each in found.partitions] == [
        (0, 10),
        (4, 10),
    ]
    assert all(each.size_bytes for each in found.partitions)
    two.pair.lines[1].is_cut = True
    found = two.ask(two.topics.describe_topic(CALLER, "t", "", ALL))
    assert [each.log_end_offset for each in found.partitions] == [10, None]


def test_description_does_not_wait_for_a_silent_leader(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silence(*_: object) -> Any:
        await Outcome[None]()

    monkeypatch.setattr(NodeCalls, "call", silence)
    monkeypatch.setattr("dragoman.api.node_rpc.HTTP_NODES_SECONDS", 0)
    found = two.ask(two.topics.describe_topic(CALLER, "t", "", ALL))
    assert [each.log_end_offset for each in found.partitions] == [10, None]


def test_error_without_a_leader_is_not_a_fault_of_the_request() -> None:
    assert status_of(NotLeader("no node leads t-0 at the moment")) == 503
