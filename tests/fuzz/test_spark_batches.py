"""Goal: whatever bytes arrive, decoders of whole batches raise nothing but `DecodeError`, read
nothing but their input, and agree with the log's own decoder on which batches are sound.

Method: seeded mutations of the records of valid batches, with a new checksum so that they are
decoded, and of whole chunks, without one. The input of the compiled scan ends at a page that must
not be read: one byte too far ends the process. `DRAGOMAN_FUZZ_ROUNDS` multiplies the work.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from dragoman.errors import DecodeError
from dragoman.log import batch as b
from dragoman.log.batch import BatchHeader
from dragoman.log.compression import Codec
from dragoman.spark.batches import compiled
from dragoman.spark.batches.layout import BATCH, RECORD_BYTES_MIN, MalformedBatchError
from tables.batch_oracle import EVERYTHING, WAYS, decode, random_records, reference

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
MUTANTS = 1500
#: Lengths and their edges: zero, null, one and two bytes, and encodings that are too long.
BYTES = (0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
LENGTHS = (
    *(b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\xff" * 9 + b"\x02", b"\xff" * 12),
    *(b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x00", b"\x80\x00"),
)
Outcome = list[tuple[object, ...]] | None


def mutate(rng: random.Random, body: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if data:
                data[at % len(data)] = rng.choice(BYTES)
            case 1 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 2:
                del data[at:]
            case 3:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case _:
                data[at : at + rng.choice((0, 1, 2))] = rng.choice(LENGTHS)
    return bytes(data)


def mutant(rng: random.Random, base_offset: int) -> bytearray:
    """A batch with a right checksum around records that may be wrong."""
    count = rng.randint(0, 6)
    body = b"".join(
        b.record_bytes(record, rng.choice((0, 5, -5, 10**9)), index)
        for index, record in enumerate(random_records(rng, count))
    )
    header = BatchHeader(
        *(base_offset, 0, 0, 2, 0),
        attributes=rng.choice(list(Codec)) | rng.choice((0, 0, b.LOG_APPEND_TIME)),
        last_offset_delta=max(count - 1, 0),
        base_timestamp=rng.choice((-1, *[10**12] * 12, 2**63 - 1, -(2**63))),
        max_timestamp=rng.choice((0, *[10**12] * 8, 2**63 - 1)),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=max(0, count + rng.choice((0, 0, 0, 0, 1, -1, 2**30))),
    )
    return b.assemble_batch(mutate(rng, body), header)


def outcome(action: Callable[[], list[tuple[object, ...]]]) -> Outcome:
    try:
        return action()
    except DecodeError:
        return None


def has_bad_name(chunk: bytes) -> bool:
    """Whether a header has an invalid name, which only readers of headers notice."""
    try:
        reference([chunk])
    except DecodeError as error:
        return "codec can't decode" in str(error)
    return False


@pytest.mark.parametrize("seed", range(4))
def test_mutated_records_are_what_the_log_says_they_are(seed: int) -> None:
    rng = random.Random(f"records {seed}")
    sound = 0
    for _ in range(MUTANTS // 4 * ROUNDS):
        chunk = bytes(
            b"".join(mutant(rng, offset) for offset in range(0, rng.choice((10, 30)), 10))
        )
        expected = outcome(lambda chunk=chunk: reference([chunk]))
        sound += bool(expected)
        for use_compiled in WAYS:
            found = outcome(lambda c=chunk, u=use_compiled: decode([c], use_compiled=u))
            assert found == expected, chunk.hex()
            values = outcome(
                lambda c=chunk, u=use_compiled: decode([c], use_compiled=u, columns=("value",))
            )
            if not has_bad_name(chunk):
                picked = None if expected is None else [(row[1],) for row in expected]
                assert values == picked, chunk.hex()
    assert sound > MUTANTS // 4 * ROUNDS // 20


def test_mutated_chunks_raise_only_decode_errors() -> None:
    rng = random.Random("chunks")
    for _ in range(MUTANTS * ROUNDS):
        whole = b"".join(
            b.build_batch(random_records(rng, 3), base_offset=offset, codec=rng.choice(list(Codec)))
            for offset in (0, 3, 6)
        )
        chunk = mutate(rng, whole)
        outcomes = [
            outcome(lambda c=chunk, u=use_compiled: decode([c], use_compiled=u))
            for use_compiled in WAYS
        ]
        assert all(each == outcomes[0] for each in outcomes)


def test_a_chunk_cut_off_anywhere_is_refused() -> None:
    rng = random.Random("cuts")
    first = b.build_batch(random_records(rng, 3))
    chunk = bytes(first + b.build_batch(random_records(rng, 3), base_offset=3, codec=Codec.ZSTD))
    for cut in range(1, len(chunk)):
        if cut == len(first):
            continue
        for use_compiled in WAYS:
            with pytest.raises(DecodeError, match="orders-7, chunk 0 at byte"):
                decode([chunk[:cut]], use_compiled=use_compiled)


class GuardedMemory:
    """Bytes that end at the start of a page without access."""

    def __init__(self, size_max: int) -> None:
        self._pages = -(-size_max // mmap.PAGESIZE)
        self._map = mmap.mmap(-1, (self._pages + 1) * mmap.PAGESIZE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        guard = self._bytes.ctypes.data + self._pages * mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        forbidden = libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), 0)
        assert forbidden == 0, os.strerror(ctypes.get_errno())

    def place(self, data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        end = self._pages * mmap.PAGESIZE
        self._bytes[end - len(data) : end] = np.frombuffer(data, np.uint8)
        return self._bytes[end - len(data) : end]


@pytest.mark.parametrize("library", [compiled.load()] if True in WAYS else [])
def test_compiled_scan_reads_no_byte_behind_its_input(library: ctypes.CDLL) -> None:
    rng = random.Random("guard")
    scan = compiled.CompiledRecords(library).scan
    memory = GuardedMemory(1 << 16)
    for _ in range(MUTANTS * ROUNDS):
        count = rng.randint(1, 5)
        body = b"".join(
            b.record_bytes(record, 0, index)
            for index, record in enumerate(random_records(rng, count))
        )
        flat = memory.place(mutate(rng, body))
        # No more than the decoder lets through, which checks this before it makes room.
        count = min(count, len(flat) // RECORD_BYTES_MIN)
        table = np.array([(0, len(flat), count, 0, 0, 0)], BATCH)
        try:
            rows, columns = scan(flat, table, 0, 100, frozenset(EVERYTHING))
        except (MalformedBatchError, pa.ArrowInvalid):
            continue
        assert rows <= count
        for column in columns.values():
            column.validate(full=True)
