"""Goal: a held record waits for its owner's decision, who is asked for when that takes too long.

Method: one node on virtual time, with hooks that record their calls.
"""

from __future__ import annotations

from unittest import mock

import msgspec
import pytest

from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.delayed import Content, Target, Token
from dragoman.broker.errors import LabelsDiffer, UnknownDelayedRecord
from dragoman.errors import CorruptionError, DiskFullError, DragomanError
from dragoman.log.batch import Record
from dragoman.outcome import Outcome, start
from worlds.broker import World
from worlds.delayed_records import (
    LABELS,
    SETTINGS,
    TOPIC,
    Told,
    delay,
    delivered,
    drop,
    hold,
    never,
    record_of,
    release,
)


class Owner:
    """Remembers the checks, and decides when it has something to say."""

    def __init__(self, world: World) -> None:
        #: Value, how often it is asked for, and seconds since the start.
        self.checks: list[tuple[bytes | None, int, float]] = []
        self.given_up: list[bytes | None] = []
        self.at_given_up: Token | None = None
        #: Why it cannot be given up.
        self.trouble: DragomanError | None = None
        self._world = world
        world.broker.delayed.on_check.append(self._check)
        world.broker.delayed.on_given_up.append(self._give_up)

    def _check(
        self, token: Token, record: Record, target: Target, labels: dict[str, str], times: int
    ) -> None:
        assert target == (TOPIC, 0)
        assert labels == LABELS
        self.checks.append((record.value, times, round(self._world.scheduler.time(), 1)))

    async def _give_up(
        self,
        token: Token,
        record: Record,
        target: Target,
        labels: dict[str, str],
    ) -> None:
        assert (target, labels) == ((TOPIC, 0), LABELS)
        self.given_up.append(record.value)
        self.at_given_up = token
        if self.trouble is not None:
            raise self.trouble


def _world(**settings: int) -> World:
    made = World(msgspec.structs.replace(SETTINGS, **settings))
    made.create(TOPIC, 2)
    return made


def _read(world: World, token: Token) -> Content | DragomanError:
    told = Told()
    start(world.broker.delayed.read(token)).then(told)
    world.settle()
    assert isinstance(told.outcome, Content | DragomanError)
    return told.outcome


# ---- decisions


def test_a_held_record_appears_when_it_is_released() -> None:
    world = _world()
    token = hold(world, b"a").token
    world.advance(5)
    assert delivered(world) == []
    assert release(world, token) is None
    assert delivered(world) == [b"a"]
    world.advance(1000)
    assert delivered(world) == [b"a"]


def test_one_that_is_dropped_never_appears() -> None:
    world = _world()
    owner = Owner(world)
    token = hold(world, b"a").token
    assert drop(world, token) is None
    world.advance(1000)
    assert delivered(world) == []
    assert owner.checks == []
    assert world.broker.delayed.record_count == 0


@pytest.mark.parametrize("kill", [False, True])
def test_decisions_and_what_is_undecided_survive_a_restart(kill: bool) -> None:
    world = _world()
    released, dropped, undecided = (hold(world, each).token for each in (b"a", b"b", b"c"))
    with mock.patch.object(world.broker.delayed.store, "_look"):
        # It is released, and that is all.
        assert release(world, released) is None
    assert drop(world, dropped) is None
    assert delivered(world) == []
    later = world.reopened(kill=kill)
    later.settle()
    assert delivered(later) == [b"a"]
    assert later.broker.delayed.record_count == 1
    assert release(later, undecided) is None
    assert delivered(later) == [b"a", b"c"]


def test_who_repeats_a_decision_hears_the_same() -> None:
    world = _world()
    first, second = hold(world, b"a").token, hold(world, b"b").token
    for _ in range(3):
        assert release(world, first) is None
        assert drop(world, second) is None
    assert isinstance(drop(world, first), UnknownDelayedRecord)
    assert isinstance(release(world, second), UnknownDelayedRecord)
    assert delivered(world) == [b"a"]


def test_a_decision_is_not_repeated_while_the_record_is_on_its_way() -> None:
    world = _world()
    token = hold(world, b"a").token
    with mock.patch.object(world.broker.delayed.targets, "deliver", never):
        assert release(world, token) is None
        assert release(world, token) is None
        assert isinstance(drop(world, token), UnknownDelayedRecord)


def test_only_the_last_decisions_are_remembered() -> None:
    world = _world()
    first, second = hold(world, b"a").token, hold(world, b"b").token
    with mock.patch("dragoman.broker.delayed.held_records.DELAYED_DECISIONS_KEPT", 1):
        assert release(world, first) is None
        assert release(world, second) is None
    assert isinstance(release(world, first), UnknownDelayedRecord)
    assert release(world, second) is None


def test_decisions_at_the_same_moment() -> None:
    world = _world()
    token = hold(world, b"a").token
    told: list[DragomanError | None] = []
    delayed = world.broker.delayed
    start(delayed.release(token, LABELS, NODE_ITSELF)).then(told.append)
    start(delayed.release(token, LABELS, NODE_ITSELF)).then(told.append)
    contrary: list[DragomanError | None] = []
    start(delayed.drop(token, LABELS, NODE_ITSELF)).then(contrary.append)
    world.settle()
    assert told == [None, None]
    assert [type(each) for each in contrary] == [UnknownDelayedRecord]
    assert delivered(world) == [b"a"]


def test_who_is_not_the_owner_decides_nothing() -> None:
    world = _world()
    token = hold(world, b"a").token
    for labels in ({"owner": "you"}, {"owner": "me", "more": ""}):
        assert isinstance(release(world, token, labels), LabelsDiffer)
        assert isinstance(drop(world, token, labels), LabelsDiffer)
    assert release(world, token, {}) is None


def test_unknown_tokens_are_refused() -> None:
    world = _world()
    token = hold(world, b"a").token
    target = world.broker.partitions.find(TOPIC, 0).metadata.partition_id
    for unknown in (
        Token(token.partition_id, token.offset + 1),
        Token(token.partition_id, -1),
        Token(token.partition_id, 1 << 62),
        Token(target, token.offset),
        Token(1 << 40, 0),
    ):
        assert isinstance(release(world, unknown), UnknownDelayedRecord)
        assert isinstance(drop(world, unknown), UnknownDelayedRecord)
        assert isinstance(_read(world, unknown), UnknownDelayedRecord)


def test_a_delayed_record_cannot_be_released() -> None:
    world = _world()
    token = delay(world, b"a", world.clock.wall_ms() + 5000).token
    assert isinstance(release(world, token, {}), UnknownDelayedRecord)
    world.advance(6)
    assert delivered(world) == [b"a"]


def test_what_is_held_can_be_read() -> None:
    world = _world()
    token = hold(world, b"a", 1).token
    found = _read(world, token)
    assert isinstance(found, Content)
    assert (found.target, found.labels) == ((TOPIC, 1), LABELS)
    assert (found.record.value, found.record.headers) == (b"a", record_of(b"a").headers)
    release(world, token)
    assert isinstance(_read(world, token), UnknownDelayedRecord)


def test_a_decision_that_could_not_be_written_is_open_again() -> None:
    world = _world()
    owner = Owner(world)
    token = hold(world, b"a").token
    with mock.patch.object(world.store.commits, "admit", side_effect=DiskFullError("full")):
        assert isinstance(release(world, token), DiskFullError)
    world.advance(7)
    assert [each[1] for each in owner.checks] == [1]
    assert release(world, token) is None
    assert delivered(world) == [b"a"]


# ---- checks


def test_the_owner_is_asked_at_the_times_that_are_set() -> None:
    world = _world(
        held_record_check_after_ms=2000,
        held_record_check_interval_ms=10_000,
        held_record_check_max=3,
    )
    owner = Owner(world)
    hold(world, b"a")
    hold(world, b"b", check_after_ms=5000)
    world.advance(31)
    times = {value: [(n, at) for v, n, at in owner.checks if v == value] for value in (b"a", b"b")}
    assert times == {b"a": [(1, 2.0), (2, 12.0), (3, 22.0)], b"b": [(1, 5.0), (2, 15.0), (3, 25.0)]}
    assert owner.given_up == []
    world.advance(10)
    assert owner.given_up == [b"a", b"b"]
    assert len(owner.checks) == 6
    assert world.broker.delayed.record_count == 0
    assert owner.at_given_up is not None
    assert isinstance(release(world, owner.at_given_up), UnknownDelayedRecord)
    assert delivered(world) == []


def test_by_default_it_is_asked_after_six_seconds_and_then_every_thirty() -> None:
    world = _world()
    owner = Owner(world)
    hold(world, b"a")
    world.advance(3600)
    assert [at for _, _, at in owner.checks] == [6.0 + 30 * each for each in range(15)]
    assert owner.given_up == [b"a"]


def test_a_record_that_cannot_be_read_is_asked_about_later() -> None:
    world = _world()
    owner = Owner(world)
    hold(world, b"a")
    damage = CorruptionError("file", 0, "damaged")
    with mock.patch.object(world.broker.delayed.store, "stored", side_effect=damage):
        world.advance(30)
    assert owner.checks == []
    world.advance(30)
    assert [times for _, times, _ in owner.checks] == [1]


def test_a_record_is_not_dropped_before_it_was_put_elsewhere() -> None:
    world = _world(held_record_check_max=1)
    owner = Owner(world)
    owner.trouble = DiskFullError("full")
    hold(world, b"a")
    world.advance(100)
    assert owner.given_up == [b"a"] * 3
    assert len(owner.checks) == 1
    assert world.broker.delayed.record_count == 1
    owner.trouble = None
    world.advance(30)
    assert owner.given_up == [b"a"] * 4
    assert world.broker.delayed.record_count == 0


def test_one_that_is_decided_about_while_it_is_given_up() -> None:
    world = _world(held_record_check_max=1)
    token = hold(world, b"a").token
    put_elsewhere: Outcome[None] = Outcome()

    async def give_up(*_: object) -> None:
        await put_elsewhere

    world.broker.delayed.on_given_up.append(give_up)
    world.advance(40)
    assert release(world, token) is None
    put_elsewhere.succeed(None)
    world.advance(40)
    assert delivered(world) == [b"a"]


def test_the_owner_may_decide_when_it_is_asked() -> None:
    world = _world()
    token = hold(world, b"a").token

    def decide(found: Token, *_: object) -> None:
        assert found == token
        start(world.broker.delayed.release(found, LABELS, NODE_ITSELF)).then(lambda _: None)

    world.broker.delayed.on_check.append(decide)
    world.advance(100)
    assert delivered(world) == [b"a"]


def test_a_restart_asks_anew() -> None:
    world = _world(held_record_check_max=2)
    hold(world, b"a")
    world.advance(40)
    later = world.reopened()
    owner = Owner(later)
    later.advance(100)
    assert [times for _, times, _ in owner.checks] == [1, 2]
    assert owner.given_up == [b"a"]
