"""Goal: a tail gives every visible record once, in order, in bounded pieces, and wakes its owner.

Method: a partition in a world on virtual time; transactions, deletions and a gap are made by hand.
"""

from __future__ import annotations

import pytest

from dragoman.broker.local_reader import LocalReader
from dragoman.errors import DragomanError, OffsetOutOfRangeError
from dragoman.limits import FETCHES_PARKED_MAX
from dragoman.log.batch import TRANSACTIONAL
from dragoman.outcome import start
from dragoman.replication.replica import Acknowledge as Done
from dragoman.replication.replica import Replica
from worlds.broker import World, batch_of

PLENTY = 1 << 20


class Woken:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def replica(world: World) -> Replica:
    return world.create("t")[0]


def tail_at(replica: Replica, offset: int = 0) -> tuple[LocalReader, Woken]:
    woken = Woken()
    return LocalReader(replica, offset, woken), woken


def values(tail: LocalReader, bytes_max: int = PLENTY, count_max: int = 1000) -> list[bytes | None]:
    return [record.value for record in tail.read(bytes_max, count_max)]


def test_records_come_in_order_and_no_more_than_asked_for(world: World, replica: Replica) -> None:
    world.write(replica, b"0", b"1", b"2")
    world.write(replica, b"3" * 100, b"4")
    tail, _ = tail_at(replica)
    assert values(tail, count_max=2) == [b"0", b"1"]
    assert tail.offset == 2
    assert values(tail, bytes_max=1) == [b"2"]
    assert values(tail, bytes_max=1) == [b"3" * 100], "one record is given whatever its size"
    assert values(tail) == [b"4"]
    assert values(tail) == []
    assert tail.offset == 5


def test_a_position_inside_a_batch(world: World, replica: Replica) -> None:
    world.write(replica, b"0", b"1", b"2")
    assert values(tail_at(replica, 1)[0]) == [b"1", b"2"]


def test_new_records_wake_a_waiting_tail_once(world: World, replica: Replica) -> None:
    tail, woken = tail_at(replica)
    tail.wait()
    tail.wait()
    assert woken.count == 0
    world.write(replica, b"a")
    world.write(replica, b"b")
    assert woken.count == 1
    assert values(tail, count_max=1) == [b"a"]
    tail.wait()
    assert woken.count == 2, "there was more already"
    assert values(tail) == [b"b"]


def test_a_position_past_the_end_waits_for_its_record(world: World, replica: Replica) -> None:
    tail, woken = tail_at(replica, 2)
    assert values(tail) == []
    tail.wait()
    world.write(replica, b"0")
    world.write(replica, b"1")
    assert woken.count == 0
    world.write(replica, b"2")
    assert woken.count == 1
    assert values(tail) == [b"2"]


def test_open_and_aborted_transactions_are_given_to_who_wants_them(
    world: World, replica: Replica
) -> None:
    tail = LocalReader(replica, 0, Woken(), committed_only=False)
    staged = batch_of(
        b"staged", attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0
    )
    world.append(replica, staged)
    assert (values(tail), tail.end_offset) == ([b"staged"], 1)
    world.end_transaction(replica, 7, commit=False)
    world.write(replica, b"plain")
    assert values(tail) == [b"plain"]


def test_nothing_of_an_open_or_aborted_transaction_is_given(world: World, replica: Replica) -> None:
    def write(value: bytes, sequence: int) -> None:
        batch = batch_of(
            value,
            attributes=TRANSACTIONAL,
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
        )
        world.append(replica, batch)

    tail, woken = tail_at(replica)
    write(b"aborted", 0)
    assert values(tail) == []
    tail.wait()
    assert woken.count == 0
    world.end_transaction(replica, 7, commit=False)
    assert woken.count == 1
    assert values(tail) == []
    assert tail.offset == 2, "nothing to give, but the place moved on"
    write(b"committed", 1)
    world.end_transaction(replica, 7, commit=True)
    world.write(replica, b"plain")
    assert values(tail) == [b"committed", b"plain"]


def test_tail_at_a_deleted_position_raises_and_continues_after_a_seek(
    world: World, replica: Replica
) -> None:
    world.write(replica, b"0")
    world.write(replica, b"1")
    tail, _ = tail_at(replica)
    replica.delete_below(1)
    with pytest.raises(OffsetOutOfRangeError):
        tail.read(PLENTY, 10)
    tail.seek(tail.log_start_offset)
    assert values(tail) == [b"1"]


def test_a_deletion_of_everything_wakes_a_waiting_tail(world: World, replica: Replica) -> None:
    world.write(replica, b"0")
    tail, woken = tail_at(replica, 1)
    tail.wait()
    outcome: list[DragomanError | None] = []
    done: Done = outcome.append
    start(world.broker.topics.delete("t")).then(done)
    world.settle()
    assert outcome == [None]
    assert woken.count == 1
    with pytest.raises(DragomanError, match="gone"):
        tail.read(PLENTY, 10)


def test_a_closed_tail_is_not_woken(world: World, replica: Replica) -> None:
    tail, woken = tail_at(replica)
    tail.wait()
    tail.close()
    world.write(replica, b"0")
    assert woken.count == 0
    assert not replica.parked


def test_too_many_waiting_readers_are_refused(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FETCHES_PARKED_MAX > 1
    monkeypatch.setattr("dragoman.replication.replica.FETCHES_PARKED_MAX", 1)
    tail_at(replica)[0].wait()
    with pytest.raises(DragomanError, match="too many readers"):
        tail_at(replica)[0].wait()
