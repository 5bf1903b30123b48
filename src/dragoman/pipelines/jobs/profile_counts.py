"""Statistics of a topic's records, counted by slice and merged in bounded space.

slices   each partition is cut into slices of offsets; an executor counts one slice
keys     distinct keys by HyperLogLog; the most frequent keys by counts of those that were frequent
         in some slice, so a count may be too low, never too high
times    records by time, in buckets of minutes, which double in width when there are too many
fields   the types of each field of JSON values, for a sample of each slice
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dragoman.limits import (
    PROFILE_FIELD_DEPTH_MAX,
    PROFILE_FIELDS_MAX,
    PROFILE_KEYS_MAX,
    PROFILE_TIMES_MAX,
)
from dragoman.spark.partitioner import murmur2_of

if TYPE_CHECKING:
    from dragoman.spark.options import SourceOptions
    from dragoman.spark.planner import RangePartition

COLUMNS = ("key", "value", "offset", "timestamp", "headers")
_MINUTE_US = 60_000_000
#: 2**14 registers have a standard error of 0.8 %.
_REGISTER_BITS = 14


class Sizes(msgspec.Struct):
    """Sizes of keys or values in bytes."""

    nulls: int = 0
    total: int = 0
    smallest: int = -1
    largest: int = -1
    #: Exponent → number of sizes below this power of two and not below the one before.
    powers: dict[int, int] = {}

    def add(self, column: pa.Array) -> None:
        self.nulls += column.null_count
        sizes = pc.binary_length(column.drop_null()).to_numpy(zero_copy_only=False)
        if not len(sizes):
            return
        self.total += int(sizes.sum())
        powers = np.ceil(np.log2(sizes.astype(np.float64) + 1)).astype(np.int64)
        for power, count in zip(*np.unique(powers, return_counts=True), strict=True):
            self.powers[int(power)] = self.powers.get(int(power), 0) + int(count)
        self._stretch(int(sizes.min()), int(sizes.max()))

    def merge(self, other: Sizes) -> None:
        self.nulls += other.nulls
        self.total += other.total
        self.powers = dict(Counter(self.powers) + Counter(other.powers))
        if other.smallest >= 0:
            self._stretch(other.smallest, other.largest)

    def _stretch(self, smallest: int, largest: int) -> None:
        self.smallest = smallest if self.smallest < 0 else min(self.smallest, smallest)
        self.largest = max(self.largest, largest)


class Times(msgspec.Struct):
    """Numbers of records by time."""

    #: Width of a bucket, a power of two.
    minutes: int = 1
    counts: dict[int, int] = {}
    first_us: int = -1
    last_us: int = -1
    #: Records that are older than the one before them.
    steps_back: int = 0

    def add(self, micros: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        if self.last_us >= 0 and micros[0] < self.last_us:
            self.steps_back += 1
        self.steps_back += int((np.diff(micros) < 0).sum())
        self._stretch(int(micros.min()), int(micros.max()))
        buckets = micros // (_MINUTE_US * self.minutes)
        for bucket, count in zip(*np.unique(buckets, return_counts=True), strict=True):
            self.counts[int(bucket)] = self.counts.get(int(bucket), 0) + int(count)
        self._coarsen(self.minutes)

    def merge(self, other: Times) -> None:
        self.steps_back += other.steps_back
        if other.first_us < 0:
            return
        self._stretch(other.first_us, other.last_us)
        other = Times(other.minutes, dict(other.counts))
        width = max(self.minutes, other.minutes)
        self._coarsen(width)
        other._coarsen(width)
        self.counts = dict(Counter(self.counts) + Counter(other.counts))
        self._coarsen(width)

    def _coarsen(self, minutes: int) -> None:
        while self.minutes < minutes or len(self.counts) > PROFILE_TIMES_MAX:
            halved: Counter[int] = Counter()
            for bucket, count in self.counts.items():
                halved[bucket // 2] += count
            self.counts = dict(halved)
            self.minutes *= 2

    def _stretch(self, first: int, last: int) -> None:
        self.first_us = first if self.first_us < 0 else min(self.first_us, first)
        self.last_us = max(self.last_us, last)


class Keys(msgspec.Struct):
    #: Key → count, for keys that were frequent in a slice.
    frequent: dict[bytes, int] = {}
    #: The registers of HyperLogLog.
    registers: bytes = bytes(1 << _REGISTER_BITS)

    def add(self, keys: pa.Array) -> None:
        present = keys.drop_null()
        if not len(present):
            return
        counted = Counter(self.frequent)
        for each in pc.value_counts(present).to_pylist():
            counted[each["values"]] += each["counts"]
        self.frequent = dict(counted.most_common(PROFILE_KEYS_MAX))
        hashes = murmur2_of(present).astype(np.uint64)
        places = (hashes >> np.uint64(32 - _REGISTER_BITS)).astype(np.int64)
        rest = hashes & np.uint64((1 << (32 - _REGISTER_BITS)) - 1)
        ranks = 32 - _REGISTER_BITS + 1 - np.ceil(np.log2(rest.astype(np.float64) + 1))
        found = np.frombuffer(self.registers, np.uint8).copy()
        np.maximum.at(found, places, ranks.astype(np.uint8))
        self.registers = found.tobytes()

    def merge(self, other: Keys) -> None:
        summed = Counter(self.frequent) + Counter(other.frequent)
        self.frequent = dict(summed.most_common(PROFILE_KEYS_MAX))
        mine, others = (np.frombuffer(each.registers, np.uint8) for each in (self, other))
        self.registers = np.maximum(mine, others).tobytes()

    @property
    def distinct(self) -> int:
        """The estimated number of distinct keys."""
        registers = np.frombuffer(self.registers, np.uint8).astype(np.float64)
        count = len(registers)
        estimate = 0.7213 / (1 + 1.079 / count) * count * count / np.exp2(-registers).sum()
        empty = int((registers == 0).sum())
        if estimate <= 2.5 * count and empty:
            estimate = count * np.log(count / empty)
        elif estimate > 2**32 / 30:
            estimate = -(2**32) * np.log(1 - estimate / 2**32)
        return round(float(estimate))


class Fields(msgspec.Struct):
    """Types of the fields of JSON values, in a sample of the records."""

    looked_at: int = 0
    not_json: int = 0
    #: Path → type → count.
    types: dict[str, dict[str, int]] = {}

    def add(self, values: Iterable[bytes]) -> None:
        for value in values:
            self.looked_at += 1
            try:
                document = msgspec.json.decode(value)
            except (msgspec.DecodeError, RecursionError):
                self.not_json += 1
                continue
            self._note("", document, 0)

    def merge(self, other: Fields) -> None:
        self.looked_at += other.looked_at
        self.not_json += other.not_json
        for path, types in other.types.items():
            for kind, count in types.items():
                self._count(path, kind, count)

    def _note(self, path: str, value: object, depth: int) -> None:
        if not isinstance(value, dict) or depth == PROFILE_FIELD_DEPTH_MAX:
            self._count(path, _KINDS.get(type(value), "other"), 1)
            return
        if path:
            self._count(path, "object", 1)
        for name, inner in value.items():
            self._note(f"{path}.{name}" if path else name, inner, depth + 1)

    def _count(self, path: str, kind: str, count: int) -> None:
        known = self.types.get(path)
        if known is None:
            if len(self.types) >= PROFILE_FIELDS_MAX:
                return
            known = self.types[path] = {}
        known[kind] = known.get(kind, 0) + count


_KINDS = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


class Slice(msgspec.Struct, kw_only=True):
    """Counts for one slice of a partition, or for several slices merged."""

    partition: int
    #: The index of the slice in its partition.
    number: int
    start: int
    end: int
    records: int = 0
    header_count: int = 0
    keys: Keys = msgspec.field(default_factory=Keys)
    key_sizes: Sizes = msgspec.field(default_factory=Sizes)
    value_sizes: Sizes = msgspec.field(default_factory=Sizes)
    times: Times = msgspec.field(default_factory=Times)
    fields: Fields = msgspec.field(default_factory=Fields)

    def add(self, batch: pa.RecordBatch, stride: int) -> None:
        """Count a batch; one of `stride` values is parsed."""
        if not len(batch):
            return
        first = -self.records % stride
        self.records += len(batch)
        self.header_count += len(batch.column("headers").flatten())
        self.keys.add(batch.column("key"))
        self.key_sizes.add(batch.column("key"))
        self.value_sizes.add(batch.column("value"))
        self.times.add(batch.column("timestamp").cast(pa.int64()).to_numpy())
        chosen = pa.array(np.arange(first, len(batch), stride))
        self.fields.add(batch.column("value").take(chosen).drop_null().to_pylist())

    def merge(self, other: Slice) -> None:
        self.start, self.end = min(self.start, other.start), max(self.end, other.end)
        self.records += other.records
        self.header_count += other.header_count
        for name in ("keys", "key_sizes", "value_sizes", "times", "fields"):
            getattr(self, name).merge(getattr(other, name))


class CountTask(msgspec.Struct, frozen=True):
    planned: RangePartition
    options: SourceOptions
    number: int
    stride: int


def count_slice(task: CountTask) -> Slice:
    """Count one slice, on an executor."""
    from dragoman.spark.reader import read_range

    offsets = task.planned.offsets
    found = Slice(
        partition=offsets.where.partition, number=task.number, start=offsets.start, end=offsets.end
    )
    for batch in read_range(task.planned, task.options, COLUMNS):
        found.add(batch, task.stride)
    return found


def merged(slices: Sequence[Slice]) -> Slice:
    """The slices merged into one. There must be at least one."""
    whole = msgspec.msgpack.decode(msgspec.msgpack.encode(slices[0]), type=Slice)
    for each in slices[1:]:
        whole.merge(each)
    return whole


# ---- drift


class Drift(msgspec.Struct, frozen=True):
    """One field across the slices."""

    path: str
    types: dict[str, int]
    #: For each slice, the share of parsed values that have the field; -1: no value was parsed.
    shares: list[float]
    #: For each slice, the types without null.
    kinds: list[list[str]]
    #: Descriptions of changes.
    changes: list[str]


def drifts(slices: Sequence[Slice]) -> list[Drift]:
    """All fields by name, over the slices of all partitions."""
    numbers = sorted({each.number for each in slices})
    by_number = [merged([each for each in slices if each.number == number]) for number in numbers]
    paths = sorted({path for each in by_number for path in each.fields.types})
    return [_drift(path, by_number) for path in paths]


def _drift(path: str, slices: Sequence[Slice]) -> Drift:
    found = [each.fields.types.get(path, {}) for each in slices]
    looked_at = [each.fields.looked_at - each.fields.not_json for each in slices]
    shares = [
        round(sum(types.values()) / count, 4) if count else -1.0
        for types, count in zip(found, looked_at, strict=True)
    ]
    kinds = [sorted(set(types) - {"null"}) for types in found]
    total: Counter[str] = Counter()
    for types in found:
        total.update(types)
    return Drift(path or "(value)", dict(total), shares, kinds, _changes(shares, kinds))


def _changes(shares: Sequence[float], kinds: Sequence[Sequence[str]]) -> list[str]:
    looked = [number for number, share in enumerate(shares) if share >= 0]
    there = [number for number in looked if shares[number] > 0]
    found = []
    if there and there[0] != looked[0]:
        found.append(f"appears in slice {there[0] + 1}")
    if there and there[-1] != looked[-1]:
        found.append(f"vanishes after slice {there[-1] + 1}")
    before: Sequence[str] = ()
    for number in there:
        if kinds[number] and before and kinds[number] != before:
            was, now = "/".join(before), "/".join(kinds[number])
            found.append(f"changes from {was} to {now} in slice {number + 1}")
        before = kinds[number] or before
    return found
