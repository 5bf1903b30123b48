"""The simulated disk: every kind of loss happens, none that must not; each fault does its work.

Losses are looked for over a range of seeds: `outcomes` runs the same few operations with each seed,
cuts the power and collects what is found. A disk that is too kind fails here, because one of the
expected outcomes never comes; one that is too unkind gives an outcome that is not expected.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from random import Random

import pytest

from dragoman.errors import DirectoryInUseError
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import DiskFaults, Flip, PowerCut
from dragoman.testing.sim.file import SimFile
from dragoman.world import read_whole, replace_file

SECTOR = 512
SEEDS = range(200)
A, B, C = (bytes([value]) * SECTOR for value in b"ABC")
ZERO = bytes(SECTOR)


def put(disk: SimDisk, path: str, data: bytes, synced: bool = True) -> None:
    file = disk.open(path, "create")
    file.write([data], 0)
    if synced:
        file.sync()
        disk.sync_directory(path.rpartition("/")[0])
    file.close()


def outcomes(
    prepare: Callable[[SimDisk], None],
    work: Callable[[SimDisk], None],
    faults: DiskFaults | None = None,
    seeds: Iterable[int] = SEEDS,
) -> list[dict[str, bytes]]:
    """What is found after a power cut, once for each seed."""
    found = []
    for seed in seeds:
        disk = SimDisk(Random(seed), faults)
        prepare(disk)
        work(disk)
        found.append(disk.crash().image())
    return found


def contents(images: list[dict[str, bytes]], path: str) -> set[bytes]:
    return {image[path] for image in images}


def writes(*parts: tuple[bytes, int]) -> Callable[[SimDisk], None]:
    def work(disk: SimDisk) -> None:
        file = disk.open("a", "write")
        for data, position in parts:
            file.write([data], position)
        file.close()

    return work


def prepared(data: bytes) -> Callable[[SimDisk], None]:
    return lambda disk: put(disk, "a", data)


# ---- bytes that were not synced


def test_a_write_is_torn_between_sectors_in_any_order() -> None:
    found = contents(outcomes(prepared(ZERO * 3), writes((A + B + C, 0))), "a")
    assert found == {x + y + z for x in (ZERO, A) for y in (ZERO, B) for z in (ZERO, C)}


def test_a_sector_is_never_torn_inside() -> None:
    found = contents(outcomes(prepared(ZERO), writes((b"x" * 300, 100))), "a")
    assert found == {ZERO, bytes(100) + b"x" * 300 + bytes(112)}


def test_a_later_write_may_survive_an_earlier_one() -> None:
    found = contents(outcomes(prepared(ZERO * 2), writes((A, 0), (B, SECTOR))), "a")
    assert ZERO + B in found
    assert A + ZERO in found


def test_a_sector_written_twice_is_found_as_after_one_of_the_writes() -> None:
    work = writes((b"1" * 100, 0), (b"2" * 100, 50))
    found = contents(outcomes(prepared(ZERO), work), "a")
    first = b"1" * 100 + bytes(412)
    assert found == {ZERO, first, b"1" * 50 + b"2" * 100 + bytes(362)}


def test_size_and_data_of_an_append_survive_independently() -> None:
    found = contents(outcomes(prepared(A), writes((B, SECTOR))), "a")
    assert found == {A, A + ZERO, A + B}


def test_several_appends_end_at_any_of_their_ends() -> None:
    found = contents(outcomes(prepared(b""), writes((b"x" * 10, 0), (b"y" * 10, 10))), "a")
    assert {len(data) for data in found} == {0, 10, 20}
    assert b"x" * 10 + bytes(10) in found
    assert bytes(20) in found


def test_a_large_append_may_end_at_a_page() -> None:
    found = contents(outcomes(prepared(b"x"), writes((bytes(10_000), 1))), "a")
    assert {len(data) for data in found} == {1, 4096, 8192, 10_001}


def test_lost_sectors_past_the_end_may_hold_rubbish() -> None:
    images = outcomes(prepared(A), writes((B, SECTOR)), DiskFaults(garbage_rate=0.5))
    tails = {data[SECTOR:] for data in contents(images, "a")}
    assert {b"", ZERO, B} < tails


def test_a_truncation_that_survives_takes_the_old_bytes_and_one_that_does_not_keeps_them() -> None:
    def work(disk: SimDisk) -> None:
        file = disk.open("a", "write")
        file.truncate(SECTOR)
        file.write([C], SECTOR)
        file.close()

    found = contents(outcomes(prepared(A + B + B), work), "a")
    assert found == {A + B + B, A, A + ZERO, A + C}


def test_a_truncation_within_a_sector_may_reach_the_disk_before_the_size() -> None:
    def work(disk: SimDisk) -> None:
        file = disk.open("a", "write")
        file.truncate(100)
        file.close()

    found = contents(outcomes(prepared(A), work), "a")
    assert found == {A, A[:100], A[:100] + bytes(412)}


def test_lengthening_by_truncate_is_lost_or_kept() -> None:
    def work(disk: SimDisk) -> None:
        file = disk.open("a", "write")
        file.truncate(700)
        file.close()

    assert contents(outcomes(prepared(A), work), "a") == {A, A + bytes(188)}


# ---- bytes that were promised


def test_synced_bytes_survive_every_time() -> None:
    def work(disk: SimDisk) -> None:
        file = disk.open("a", "write")
        file.write([A], 0)
        file.truncate(10)
        file.write([B, C], 100)
        file.sync()
        file.close()

    assert contents(outcomes(prepared(b""), work), "a") == {A[:10] + bytes(90) + B + C}


def test_a_sync_is_for_the_file_and_not_for_the_descriptor() -> None:
    def work(disk: SimDisk) -> None:
        writes((A, 0))(disk)
        other = disk.open("a", "read")
        other.sync()
        other.close()

    assert contents(outcomes(prepared(b""), work), "a") == {A}


def test_a_durable_write_saves_its_own_sectors_and_no_others() -> None:
    def work(disk: SimDisk) -> None:
        file = disk.open("a", "write")
        file.write([A], 0)
        file.write_durable([B], SECTOR)
        file.write([C], 2 * SECTOR)
        file.close()

    found = contents(outcomes(prepared(ZERO * 3), work), "a")
    assert found == {x + B + z for x in (ZERO, A) for z in (ZERO, C)}


def test_a_durable_write_saves_what_earlier_writes_put_into_its_sectors() -> None:
    def work(disk: SimDisk) -> None:
        file = disk.open("a", "write")
        file.write([b"1" * 100], 0)
        file.write_durable([b"2" * 100], 100)
        file.close()

    expected = b"1" * 100 + b"2" * 100 + bytes(312)
    assert contents(outcomes(prepared(ZERO), work), "a") == {expected}


def test_a_durable_append_saves_the_size_with_zeros_where_earlier_data_is_lost() -> None:
    def work(disk: SimDisk) -> None:
        file = disk.open("a", "write")
        file.write([A], 0)
        file.write_durable([B], SECTOR)
        file.close()

    assert contents(outcomes(prepared(b""), work), "a") == {A + B, ZERO + B}


def test_a_durable_write_after_a_truncation_saves_the_truncation() -> None:
    def work(disk: SimDisk) -> None:
        file = disk.open("a", "write")
        file.truncate(SECTOR)
        file.write_durable([C], SECTOR)
        file.close()

    assert contents(outcomes(prepared(A + B + B), work), "a") == {A + C}


def test_a_durable_write_alone_survives_every_time() -> None:
    def work(disk: SimDisk) -> None:
        file = disk.open("a", "write")
        for index in range(5):
            file.write_durable([A, B], 2 * index * SECTOR)
        file.close()

    assert contents(outcomes(prepared(b""), work), "a") == {(A + B) * 5}


def test_a_slow_sync_covers_what_was_written_before_it_began() -> None:
    def work(disk: SimDisk) -> None:
        writes((A, 0))(disk)
        sync = disk.begin_sync("a")
        writes((B, SECTOR))(disk)
        sync.finish()

    assert contents(outcomes(prepared(ZERO * 2), work), "a") == {A + ZERO, A + B}


def test_a_slow_sync_that_has_not_finished_promises_nothing() -> None:
    def work(disk: SimDisk) -> None:
        writes((A, 0))(disk)
        disk.begin_sync("a")

    assert contents(outcomes(prepared(ZERO), work), "a") == {ZERO, A}


# ---- names


def test_a_synced_file_without_its_synced_name_may_be_gone() -> None:
    def work(disk: SimDisk) -> None:
        file = disk.open("a", "create")
        file.write([A], 0)
        file.sync()
        file.close()

    images = outcomes(lambda disk: None, work)
    assert {} in images
    assert {"a": A} in images


def test_creates_are_lost_and_kept_independently() -> None:
    def work(disk: SimDisk) -> None:
        for name in "abc":
            disk.open(name, "create").close()

    found = {"".join(image) for image in outcomes(lambda disk: None, work)}
    assert found == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


def test_a_rename_leaves_the_old_or_the_new_and_never_both_or_neither() -> None:
    def prepare(disk: SimDisk) -> None:
        put(disk, "a", A)
        put(disk, "b", B)

    images = outcomes(prepare, lambda disk: disk.rename("b", "a"))
    assert sorted({tuple(sorted(image.items())) for image in images}) == [
        (("a", A), ("b", B)),
        (("a", B),),
    ]


def test_a_rename_of_a_new_file_shows_the_old_name_the_new_name_or_nothing() -> None:
    def work(disk: SimDisk) -> None:
        put(disk, "x", A, synced=False)
        disk.rename("x", "y")

    assert {tuple(image) for image in outcomes(lambda disk: None, work)} == {(), ("x",), ("y",)}


def test_a_rename_of_an_unsynced_file_may_replace_good_data_with_nothing() -> None:
    """The classic mistake: write aside and rename without a sync in between."""

    def work(disk: SimDisk) -> None:
        put(disk, "a.new", B, synced=False)
        disk.rename("a.new", "a")
        disk.sync_directory("")

    assert contents(outcomes(prepared(A), work), "a") == {b"", ZERO, B}


def test_replace_file_leaves_the_old_or_the_new_whole_and_the_new_once_it_returned() -> None:
    found = contents(outcomes(prepared(A), lambda disk: replace_file(disk, "a", B + C)), "a")
    assert found == {B + C}
    cut = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        put(disk, "a", A)
        disk.crash_at(seed % 6 + 1)
        with pytest.raises(PowerCut):
            replace_file(disk, "a", B + C)
        cut.add(disk.crash().image()["a"])
    assert cut == {A, B + C}


def test_a_remove_is_undone_or_not() -> None:
    images = outcomes(prepared(A), lambda disk: disk.remove("a"))
    assert {} in images
    assert {"a": A} in images


def test_a_name_removed_and_made_again_is_the_old_file_the_new_one_or_none() -> None:
    def work(disk: SimDisk) -> None:
        disk.remove("a")
        put(disk, "a", B, synced=False)
        file = disk.open("a", "write")
        file.sync()
        file.close()

    images = outcomes(prepared(A), work)
    assert {image.get("a") for image in images} == {A, B, None}


def test_a_link_is_lost_or_kept() -> None:
    images = outcomes(prepared(A), lambda disk: disk.link("a", "b"))
    assert {tuple(sorted(image)) for image in images} == {("a",), ("a", "b")}


def test_a_directory_whose_own_name_was_not_synced_takes_its_synced_files_along() -> None:
    def work(disk: SimDisk) -> None:
        disk.make_directory("d/e")
        put(disk, "d/e/a", A)
        disk.sync_directory("d")

    images = outcomes(lambda disk: None, work)
    assert {} in images
    assert {"d/e/a": A} in images

    def careful(disk: SimDisk) -> None:
        work(disk)
        disk.sync_directory("")

    assert outcomes(lambda disk: None, careful) == [{"d/e/a": A}] * len(SEEDS)


def test_a_removed_directory_comes_back_or_not() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.make_directory("d")
        disk.sync_directory("")

    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        prepare(disk)
        disk.remove_directory("d")
        found.add(disk.crash().exists("d"))
    assert found == {True, False}


def test_a_rename_between_directories_is_one_change() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.make_directory("d")
        disk.sync_directory("")
        put(disk, "a", A)

    def move(disk: SimDisk) -> None:
        disk.rename("a", "d/a")

    assert {tuple(image) for image in outcomes(prepare, move)} == {("a",), ("d/a",)}
    for synced in ("", "d"):

        def careful(disk: SimDisk, synced: str = synced) -> None:
            move(disk)
            disk.sync_directory(synced)

        assert outcomes(prepare, careful) == [{"d/a": A}] * len(SEEDS)


def test_a_synced_directory_keeps_every_change_in_it() -> None:
    def work(disk: SimDisk) -> None:
        disk.open("b", "create").close()
        disk.rename("b", "c")
        disk.remove("a")
        disk.link("c", "d")
        disk.sync_directory("")

    assert outcomes(prepared(A), work) == [{"c": b"", "d": b""}] * len(SEEDS)


# ---- kill, and cuts inside an operation


def test_kill_loses_nothing_visible_and_makes_nothing_durable() -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        put(disk, "a", ZERO)
        disk.lock("lock")
        writes((A, 0))(disk)
        put(disk, "b", B, synced=False)
        killed = disk.kill()
        assert killed.image() == {"a": A, "b": B, "lock": b""}
        killed.lock("lock")
        image = killed.crash().image()
        found.add((image["a"] == A, "b" in image))
    assert found == {(False, False), (False, True), (True, False), (True, True)}


def calls(file: SimFile, disk: SimDisk) -> list[Callable[[], object]]:
    return [
        lambda: file.write([b"x" * 2000], 0),
        lambda: file.write_durable([b"y" * 2000], 4000),
        lambda: file.truncate(10),
        file.sync,
        lambda: disk.open("new", "create").close(),
        lambda: disk.make_directory("d/e"),
        lambda: disk.link("new", "d/f"),
        lambda: disk.rename("new", "d/e/g"),
        lambda: disk.remove("d/f"),
        lambda: disk.sync_directory("d"),
        lambda: disk.lock("lock"),
        lambda: disk.rename("d/e/g", "g"),
        lambda: disk.remove_directory("d/e"),
    ]


@pytest.mark.parametrize("cut", range(1, 14))
def test_the_power_can_be_cut_inside_every_operation(cut: int) -> None:
    disk = SimDisk(Random(cut))
    put(disk, "a", A)
    file = disk.open("a", "write")
    disk.crash_at(cut)
    operations = calls(file, disk)
    for call in operations[: cut - 1]:
        call()
    with pytest.raises(PowerCut):
        operations[cut - 1]()
    assert disk.is_dead
    for call in [*operations, file.size, lambda: file.read(1, 0), lambda: disk.names("")]:
        with pytest.raises(PowerCut):
            call()
    file.close()
    after = disk.crash()
    assert not after.is_dead
    assert "a" in after.image()


def test_a_cut_inside_a_durable_write_leaves_it_torn() -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        put(disk, "a", ZERO * 2)
        disk.crash_at(1)
        with pytest.raises(PowerCut):
            disk.open("a", "write").write_durable([A, B], 0)
        found.add(disk.crash().image()["a"])
    assert found == {ZERO + ZERO, A + ZERO, ZERO + B, A + B}


def test_a_kill_inside_a_write_leaves_the_beginning_of_it() -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        put(disk, "a", ZERO * 2)
        disk.crash_at(1)
        with pytest.raises(PowerCut):
            disk.open("a", "write").write([A, B], 0)
        found.add(disk.kill().image()["a"])
    assert found == {ZERO + ZERO, A + ZERO, A + B}


def test_a_cut_inside_make_directory_leaves_a_part_of_the_path() -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        disk.crash_at(1)
        with pytest.raises(PowerCut):
            disk.make_directory("d/e")
        after = disk.kill()
        found.add((after.exists("d"), after.exists("d/e")))
    assert found == {(False, False), (True, False), (True, True)}


def test_a_scheduled_cut_can_be_taken_back() -> None:
    disk = SimDisk(Random(1))
    disk.crash_at(1)
    disk.crash_at(0)
    put(disk, "a", A)
    assert not disk.is_dead


def test_power_cut_is_not_caught_by_except_exception() -> None:
    assert not issubclass(PowerCut, Exception)


# ---- faults


def test_after_a_failed_sync_the_data_can_be_read_the_next_sync_succeeds_and_it_is_lost() -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed), DiskFaults(sync_error_at=2))
        put(disk, "a", ZERO * 2)
        file = disk.open("a", "write")
        file.write([A, B], 0)
        with pytest.raises(OSError) as raised:
            file.sync()
        assert raised.value.errno == errno.EIO
        assert file.read(2000, 0) == A + B
        file.sync()
        found.add(disk.crash().image()["a"])
    assert found == {ZERO + ZERO, A + ZERO, ZERO + B, A + B}


def test_after_a_failed_sync_only_sectors_written_again_are_saved_by_the_next() -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed), DiskFaults(sync_error_at=2))
        put(disk, "a", ZERO * 2)
        file = disk.open("a", "write")
        file.write([A, B], 0)
        with pytest.raises(OSError):
            file.sync()
        file.write([b"!"], 10)
        file.write([b"?"], 2 * SECTOR)
        file.sync()
        data = disk.crash().image()["a"]
        assert data[:SECTOR] == A[:10] + b"!" + A[11:]
        assert data[2 * SECTOR :] == b"?"
        found.add(data[SECTOR : 2 * SECTOR])
    assert found == {ZERO, B}


def test_after_a_failed_sync_a_crash_still_tears_what_came_later() -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed), DiskFaults(sync_error_at=2))
        put(disk, "a", ZERO)
        file = disk.open("a", "write")
        file.write([A], 0)
        with pytest.raises(OSError):
            file.sync()
        file.write([C], SECTOR)
        file.write_durable([B], 2 * SECTOR)
        found.add(disk.crash().image()["a"])
    assert found == {x + y + B for x in (ZERO, A) for y in (ZERO, C)}


def test_a_failed_durable_write_is_visible_and_may_be_lost() -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed), DiskFaults(sync_error_at=2))
        put(disk, "a", ZERO)
        file = disk.open("a", "write")
        with pytest.raises(OSError, match="Input/output error"):
            file.write_durable([A], 0)
        assert file.read(SECTOR, 0) == A
        found.add(disk.crash().image()["a"])
    assert found == {ZERO, A}


def test_sync_errors_come_at_their_rate() -> None:
    disk = SimDisk(Random(1), DiskFaults(sync_error_rate=0.25))
    file = disk.open("a", "create")
    failed = 0
    for _ in range(400):
        try:
            file.sync()
        except OSError:
            failed += 1
    assert 60 < failed < 140
    assert disk.counters.sync_errors == failed


@pytest.mark.parametrize(
    "faults", [DiskFaults(directory_sync_error_at=1), DiskFaults(directory_sync_error_rate=1.0)]
)
def test_a_failed_sync_of_a_directory_promises_nothing(faults: DiskFaults) -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed), faults)
        disk.open("a", "create").close()
        with pytest.raises(OSError) as raised:
            disk.sync_directory("")
        assert raised.value.errno == errno.EIO
        found.add(disk.crash().exists("a"))
    assert found == {True, False}


@pytest.mark.parametrize("faults", [DiskFaults(lost_write_at=2), DiskFaults(lost_write_rate=1.0)])
def test_a_lost_write_raises_nothing_and_is_found_missing(faults: DiskFaults) -> None:
    found = set()
    for seed in SEEDS:
        disk = SimDisk(Random(seed), faults)
        put(disk, "a", b"")
        file = disk.open("a", "write")
        file.write_durable([A], 0)
        assert file.read(SECTOR, 0) == A
        found.add(disk.crash().image()["a"])
    assert found == {b"", ZERO, A}


def test_a_full_disk_takes_what_fits_and_refuses_the_rest() -> None:
    disk = SimDisk(Random(1), DiskFaults(capacity_bytes=1000))
    put(disk, "a", bytes(600))
    file = disk.open("b", "create")
    with pytest.raises(OSError) as raised:
        file.write([b"x" * 500], 0)
    assert raised.value.errno == errno.ENOSPC
    assert file.read(1000, 0) == b"x" * 400
    assert disk.free_bytes() == 0
    file.write([b"y" * 400], 0)
    disk.remove("a")
    assert disk.free_bytes() == 600
    file.write([b"z" * 100], 400)
    file.truncate(50)
    assert disk.free_bytes() == 950
    disk.capacity_bytes = 60
    with pytest.raises(OSError):
        file.truncate(70)
    assert file.size() == 50


def test_space_of_an_open_removed_file_is_free_after_its_close_and_links_count_once() -> None:
    disk = SimDisk(Random(1), DiskFaults(capacity_bytes=1000))
    put(disk, "a", bytes(100))
    disk.link("a", "b")
    assert disk.free_bytes() == 900
    file = disk.open("a", "read")
    disk.remove("a")
    disk.remove("b")
    assert disk.free_bytes() == 900
    file.close()
    assert disk.free_bytes() == 1000


def test_space_is_counted_again_after_a_crash() -> None:
    for seed in SEEDS:
        disk = SimDisk(Random(seed), DiskFaults(capacity_bytes=10_000))
        put(disk, "a", A)
        disk.remove("a")
        put(disk, "b", B + C, synced=False)
        after = disk.crash()
        assert after.free_bytes() == 10_000 - sum(map(len, after.image().values()))


def test_a_full_disk_can_be_scheduled() -> None:
    disk = SimDisk(Random(1), DiskFaults(no_space_at=2))
    file = disk.open("a", "create")
    file.write([b"x" * 100], 0)
    with pytest.raises(OSError, match="No space"):
        file.write([b"y" * 100], 100)
    assert 100 <= file.size() < 200
    file.write([b"z" * 100], file.size())
    assert disk.counters.no_space_errors == 1


def test_too_many_open_files() -> None:
    disk = SimDisk(Random(1), DiskFaults(open_files_max=2))
    put(disk, "a", A)
    first = disk.open("a", "read")
    disk.open("a", "read")
    with pytest.raises(OSError) as raised:
        disk.open("b", "create")
    assert raised.value.errno == errno.EMFILE
    assert not disk.exists("b")
    first.close()
    disk.open("b", "create").close()


def test_a_flipped_bit_is_read_and_survives_a_crash() -> None:
    disk = SimDisk(Random(1))
    put(disk, "a", A)
    disk.flip("a", 3, 5)
    wrong = A[:3] + bytes([A[3] ^ 32]) + A[4:]
    assert read_whole(disk, "a") == wrong
    after = disk.crash()
    assert read_whole(after, "a") == wrong
    assert after.flips == [Flip("a", 3, 5)]


def test_random_flips_hit_every_file_and_change_one_bit() -> None:
    hit = set()
    for seed in range(50):
        disk = SimDisk(Random(seed))
        assert disk.flip_random() is None
        put(disk, "a", A)
        put(disk, "b", B)
        flip = disk.flip_random()
        assert flip is not None
        hit.add(flip.path)
        before = {"a": A, "b": B}[flip.path]
        after = read_whole(disk, flip.path)
        assert int.from_bytes(before, "big") ^ int.from_bytes(after, "big") == 1 << (
            8 * (SECTOR - 1 - flip.position) + flip.bit
        )
    assert hit == {"a", "b"}


def test_a_crash_flips_a_bit_at_its_rate() -> None:
    disk = SimDisk(Random(1), DiskFaults(crash_flip_rate=1.0))
    put(disk, "a", A)
    after = disk.crash()
    assert len(after.flips) == 1
    assert read_whole(after, "a") != A


def test_a_wrong_read_is_wrong_once() -> None:
    disk = SimDisk(Random(1), DiskFaults(read_flip_rate=0.5))
    put(disk, "a", A)
    reads = [read_whole(disk, "a") for _ in range(50)]
    wrong = [data for data in reads if data != A]
    assert A in reads
    assert len(wrong) == disk.counters.read_flips > 5
    assert disk.image()["a"] == A


@pytest.mark.parametrize(
    "faults",
    [
        DiskFaults(ignores_sync=True),
        DiskFaults(ignores_sync_directory=True),
        DiskFaults(ignores_write_durable=True),
    ],
)
def test_ignored_calls_keep_nothing(faults: DiskFaults) -> None:
    def work(disk: SimDisk) -> None:
        put(disk, "a", ZERO)
        put(disk, "b", B)
        file = disk.open("a", "write")
        file.write_durable([A], 0)
        file.close()

    assert any(image != {"a": A, "b": B} for image in outcomes(lambda disk: None, work, faults))


def test_a_file_that_would_be_enormous_is_refused() -> None:
    file = SimDisk(Random(1)).open("a", "create")
    for call in (lambda: file.write([b"x"], 1 << 40), lambda: file.truncate(1 << 40)):
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == errno.EFBIG


@pytest.mark.parametrize("path", ["/a", "a//b", "a/", "./a", "a/..", ".."])
def test_paths_that_are_not_plain_are_refused(path: str) -> None:
    disk = SimDisk(Random(1))
    with pytest.raises(ValueError, match="not a plain path"):
        disk.open(path, "create")


# ---- locks, trace and counters


def test_a_lock_does_not_outlive_its_process() -> None:
    disk = SimDisk(Random(1))
    disk.lock("lock")
    with pytest.raises(DirectoryInUseError):
        disk.lock("lock")
    disk.kill().lock("lock")


def test_the_trace_keeps_the_last_operations_and_the_report_shows_them() -> None:
    disk = SimDisk(Random(1), trace_operations_max=3)
    put(disk, "a", A)
    disk.rename("a", "b")
    assert disk.report().splitlines() == [
        "     3 sync a",
        "     4 sync_directory",
        "     5 rename a b",
    ]


def test_counters_go_on_over_crashes() -> None:
    disk = SimDisk(Random(3))
    put(disk, "a", A + B)
    read_whole(disk, "a")
    writes((B + A, 0))(disk)
    disk.open("b", "create").close()
    counters = disk.crash().kill().counters
    assert (counters.writes, counters.written_bytes, counters.syncs) == (2, 2048, 1)
    assert (counters.directory_syncs, counters.reads) == (1, 1)
    assert (counters.crashes, counters.kills) == (1, 1)
    assert counters.sectors_kept + counters.sectors_lost == 2
    assert counters.names_kept + counters.names_lost == 1
