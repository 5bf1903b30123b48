"""Goal: groups of all nodes are listed, described, reset and deleted over HTTP, from any node, and
a request that is only checked changes nothing.

Method: the services of two nodes in virtual time. Each coordinates one group, which has committed
offset 5 in both partitions of `t`; node 1 leads partition 0, node 2 partition 1, each has ten
records.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.group_values import OffsetReset, PartitionOffset
from dragoman.api.groups import GroupService
from dragoman.api.node_rpc import NodeCalls
from dragoman.broker.errors import GroupSubscribedToTopic, NonEmptyGroup, UnknownTopic
from dragoman.broker.groups.messages import JoinRequest
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.errors import ClusterError, DragomanError
from dragoman.outcome import Outcome
from dragoman.rpc import Node
from dragoman.security.access import Caller
from dragoman.types import GroupId, Offset, Partition, TopicName
from worlds.http import Services, ask
from worlds.two_nodes import Pair

CALLER = Caller()
ALL = PageLimit(1000)


class Two:
    def __init__(self) -> None:
        self.pair = Pair()
        self.services = {node: Services(world) for node, world in self.pair.worlds.items()}
        self.pair.create_internal("__consumer_offsets")
        self.pair.create("t", 1, 2)
        for index, node in enumerate((1, 2)):
            world = self.pair.worlds[node]
            replica = world.broker.partitions.find("t", index)
            for number in range(10):
                world.advance(1)
                world.write(replica, b"%d" % number)
        self.here = next(name for name in "abcdef" if self.coordinator(name) == 1)
        self.there = next(name for name in "abcdef" if self.coordinator(name) == 2)
        for name in (self.here, self.there):
            self.commit(name, {0: 5, 1: 5})

    def coordinator(self, name: str) -> int:
        return self.pair.one.broker.coordination.groups.log.leader_of(name)

    def commit(self, name: str, offsets: dict[int, int]) -> None:
        commits = tuple(
            OffsetCommit(topic=TopicName("t"), partition=Partition(index), offset=Offset(offset))
            for index, offset in offsets.items()
        )
        request = CommitRequest(group_id=GroupId(name), offsets=commits)
        errors: list[DragomanError | None] = []
        groups = self.pair.worlds[self.coordinator(name)].broker.coordination.groups
        groups.commit_anywhere(request, errors.append, caller=CALLER)
        self.pair.settle()
        assert errors == [None]

    def join(self, name: str) -> None:
        request = JoinRequest(
            group_id=GroupId(name),
            protocol_type="consumer",
            protocols=(("range", b""),),
            session_timeout_ms=60_000,
            client_id="client-7",
            client_host="/10.0.0.7",
        )
        table = self.pair.worlds[self.coordinator(name)].broker.coordination.groups.table
        table.join(request, lambda _: None)
        self.pair.settle()

    @property
    def groups(self) -> GroupService:
        return self.services[1].groups

    def ask(self, work: Any) -> Any:
        return ask(self.pair, work)

    def committed(self, name: str) -> dict[int, int]:
        groups = self.pair.worlds[self.coordinator(name)].broker.coordination.groups
        return groups.committed_here(GroupId(name), TopicName("t"))

    def reset(self, name: str, wanted: OffsetReset, *, validate_only: bool = False) -> Any:
        return self.ask(self.groups.reset_group(CALLER, name, wanted, validate_only))


@pytest.fixture
def two() -> Two:
    return Two()


# ---- reading


def test_groups_of_all_nodes_are_listed_a_page_at_a_time(two: Two) -> None:
    names = sorted((two.here, two.there))
    for service in two.services.values():
        found = two.ask(service.groups.list_groups(CALLER, "", ALL))
        assert [each.group for each in found.items] == names
        assert (found.next, found.unreachable) == (None, ())
    first = two.ask(two.groups.list_groups(CALLER, "", PageLimit(1)))
    assert ([each.group for each in first.items], first.next) == (names[:1], names[0])
    second = two.ask(two.groups.list_groups(CALLER, first.next, PageLimit(1)))
    assert ([each.group for each in second.items], second.next) == (names[1:], None)


def test_list_names_the_nodes_that_did_not_answer(two: Two) -> None:
    two.pair.lines[1].is_cut = True
    found = two.ask(two.groups.list_groups(CALLER, "", ALL))
    assert [each.group for each in found.items] == [two.here]
    assert found.unreachable == (2,)


def test_listing_does_not_wait_for_a_silent_node(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    call = NodeCalls.call

    async def silent_when_remote(self: NodeCalls, request: Any, where: Any) -> Any:
        if where == Node(2):
            await Outcome[None]()
        return await call(self, request, where)

    monkeypatch.setattr(NodeCalls, "call", silent_when_remote)
    monkeypatch.setattr("dragoman.api.node_rpc.HTTP_NODES_SECONDS", 0)
    found = two.ask(two.groups.list_groups(CALLER, "", ALL))
    assert [each.group for each in found.items] == [two.here]
    assert found.unreachable == (2,)


def test_group_of_another_node_is_described_with_its_lag(two: Two) -> None:
    found = two.ask(two.groups.describe_group(CALLER, two.there, "", ALL))
    assert found.coordinator == 2
    assert [(each.partition, each.lag_records) for each in found.offsets] == [(0, 5), (1, 5)]
    two.pair.lines[1].is_cut = True
    found = two.ask(two.groups.describe_group(CALLER, two.here, "", ALL))
    assert [(each.partition, each.lag_records) for each in found.offsets] == [(0, 5), (1, None)]
    assert found.offsets[1].lag_seconds is None
    with pytest.raises(ClusterError):
        two.ask(two.groups.describe_group(CALLER, two.there, "", ALL))


def test_lag_in_seconds_is_the_age_of_the_oldest_record_that_is_not_committed(two: Two) -> None:
    world = two.pair.two
    log = world.broker.partitions.find("t", 1).log
    two.commit(two.there, {0: 10, 1: 5})
    (fifth,) = [each.timestamp for each in log.iterate(5, 6)]
    for world in two.pair.worlds.values():
        world.advance(60)
    now_ms = two.pair.one.broker.clock.wall_ms()
    found = two.ask(two.groups.describe_group(CALLER, two.there, "", ALL))
    assert [each.lag_seconds for each in found.offsets] == [0, (now_ms - fifth) / 1000]


def test_offsets_are_described_a_page_at_a_time(two: Two) -> None:
    first = two.ask(two.groups.describe_group(CALLER, two.there, "", PageLimit(1)))
    assert ([each.partition for each in first.offsets], first.next) == ([0], "t@0")
    second = two.ask(two.groups.describe_group(CALLER, two.there, first.next, PageLimit(1)))
    assert ([each.partition for each in second.offsets], second.next) == ([1], None)
    for bad in ("t", "t@", "t@x", "@", "t@-1", "t@" + "9" * 20):
        with pytest.raises(ApiError):
            two.ask(two.groups.describe_group(CALLER, two.there, bad, ALL))


def test_unknown_group_is_unknown_to_every_operation(two: Two) -> None:
    groups, reset = two.groups, OffsetReset(to="earliest")
    for name in ("nope", "x" * 5000, "ä\x00"):
        for work in (
            groups.describe_group(CALLER, name, "", ALL),
            groups.reset_group(CALLER, name, reset, False),
            groups.delete_group(CALLER, name, False),
            groups.delete_group_offsets(CALLER, name, "t", False),
        ):
            with pytest.raises(ApiError) as raised:
                two.ask(work)
            assert (raised.value.status, raised.value.code) == (404, "unknown_group")


def test_looking_for_a_group_does_not_create_the_topic_of_groups() -> None:
    pair = Pair()
    services = {node: Services(world) for node, world in pair.worlds.items()}
    with pytest.raises(ApiError):
        ask(pair, services[1].groups.describe_group(CALLER, "g", "", ALL))
    assert "__consumer_offsets" not in pair.one.broker.image.topics


# ---- reset


@pytest.mark.parametrize(
    ("wanted", "after"),
    [
        (OffsetReset(to="earliest"), [0, 0]),
        (OffsetReset(to="latest"), [10, 10]),
        (OffsetReset(to=7), [7, 7]),
        (OffsetReset(to="11"), [10, 10]),
        (OffsetReset(to="shift:2"), [7, 7]),
        (OffsetReset(to="shift:-9"), [0, 0]),
        (OffsetReset(to=f"shift:{1 << 62}"), [10, 10]),
        (OffsetReset(to="1970-01-01T00:00:00Z"), [0, 0]),
        (OffsetReset(to="@-52w"), [0, 0]),
        (OffsetReset(to="+3"), [3, 3]),
        (OffsetReset(to="-3"), [7, 7]),
        (OffsetReset(to="@2200-01-01T00:00:00Z"), [10, 10]),
        (OffsetReset(to="latest", topics=("t",)), [10, 10]),
        (OffsetReset(offsets=(PartitionOffset(topic="t", partition=1, offset=9),)), [9]),
    ],
)
@pytest.mark.parametrize("is_far", [False, True])
def test_offsets_are_reset_after_a_check_that_changes_nothing(
    two: Two, wanted: OffsetReset, after: list[int], is_far: bool
) -> None:
    name = two.there if is_far else two.here
    checked = two.reset(name, wanted, validate_only=True)
    assert [each.after for each in checked.items] == after
    assert {each.before for each in checked.items} == {5}
    assert two.committed(name) == {0: 5, 1: 5}
    done = two.reset(name, wanted)
    assert done.items == checked.items
    changed = {each.partition: each.after for each in done.items}
    assert two.committed(name) == {0: 5, 1: 5, **changed}


def test_reset_to_a_time_finds_the_first_record_of_it_on_each_leader(two: Two) -> None:
    log = two.pair.two.broker.partitions.find("t", 1).log
    times = [each.timestamp for each in log.iterate(0, 10)]
    done = two.reset(two.here, OffsetReset(to=f"@{times[3]}"))
    # The records of partition 0 are older.
    assert [each.after for each in done.items] == [10, 3]


def test_a_new_group_gets_offsets_before_its_first_member(two: Two) -> None:
    done = two.reset("new", OffsetReset(to="latest", topics=("t",)))
    assert [(each.before, each.after) for each in done.items] == [(None, 10), (None, 10)]
    assert two.committed("new") == {0: 10, 1: 10}


@pytest.mark.parametrize("validate_only", [True, False])
def test_group_with_members_keeps_its_offsets(two: Two, validate_only: bool) -> None:
    for name in (two.here, two.there):
        two.join(name)
        with pytest.raises(NonEmptyGroup, match="1 member of protocol kafka: 'client-7'"):
            two.reset(name, OffsetReset(to="earliest"), validate_only=validate_only)
        with pytest.raises(NonEmptyGroup, match="stop them first"):
            two.ask(two.groups.delete_group(CALLER, name, validate_only))
        with pytest.raises((NonEmptyGroup, GroupSubscribedToTopic)):
            two.ask(two.groups.delete_group_offsets(CALLER, name, "t", validate_only))
        assert two.committed(name) == {0: 5, 1: 5}


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (OffsetReset(), ApiError),
        (OffsetReset(to="soon"), ApiError),
        (OffsetReset(to="shift:"), ApiError),
        (OffsetReset(to="@-5"), ApiError),
        (
            OffsetReset(to="latest", offsets=(PartitionOffset(topic="t", partition=0, offset=1),)),
            ApiError,
        ),
        (OffsetReset(to="latest", topics=("nope",)), ApiError),
        (OffsetReset(offsets=(PartitionOffset(topic="t", partition=2, offset=1),)), UnknownTopic),
        (OffsetReset(offsets=(PartitionOffset(topic="x", partition=0, offset=1),)), UnknownTopic),
        (OffsetReset(offsets=(PartitionOffset(topic="t", partition=0, offset=1),) * 2), ApiError),
        (
            OffsetReset(
                offsets=(PartitionOffset(topic="t", partition=0, offset=1),), topics=("t",)
            ),
            ApiError,
        ),
    ],
)
def test_bad_reset_is_refused(
    two: Two, wanted: OffsetReset, error: type[DragomanError], validate_only: bool
) -> None:
    with pytest.raises(error):
        two.reset(two.there, wanted, validate_only=validate_only)
    assert two.committed(two.there) == {0: 5, 1: 5}


@pytest.mark.parametrize(
    "body",
    [
        b'{"to": -1}',
        b'{"to": 9223372036854775808}',
        b'{"to": ["latest"]}',
        b'{"to": "%s"}' % (b"1" * 65),
        b'{"offsets": [{"topic": "", "partition": 0, "offset": 0}]}',
        b'{"offsets": [{"topic": "t", "partition": -1, "offset": 0}]}',
        b'{"unknown": 1}',
    ],
)
def test_impossible_resets_do_not_reach_the_broker(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=OffsetReset)


def test_nothing_is_reset_while_a_leader_does_not_answer(two: Two) -> None:
    two.pair.lines[1].is_cut = True
    with pytest.raises(ClusterError):
        two.reset(two.here, OffsetReset(to="latest"))
    assert two.committed(two.here) == {0: 5, 1: 5}


# ---- deletion


@pytest.mark.parametrize("is_far", [False, True])
def test_offsets_and_groups_are_deleted(two: Two, is_far: bool) -> None:
    name = two.there if is_far else two.here
    for validate_only in (True, False):
        gone = two.ask(two.groups.delete_group_offsets(CALLER, name, "t", validate_only))
        assert (gone.partitions, gone.validated_only) == ((0, 1), validate_only)
        assert two.committed(name) == ({0: 5, 1: 5} if validate_only else {})
    two.commit(name, {0: 1})
    checked = two.ask(two.groups.delete_group(CALLER, name, True))
    assert checked.offsets == 1
    assert two.committed(name) == {0: 1}
    assert two.ask(two.groups.delete_group(CALLER, name, False)) is None
    with pytest.raises(ApiError):
        two.ask(two.groups.describe_group(CALLER, name, "", ALL))


@pytest.mark.parametrize("topic", ["", "nope"])
def test_offsets_are_deleted_in_a_topic_that_exists(two: Two, topic: str) -> None:
    with pytest.raises(ApiError):
        two.ask(two.groups.delete_group_offsets(CALLER, two.here, topic, False))
