"""Goal: every node has in memory what a global table says, in the order of its log.

Method: one node that is started again, and two nodes on one virtual time of which one has the log;
the line between them is held, cut, and loses answers.
"""

from __future__ import annotations

import pytest

from dragoman.broker.broker import Broker
from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.errors import NotEnoughReplicas, NotLeader
from dragoman.broker.topics import NewTopic
from dragoman.errors import ClusterError, DragomanError
from dragoman.limits import (
    FAR_READ_RETRY_S,
    FAR_READ_WAIT_MS,
    FOLLOWED_RETRY_S,
    FOLLOWED_TRIES_MAX,
    INTERNAL_RECORDS_PER_SLICE,
)
from dragoman.log.batch import Record
from dragoman.outcome import start
from dragoman.security.access import Caller
from worlds.broker import Outcome, World
from worlds.two_nodes import Pair

NAME = "__followed"


class Table:
    """Keys and values, as the topic says."""

    def __init__(self, broker: Broker) -> None:
        self.values: dict[bytes, bytes] = {}
        self.offsets: list[int] = []
        self.topic = broker.tables.open(NAME, self._apply, self._forget)

    def _forget(self) -> None:
        self.values.clear()

    def _apply(self, record: Record) -> None:
        assert record.key is not None
        self.offsets.append(record.offset)
        self.values.pop(record.key, None)
        if record.value is not None:
            self.values[record.key] = record.value

    def put(self, key: str, value: str | None) -> Outcome:
        outcome = Outcome()

        def done(offset: int | DragomanError) -> None:
            if isinstance(offset, DragomanError):
                outcome(offset)
            else:
                assert offset in self.offsets, "acknowledged before it is applied"
                outcome(None)

        start(self.topic.put(key.encode(), None if value is None else value.encode())).then(done)
        return outcome

    def loaded(self) -> Outcome:
        outcome = Outcome()
        start(self.topic.loaded()).then(outcome)
        return outcome


# ---- one node


def test_nothing_was_put_and_nothing_is_to_be_read() -> None:
    table = Table(World().broker)
    assert table.topic.is_loaded
    assert table.loaded().error is None
    assert table.topic.partition is None
    assert not table.topic.has_copy


def test_what_is_put_counts_when_it_is_durable() -> None:
    world = World()
    table = Table(world.broker)
    outcomes = [table.put("a", "1"), table.put("b", "2"), table.put("a", None)]
    assert not table.values
    world.settle()
    assert [each.error for each in outcomes] == [None, None, None]
    assert table.values == {b"b": b"2"}
    assert table.offsets == [0, 1, 2]
    assert world.broker.image.topics[NAME].is_internal
    assert world.broker.image.topics[NAME].config["cleanup.policy"] == "compact"
    assert table.topic.has_copy
    assert table.topic.record_at(1).value == b"2"


@pytest.mark.parametrize("kill", [False, True])
def test_everything_is_read_back_after_a_start_in_slices(kill: bool) -> None:
    world = World()
    table = Table(world.broker)
    count = 2 * INTERNAL_RECORDS_PER_SLICE + 1
    for number in range(count):
        table.put(str(number), "x")
    world.settle()
    again = world.reopened(kill=kill)
    table = Table(again.broker)
    assert not table.topic.is_loaded
    loaded = table.loaded()
    assert not loaded.is_known
    assert 0 < len(table.values) < count
    again.settle()
    assert loaded.error is None
    assert len(table.values) == count
    assert table.topic.is_loaded
    assert table.loaded().error is None


def test_an_error_after_the_wait_is_that_of_its_waiter_alone() -> None:
    world = World()
    Table(world.broker).put("a", "1")
    world.settle()
    table = Table(world.broker)
    refused = Outcome()

    async def wait_and_raise() -> None:
        await table.topic.loaded()
        raise NotLeader("for the test", 7)

    start(wait_and_raise()).then(refused)
    loaded = table.loaded()
    world.settle()
    assert isinstance(refused.error, NotLeader)
    assert loaded.error is None


def test_those_that_wait_resume_in_the_order_in_which_they_came() -> None:
    world = World()
    Table(world.broker).put("a", "1")
    world.settle()
    table = Table(world.broker)
    resumed: list[str] = []
    for name in ("first", "second", "third"):
        start(table.topic.loaded()).then(lambda _, name=name: resumed.append(name))
    start(table.topic.put(b"b", b"2")).then(lambda _: resumed.append("put"))
    start(table.topic.put(b"c", b"3")).then(lambda _: resumed.append("put after it"))
    world.settle()
    assert resumed == ["first", "second", "third", "put", "put after it"]


def test_a_put_that_the_leader_refuses_at_once_fails_like_any_other() -> None:
    world = World()
    table = Table(world.broker)
    table.put("a", "1")
    world.settle()

    def refuse(*_: object, caller: Caller) -> None:
        assert caller == NODE_ITSELF
        raise NotEnoughReplicas("for the test")

    table.topic._leader_queues.add = refuse
    assert isinstance(table.put("b", "2").error, NotEnoughReplicas)


def test_after_a_failure_everything_is_read_anew() -> None:
    """Here a record that cannot be applied stands for a reader that fails."""
    world = World()
    table = Table(world.broker)
    table.put("a", "1")
    world.settle()
    is_bad = True

    def apply(record: Record) -> None:
        if is_bad and record.key == b"b":
            raise NotLeader("for the test", 7)
        table._apply(record)

    table.topic._apply = apply
    put = table.put("b", "2")
    world.settle()
    assert isinstance(put.error, NotLeader)
    assert not table.topic.is_loaded
    is_bad = False
    table.values[b"gone meanwhile"] = b""
    assert table.loaded().error is None
    assert table.values == {b"a": b"1", b"b": b"2"}


# ---- two nodes


@pytest.fixture
def pair() -> Pair:
    """Node 2 has the log."""
    made = Pair()
    topic = NewTopic(name=NAME, assignment=((2,),), is_internal=True)
    start(made.one.broker.topics.create(topic)).then(lambda _: None)
    made.settle()
    return made


def test_both_nodes_have_what_either_puts(pair: Pair) -> None:
    far, near = Table(pair.one.broker), Table(pair.two.broker)
    outcomes = [far.put("a", "1"), near.put("b", "2"), far.put("b", "3")]
    pair.settle()
    assert [each.error for each in outcomes] == [None] * 3
    loaded = [near.loaded(), far.loaded()]
    pair.settle()
    assert [each.error for each in loaded] == [None, None]
    assert far.values == near.values
    assert far.values.keys() == {b"a", b"b"}
    assert (far.topic.has_copy, near.topic.has_copy) == (False, True)
    near.put("c", "4")
    pair.settle()
    assert far.values[b"c"] == b"4", "followed"


def test_who_has_read_all_back_does_not_wait_for_what_others_put(pair: Pair) -> None:
    """Requests that arrive meanwhile are answered, then and later."""
    far = Table(pair.one.broker)
    far.put("a", "1")
    pair.settle()
    pair.lines[1].is_cut = True
    pair.advance(FAR_READ_WAIT_MS / 1000 + FAR_READ_RETRY_S)
    pair.lines[1].is_cut = False
    put = far.put("b", "2")
    pair.settle()
    assert not put.is_known, "it is written, and will be read with the next try"
    assert far.loaded().error is None
    pair.advance(FAR_READ_RETRY_S)
    pair.settle()
    assert put.error is None
    assert far.loaded().error is None


def test_while_the_leader_is_away_it_is_asked_again(pair: Pair) -> None:
    near, far = Table(pair.two.broker), Table(pair.one.broker)
    near.put("a", "1")
    pair.settle()
    pair.lines[1].is_cut = True
    loaded = far.loaded()
    pair.advance(3 * FOLLOWED_RETRY_S)
    assert not loaded.is_known
    pair.lines[1].is_cut = False
    pair.advance(FOLLOWED_RETRY_S)
    pair.settle()
    assert loaded.error is None
    assert far.values == {b"a": b"1"}


def test_who_waits_too_long_is_refused_and_may_come_again(pair: Pair) -> None:
    near, far = Table(pair.two.broker), Table(pair.one.broker)
    near.put("a", "1")
    pair.settle()
    pair.lines[1].is_cut = True
    loaded = far.loaded()
    pair.advance((FOLLOWED_TRIES_MAX + 1) * FOLLOWED_RETRY_S)
    assert isinstance(loaded.error, ClusterError)
    assert not far.topic.is_loaded
    pair.lines[1].is_cut = False
    again = far.loaded()
    pair.settle()
    assert again.error is None
    assert far.values == {b"a": b"1"}


def test_put_with_a_lost_answer_fails_although_the_record_may_count(pair: Pair) -> None:
    far = Table(pair.one.broker)
    far.put("a", "1")
    pair.settle()
    pair.lines[1].loses_answers = True
    put = far.put("a", "2")
    pair.settle()
    assert isinstance(put.error, ClusterError)
    pair.lines[1].loses_answers = False
    pair.advance(60)
    pair.settle()
    assert far.values == {b"a": b"2"}
