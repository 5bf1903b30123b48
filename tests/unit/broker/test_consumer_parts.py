"""Goal: the parts of consumer groups keep their promises, at their bounds too. Method: each part
alone: patterns, subscriptions, what is not stored yet, the roster, the check of a heartbeat.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from dragoman import limits
from dragoman.broker.errors import (
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    GroupNotFound,
    GroupRequestTooLarge,
    InvalidGroupRequest,
    InvalidRegularExpression,
    UnknownMember,
    UnsupportedAssignor,
)
from dragoman.broker.groups import (
    ConsumerGroup,
    Groups,
    GroupSettings,
    HeartbeatReply,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    StateRecord,
)
from dragoman.broker.groups.consumer.members import Position, Target, reconcile
from dragoman.broker.groups.consumer.messages import (
    NOTHING,
    MemberState,
    by_topic,
    check_heartbeat,
    flattened,
)
from dragoman.broker.groups.consumer.unstored import Unstored
from dragoman.broker.groups.records import (
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerTargetKey,
    GroupKey,
    StoredConsumerMember,
    StoredTarget,
    decode_group,
    decode_key,
    decode_member,
    decode_target,
    record,
)
from dragoman.broker.patterns import Patterns, TopicPattern
from dragoman.errors import BrokerError, DragomanError, FormatError
from worlds.consumer_clients import DIALECT, FakeCatalog, subscription
from worlds.group_script import FakeLog, VirtualTime

A, B, C = (b"t", 0), (b"t", 1), (b"t", 2)


# ---- patterns


def test_pattern_matches_whole_names_only() -> None:
    names = ["orders", "orders.eu", "my-orders", "Orders"]
    assert TopicPattern("orders.*").matching(names, 1) == {"orders", "orders.eu"}
    assert TopicPattern("^orders$").matching(names, 1) == {"orders"}
    assert TopicPattern("(?i)orders").matching(names, 1) == {"orders", "Orders"}


def test_pattern_notices_new_and_gone_names_with_the_revision() -> None:
    pattern = TopicPattern("a.*")
    assert pattern.matching(["ab", "b"], 1) == {"ab"}
    assert pattern.matching(["never looked at"], 1) == {"ab"}
    assert pattern.matching(["ac", "b"], 2) == {"ac"}
    assert pattern.matching(["ab", "ac"], 3) == {"ab", "ac"}


@pytest.mark.parametrize(
    "text",
    ["(", "a**b(", r"(a)\1", "(?=x)", "[", "(a{1000}){1000}", "\ud800", "x" * 10_001],
)
def test_bad_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        Patterns().get(text)


def test_pattern_that_takes_too_much_memory_is_refused() -> None:
    with pytest.raises(InvalidRegularExpression):
        Patterns().get(r"(\pL{0,50}){0,10}" * 50)


def test_nasty_pattern_takes_no_time() -> None:
    assert TopicPattern("(a+)+b").matching(["a" * 200], 1) == frozenset()


def test_only_so_many_patterns_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.broker.patterns.TOPIC_PATTERNS_CACHED", 2)
    patterns = Patterns()
    first, second = patterns.get("a"), patterns.get("b")
    assert patterns.get("a") is first
    patterns.get("c")
    assert patterns.get("a") is first
    assert patterns.get("b") is not second


def test_library_is_imported_with_the_first_pattern() -> None:
    code = (
        "import sys; import dragoman.broker.groups; assert 're2' not in sys.modules;"
        "from dragoman.broker.patterns import Patterns; Patterns().get('a');"
        "assert 're2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)


# ---- the next step of one member


def free(*taken: tuple[bytes, int]) -> Callable[[tuple[bytes, int]], bool]:
    return lambda partition: partition not in taken


def test_stable_member_of_the_target_epoch_stays() -> None:
    now = Position(3, MemberState.STABLE, frozenset({A}), NOTHING)
    assert reconcile(now, frozenset(), Target(3, frozenset({A})), free()) is now


def test_member_gives_up_before_it_is_given_anything() -> None:
    now = Position(3, MemberState.STABLE, frozenset({A, B}), NOTHING)
    target = Target(5, frozenset({A, C}))
    expected = Position(3, MemberState.UNREVOKED, frozenset({A}), frozenset({B}))
    assert reconcile(now, None, target, free()) == expected
    assert reconcile(expected, None, target, free()) is expected
    assert reconcile(expected, frozenset({A, B}), target, free()) is expected
    done = reconcile(expected, frozenset({A}), target, free())
    assert done == Position(5, MemberState.STABLE, frozenset({A, C}), NOTHING)


def test_member_that_has_given_up_already_goes_on_at_once() -> None:
    now = Position(3, MemberState.STABLE, frozenset({A, B}), NOTHING)
    done = reconcile(now, frozenset({A}), Target(4, frozenset({A})), free())
    assert done == Position(4, MemberState.STABLE, frozenset({A}), NOTHING)


def test_what_another_has_comes_later_in_the_same_epoch() -> None:
    now = Position(3, MemberState.STABLE, frozenset({A}), NOTHING)
    target = Target(4, frozenset({A, B, C}))
    waiting = reconcile(now, None, target, free(B))
    assert waiting == Position(4, MemberState.UNRELEASED, frozenset({A, C}), NOTHING)
    assert reconcile(waiting, None, target, free(B)) == waiting
    done = reconcile(waiting, None, target, free())
    assert done == Position(4, MemberState.STABLE, frozenset({A, B, C}), NOTHING)


def test_second_revocation_starts_from_the_next_epoch() -> None:
    now = Position(3, MemberState.UNREVOKED, frozenset({A, B}), frozenset({C}))
    after = reconcile(now, frozenset({A, B}), Target(6, frozenset({A})), free())
    assert after == Position(4, MemberState.UNREVOKED, frozenset({A}), frozenset({B}))


# ---- partitions as stored


def test_partitions_are_stored_in_order() -> None:
    assert by_topic([(b"b", 2), (b"a", 1), (b"b", 0)]) == ((b"a", (1,)), (b"b", (0, 2)))
    assert flattened(by_topic([A, B])) == {A, B}
    assert by_topic([]) == ()


# ---- records


MEMBER = StoredConsumerMember(
    origin=4,
    instance_id="i",
    rack_id=None,
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=300_000,
    topics=("t",),
    pattern=None,
    assignor="range",
    epoch=7,
    previous_epoch=6,
    state=2,
    assigned=((b"\x01" * 16, (0, 1)),),
    revoking=(),
    classic=None,
)
GROUP = ConsumerGroupValue(
    owner="kafka", origin=4, epoch=9, assignment_epoch=8, fingerprint=b"ff", since_ms=5
)


def test_records_are_read_back_as_written() -> None:
    member_key, target_key = ConsumerMemberKey("g", "m"), ConsumerTargetKey("g", "m")
    target = StoredTarget(origin=4, partitions=((b"\x01" * 16, (2,)),))
    for key, value in ((member_key, MEMBER), (target_key, target), (GroupKey("g"), GROUP)):
        assert decode_key(record(key, value).key) == key
    written = record(member_key, MEMBER).value
    assert written is not None
    assert decode_member(written, member_key) == MEMBER
    written = record(target_key, target).value
    assert written is not None
    assert decode_target(written, target_key) == target
    written = record(GroupKey("g"), GROUP).value
    assert written is not None
    assert decode_group(written, "g") == GROUP


def test_records_keep_their_bytes() -> None:
    assert record(ConsumerMemberKey("g", "m"), None).key == bytes.fromhex("9304a167a16d")
    assert record(ConsumerTargetKey("g", "m"), None).key == bytes.fromhex("9305a167a16d")
    assert record(GroupKey("g"), GROUP).value == bytes.fromhex("9702a56b61666b61040908c402666605")


@pytest.mark.parametrize("data", [b"", b"\x90", b"\x91\x02", bytes.fromhex("9304a167a16d")])
def test_records_of_the_future_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="member 'm' of group 'g'"):
        decode_member(data, ConsumerMemberKey("g", "m"))
    with pytest.raises(FormatError, match="member 'm' of group 'g'"):
        decode_target(data, ConsumerTargetKey("g", "m"))


# ---- what is not stored yet


class Writes:
    def __init__(self) -> None:
        self.held: list[tuple[list[str], Callable[[DragomanError | None], None]]] = []
        self.told: list[str] = []
        self.values = {"a": "0", "b": "0"}
        self.unstored = Unstored(self._persist, self._record)

    def _persist(
        self, records: Sequence[StateRecord], done: Callable[[DragomanError | None], None]
    ) -> None:
        texts = [f"{each.key.decode()}{(each.value or b'').decode()}" for each in records]
        self.held.append((texts, done))

    def _record(self, key) -> StateRecord:
        return StateRecord(key.encode(), self.values[key].encode())

    def change(self, key: str, value: str, name: str) -> None:
        self.values[key] = value
        self.unstored.mark(key)  # type: ignore[arg-type]
        self.unstored.store().then(
            lambda error: self.told.append(f"{name} {error.code if error else ''}")
        )

    def finish(self, error: DragomanError | None = None) -> list[str]:
        texts, done = self.held.pop(0)
        done(error)
        return texts


def test_nothing_to_store_is_done_at_once() -> None:
    writes = Writes()
    writes.unstored.store().then(lambda error: writes.told.append(f"now {error}"))
    writes.unstored.write()
    assert (writes.told, writes.held, writes.unstored.is_empty) == (["now None"], [], True)


def test_who_changed_nothing_waits_for_what_others_changed() -> None:
    writes = Writes()
    writes.change("a", "1", "first")
    writes.unstored.store().then(lambda _: writes.told.append("second"))
    assert writes.told == []
    assert not writes.unstored.is_empty
    assert writes.finish() == ["a1"]
    assert writes.told == ["first ", "second"]
    assert writes.unstored.is_empty


def test_failure_dooms_later_writes_and_all_is_written_again() -> None:
    writes = Writes()
    writes.change("a", "1", "first")
    writes.change("b", "1", "second")
    writes.finish(CoordinatorNotAvailable("no"))
    writes.finish()
    assert writes.told == ["first coordinator_not_available", "second coordinator_not_available"]
    writes.change("a", "2", "third")
    assert writes.finish() == ["a2", "b1"]
    assert writes.told[-1] == "third "
    assert writes.unstored.is_empty


def test_abandoned_writes_fail_their_waiters_and_complete_nothing_later() -> None:
    writes = Writes()
    writes.change("a", "1", "first")
    writes.unstored.abandon(CoordinatorNotAvailable("over"))
    writes.finish()
    assert writes.told == ["first coordinator_not_available"]
    assert writes.unstored.is_empty


# ---- heartbeats and bounds


def request(**changes: object) -> HeartbeatRequest:
    fields: dict[str, object] = {
        "group_id": "g",
        "member_id": "m",
        "epoch": 0,
        "rebalance_timeout_ms": 1000,
        "topics": frozenset({"t"}),
        "owned": NOTHING,
    }
    return HeartbeatRequest(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, InvalidGroupRequest),
        ({"instance_id": ""}, InvalidGroupRequest),
        ({"rack_id": ""}, InvalidGroupRequest),
        ({"epoch": -3}, InvalidGroupRequest),
        ({"epoch": -2}, InvalidGroupRequest),
        ({"epoch": 1, "member_id": ""}, InvalidGroupRequest),
        ({"rebalance_timeout_ms": None}, InvalidGroupRequest),
        ({"topics": None}, InvalidGroupRequest),
        ({"owned": None}, InvalidGroupRequest),
        ({"owned": frozenset({A})}, InvalidGroupRequest),
        ({"assignor": "best"}, UnsupportedAssignor),
        ({"rack_id": "r" * (limits.MEMBER_BYTES_MAX + 1)}, GroupRequestTooLarge),
    ],
)
def test_heartbeat_that_no_group_takes(changes: dict[str, object], error: type) -> None:
    with pytest.raises(error):
        check_heartbeat(request(**changes), ("uniform",))


def test_heartbeat_that_groups_take() -> None:
    check_heartbeat(request(), ("uniform",))
    check_heartbeat(request(topics=None, pattern="", assignor="uniform"), ("uniform",))
    check_heartbeat(request(epoch=-2, instance_id="i", topics=None, owned=None), ())


def test_too_many_owned_partitions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MEMBER_OWNED_PARTITIONS_MAX", 1)
    with pytest.raises(GroupRequestTooLarge):
        check_heartbeat(request(epoch=1, owned=frozenset({A, B})), ())


class World:
    def __init__(self, **settings: object) -> None:
        self.time = VirtualTime()
        self.log = FakeLog()
        self.catalog = FakeCatalog()
        self.catalog.create("t", 2)
        self.settings = GroupSettings(group_initial_rebalance_delay_ms=0, **settings)  # type: ignore[arg-type]
        self.groups = self.start()

    def start(self) -> Groups:
        return Groups(
            scheduler=self.time,
            clock=self.time,
            random=random.Random(1),
            persist=self.log.persist,
            settings=self.settings,
            catalog=self.catalog,
            dialect=DIALECT,
        )

    def send(self, **changes: object) -> HeartbeatReply | DragomanError:
        answers: list[HeartbeatReply | DragomanError] = []
        self.groups.consumer_heartbeat(request(**changes), answers.append)
        (answer,) = answers
        return answer


def test_broker_names_members_that_do_not_name_themselves() -> None:
    world = World()
    first, second = world.send(member_id=""), world.send(member_id="")
    assert isinstance(first, HeartbeatReply)
    assert isinstance(second, HeartbeatReply)
    assert first.member_id != second.member_id
    assert len(first.member_id) == 22


def test_reply_tells_the_interval_of_the_settings() -> None:
    answer = World(group_consumer_heartbeat_interval_ms=1234).send()
    assert isinstance(answer, HeartbeatReply)
    assert answer.heartbeat_interval_ms == 1234


def test_members_that_take_too_much_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUP_MEMBERS_BYTES_MAX", 100)
    world = World()
    assert isinstance(world.send(topics=frozenset({"x" * 200})), HeartbeatReply)
    assert isinstance(world.send(member_id="n"), GroupRequestTooLarge)
    assert isinstance(world.send(topics=frozenset({"x"})), HeartbeatReply)
    assert isinstance(world.send(member_id="n"), HeartbeatReply)


def test_refused_join_leaves_no_group_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUP_MEMBERS_MAX", 0)
    world = World()
    assert isinstance(world.send(), GroupMaxSizeReached)
    assert len(world.groups) == 0


def test_classic_member_of_a_full_group_is_refused() -> None:
    world = World(group_consumer_max_size=1)
    world.send()
    answers: list[Joined | DragomanError] = []
    join = JoinRequest(
        group_id="g",
        protocol_type="consumer",
        protocols=(("range", subscription(["t"])),),
        session_timeout_ms=10_000,
    )
    world.groups.join(join, answers.append)
    assert isinstance(answers[0], GroupMaxSizeReached)


def test_description_of_another_kind_of_group_is_refused() -> None:
    world = World()
    with pytest.raises(GroupNotFound, match="no group"):
        world.groups.describe_consumer("g")
    join = JoinRequest(
        group_id="g", protocol_type="consumer", protocols=(("r", b""),), session_timeout_ms=10_000
    )
    world.groups.join(join, lambda _: None)
    with pytest.raises(GroupNotFound, match="not a consumer group"):
        world.groups.describe_consumer("g")


def test_general_description_tells_kind_and_members() -> None:
    world = World()
    world.send(client_id="c", client_host="/h", instance_id="i")
    described = world.groups.describe("g")
    assert (described.kind, described.state, described.generation) == ("consumer", "Stable", 1)
    assert (described.protocol_type, described.protocol) == ("consumer", "uniform")
    (member,) = described.members
    assert (member.member_id, member.instance_id, member.client_id) == ("m", "i", "c")
    (listing,) = world.groups.listings()
    assert (listing.kind, listing.owner) == ("consumer", "kafka")


def test_records_that_contradict_each_other_do_not_keep_a_node_from_starting() -> None:
    world = World()
    world.send(instance_id="i")
    for each in list(world.log.durable):
        key = decode_key(each.key)
        if isinstance(key, ConsumerMemberKey) and each.value is not None:
            for instance_id in ("i", None):
                stored = decode_member(each.value, key)
                twin = StoredConsumerMember(
                    **{
                        name: getattr(stored, name)
                        for name in stored.__struct_fields__
                        if name != "instance_id"
                    },
                    instance_id=instance_id,
                )
                name = f"twin-{instance_id}"
                world.log.durable.append(record(ConsumerMemberKey("g", name), twin))
    world.groups = groups = world.start()
    for each in world.log.durable:
        groups.load(each.key, each.value)
    groups.resume()
    members = {each.member_id: each for each in groups.describe_consumer("g").members}
    assert set(members) == {"twin-i", "twin-None"}
    assert len(members["twin-i"].assigned) + len(members["twin-None"].assigned) == 2


def test_left_over_records_of_an_earlier_life_do_not_count() -> None:
    world = World()
    world.send()
    left_over = list(world.log.durable)
    world.send(epoch=-1)
    world.send(member_id="n")
    group = world.groups.consumer_group("g")
    assert group is not None
    groups = world.start()
    value = ConsumerGroupValue(
        owner="kafka", origin=99, epoch=100, assignment_epoch=100, fingerprint=b"", since_ms=0
    )
    for each in [*left_over, record(GroupKey("g"), value)]:
        groups.load(each.key, each.value)
    groups.resume()
    assert groups.describe_consumer("g").members == ()


def test_members_may_be_loaded_before_their_group() -> None:
    """A compacted log keeps the last record of each key, in the order of the log."""
    world = World()
    world.send()
    world.send(member_id="n")
    world.send(epoch=1, owned=frozenset())
    last: dict[bytes, StateRecord] = {}
    for each in world.log.durable:
        last.pop(each.key, None)
        last[each.key] = each
    for order in (list(last.values()), list(last.values())[::-1]):
        groups = world.start()
        for each in order:
            groups.load(each.key, each.value)
        groups.resume()
        now, then = groups.describe_consumer("g"), world.groups.describe_consumer("g")
        assert {each.member_id: each for each in now.members} == {
            each.member_id: each for each in then.members
        }
        assert (now.epoch, now.state) == (then.epoch, then.state)


def test_stopping_the_node_fails_waiting_requests() -> None:
    world = World()
    world.log.is_holding = True
    answers: list[HeartbeatReply | DragomanError] = []
    world.groups.consumer_heartbeat(request(), answers.append)
    assert answers == []
    world.groups.close()
    assert isinstance(answers[0], CoordinatorNotAvailable)
    assert world.time.pending == 0
    world.log.release()
    assert len(answers) == 1


def test_commit_touches_only_the_session_of_members_of_the_first_protocol() -> None:
    world = World()
    world.send()
    group = world.groups.consumer_group("g")
    assert group is not None
    world.time.advance(40)
    group.check_commit("m", 1, None, is_transactional=False)
    world.time.advance(6)
    with pytest.raises(UnknownMember):
        group.check_commit("m", 1, None, is_transactional=False)


def test_subscribed_topics_of_members_are_known() -> None:
    world = World()
    world.send(topics=frozenset({"u"}), pattern="t.*")
    world.catalog.create("tt", 1)
    group = world.groups.consumer_group("g")
    assert group is not None
    assert group.subscriptions() == {"u", "t", "tt"}


def test_group_with_too_many_members_does_not_become_a_consumer_group() -> None:
    world = World(group_consumer_max_size=1)
    answers: list[Joined | DragomanError] = []
    join = JoinRequest(
        group_id="g",
        protocol_type="consumer",
        protocols=(("range", subscription(["t"])),),
        session_timeout_ms=10_000,
    )
    world.groups.join(join, answers.append)
    world.time.advance(0)
    assert isinstance(answers[0], Joined)
    assert isinstance(world.send(), GroupMaxSizeReached)
    assert world.groups.describe("g").kind == "classic"


def test_errors_of_heartbeats_are_the_brokers_own() -> None:
    answer = World().send(epoch=5)
    assert isinstance(answer, BrokerError)
    assert answer.code == "group_not_found"


def test_deletion_takes_along_members_whose_removal_could_not_be_written() -> None:
    world = World()
    world.send()
    world.log.is_holding = True
    answers: list[HeartbeatReply | DragomanError] = []
    world.groups.consumer_heartbeat(request(epoch=-1, owned=None), answers.append)
    world.log.fail()
    assert isinstance(answers[0], CoordinatorNotAvailable)
    records = world.groups.prepare_delete("g")
    world.groups.apply(records)
    assert len(world.groups) == 0
    groups = world.start()
    for each in [*world.log.durable, *records]:
        groups.load(each.key, each.value)
    groups.resume()
    assert len(groups) == 0
    assert {decode_key(each.key) for each in records} == {
        ConsumerMemberKey("g", "m"),
        ConsumerTargetKey("g", "m"),
        GroupKey("g"),
    }


def test_of_two_records_with_one_partition_the_earlier_counts() -> None:
    """The later one was built on a release whose write failed, so no member received it."""
    group = ConsumerGroup("g", "kafka", World().groups._ports, 3)
    giver, taker = group.new_member("giver", None), group.new_member("taker", None)
    giver.position = Position(1, MemberState.UNREVOKED, NOTHING, frozenset({A}))
    taker.position = Position(3, MemberState.STABLE, frozenset({A, B}), NOTHING)
    group.roster.add_restored(giver)
    group.roster.add_restored(taker)
    assert taker.position == Position(3, MemberState.UNRELEASED, frozenset({B}), NOTHING)
    assert (group.roster.holder(A), group.roster.holder(B)) == ("giver", "taker")


def test_what_members_hold_is_a_frozen_set_as_declared() -> None:
    group = ConsumerGroup("g", "kafka", World().groups._ports, 3)
    member = group.new_member("m", None)
    member.position = Position(1, MemberState.UNREVOKED, frozenset({B}), frozenset({A}))
    group.roster.add(member)
    for asked, held in (({A, B}, {A, B}), ({A}, {A}), (set(), set())):
        found = group.roster.held(frozenset(asked))
        assert type(found) is frozenset
        assert found == held
    group.roster.remove(member)
    assert group.roster.held(frozenset({A, B})) == frozenset()
