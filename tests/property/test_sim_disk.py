"""The simulated disk keeps what it promised, and loses nothing else than what it may.

A model that shares no code with the disk remembers for every sector all contents it had since it
was last durable, and for every name all files it led to. Random operations run on disk and model;
after each power cut everything found must be one of those. The first sector of every file holds its
identity, is synced at once and never written again, so the model can tell which file a name leads
to.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import DiskFaults
from dragoman.world import read_whole

SECTOR = 512
PAGE = 4096
DIRECTORIES = ("", "d", "d/e")
NAMES = ("a", "b", "c")


def sector_of(data: bytes | bytearray, index: int) -> bytes:
    return bytes(data[index * SECTOR : (index + 1) * SECTOR]).ljust(SECTOR, b"\0")


class ModelFile:
    def __init__(self, identity: bytes) -> None:
        self.identity = identity
        self.data = bytearray(identity)
        self.settle(bytes(identity))

    def settle(self, data: bytes) -> None:
        """This is on the disk and nothing is pending."""
        self.data = bytearray(data)
        self.base = data
        self.sectors: dict[int, list[bytes]] = {}
        self.sizes = [len(data)]
        self.promised_end = 0

    def _note(self, first: int, end: int, size_before: int) -> None:
        for index in range(first // SECTOR, -(-end // SECTOR)):
            versions = self.sectors.setdefault(index, [sector_of(self.base, index)])
            versions.append(sector_of(self.data, index))
        if len(self.data) != size_before:
            self.sizes.append(len(self.data))

    def write(self, data: bytes, position: int) -> None:
        size = len(self.data)
        self.data.extend(bytes(max(0, position - size)))
        self.data[position : position + len(data)] = data
        self._note(position, position + len(data), size)

    def write_durable(self, data: bytes, position: int) -> None:
        self.write(data, position)
        end = position + len(data)
        for index in range(position // SECTOR, -(-end // SECTOR)):
            self.sectors[index] = [sector_of(self.data, index)]
        self.promised_end = max(self.promised_end, end)

    def truncate(self, size: int) -> None:
        before = len(self.data)
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))
        self._note(size, max(size, before), before)
        self.promised_end = min(self.promised_end, size)

    def check(self, found: bytes) -> None:
        size = len(found)
        between = min(self.sizes) <= size <= max(self.sizes) and size % PAGE == 0
        assert size in self.sizes or between, (size, self.sizes)
        assert size >= self.promised_end
        for index in range(-(-size // SECTOR)):
            part = found[index * SECTOR : (index + 1) * SECTOR]
            allowed = self.sectors.get(index, [sector_of(self.base, index)])
            assert any(version.startswith(part) for version in allowed), f"sector {index}"


class Model:
    def __init__(self) -> None:
        self.files: dict[bytes, ModelFile] = {}
        self.entries: dict[tuple[str, str], ModelFile] = {}
        #: Everything a name led to since its directory was synced.
        self.seen: dict[tuple[str, str], list[ModelFile | None]] = {}
        #: Files that must be found under some name: durable once, and only moved since.
        self.only_moved: set[bytes] = set()

    def set(self, place: tuple[str, str], file: ModelFile | None) -> None:
        before = self.entries.get(place)
        self.seen.setdefault(place, [before]).append(file)
        if file is None:
            self.entries.pop(place, None)
        else:
            self.entries[place] = file

    def sync_directory(self, directory: str) -> None:
        for place in [place for place in self.seen if place[0] == directory]:
            del self.seen[place]
        for place, file in self.entries.items():
            if place[0] == directory:
                self.only_moved.add(file.identity)


class Session:
    """Runs the same operations on the disk and on the model."""

    def __init__(self, seed: int, faults: DiskFaults | None = None) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(Random(seed + 1), faults, trace_operations_max=10_000)
        self.model = Model()
        for directory in DIRECTORIES[1:]:
            self.disk.make_directory(directory)
        for directory in DIRECTORIES:
            self.disk.sync_directory(directory)
        self.created = 0

    def place(self) -> tuple[str, str]:
        return self.random.choice(DIRECTORIES), self.random.choice(NAMES)

    def operate(self) -> None:
        actions = (
            [self.change_bytes] * 8
            + [self.create] * 3
            + [self.rename] * 3
            + [self.remove, self.sync_file, self.sync_file, self.sync_directory]
        )
        self.random.choice(actions)()

    def create(self) -> None:
        place = self.place()
        if place in self.model.entries:
            return
        self.created += 1
        identity = self.created.to_bytes(8, "big").ljust(SECTOR, b"#")
        file = self.disk.open(path_of(place), "create")
        file.write([identity], 0)
        file.sync()
        file.close()
        self.model.files[identity] = ModelFile(identity)
        self.model.set(place, self.model.files[identity])

    def change_bytes(self) -> None:
        if not self.model.entries:
            return
        place = self.random.choice(sorted(self.model.entries))
        model = self.model.entries[place]
        position = SECTOR + self.random.randrange(3 * PAGE)
        if self.random.random() < 0.5:
            position = max(SECTOR, len(model.data))
        data = self.random.randbytes(self.random.choice((1, 30, 512, 700, 5000)))
        file = self.disk.open(path_of(place), "write")
        match self.random.randrange(6):
            case 0:
                file.write_durable([data[:3], data[3:]], position)
                model.write_durable(data, position)
            case 1:
                file.truncate(position)
                model.truncate(position)
            case _:
                file.write([data], position)
                model.write(data, position)
        assert file.read(1 << 20, 0) == model.data
        assert file.size() == len(model.data)
        file.close()

    def rename(self) -> None:
        if not self.model.entries:
            return
        old = self.random.choice(sorted(self.model.entries))
        new = self.place()
        if old == new:
            return
        self.disk.rename(path_of(old), path_of(new))
        moved, replaced = self.model.entries[old], self.model.entries.get(new)
        if replaced is not None:
            self.model.only_moved.discard(replaced.identity)
        self.model.set(old, None)
        self.model.set(new, moved)

    def remove(self) -> None:
        place = self.place()
        self.disk.remove(path_of(place))
        if place in self.model.entries:
            self.model.only_moved.discard(self.model.entries[place].identity)
            self.model.set(place, None)

    def sync_file(self) -> None:
        if self.model.entries:
            place = self.random.choice(sorted(self.model.entries))
            file = self.disk.open(path_of(place), "write")
            file.sync()
            file.close()
            model = self.model.entries[place]
            model.settle(bytes(model.data))

    def sync_directory(self) -> None:
        directory = self.random.choice(DIRECTORIES)
        self.disk.sync_directory(directory)
        self.model.sync_directory(directory)

    def kill(self) -> None:
        self.disk = self.disk.kill()
        expected = {path_of(place): bytes(file.data) for place, file in self.model.entries.items()}
        assert self.disk.image() == expected

    def crash(self) -> None:
        self.disk = self.disk.crash()
        found = {}
        for directory in DIRECTORIES:
            for name in self.disk.names(directory):
                if name not in ("d", "e"):
                    data = read_whole(self.disk, path_of((directory, name)))
                    found[directory, name] = (self.model.files[data[:SECTOR]], data)
        self.check(found)
        self.model.seen = {}
        self.model.entries = {place: file for place, (file, _) in found.items()}
        self.model.only_moved = {file.identity for file, _ in found.values()}
        for file, data in found.values():
            file.settle(data)

    def check(self, found: dict[tuple[str, str], tuple[ModelFile, bytes]]) -> None:
        for place in [(d, n) for d in DIRECTORIES for n in NAMES]:
            file = found[place][0] if place in found else None
            assert file in self.model.seen.get(place, [self.model.entries.get(place)]), place
        identities = [file.identity for file, _ in found.values()]
        assert len(identities) == len(set(identities)), "a rename left a file under two names"
        assert self.model.only_moved <= set(identities), "a file that was only renamed is gone"
        for file, data in found.values():
            file.check(data)


def path_of(place: tuple[str, str]) -> str:
    return f"{place[0]}/{place[1]}" if place[0] else place[1]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_crash_finds_only_what_was_written_and_all_that_was_promised(
    seed: int, lives: list[int]
) -> None:
    session = Session(seed)
    for operations in lives:
        for _ in range(operations):
            session.operate()
        if session.random.random() < 0.2:
            session.kill()
        session.crash()


@pytest.mark.parametrize("seed", range(5))
def test_same_seed_gives_same_trace_and_same_image(seed: int) -> None:
    def play(of: int) -> tuple[list[str], dict[str, bytes]]:
        session = Session(of)
        for _ in range(3):
            for _ in range(60):
                session.operate()
            session.crash()
        return [str(line) for line in session.disk.trace], session.disk.image()

    assert play(seed) == play(seed)
    assert play(seed) != play(seed + 1)


def test_model_notices_a_disk_that_ignores_syncs() -> None:
    """The check itself can fail: each promise broken on purpose is found within a few seeds."""
    for faults in (
        DiskFaults(ignores_sync=True),
        DiskFaults(ignores_sync_directory=True),
        DiskFaults(ignores_write_durable=True),
        DiskFaults(lost_write_rate=0.5),
    ):
        assert any(fails(seed, faults) for seed in range(40)), faults


def fails(seed: int, faults: DiskFaults) -> bool:
    try:
        session = Session(seed, faults)
        for _ in range(40):
            session.operate()
        session.crash()
    except (AssertionError, KeyError):
        return True
    return False


@pytest.mark.parametrize("seed", range(20))
def test_what_was_there_before_sync_all_is_there_after_a_power_cut(seed: int) -> None:
    disk = SimDisk(Random(seed))
    disk.make_directory("a/b")
    contents = {"x": b"1" * 700, "a/y": b"2" * 700, "a/b/z": b"3" * 700}
    for name, data in contents.items():
        file = disk.open(name, "create")
        file.write([data], 0)
        file.close()
    disk.rename("x", "a/x")
    disk.sync_all()
    contents["a/x"] = contents.pop("x")
    assert disk.crash().image() == contents
