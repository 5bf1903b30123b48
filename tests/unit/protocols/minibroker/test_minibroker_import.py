"""Goal: an imported directory is there as it was, once, however often the import was killed.

Method: directories made by hand, imported into a broker in memory that is killed after any number
of callbacks, or whose power is cut; the result is compared with the source and with that of one
import that went through.
"""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from dragoman.broker.local_reader import LocalReader
from dragoman.errors import DiskFullError
from dragoman.log.batch import Record
from dragoman.outcome import start
from dragoman.protocols.minibroker import directory_import as importing
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.directory_import import (
    Imported,
    Importer,
    SourceError,
    find_topics,
)
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import PowerCut
from protocols.minibroker_directory import WRITTEN_S, write_commit, write_example, write_segment
from worlds.broker import Outcome, World
from worlds.minibroker import Peer, service_of


def begin(world: World, root: Path, **options: bool) -> tuple[Imported, Outcome]:
    imported, outcome = Imported(), Outcome()
    start(Importer(world.broker, find_topics(root), imported, **options).run()).then(outcome)
    return imported, outcome


def run(world: World, root: Path, **options: bool) -> Imported:
    imported, outcome = begin(world, root, **options)
    world.settle()
    assert outcome.error is None, outcome.error
    return imported


def contents(world: World) -> dict[str, list[Record]]:
    """Every record of every topic that clients can see."""
    found = {}
    for topic in world.broker.image.topics.values():
        if not topic.is_internal:
            for partition in topic.partitions:
                replica = world.broker.partitions.replica(partition)
                tail = LocalReader(replica, replica.log.log_start_offset, lambda: None)
                records = []
                while more := tail.read(1 << 20, 1000):
                    records += more
                found[f"{topic.name}/{partition.index}"] = records
    return found


def commits(world: World) -> dict[tuple[str, str, int], int]:
    return {
        (group.group_id, topic, partition): committed.offset
        for group in world.broker.coordination.groups.table
        for (topic, partition), committed in group.ledger.committed.items()
    }


def test_everything_is_taken_over(world: World, tmp_path: Path) -> None:
    write_example(tmp_path)
    imported = run(world, tmp_path)
    found = contents(world)
    assert sorted(found) == ["events/0", "events/1", "events/2", "events/3", "other/0", "other/1"]
    assert found["events/3"] == []
    for name, first in (("events/0", 0), ("events/1", 20), ("other/1", 20)):
        partition = int(name[-1])
        assert [(each.offset, each.key, each.value, each.timestamp) for each in found[name]] == [
            (
                offset,
                None if offset % 3 else b"k%d" % offset,
                b"%d:%d" % (partition, offset),
                WRITTEN_S * 1000,
            )
            for offset in range(first, 50)
            if offset % 7 != 5
        ]
    assert world.broker.partitions.find("events", 1).log.log_start_offset == 20
    assert commits(world) == {
        ("workers", "events", 0): 7,
        ("workers", "events", 1): 30,
        ("late", "other", 1): 50,
    }
    assert imported.records == sum(map(len, found.values()))
    assert (imported.topics, imported.commits, imported.problems) == (2, 3, [])
    assert imported.is_complete


def test_imported_topics_go_on_and_do_not_age(world: World, tmp_path: Path) -> None:
    write_example(tmp_path)
    run(world, tmp_path)
    replica = world.broker.partitions.find("events", 0)
    assert world.write(replica, b"new").base_offset == 50
    assert replica.config.retention_ms == -1


def test_repeated_import_adds_nothing_and_moves_no_group_back(world: World, tmp_path: Path) -> None:
    write_example(tmp_path)
    first = run(world, tmp_path)
    world.write(world.broker.partitions.find("events", 0), b"new")
    before = contents(world)
    write_commit(tmp_path, "events", "workers", 0, "3")
    again = run(world, tmp_path)
    assert contents(world) == before
    assert commits(world)["workers", "events", 0] == 7
    assert (again.records, again.commits) == (0, 0)
    assert (again.records_present, again.commits_present) == (first.records, 3)


def test_progress_ends_at_the_size_of_the_files(world: World, tmp_path: Path) -> None:
    write_example(tmp_path)
    topics = find_topics(tmp_path)
    total = sum(each.size for topic in topics for part in topic.segments.values() for each in part)
    steps: list[int] = []
    outcome = Outcome()
    start(Importer(world.broker, topics, Imported(), progress=steps.append).run()).then(outcome)
    world.settle()
    assert outcome.error is None
    assert sum(steps) == total
    assert len(steps) > 100


def check_the_same(world: World, root: Path) -> None:
    whole = World()
    run(whole, root)
    assert contents(world) == contents(whole)
    assert commits(world) == commits(whole)
    starts = [
        world.broker.partitions.find("events", index).log.log_start_offset for index in range(4)
    ]
    assert starts == [0, 20, 0, 0]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are many moments to be killed at."""
    monkeypatch.setattr(importing, "IMPORT_BATCH_BYTES", 40)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("seed", range(30))
def test_killed_anywhere_and_repeated_gives_the_same(tmp_path: Path, seed: int) -> None:
    write_example(tmp_path)
    rng = random.Random(seed)
    world = World()
    for _ in range(rng.randint(1, 4)):
        begin(world, tmp_path)
        # It is not idle yet when it has had so many callbacks, unless little was left to do.
        with suppress(RuntimeError):
            world.scheduler.run_ready(rng.randrange(60))
        world = world.reopened(kill=True)
    run(world, tmp_path)
    check_the_same(world, tmp_path)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("seed", range(30))
def test_power_cut_anywhere_and_repeated_gives_the_same(tmp_path: Path, seed: int) -> None:
    write_example(tmp_path)
    rng = random.Random(seed)
    disk = SimDisk(rng)
    cuts, world = 0, None
    while world is None:
        if cuts < 4:
            disk.crash_at(rng.randint(1, 50))
        try:
            started = World(disk=disk)
            run(started, tmp_path)
            world = started
        except PowerCut:
            disk = disk.crash()
            cuts += 1
    assert cuts
    check_the_same(world, tmp_path)


def test_commits_of_groups_with_slashes_are_taken_over(world: World, tmp_path: Path) -> None:
    """The original makes folders of them, one of which may be another group's."""
    write_example(tmp_path)
    groups = {"team": 3, "team/billing": 4, "team/billing/eu": 5, "a/b": 6}
    for group, offset in groups.items():
        write_commit(tmp_path, "other", group, 0, str(offset))
    imported = run(world, tmp_path)
    assert imported.is_complete
    found = commits(world)
    assert {group: found[group, "other", 0] for group in groups} == groups


def test_a_commit_of_a_group_without_a_name_is_reported(world: World, tmp_path: Path) -> None:
    write_example(tmp_path)
    write_commit(tmp_path, "other", "", 0, "3")
    imported = run(world, tmp_path)
    assert not imported.is_complete
    (problem,) = imported.problems
    assert str(tmp_path / "other" / "offsets" / "0.off") in problem


# ---- what is wrong with the source


def damaged(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def write_ten(root: Path, partition: int = 0) -> Path:
    (root / "t" / "part-1").mkdir(parents=True, exist_ok=True)
    records = [(offset, b"", b"value %d" % offset) for offset in range(10)]
    return write_segment(root, "t", partition, records)


def offsets(world: World, name: str) -> list[int]:
    return [each.offset for each in contents(world)[name]]


def test_nothing_behind_damage_is_imported_from_that_partition(
    world: World, tmp_path: Path
) -> None:
    path = write_ten(tmp_path)
    write_ten(tmp_path, 1)
    write_segment(tmp_path, "t", 0, [(10, b"", b"next segment")])
    record_bytes = path.stat().st_size // 10
    damaged(path, record_bytes * 4 + 20)
    imported = run(world, tmp_path)
    assert offsets(world, "t/0") == [0, 1, 2, 3]
    assert offsets(world, "t/1") == list(range(10))
    assert not imported.is_complete
    (problem,) = imported.problems
    assert f"{path} at byte {record_bytes * 4}: the CRC" in problem
    again = run(world, tmp_path, skips_damaged=True)
    assert offsets(world, "t/0") == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert not again.is_complete


def test_torn_last_record_is_reported_and_left_out(world: World, tmp_path: Path) -> None:
    path = write_ten(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    imported = run(world, tmp_path)
    assert offsets(world, "t/0") == list(range(9))
    assert imported.is_complete
    assert "incomplete last write" in imported.problems[0]


def test_segment_that_ends_early_before_another_one_is_damage(world: World, tmp_path: Path) -> None:
    path = write_ten(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    write_segment(tmp_path, "t", 0, [(10, b"", b"next segment")])
    assert not run(world, tmp_path).is_complete
    assert offsets(world, "t/0") == list(range(9))


@pytest.mark.parametrize(
    ("text", "partition"), [("seven", 0), ("", 0), ("-1", 0), (str(1 << 63), 0), ("1", 9)]
)
def test_commit_that_cannot_be_is_reported(
    world: World, tmp_path: Path, text: str, partition: int
) -> None:
    write_ten(tmp_path)
    write_commit(tmp_path, "t", "g", partition, text)
    write_commit(tmp_path, "t", "good", 0, "4")
    imported = run(world, tmp_path)
    assert not imported.is_complete
    assert f"{partition}.off" in imported.problems[0]
    assert commits(world) == {("good", "t", 0): 4}


def test_topic_with_records_of_others_is_left_alone(world: World, tmp_path: Path) -> None:
    write_example(tmp_path)
    first, *_ = world.create("events", 4)
    world.write(first, b"mine")
    imported = run(world, tmp_path)
    assert not imported.is_complete
    assert "events/0 holds another record at offset 0" in imported.problems[0]
    assert [each.value for each in contents(world)["events/0"]] == [b"mine"]
    assert offsets(world, "other/0")


def test_records_of_others_before_the_first_of_the_source(world: World, tmp_path: Path) -> None:
    write_segment(tmp_path, "t", 0, [(100, b"", b"v")])
    (replica,) = world.create("t")
    world.write(replica, b"mine")
    assert not run(world, tmp_path).is_complete
    assert offsets(world, "t/0") == [0]


def test_topic_with_other_partitions_is_left_alone(world: World, tmp_path: Path) -> None:
    write_ten(tmp_path)
    world.create("t", 3)
    imported = run(world, tmp_path)
    assert "3 partitions here and 2 there" in imported.problems[0]
    assert not imported.is_complete


def test_large_payloads(world: World, tmp_path: Path) -> None:
    sizes = [3 << 20, 10, 600_000, 600_000, 0]
    records = [(offset, b"k", bytes(size)) for offset, size in enumerate(sizes)]
    write_segment(tmp_path, "t", 0, records)
    run(world, tmp_path)
    assert [len(each.value or b"") for each in contents(world)["t/0"]] == sizes


def test_directories_of_something_else(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SourceError, match=str(path)):
            find_topics(path)
    (tmp_path / "t" / "part-999999999").mkdir(parents=True)
    with pytest.raises(SourceError, match="partitions"):
        find_topics(tmp_path)


def test_failed_append_ends_the_import(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ten(tmp_path)
    world.create("t", 2)
    replica = world.broker.partitions.find("t", 0)

    def refuse(_log: object, _data: object) -> int:
        raise DiskFullError("the disk is full")

    monkeypatch.setattr(type(replica.log), "append_as_is", refuse)
    _, outcome = begin(world, tmp_path)
    world.settle()
    assert isinstance(outcome.error, DiskFullError)


def test_group_resumes_where_it_was(world: World, tmp_path: Path) -> None:
    write_example(tmp_path)
    run(world, tmp_path)
    peer = Peer(world, service_of(world))
    peer.send(m.SubscribeGroup(topic="events", group="workers"))
    records = peer.deliveries()
    assert min(each.offset for each in records if each.partition == 0) == 7
    assert min(each.offset for each in records if each.partition == 1) == 30
