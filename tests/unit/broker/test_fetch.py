"""Goal: a fetch answers exactly once, with all it may and no more, as soon as it can.

Method: a broker on virtual time. Appends that are staged but not committed, open and aborted
transactions, deletions, stops and time-outs happen between parking and waking.
"""

from __future__ import annotations

import pytest

from dragoman import limits
from dragoman.broker.errors import UnknownTopic
from dragoman.broker.fetch import Wanted
from dragoman.errors import OffsetOutOfRangeError
from dragoman.log.batch import TRANSACTIONAL
from dragoman.outcome import start
from dragoman.replication.replica import Replica
from worlds.broker import World, batch_of


def open_transaction(
    world: World, replica: Replica, producer_id: int, value: bytes, sequence: int = 0
) -> None:
    world.append(
        replica,
        batch_of(
            value,
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        ),
    )


@pytest.fixture
def replica(world: World) -> Replica:
    (made,) = world.create("orders")
    return made


# ---- answered at once


def test_data_that_is_there_is_answered_at_once(world: World, replica: Replica) -> None:
    world.write(replica, b"a", b"b")
    probe = world.fetch([Wanted(replica, 0, 1000)])
    assert probe.parked is None
    assert probe.values == [[b"a", b"b"]]
    (found,) = probe.found
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (2, 2, 0)
    assert found.aborted is None


def test_offset_inside_a_batch_returns_the_whole_batch(world: World, replica: Replica) -> None:
    world.write(replica, b"a", b"b", b"c")
    assert world.fetch([Wanted(replica, 1, 1000)]).values == [[b"a", b"b", b"c"]]


def test_no_wait_means_an_empty_answer_now(world: World, replica: Replica) -> None:
    assert world.fetch([Wanted(replica, 0, 1000)], wait_s=0).values == [[]]
    assert world.fetch([Wanted(replica, 0, 1000)], wait_s=-5).values == [[]]


def test_zero_bytes_wanted_means_now(world: World, replica: Replica) -> None:
    assert world.fetch([Wanted(replica, 0, 1000)], bytes_min=0).values == [[]]


def test_fetch_of_nothing_is_answered_at_once(world: World) -> None:
    assert world.fetch([]).found == []


@pytest.mark.parametrize("offset", [-1, 3, 1 << 62])
def test_offset_outside_the_log_is_an_error_with_the_marks(
    world: World, replica: Replica, offset: int
) -> None:
    world.write(replica, b"a", b"b")
    (found,) = world.fetch([Wanted(replica, offset, 1000)]).found
    assert isinstance(found.error, OffsetOutOfRangeError)
    assert (found.high_watermark, found.log_start_offset) == (2, 0)
    assert not found.buffers


def test_offset_below_the_log_start_is_an_error(world: World, replica: Replica) -> None:
    world.write(replica, b"a")
    world.write(replica, b"b")
    replica.log.move_log_start(1)
    (found,) = world.fetch([Wanted(replica, 0, 1000)]).found
    assert isinstance(found.error, OffsetOutOfRangeError)
    assert found.log_start_offset == 1


def test_committed_end_below_the_log_start_is_an_error(world: World, replica: Replica) -> None:
    open_transaction(world, replica, 7, b"secret")
    world.write(replica, b"after")
    replica.log.move_log_start(1)
    (found,) = world.fetch([Wanted(replica, 0, 1000)], committed_only=True).found
    assert found.last_stable_offset == 0
    assert isinstance(found.error, OffsetOutOfRangeError)


def test_error_on_one_partition_answers_for_all(world: World) -> None:
    good, bad = world.create("two", 2)
    probe = world.fetch([Wanted(good, 0, 1000), Wanted(bad, 7, 1000)], bytes_min=100)
    assert [each.error is None for each in probe.found] == [True, False]


def test_partition_that_could_not_be_found_keeps_its_error(world: World, replica: Replica) -> None:
    missing = UnknownTopic("no such topic")
    first, second = world.fetch([Wanted(None, 0, 0, missing), Wanted(replica, 0, 1000)]).found
    assert first.error is missing
    assert (first.high_watermark, first.log_start_offset, first.size) == (-1, -1, 0)
    assert second.error is None


# ---- how much


def test_first_batch_is_whole_whatever_its_size(world: World, replica: Replica) -> None:
    world.write(replica, b"x" * 5000)
    world.write(replica, b"y" * 5000)
    for bytes_max in (0, 1, 4999):
        assert world.fetch([Wanted(replica, 0, bytes_max)]).values == [[b"x" * 5000]]
        limited = world.fetch([Wanted(replica, 0, 1 << 20)], bytes_max=bytes_max)
        assert limited.values == [[b"x" * 5000]]


def test_first_batch_is_whole_when_read_from_the_file(world: World, replica: Replica) -> None:
    world.write(replica, b"x" * 50_000)
    world.write(replica, b"y")
    replica.log.store.flush(replica.log)
    replica.log.clear_tail()
    assert world.fetch([Wanted(replica, 0, 1)]).values == [[b"x" * 50_000]]


def test_only_the_first_partition_with_data_may_pass_the_limit(world: World) -> None:
    empty, first, second = world.create("three", 3)
    for replica in (first, second):
        world.write(replica, b"x" * 5000)
    wanted = [Wanted(each, 0, 1 << 20) for each in (empty, first, second)]
    assert world.fetch(wanted, bytes_max=100).values == [[], [b"x" * 5000], []]
    wanted = [Wanted(empty, 0, 1 << 20), Wanted(first, 0, 1 << 20), Wanted(second, 0, 100)]
    assert world.fetch(wanted).values == [[], [b"x" * 5000], []]


def test_answer_keeps_the_order_of_the_request(world: World) -> None:
    replicas = world.create("many", 4)
    for index, replica in enumerate(replicas):
        world.write(replica, b"%d" % index)
    order = [2, 0, 3, 1]
    probe = world.fetch([Wanted(replicas[index], 0, 1000) for index in order])
    assert probe.values == [[b"2"], [b"0"], [b"3"], [b"1"]]


def test_limit_over_all_partitions_is_kept_after_the_first_batch(world: World) -> None:
    replicas = world.create("many", 4)
    for replica in replicas:
        for _ in range(3):
            world.write(replica, b"x" * 1000)
    probe = world.fetch([Wanted(each, 0, 1 << 20) for each in replicas], bytes_max=5000)
    assert sum(each.size for each in probe.found) <= 5000
    assert len(probe.values[0]) == 3
    assert len(probe.values[1]) == 1


def test_partition_limit_is_kept_after_the_first_batch(world: World, replica: Replica) -> None:
    for _ in range(5):
        world.write(replica, b"x" * 1000)
    assert len(world.fetch([Wanted(replica, 0, 2500)]).values[0]) == 2


# ---- parked


def test_parked_fetch_is_woken_by_an_append(world: World, replica: Replica) -> None:
    probe = world.fetch([Wanted(replica, 0, 1000)])
    assert probe.parked is not None
    world.settle()
    assert not probe.is_answered
    world.write(replica, b"a")
    assert probe.values == [[b"a"]]
    assert not replica.parked


def test_append_staged_before_the_fetch_wakes_it_when_it_becomes_stable(
    world: World, replica: Replica
) -> None:
    world.write(replica, b"a", settle=False)
    probe = world.fetch([Wanted(replica, 0, 1000)])
    assert not probe.is_answered
    world.settle()
    assert probe.values == [[b"a"]]


def test_append_staged_between_two_wakes_is_not_forgotten(world: World, replica: Replica) -> None:
    other = world.create("other")[0]
    probe = world.fetch([Wanted(replica, 0, 1000), Wanted(other, 0, 1000)], bytes_min=100)
    world.write(other, b"b")
    world.write(replica, b"a", settle=False)
    # Wakes the fetch while the append to the first partition is staged only.
    other.wake()
    assert not probe.is_answered
    world.settle()
    assert probe.is_answered
    assert probe.values == [[b"a"], [b"b"]]


def test_fetch_waits_until_enough_bytes_have_come(world: World, replica: Replica) -> None:
    probe = world.fetch([Wanted(replica, 0, 10_000)], bytes_min=3000)
    for count in range(1, 3):
        world.write(replica, b"x" * 1000)
        assert not probe.is_answered, count
    world.write(replica, b"x" * 1000)
    assert len(probe.values[0]) == 3


def test_bytes_of_all_partitions_count_together(world: World) -> None:
    first, second = world.create("two", 2)
    probe = world.fetch([Wanted(first, 0, 9999), Wanted(second, 0, 9999)], bytes_min=2000)
    world.write(first, b"x" * 1000)
    assert not probe.is_answered
    world.write(second, b"y" * 1000)
    assert probe.values == [[b"x" * 1000], [b"y" * 1000]]


def test_bytes_that_do_not_fit_the_partition_limit_do_not_count(
    world: World, replica: Replica
) -> None:
    probe = world.fetch([Wanted(replica, 0, 100)], bytes_min=3000)
    for _ in range(5):
        world.write(replica, b"x" * 1000)
    assert not probe.is_answered
    world.advance(10.0)
    assert len(probe.values[0]) == 1


def test_time_out_answers_with_what_there_is(world: World, replica: Replica) -> None:
    probe = world.fetch([Wanted(replica, 0, 1000)], bytes_min=1000, wait_s=0.5)
    world.write(replica, b"little")
    world.advance(0.4)
    assert not probe.is_answered
    world.advance(0.1)
    assert probe.values == [[b"little"]]


def test_deletion_wakes_with_an_error(world: World, replica: Replica) -> None:
    probe = world.fetch([Wanted(replica, 0, 1000)], bytes_min=1000)
    start(world.broker.topics.delete("orders")).then(lambda _: None)
    world.settle()
    (found,) = probe.found
    assert isinstance(found.error, UnknownTopic)


def test_stop_answers_with_what_there_is(world: World, replica: Replica) -> None:
    world.write(replica, b"little")
    probe = world.fetch([Wanted(replica, 0, 1000)], bytes_min=1000)
    world.broker.stop()
    assert probe.values == [[b"little"]]


def test_cancelled_fetch_never_answers_and_leaves_nothing(world: World) -> None:
    replicas = world.create("two", 2)
    probe = world.fetch([Wanted(each, 0, 1000) for each in replicas])
    assert probe.parked is not None
    world.broker.fetches.cancel(probe.parked)
    assert not any(each.parked for each in replicas)
    world.write(replicas[0], b"a")
    world.advance(100)
    world.broker.stop()
    assert not probe.is_answered


def test_answered_fetch_is_parked_nowhere(world: World) -> None:
    replicas = world.create("two", 2)
    probe = world.fetch([Wanted(each, 0, 1000) for each in replicas])
    world.write(replicas[1], b"a")
    assert probe.is_answered
    assert not any(each.parked for each in replicas)
    world.advance(100)
    assert len(probe.answers) == 1


def test_every_parked_fetch_is_woken(world: World, replica: Replica) -> None:
    probes = [world.fetch([Wanted(replica, 0, 1000)]) for _ in range(100)]
    world.write(replica, b"a")
    assert [probe.values for probe in probes] == [[[b"a"]]] * 100


def test_same_partition_twice_in_one_fetch(world: World, replica: Replica) -> None:
    probe = world.fetch([Wanted(replica, 0, 1000), Wanted(replica, 0, 1000)])
    world.write(replica, b"a")
    assert probe.values == [[b"a"], [b"a"]]


def test_past_the_bound_of_parked_fetches_the_answer_comes_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.replication.replica.FETCHES_PARKED_MAX", 2)
    first, second = world.create("two", 2)
    for _ in range(2):
        assert not world.fetch([Wanted(second, 0, 1000)]).is_answered
    probe = world.fetch([Wanted(first, 0, 1000), Wanted(second, 0, 1000)])
    assert probe.values == [[], []]
    assert not first.parked
    assert second.parked is not None
    assert len(second.parked) == 2
    assert limits.FETCHES_PARKED_MAX > 2


# ---- isolation


def test_open_transaction_is_hidden_from_readers_of_committed_records(
    world: World, replica: Replica
) -> None:
    world.write(replica, b"before")
    open_transaction(world, replica, 7, b"secret")
    world.write(replica, b"after")
    committed = world.fetch([Wanted(replica, 0, 1 << 20)], committed_only=True)
    assert committed.values == [[b"before"]]
    (found,) = committed.found
    assert (found.high_watermark, found.last_stable_offset, found.aborted) == (3, 1, [])
    everything = world.fetch([Wanted(replica, 0, 1 << 20)])
    assert everything.values == [[b"before", b"secret", b"after"]]
    assert everything.found[0].aborted is None


def test_commit_wakes_readers_of_committed_records(world: World, replica: Replica) -> None:
    open_transaction(world, replica, 7, b"secret")
    probe = world.fetch([Wanted(replica, 0, 1 << 20)], committed_only=True)
    world.write(replica, b"after")
    assert not probe.is_answered
    world.end_transaction(replica, 7, commit=True)
    assert probe.values == [[b"secret", b"after"]]
    assert probe.found[0].aborted == []
    assert probe.found[0].last_stable_offset == 3


def test_what_a_commit_uncovers_counts_as_new_bytes(world: World, replica: Replica) -> None:
    open_transaction(world, replica, 7, b"x" * 5000)
    probe = world.fetch([Wanted(replica, 0, 1 << 20)], bytes_min=4000, committed_only=True)
    # The marker itself is 78 bytes.
    world.end_transaction(replica, 7, commit=True)
    assert probe.values == [[b"x" * 5000]]


def test_aborted_transaction_is_listed_with_its_first_offset(
    world: World, replica: Replica
) -> None:
    world.write(replica, b"before")
    open_transaction(world, replica, 9, b"one")
    open_transaction(world, replica, 7, b"two")
    open_transaction(world, replica, 9, b"three", sequence=1)
    world.end_transaction(replica, 7, commit=False)
    world.end_transaction(replica, 9, commit=False)
    (found,) = world.fetch([Wanted(replica, 0, 1 << 20)], committed_only=True).found
    assert found.aborted == [(9, 1), (7, 2)]
    assert found.last_stable_offset == 6
    (found,) = world.fetch([Wanted(replica, 0, 1 << 20)]).found
    assert found.aborted is None


def test_aborts_outside_the_fetched_range_are_not_listed(world: World, replica: Replica) -> None:
    open_transaction(world, replica, 7, b"x" * 1000)
    world.end_transaction(replica, 7, commit=False)
    world.write(replica, b"y" * 1000)
    open_transaction(world, replica, 8, b"z" * 1000)
    world.end_transaction(replica, 8, commit=False)
    (found,) = world.fetch([Wanted(replica, 2, 100)], committed_only=True).found
    assert found.aborted == []
    (found,) = world.fetch([Wanted(replica, 0, 100)], committed_only=True).found
    assert found.aborted == [(7, 0)]
