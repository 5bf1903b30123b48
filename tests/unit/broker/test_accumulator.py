"""Goal: single records of one turn share a batch, and no record spoils what others sent.

Method: a broker on virtual time; batches counted by their headers on disk.
"""

from __future__ import annotations

from dragoman.broker.errors import InvalidRecord, MessageTooLarge, NotLeader
from dragoman.broker.fetch import Wanted
from dragoman.errors import DragomanError
from dragoman.limits import GATHERED_BATCH_BYTES_MAX
from dragoman.log.batch import Record, batches
from dragoman.replication.replica import Replica
from worlds.broker import Follower, World


class Told:
    def __init__(self, world: World, replica: Replica) -> None:
        self._world = world
        self._replica = replica
        self.offsets: list[int] = []
        self.errors: list[DragomanError] = []
        self.is_leader_only = False

    def add(self, *values: bytes, key: bytes | None = b"k") -> None:
        for value in values:
            record = Record(key=key, value=value, timestamp=1_704_067_200_000)
            self._world.broker.accumulator.add(
                self._replica, record, self._placed, is_leader_only=self.is_leader_only
            )

    def add_all(self, *values: bytes, key: bytes | None = b"k") -> None:
        records = [Record(key=key, value=each, timestamp=1_704_067_200_000) for each in values]
        self._world.broker.accumulator.add_all(
            self._replica, records, self._placed, is_leader_only=self.is_leader_only
        )

    def _placed(self, offset: int, error: DragomanError | None) -> None:
        self.offsets.append(offset)
        if error is not None:
            self.errors.append(error)

    def counts(self) -> list[int]:
        """Records of each batch in the log."""
        self._world.settle()
        found = self._world.fetch([Wanted(self._replica, 0, 100 << 20)], bytes_max=100 << 20)
        (read,) = found.found
        return [header.record_count for header, _ in batches(memoryview(b"".join(read.buffers)))]


def test_records_of_a_turn_are_one_batch(world: World) -> None:
    told = Told(world, *world.create("t"))
    told.add(b"a", b"b", b"c")
    assert told.offsets == []
    assert told.counts() == [3]
    told.add(b"d")
    assert told.counts() == [3, 1]
    assert told.offsets == [0, 1, 2, 3]


def test_nothing_is_appended_to_a_copy_that_was_led_when_it_was_looked_up(world: World) -> None:
    (replica,) = world.create("t")
    told = Told(world, replica)
    told.add(b"a")
    replica.is_led = False
    world.settle()
    assert told.offsets == [-1]
    assert isinstance(told.errors[0], NotLeader)
    assert replica.log.log_end_offset == 0


def test_large_records_do_not_make_a_batch_that_is_refused(world: World) -> None:
    told = Told(world, *world.create("t"))
    told.add(*[bytes(GATHERED_BATCH_BYTES_MAX * 2 // 3)] * 4)
    assert told.counts() == [1, 1, 1, 1]
    assert told.offsets == [0, 1, 2, 3]
    assert not told.errors


def test_batches_stay_below_the_bound_of_the_topic(world: World) -> None:
    told = Told(world, *world.create("t", config={"max.message.bytes": "1000"}))
    told.add(*[bytes(100)] * 20)
    counts = told.counts()
    assert sum(counts) == 20
    assert max(counts) > 1
    assert not told.errors


def test_record_above_the_bound_is_refused_alone(world: World) -> None:
    told = Told(world, *world.create("t", config={"max.message.bytes": "1000"}))
    told.add(b"a", bytes(1001), bytes(990), b"b")
    assert told.counts() == [1, 1]
    assert sorted(told.offsets) == [-1, -1, 0, 1]
    assert [type(each) for each in told.errors] == [MessageTooLarge] * 2


def test_record_without_a_key_is_refused_alone_where_keys_are_needed(world: World) -> None:
    told = Told(world, *world.create("t", config={"cleanup.policy": "compact"}))
    told.add(b"a")
    told.add(b"b", key=None)
    told.add(b"c")
    assert told.counts() == [2]
    assert told.offsets == [-1, 0, 1]
    assert [type(each) for each in told.errors] == [InvalidRecord]


def test_several_records_of_one_owner_are_contiguous_and_acknowledged_once(world: World) -> None:
    told = Told(world, *world.create("t"))
    told.add(b"first")
    told.add_all(b"a", b"b", b"c")
    told.add(b"last")
    assert told.counts() == [5]
    assert told.offsets == [0, 1, 4]


def test_several_records_that_do_not_fit_one_batch_are_acknowledged_once(world: World) -> None:
    told = Told(world, *world.create("t", config={"max.message.bytes": "1000"}))
    told.add(b"before")
    told.add_all(*[bytes(300)] * 10)
    told.add(b"after")
    assert sum(told.counts()) == 12
    assert told.offsets == [0, 1, 11]


def test_none_of_several_is_appended_when_one_is_refused(world: World) -> None:
    (replica,) = world.create("t", config={"max.message.bytes": "1000"})
    told = Told(world, replica)
    told.add_all(bytes(300), bytes(2000))
    world.settle()
    assert replica.log.log_end_offset == 0
    assert told.offsets == [-1]


def test_error_of_one_part_is_the_error_of_all(world: World) -> None:
    told = Told(world, *world.create("t", config={"max.message.bytes": "1000"}))
    # Allowed by its own size, and too large with the header of its batch.
    told.add_all(bytes(300), bytes(990))
    assert told.counts() == [1]
    assert told.offsets == [-1]
    assert [type(each) for each in told.errors] == [MessageTooLarge]


def test_gathered_records_are_appended_before_those_of_others(world: World) -> None:
    (replica,) = world.create("t")
    told = Told(world, replica)
    told.add(b"a", b"b")
    world.broker.accumulator.flush(replica)
    assert replica.log.log_end_offset == 2
    world.broker.accumulator.flush(replica)
    told.add(b"c")
    assert told.counts() == [2, 1]
    assert told.offsets == [0, 1, 2]


def test_owners_of_one_batch_are_answered_at_their_own_marks(world: World) -> None:
    (replica,) = world.create("t")
    follower = replica.role = Follower(replica)
    for_all, for_leader = Told(world, replica), Told(world, replica)
    for_all.add(b"a")
    for_leader.is_leader_only = True
    for_leader.add(b"b")
    for_all.add_all(b"c", b"d")
    for_leader.add_all(b"e", b"f")
    world.settle()
    replica.advance()
    assert (for_all.offsets, for_leader.offsets) == ([], [1, 4])
    follower.is_back = True
    replica.advance()
    assert (for_all.offsets, for_leader.offsets) == ([0, 2], [1, 4])
    assert for_all.counts() == [6]


def test_owners_of_all_kinds_hear_of_a_batch_that_is_refused(world: World) -> None:
    (replica,) = world.create("t")
    for_all, for_leader = Told(world, replica), Told(world, replica)
    for_leader.is_leader_only = True
    for_all.add(b"a")
    for_leader.add(b"b")
    replica.is_led = False
    world.settle()
    assert for_all.offsets == for_leader.offsets == [-1]
