"""Goal: acknowledged groups never go without a word, and nothing is acknowledged into the void.

Method: a log on a disk in memory, killed; its journal, its mark or `node.json` are cut, removed or
overwritten; directories are removed or replaced under a running store.
"""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from random import Random

import pytest

from dragoman.checksum import crc32c, crc32c_seed
from dragoman.errors import CorruptionError, DiskFullError, FormatError, LogStoppedError
from dragoman.log.adoption import adopt_directory
from dragoman.log.inspect import inspect_disk, verified
from dragoman.log.node import Durability, read_node_state
from dragoman.operating_system import RealDisk
from dragoman.testing.memory import MemoryDisk
from dragoman.world import read_whole, replace_file
from worlds.log import World

MARK = "journal/mark"


def journal_files(world: World) -> list[str]:
    return [f"journal/{each}" for each in world.disk.names("journal") if each.endswith(".jnl")]


def cut(world: World, path: str, size: int) -> None:
    file = world.disk.open(path, "write")
    file.truncate(size)
    file.close()


def zero(world: World, path: str, position: int = 0) -> None:
    file = world.disk.open(path, "write")
    file.write([bytes(file.size() - position)], position)
    file.close()


@pytest.fixture
def killed(new_world) -> World:
    """A log with ten groups in its journal, nothing of which is in the segments."""
    world = new_world()
    world.fill(5)
    world.store.checkpoint_now()
    world.fill(5)
    world.store.abandon()
    return world


def lose_half(world: World) -> None:
    (path, *_) = journal_files(world)
    cut(world, path, 4096 * 4)


def lose_all(world: World) -> None:
    for path in journal_files(world):
        world.disk.remove(path)


def lose_to_zeros(world: World) -> None:
    for path in journal_files(world):
        zero(world, path)


def lose_the_end(world: World) -> None:
    for path in journal_files(world):
        file = world.disk.open(path, "read")
        size = file.size()
        file.close()
        if size > 4096:
            zero(world, path, 4096)


def swap_for_another(world: World) -> None:
    for path in journal_files(world):
        file = world.disk.open(path, "write")
        file.write([bytes(each ^ 0x55 for each in file.read(file.size(), 0))], 0)
        file.close()


@pytest.mark.parametrize(
    "lose", [lose_half, lose_all, lose_to_zeros, lose_the_end, swap_for_another]
)
def test_groups_that_were_acknowledged_and_are_gone_are_reported(
    killed: World, caplog: pytest.LogCaptureFixture, lose
):
    lose(killed)
    assert not verified(inspect_disk(killed.disk)).is_sound
    killed.open()
    assert killed.store.journal_damage
    assert "were acknowledged and are missing or damaged" in caplog.text
    assert killed.store.node.has_lost
    # The next append continues behind the lost groups.
    killed.fill(3)
    killed.restart(clean=False)
    assert killed.store.journal_damage == []


def test_a_shortened_journal_is_kept_aside(killed: World):
    lose_half(killed)
    killed.open()
    (damage,) = killed.store.journal_damage
    assert killed.disk.names("quarantine") == [damage.path.replace("/", "_")]


def test_a_group_that_was_never_acknowledged_is_no_loss(killed: World):
    """The next group, half written when the process died: behind the mark."""
    (path, *_) = journal_files(killed)
    file = killed.disk.open(path, "write")
    file.write([b"DGJ1" + bytes(100)], 4096 * 10)
    killed.open()
    assert killed.store.journal_damage == []
    assert len(killed.values()) == 10


def test_a_lost_mark_is_reported_and_costs_nothing(killed: World, caplog: pytest.LogCaptureFixture):
    killed.disk.remove(MARK)
    assert [each.path for each in verified(inspect_disk(killed.disk)).problems] == [MARK]
    killed.open()
    assert MARK in caplog.text
    assert len(killed.values()) == 10


def test_a_torn_mark_leaves_the_one_before(killed: World):
    last = killed.store.node.sequence
    file = killed.disk.open(MARK, "write")
    file.write([b"torn"], 512 if last % 2 else 0)
    file.close()
    killed.open()
    assert killed.store.journal_damage == []


# ---- the directory under a running store


def test_a_removed_directory_stops_the_store(new_world, tmp_path: Path):
    world = new_world(RealDisk(str(tmp_path / "data")))
    world.fill(5)
    (tmp_path / "data").rename(tmp_path / "moved")
    world.append(b"acknowledged for a while")
    world.commit()
    world.store.start_checkpoint()
    (failure,) = world.failures
    assert "removed or replaced" in str(failure)
    with pytest.raises(LogStoppedError):
        world.append(b"not any more")
    world.store.close()


def test_a_replaced_directory_stops_the_store(new_world, tmp_path: Path):
    world = new_world(RealDisk(str(tmp_path / "data")))
    world.fill(5)
    (tmp_path / "data").rename(tmp_path / "moved")
    other = new_world(RealDisk(str(tmp_path / "data")))
    world.store._tick()
    assert len(world.failures) == 1
    assert other.failures == []
    world.store.close()
    other.store.close()


@pytest.mark.parametrize("what", ["lock", "journal", "segment", "mark"])
def test_a_removed_file_that_is_appended_to_stops_the_store(new_world, tmp_path: Path, what: str):
    world = new_world(RealDisk(str(tmp_path)))
    world.fill(5)
    world.store.checkpoint_now()
    world.fill(1)
    world.store.flush(world.log)
    pattern = {
        "lock": "lock",
        "journal": "journal/*.jnl",
        "segment": "partitions/t-0/*.log",
        "mark": "journal/mark",
    }[what]
    for path in tmp_path.glob(pattern):
        path.unlink()
    world.store.start_checkpoint()
    assert len(world.failures) == 1
    world.store.close()


# ---- a lost node.json


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_a_segment_that_cannot_be_opened_for_its_checkpoint_stops_the_store(
    new_world, monkeypatch: pytest.MonkeyPatch, code: int
):
    """An error that nothing takes would leave the checkpoint unfinished and the journal to grow."""
    world = new_world(MemoryDisk())
    world.fill(1)
    world.store.flush(world.log)

    def refuse(path: str) -> object:
        raise OSError(code, "not now", path)

    with monkeypatch.context() as patch:
        patch.setattr(world.store.files, "get", refuse)
        world.store.start_checkpoint()
    (failure,) = world.failures
    assert failure.errno == code
    world.store.abandon()


def test_a_seed_is_worked_out_from_a_checksum():
    random = Random(7)
    for _ in range(20):
        data, seed = random.randbytes(random.randrange(1, 300)), random.getrandbits(32)
        assert crc32c_seed(data, crc32c(data, seed)) == seed


@pytest.mark.parametrize("damage", ["missing", "damaged", "another file"])
@pytest.mark.parametrize("has_mark", [True, False])
def test_a_directory_without_its_node_file_is_refused_then_adopted(
    killed: World, damage: str, has_mark: bool
):
    before = read_node_state(killed.disk)
    if damage == "missing":
        killed.disk.remove("node.json")
    elif damage == "damaged":
        zero(killed, "node.json")
    else:
        # Its checksum is right; what it says is not.
        (manifest,) = (
            f"partitions/{each}/manifest.json" for each in killed.disk.names("partitions")
        )
        replace_file(killed.disk, "node.json", read_whole(killed.disk, manifest))
    if not has_mark:
        killed.disk.remove(MARK)
    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"node\.json"):
            killed.open()
    adopted = adopt_directory(killed.disk, Random(1))
    seed = before.directory_id[: 32 if has_mark else 8]
    assert adopted.state.directory_id.startswith(seed)
    assert adopted.state.incarnation >= before.incarnation
    killed.open()
    assert len(killed.values()) == 10
    assert killed.store.journal_damage == []


def test_groups_behind_an_adoption_without_a_journal_are_newer_than_the_manifests(new_world):
    world = new_world()
    world.fill(50)
    world.store.close()
    world.disk.remove("node.json")
    for path in (*journal_files(world), MARK):
        world.disk.remove(path)
    adopt_directory(world.disk, Random(1))
    world.open()
    world.log.truncate(20)
    world.commit()
    world.store.abandon()
    world.open()
    assert len(world.values()) == 20


def test_adoption_is_refused_where_there_is_nothing_to_adopt(killed: World, new_world):
    with pytest.raises(FormatError, match="sound"):
        adopt_directory(killed.disk, Random(1))
    with pytest.raises(FormatError, match="no data"):
        adopt_directory(MemoryDisk(), Random(1))


def test_adoption_knows_how_the_directory_was_written(new_world):
    world = new_world(durability=Durability.OS)
    world.fill(3)
    world.store.abandon()
    world.disk.remove("node.json")
    assert adopt_directory(world.disk, Random(1)).state.durability is Durability.OS


# ---- log lines


def test_a_recovery_leaves_a_line_with_figures(killed: World, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "dragoman.log")
    killed.open()
    (line,) = [vars(each) for each in caplog.records if each.message == "log recovered"]
    assert line["groups"] > 0
    assert line["bytes"] > 0
    assert (line["partitions"], line["lost_groups"], line["damage"]) == (1, 0, 0)
    assert line["ms"] >= 0
    caplog.clear()
    killed.restart()
    (after,) = [vars(each) for each in caplog.records if each.message.startswith("log ")]
    assert after["message"] == "log opened after a clean stop"


def test_first_start_leaves_a_line(new_world, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "dragoman.log")
    new_world()
    assert [each.message for each in caplog.records] == ["log created"]


def test_a_full_disk_leaves_one_line_and_one_when_there_is_room(
    new_world, caplog: pytest.LogCaptureFixture
):
    disk = MemoryDisk(capacity_bytes=300_000)
    world = new_world(disk)
    world.config.segment_bytes = 1 << 20
    with pytest.raises(DiskFullError):
        world.fill(3000, size=1000)
    for _ in range(3):
        world.store._tick()
        with pytest.raises(DiskFullError):
            world.fill(3000, size=1000)
    (full,) = [vars(each) for each in caplog.records if each.message == "appends are refused"]
    assert full["why"] == "the disk is full"
    assert full["free_bytes"] < 300_000
    disk._tree.capacity_bytes = 1 << 30
    world.store._tick()
    world.store._tick()
    (room,) = [
        vars(each) for each in caplog.records if each.message == "appends are accepted again"
    ]
    assert room["free_bytes"] > 300_000
