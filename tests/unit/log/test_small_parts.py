"""Goal: manifest, node state, producer file, file cache, tail, epochs, scan and salvage alone."""

from __future__ import annotations

import errno
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import CorruptionError, FormatError
from dragoman.limits import TAIL_CHUNK_BYTES_MAX
from dragoman.log import node
from dragoman.log.batch import Record, batches, build_batch
from dragoman.log.directory import FileCache
from dragoman.log.epochs import EpochHistory
from dragoman.log.manifest import Identity, Manifest, decode_manifest, encode_manifest
from dragoman.log.node import Durability, NodeState, read_node_state, write_node_state
from dragoman.log.producer_file import decode_producers, encode_producers
from dragoman.log.producer_states import ProducerStates
from dragoman.log.salvage import Bad, Sound, read_batches
from dragoman.log.segment import parse_segment_name, scan, segment_name
from dragoman.log.tail import Tail, join_small
from dragoman.testing.memory import MemoryDisk, MemoryFile
from dragoman.types import Buffer

MANIFEST = Manifest(
    identity=Identity(partition_id=1, topic="t", partition=0, topic_id="x"),
    sequence=5,
    log_start_offset=1,
    high_watermark=9,
    last_stable_offset=8,
    log_end_offset=9,
    next_generation=3,
    epochs=((0, 0), (2, 5)),
    segments=(),
    live_offset=4,
)


def flips(data: bytes) -> list[bytes]:
    changed = []
    for position in range(0, len(data), 3):
        each = bytearray(data)
        each[position] ^= 1 << position % 8
        changed.append(bytes(each))
    return changed


# ---- manifest, node.json, producers


def test_manifest_round_trip():
    assert decode_manifest(encode_manifest(MANIFEST), "m") == MANIFEST


@pytest.mark.parametrize("data", [*flips(encode_manifest(MANIFEST)), b"", b"{}\n"])
def test_damaged_manifest_is_refused(data: bytes):
    with pytest.raises(CorruptionError):
        decode_manifest(data, "m")


def test_manifest_of_a_newer_release_is_refused():
    newer = msgspec.structs.replace(MANIFEST, format=2)
    with pytest.raises(FormatError, match="format 2"):
        decode_manifest(encode_manifest(newer), "m")


def state(**changes: object) -> NodeState:
    fields = {"directory_id": "0" * 32, "incarnation": 1, "is_clean": True, "sequence": 4}
    return NodeState(durability=Durability.OS, **{**fields, **changes})  # type: ignore[arg-type]


def test_node_state_round_trip():
    disk = MemoryDisk()
    write_node_state(disk, state())
    assert read_node_state(disk) == state()


@pytest.mark.parametrize(("field", "text"), [("format", "format 9"), ("feature_level", "level 9")])
def test_directory_from_the_future_is_refused(field: str, text: str):
    disk = MemoryDisk()
    write_node_state(disk, state(**{field: 9}))
    with pytest.raises(FormatError, match=text):
        read_node_state(disk)


def test_every_flipped_bit_of_the_node_state_is_found():
    disk = MemoryDisk()
    for data in flips(node.node_replacement(state()).data):
        disk.remove(node.NODE_FILE)
        file = disk.open(node.NODE_FILE, "create")
        file.write([data], 0)
        with pytest.raises(CorruptionError):
            read_node_state(disk)


def test_producer_file_round_trip_and_damage():
    states = ProducerStates()
    states.append(7, 0, 0, 2, 10, 1, 1)
    data = encode_producers(states, 12, 99, 3)
    found = decode_producers(data, "p", 3)
    assert (found.offset, found.sequence) == (12, 99)
    assert found.states.describe() == states.describe()
    for damaged in [*flips(data), b""]:
        with pytest.raises(CorruptionError):
            decode_producers(damaged, "p", 3)


# ---- files


def test_least_recently_used_file_is_closed():
    disk = MemoryDisk()
    cache = FileCache(disk, 2)
    first = cache.create("d/a")
    cache.create("d/b")
    cache.get("d/a")
    cache.create("d/c")
    assert cache.get("d/a") is first
    assert len(cache) == 2
    with pytest.raises(FileNotFoundError):
        cache.get("d/missing")
    cache.close()
    assert len(cache) == 0


class FewDescriptors(MemoryDisk):
    """Has room for two open files."""

    opened = 0

    def open(self, path: str, mode: str) -> MemoryFile:  # type: ignore[override]
        if self.opened >= 2:
            self.opened = 0
            raise OSError(errno.EMFILE, "too many open files")
        self.opened += 1
        return super().open(path, mode)  # type: ignore[arg-type]


def test_without_descriptors_half_are_given_up():
    disk = FewDescriptors()
    disk.make_directory("d")
    cache = FileCache(disk, 100)
    for name in "abc":
        cache.create(f"d/{name}")
    assert len(cache) == 2


def test_no_descriptor_at_all_is_an_error():
    disk = FewDescriptors()
    disk.opened = 2
    with pytest.raises(OSError, match="too many"):
        FileCache(disk, 100).create("a")


# ---- tail


def offsets_of(buffers: list[Buffer]) -> list[int]:
    return [header.base_offset for each in buffers for header, _ in batches(memoryview(each))]


def batches_at(*offsets: int, value: bytes = b"x") -> list[Buffer]:
    """A batch of two records at each offset."""
    return [
        build_batch([Record(value=value)] * 2, base_offset=offset, leader_epoch=0)
        for offset in offsets
    ]


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize(
    ("offset", "limit", "wanted_bytes", "found", "end"),
    [
        (12, 18, 1, [12], 14),
        (13, 18, 1, [12], 14),
        (12, 18, 1000, [12, 14, 16], 18),
        (10, 14, 1000, [10, 12], 14),
        (10, 15, 1000, [10, 12], 14),
        (10, 11, 1000, [], 10),
        (14, 18, 158, [14, 16], 18),
        (14, 18, 157, [14], 16),
    ],
)
def test_tail_reads_whole_batches_up_to_the_limits(
    joined: bool, offset: int, limit: int, wanted_bytes: int, found: list[int], end: int
):
    chunks = batches_at(10, 12, 14, 16, value=b"x" * 2)
    size = sum(map(len, chunks))
    assert size == 4 * 79, "the byte counts above are for two batches of this size"
    tail = Tail()
    tail.add(join_small(chunks, size) if joined else chunks, 18)
    buffers, next_offset = tail.read(offset, limit, wanted_bytes)
    assert (offsets_of(buffers), next_offset) == (found, end)


@given(
    groups=st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=4), min_size=1, max_size=5),
    begin=st.floats(0, 1, exclude_max=True),
    bytes_max=st.integers(0, 3000),
)
def test_tail_reads_on_without_leaving_a_batch_out(
    groups: list[list[int]], begin: float, bytes_max: int
):
    """However large the batches of a chunk are, and whatever room is left for the next ones."""
    tail = Tail()
    sizes: list[int] = []
    for group in groups:
        chunks = [
            build_batch([Record(value=b"x" * size)], base_offset=offset, leader_epoch=0)
            for offset, size in enumerate(group, len(sizes))
        ]
        sizes += map(len, chunks)
        tail.add([b"".join(chunks)], len(sizes))
    first = int(begin * len(sizes))
    buffers, next_offset = tail.read(first, len(sizes), bytes_max)
    assert offsets_of(buffers) == list(range(first, next_offset))
    # As much as there is room for, and one batch at least.
    assert next_offset == first + 1 or sum(sizes[first:next_offset]) <= bytes_max


@pytest.mark.parametrize("joined", [False, True])
def test_tail_reads_over_a_gap(joined: bool):
    tail = Tail()
    for part, end in (((10, 12), 14), ((30, 40), 42)):
        chunks = batches_at(*part)
        tail.add(join_small(chunks, 1) if joined else chunks, end)
    for offset in (14, 20, 29, 30, 31):
        assert offsets_of(tail.read(offset, 42, 1000)[0]) == [30, 40]
    assert offsets_of(tail.read(12, 42, 1000)[0]) == [12, 30, 40]
    assert offsets_of(tail.read(33, 42, 1000)[0]) == [40]
    assert tail.read(20, 30, 1000) == ([], 20)


@given(sizes=st.lists(st.integers(1, 20_000), min_size=1, max_size=30))
def test_joining_keeps_every_byte_and_large_batches_apart(sizes: list[int]):
    chunks: list[Buffer] = [bytes([number]) * size for number, size in enumerate(sizes)]
    joined = join_small(chunks, sum(sizes))
    assert b"".join(joined) == b"".join(chunks)
    borders = set(itertools.accumulate(sizes))
    assert set(itertools.accumulate(map(len, joined))) <= borders
    assert all(len(each) <= max(*sizes, TAIL_CHUNK_BYTES_MAX) for each in joined)


def test_tail_forgets_the_oldest_and_stays_small():
    tail = Tail()
    for offset in range(0, 2000, 2):
        tail.add(batches_at(offset), offset + 2)
        if len(tail) > 3:
            tail.drop_oldest()
    assert (tail.first_offset, len(tail)) == (1994, 3)
    assert len(tail._offsets) < 200
    assert offsets_of(tail.read(1996, 2000, 1000)[0]) == [1996, 1998]
    assert tail.clear() == 3
    assert tail.first_offset == -1


# ---- epochs


def history(*entries: tuple[int, int]) -> EpochHistory:
    epochs = EpochHistory()
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


def test_epoch_without_records_is_replaced():
    assert history((0, 0), (1, 5), (3, 5)).entries() == [(0, 0), (3, 5)]


@pytest.mark.parametrize(
    ("epoch", "answer"), [(0, (0, 5)), (1, (1, 9)), (2, (1, 9)), (4, (4, 20)), (9, (4, 20))]
)
def test_end_offset_of_an_epoch(epoch: int, answer: tuple[int, int]):
    assert history((0, 0), (1, 5), (4, 9)).end_offset(epoch, 20) == answer


def test_end_offset_before_the_first_epoch_is_unknown():
    assert history((3, 0)).end_offset(2, 9) is None
    assert EpochHistory().end_offset(0, 0) is None


def test_truncation_forgets_epochs():
    epochs = history((0, 0), (1, 5), (4, 9))
    assert [epochs.epoch_at(n) for n in (0, 4, 5, 8, 9)] == [0, 0, 1, 1, 4]
    epochs.truncate_above(9)
    assert epochs.latest == 4
    epochs.truncate(9)
    assert epochs.latest == 1
    epochs.truncate(0)
    assert (epochs.latest, epochs.epoch_at(3)) == (-1, -1)


# ---- segments


def test_segment_names():
    assert segment_name(42, 7) == "00000000000000000042.7"
    assert parse_segment_name("00000000000000000042.7.log") == (42, 7)
    for name in ("42.7.log", "00000000000000000042.7.idx", "00000000000000000042.x.log", "a"):
        assert parse_segment_name(name) is None


def segment_file(count: int = 5, size: int = 50) -> tuple[MemoryFile, list[int], int]:
    """A file of batches of two records each: (file, where they begin, its size)."""
    disk = MemoryDisk()
    data, starts = bytearray(), []
    for number in range(count):
        starts.append(len(data))
        records = [Record(value=b"%d" % number * size), Record(value=b"z")]
        data += build_batch(records, base_offset=number * 2)
    file = disk.open("f", "create")
    file.write([data], 0)
    return file, starts, len(data)


def flip(file: MemoryFile, position: int) -> None:
    file.write([bytes([file.read(1, position)[0] ^ 0x40])], position)


def test_scan_yields_every_batch_also_those_larger_than_a_chunk(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dragoman.log.segment.SCAN_CHUNK_BYTES", 150)
    file, starts, end = segment_file(size=200)
    assert [at for at, _, _ in scan(file, "f", 0, end)] == starts


def test_scan_names_the_first_bad_byte():
    file, starts, end = segment_file()
    flip(file, starts[2] + 70)
    with pytest.raises(CorruptionError) as caught:
        list(scan(file, "f", 0, end))
    assert caught.value.position == starts[2]


def test_salvage_goes_on_behind_a_bad_record():
    file, starts, end = segment_file()
    flip(file, starts[2] + 70)
    found = list(read_batches(file, 0, end, 0))
    assert [type(each) for each in found] == [Sound, Sound, Bad, Sound, Sound]
    assert found[2].resume == starts[3]
    assert found[2].next_offset == 6


@pytest.mark.parametrize("byte", [0, 7, 8, 11, 16, 26])
def test_salvage_goes_on_behind_a_bad_header_at_a_known_border(byte: int):
    file, starts, end = segment_file()
    flip(file, starts[2] + byte)
    found = list(read_batches(file, 0, end, 0, [starts[4]]))
    sound = [each.header.base_offset for each in found if isinstance(each, Sound)]
    assert sound[:2] == [0, 2]
    assert sound[-1] == 8
    assert 4 not in sound


def test_salvage_never_takes_what_is_inside_a_record_for_a_batch():
    disk = MemoryDisk()
    inner = bytes(build_batch([Record(value=b"inner")], base_offset=2))
    data = build_batch([Record(value=b"a")]) + build_batch([Record(value=inner)], base_offset=1)
    file = disk.open("f", "create")
    file.write([data], 0)
    second = len(build_batch([Record(value=b"a")]))
    flip(file, second + 9)
    found = list(read_batches(file, 0, len(data), 0))
    assert [type(each) for each in found] == [Sound, Bad]
    assert found[1].resume == len(data)


def test_salvage_of_a_cut_off_end():
    file, starts, _ = segment_file()
    for cut in (1, 30, 70):
        (*_, bad) = read_batches(file, 0, starts[4] + cut, 0)
        assert isinstance(bad, Bad)
        assert (bad.position, bad.next_offset) == (starts[4], -1)


def test_salvage_allows_gaps_but_no_going_back():
    disk = MemoryDisk()

    def make(base: int) -> bytearray:
        return build_batch([Record(value=b"v")], base_offset=base)

    file = disk.open("f", "create")
    file.write([make(0) + make(5) + make(2) + make(6)], 0)
    kinds = [type(each) for each in read_batches(file, 0, file.size(), 0)]
    # The batch at 5 is contradicted by the next one, so it is the one that is wrong.
    assert kinds == [Sound, Bad, Sound, Sound]
