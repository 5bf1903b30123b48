"""Times of records by offset: from memory and from files, against the timestamps written."""

from __future__ import annotations

import random

import pytest

from dragoman.limits import OFFSET_TIME_BYTES_MAX
from dragoman.log.batch import LOG_APPEND_TIME, Record, build_batch
from dragoman.log.offset_times import is_in_memory, time_at
from dragoman.log.segment_reader import read_bytes
from dragoman.replication.replica import Replica
from worlds.broker import World, batch_of


def written(world: World, replica: Replica, count: int, *, per_batch: int = 1) -> list[int]:
    """Appends records with ascending timestamps; these, by offset."""
    rng = random.Random(count)
    times: list[int] = []
    now = 1_000_000
    for _ in range(count):
        records = [
            Record(value=b"v" * rng.randrange(2000), timestamp=now + 10 * number)
            for number in range(per_batch)
        ]
        times += [each.timestamp for each in records]
        world.append(replica, build_batch(records))
        now += rng.randrange(1000)
    return times


@pytest.fixture(params=["memory", "files"])
def place(request: pytest.FixtureRequest) -> str:
    return request.param


def in_place(world: World, replica: Replica, place: str) -> None:
    if place == "files":
        replica.log.flush()
        replica.log.clear_tail()
    assert is_in_memory(replica.log, 0) == (place == "memory")


@pytest.mark.parametrize("per_batch", [1, 7])
def test_time_is_that_of_the_record(place: str, per_batch: int) -> None:
    world = World()
    (replica,) = world.create("t", config={"segment.bytes": "20000"})
    times = written(world, replica, 60, per_batch=per_batch)
    in_place(world, replica, place)
    assert [time_at(replica.log, offset) for offset in range(len(times))] == times


def test_time_is_known_after_a_restart() -> None:
    world = World()
    (replica,) = world.create("t", config={"segment.bytes": "20000"})
    times = written(world, replica, 60)
    log = world.reopened().broker.partitions.find("t", 0).log
    assert [time_at(log, offset) for offset in range(len(times))] == times


def test_there_is_no_time_outside_the_log(place: str) -> None:
    world = World()
    (replica,) = world.create("t")
    written(world, replica, 3)
    in_place(world, replica, place)
    replica.delete_below(1)
    assert time_at(replica.log, 0) is None
    assert time_at(replica.log, 1) is not None
    assert time_at(replica.log, 3) is None


def test_time_of_the_append_counts_for_all_records_of_a_batch(place: str) -> None:
    world = World()
    (replica,) = world.create("t", config={"message.timestamp.type": "LogAppendTime"})
    world.append(replica, batch_of(b"v", b"w", timestamp=5, attributes=LOG_APPEND_TIME))
    in_place(world, replica, place)
    assert time_at(replica.log, 1) == world.clock.wall_ms()


def test_records_without_timestamps_have_no_time(place: str) -> None:
    world = World()
    (replica,) = world.create("t")
    world.append(replica, batch_of(b"v", timestamp=-1))
    in_place(world, replica, place)
    assert time_at(replica.log, 0) is None


def test_one_look_up_reads_a_few_kilobytes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    (replica,) = world.create("t")
    for _ in range(50):
        world.append(replica, batch_of(bytes(100_000)))
    in_place(world, replica, "files")
    sizes: list[int] = []

    def noted(log, segment, start: int, stop: int) -> memoryview:
        sizes.append(stop - start)
        return read_bytes(log, segment, start, stop)

    monkeypatch.setattr("dragoman.log.offset_times.read_bytes", noted)
    assert time_at(replica.log, 25) is not None
    assert sizes == [OFFSET_TIME_BYTES_MAX]
