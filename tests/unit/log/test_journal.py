"""Goal: groups come back as written; torn ones are dropped, damaged ones reported.

Method: a journal on a disk in memory, whose bytes are changed between writing and reading.
"""

from __future__ import annotations

import pytest

from dragoman.log import journal as j
from dragoman.log.journal import EntryKind, Journal, JournalReader, entry_header, read_entry
from dragoman.testing.memory import MemoryDisk
from dragoman.world import read_whole

SEED = 77
BLOCK = 4096


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(j, "JOURNAL_FIRST_FILE_BYTES", 4 * BLOCK)
    monkeypatch.setattr(j, "JOURNAL_FILE_BYTES", 6 * BLOCK)


@pytest.fixture
def disk():
    return MemoryDisk()


def write(journal: Journal, *payloads: bytes, durable: bool = True) -> None:
    parts = []
    for payload in payloads:
        parts += [entry_header(EntryKind.APPEND, 1, 0, 0, 0, len(payload)), payload]
    frame = journal.frame(parts, len(payloads))
    if sum(map(len, frame)) > journal.room:
        journal.make_file(sum(map(len, frame)))
        frame = journal.frame(parts, len(payloads))
    journal.write(frame, durable=durable)


def opened(disk: MemoryDisk, sequence: int = 0, generation: int = 0) -> Journal:
    return Journal(disk, SEED, sequence, generation)


def contents(disk: MemoryDisk, floor: int = 0, seed: int = SEED) -> list[bytes]:
    return [read_entry(disk, entry) for entry in JournalReader(disk, seed, floor).entries()]


def change(disk: MemoryDisk, path: str, position: int, data: bytes) -> None:
    file = disk.open(path, "write")
    file.write([data], position)
    file.close()


def test_groups_are_read_back_in_order(disk: MemoryDisk):
    journal = opened(disk)
    write(journal, b"a", b"b")
    write(journal, b"c" * 5000)
    write(journal, b"")
    assert contents(disk) == [b"a", b"b", b"c" * 5000, b""]
    reader = JournalReader(disk, SEED)
    assert (reader.newest, reader.generation, reader.damage) == (3, 1, [])


def test_groups_never_share_a_block(disk: MemoryDisk):
    journal = opened(disk)
    write(journal, b"a")
    before = read_whole(disk, journal.current_path)[:BLOCK]
    write(journal, b"b")
    assert read_whole(disk, journal.current_path)[:BLOCK] == before


def test_full_file_rolls_over_to_the_next(disk: MemoryDisk):
    journal = opened(disk)
    for number in range(8):
        write(journal, b"%d" % number * 3000)
    assert len(disk.names("journal")) == 2
    assert contents(disk) == [b"%d" % number * 3000 for number in range(8)]


def test_group_larger_than_a_file_gets_one_of_its_own(disk: MemoryDisk):
    journal = opened(disk)
    write(journal, b"x" * 20 * BLOCK)
    assert contents(disk) == [b"x" * 20 * BLOCK]


def test_released_files_are_used_again_and_their_groups_are_stale(disk: MemoryDisk):
    journal = opened(disk)
    for number in range(30):
        write(journal, b"%d" % number)
        journal.release(journal.sequence - 1)
    assert len(disk.names("journal")) <= 3
    assert contents(disk) == [b"28", b"29"]


def test_release_frees_nothing_that_is_needed(disk: MemoryDisk):
    journal = opened(disk)
    for number in range(8):
        write(journal, b"%d" % number)
    assert journal.live_files == 1
    assert not journal.frees(3)
    assert journal.frees(4)


def test_floor_hides_older_groups(disk: MemoryDisk):
    journal = opened(disk)
    write(journal, b"a")
    write(journal, b"b")
    assert contents(disk, floor=1) == [b"b"]
    assert contents(disk, floor=9) == []
    assert JournalReader(disk, SEED, 9).newest == 9


@pytest.mark.parametrize("position", [2 * BLOCK, 2 * BLOCK + 6, 2 * BLOCK + 45, 2 * BLOCK + 100])
def test_bad_last_group_is_torn_and_dropped(disk: MemoryDisk, position: int):
    journal = opened(disk)
    for payload in (b"a", b"b", b"c" * 200):
        write(journal, payload)
    change(disk, journal.current_path, position, b"\xff")
    reader = JournalReader(disk, SEED)
    assert reader.damage == []
    assert contents(disk) == [b"a", b"b"]


def test_bad_group_before_a_good_one_is_damage_with_its_place(disk: MemoryDisk):
    journal = opened(disk)
    for payload in (b"a", b"b", b"c", b"d"):
        write(journal, payload)
    change(disk, journal.current_path, BLOCK + 50, b"\xff")
    change(disk, journal.current_path, 2 * BLOCK + 50, b"\xff")
    (damage,) = JournalReader(disk, SEED).damage
    assert (damage.position, damage.first_sequence, damage.last_sequence) == (BLOCK, 2, 3)
    assert journal.current_path in str(damage)
    assert contents(disk) == [b"a", b"d"]


def test_damage_to_the_very_first_group_is_found(disk: MemoryDisk):
    journal = opened(disk)
    write(journal, b"a")
    write(journal, b"b")
    change(disk, journal.current_path, 50, b"\xff")
    (damage,) = JournalReader(disk, SEED).damage
    assert (damage.path, damage.position, damage.first_sequence) == (journal.current_path, 0, 1)


def test_groups_of_another_directory_are_ignored(disk: MemoryDisk):
    write(opened(disk), b"a")
    assert contents(disk, seed=SEED + 1) == []


def test_a_frame_inside_a_record_is_not_taken_for_one_of_ours(disk: MemoryDisk):
    journal = opened(disk)
    write(journal, b"a")
    inner = read_whole(disk, journal.current_path)[:BLOCK]
    # Placed so that it begins at a block border inside the group, and the group is damaged.
    write(journal, bytes(BLOCK - 40 - j.ENTRY_BYTES) + inner)
    write(journal, b"z")
    change(disk, journal.current_path, BLOCK + 60, b"\xff")
    reader = JournalReader(disk, SEED)
    # The copy has a sequence that is known already, with the same content: nothing is gained by it.
    assert [read_entry(disk, entry) for entry in reader.entries()] == [b"a", b"z"]
    assert reader.damage[0].first_sequence == 2


def test_restart_goes_on_in_a_new_generation(disk: MemoryDisk):
    journal = opened(disk)
    write(journal, b"a")
    journal.close()
    reader = JournalReader(disk, SEED)
    again = opened(disk, reader.newest, reader.generation)
    write(again, b"b")
    reader = JournalReader(disk, SEED)
    assert (reader.newest, reader.generation) == (2, 2)
    assert contents(disk) == [b"b"]


def test_tidy_removes_unfinished_journal_files(disk: MemoryDisk):
    disk.make_directory("journal")
    disk.open("journal/00000003.jnl", "create").close()
    disk.open("journal/notes.txt", "create").close()
    journal = opened(disk)
    journal.tidy()
    assert disk.names("journal") == ["notes.txt"]
    assert journal.next_path() == "journal/00000004.jnl"


def test_a_full_disk_leaves_no_half_made_file():
    disk = MemoryDisk(capacity_bytes=2 * BLOCK)
    journal = opened(disk)
    with pytest.raises(OSError, match="No space"):
        journal.make_file(BLOCK)
    assert disk.names("journal") == []
