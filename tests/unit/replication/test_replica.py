"""Goal: waiters of a partition are called exactly once, in order, and never too early.

Method: a replica of a broker on virtual time, whose commits happen on the test's command.
"""

from __future__ import annotations

import pytest

from dragoman.broker.errors import FencedLeaderEpoch, Overloaded, ShuttingDown, UnknownLeaderEpoch
from dragoman.cluster.events import LeaderChanged
from dragoman.errors import DiskFullError
from dragoman.replication.replica import Replica
from worlds.broker import Outcome, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def replica(world: World) -> Replica:
    return world.create("t")[0]


class Parked:
    def __init__(self) -> None:
        self.woken = 0
        self.parks_again_on: Replica | None = None

    def data_arrived(self, replica: Replica) -> None:
        self.woken += 1
        if self.parks_again_on is not None:
            self.parks_again_on.park(self)


# ---- producers


def test_acknowledgement_waits_for_the_commit(world: World, replica: Replica) -> None:
    appended = world.write(replica, b"a", settle=False)
    outcome = Outcome()
    replica.when_committed(appended.next_offset, outcome)
    assert not outcome.is_known
    assert replica.log.high_watermark == 0
    world.settle()
    assert outcome.error is None
    assert replica.log.high_watermark == 1


def test_what_is_committed_is_acknowledged_at_once(world: World, replica: Replica) -> None:
    appended = world.write(replica, b"a")
    outcome = Outcome()
    replica.when_committed(appended.next_offset, outcome)
    assert outcome.error is None


def test_acknowledgements_come_in_the_order_of_the_appends(world: World, replica: Replica) -> None:
    order: list[int] = []
    for index in range(5):
        appended = world.write(replica, b"a", settle=False)
        replica.when_committed(appended.next_offset, lambda _, index=index: order.append(index))
    world.settle()
    assert order == [0, 1, 2, 3, 4]


def test_waiter_may_append_again_from_its_callback(world: World, replica: Replica) -> None:
    second = Outcome()

    def again(_: object) -> None:
        appended = world.write(replica, b"b", settle=False)
        replica.when_committed(appended.next_offset, second)

    appended = world.write(replica, b"a", settle=False)
    replica.when_committed(appended.next_offset, again)
    world.settle()
    assert second.error is None
    assert replica.log.high_watermark == 2


def test_waiters_fail_once_and_are_forgotten(world: World, replica: Replica) -> None:
    outcomes = [Outcome(), Outcome()]
    for outcome in outcomes:
        appended = world.write(replica, b"a", settle=False)
        replica.when_committed(appended.next_offset, outcome)
    error = ShuttingDown("bye")
    replica.fail_waiters(error)
    assert [each.error for each in outcomes] == [error, error]
    world.settle()
    assert [len(each.calls) for each in outcomes] == [1, 1]


def test_who_waits_for_records_that_stay_goes_on(world: World, replica: Replica) -> None:
    kept, taken_back = Outcome(), Outcome()
    for outcome in (kept, taken_back):
        appended = world.write(replica, b"a", settle=False)
        replica.when_committed(appended.next_offset, outcome)
    error = DiskFullError("full")
    replica.fail_waiters(error, above=1)
    assert taken_back.error is error
    assert not kept.is_known
    world.settle()
    assert kept.error is None


def test_past_the_bound_of_waiters_the_next_is_refused(
    world: World, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.replication.replica.ACKS_WAITING_MAX", 2)
    outcomes = [Outcome() for _ in range(3)]
    for outcome in outcomes:
        appended = world.write(replica, b"a", settle=False)
        replica.when_committed(appended.next_offset, outcome)
    assert isinstance(outcomes[2].error, Overloaded)
    world.settle()
    assert [each.error for each in outcomes[:2]] == [None, None]


# ---- parked fetches


def test_wake_tells_each_once_and_forgets_it(replica: Replica) -> None:
    fetches = [Parked(), Parked()]
    for fetch in fetches:
        assert replica.park(fetch)
    replica.wake()
    replica.wake()
    assert [each.woken for each in fetches] == [1, 1]


def test_fetch_may_park_again_while_it_is_woken(replica: Replica) -> None:
    fetch = Parked()
    fetch.parks_again_on = replica
    replica.park(fetch)
    replica.wake()
    assert fetch.woken == 1
    replica.wake()
    assert fetch.woken == 2


def test_unparked_fetch_is_not_woken(replica: Replica) -> None:
    fetch = Parked()
    replica.unpark(fetch)
    replica.park(fetch)
    replica.unpark(fetch)
    replica.wake()
    assert fetch.woken == 0


def test_failing_waiters_wakes_parked_fetches(replica: Replica) -> None:
    fetch = Parked()
    replica.park(fetch)
    replica.fail_waiters(ShuttingDown("bye"))
    assert fetch.woken == 1


def test_parking_is_bounded(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.replication.replica.FETCHES_PARKED_MAX", 2)
    assert [replica.park(Parked()) for _ in range(3)] == [True, True, False]


# ---- epochs


def test_client_of_another_leadership_is_refused(world: World, replica: Replica) -> None:
    for epoch in (-1, 0):
        replica.check_epoch(epoch)
    with pytest.raises(UnknownLeaderEpoch, match="t-0"):
        replica.check_epoch(1)
    world.broker.image.apply(
        LeaderChanged(
            partition_id=replica.metadata.partition_id,
            leader=1,
            leader_epoch=3,
            in_sync=(1,),
            partition_epoch=1,
        )
    )
    replica.check_epoch(3)
    with pytest.raises(FencedLeaderEpoch, match="epoch is 3, got 2"):
        replica.check_epoch(2)
    assert replica.leader_epoch == 3
