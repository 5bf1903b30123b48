"""Goal: counts are right however records are cut into slices, and stay within their bounds.

Method: records by hand, counted in one piece and in many.
"""

from __future__ import annotations

import json
from random import Random

import pyarrow as pa
import pytest

from dragoman.pipelines.jobs import profile_counts, profile_report
from dragoman.pipelines.jobs.profile_counts import (
    COLUMNS,
    Fields,
    Keys,
    Slice,
    Times,
    drifts,
    merged,
)
from dragoman.spark.batches.layout import COLUMN_TYPES

SCHEMA = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in COLUMNS])
HOUR_US = 3_600_000_000


def _slice(
    rows: list[tuple[bytes | None, bytes | None]], number: int = 0, stride: int = 1, pieces: int = 1
) -> Slice:
    table = [
        {
            "key": key,
            "value": value,
            "offset": at,
            "timestamp": (number * 1000 + at) * 1000,
            "headers": [{"key": "h", "value": b"x"}],
        }
        for at, (key, value) in enumerate(rows)
    ]
    batch = pa.RecordBatch.from_pylist(table, schema=SCHEMA)
    found = Slice(partition=0, number=number, start=number * 1000, end=number * 1000 + len(rows))
    size = -(-len(rows) // pieces)
    for first in range(0, len(rows), size):
        found.add(batch.slice(first, size), stride)
    return found


def _values(documents: list[object]) -> list[tuple[bytes | None, bytes | None]]:
    return [(b"k", json.dumps(each).encode()) for each in documents]


@pytest.mark.parametrize("pieces", [1, 3, 50])
def test_counts_do_not_depend_on_how_records_are_cut(pieces: int) -> None:
    random = Random(3)
    rows = [
        (
            random.choice([None, b"a", b"b%d" % random.randrange(9)]),
            random.choice([None, b"x" * at]),
        )
        for at in range(50)
    ]
    whole, cut = _slice(rows), _slice(rows, pieces=pieces)
    assert cut == whole
    assert whole.records == whole.header_count == 50
    assert whole.key_sizes.nulls == sum(key is None for key, _ in rows)
    assert whole.value_sizes.total == sum(len(value or b"") for _, value in rows)
    assert sum(whole.value_sizes.powers.values()) == 50 - whole.value_sizes.nulls


def test_merged_slices_are_one() -> None:
    rows = [(b"%d" % (at % 7), b"v" * at) for at in range(40)]
    first, second = _slice(rows[:15]), _slice(rows[15:], number=1)
    whole = merged([first, second])
    assert whole.records == 40
    assert (whole.start, whole.end) == (0, 1025)
    assert whole.keys.frequent == {b"%d" % each: 6 if each < 5 else 5 for each in range(7)}
    assert whole.value_sizes.largest == 39
    assert first.records == 15, "what is merged stays as it is"


@pytest.mark.parametrize("count", [0, 10, 1_000, 60_000])
def test_different_keys_are_estimated_closely(count: int) -> None:
    keys = Keys()
    for first in range(0, count, 10_000):
        some = [b"key %d" % each for each in range(first, min(first + 10_000, count))]
        keys.add(pa.array([*some, *some], pa.binary()))
    assert abs(keys.distinct - count) <= count * 0.03


def test_rare_keys_are_forgotten_before_frequent_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_counts, "PROFILE_KEYS_MAX", 5)
    keys = Keys()
    for number in range(30):
        keys.add(pa.array([b"hot", b"hot", b"rare %d" % number], pa.binary()))
    assert len(keys.frequent) == 5
    assert keys.frequent[b"hot"] == 60


def test_spans_of_time_become_longer_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_counts, "PROFILE_TIMES_MAX", 10)
    found, other = Times(), Times()
    micros = pa.array([each * HOUR_US for each in range(24)]).to_numpy()
    found.add(micros)
    other.add(micros[:3])
    other.merge(found)
    for times, total in ((found, 24), (other, 27)):
        assert len(times.counts) <= 10
        assert sum(times.counts.values()) == total
        assert (times.first_us, times.last_us) == (0, 23 * HOUR_US)
    assert found.minutes == other.minutes >= 128


def test_records_older_than_the_one_before_are_counted() -> None:
    found = Times()
    found.add(pa.array([5, 6, 4]).to_numpy())
    found.add(pa.array([3, 9]).to_numpy())
    assert found.steps_back == 2


def test_added_removed_and_changed_fields_are_reported() -> None:
    slices = [
        _slice(_values([{"id": 1, "old": 1, "x": 1, "deep": {"a": None}}]), 0),
        _slice(_values([{"id": 2, "old": 1, "x": "1", "deep": {"a": 1}}]), 1),
        _slice(_values([{"id": 3, "new": True, "x": "1", "deep": {"a": 1}}]), 2),
    ]
    found = {each.path: each.changes for each in drifts(slices)}
    assert found == {
        "id": [],
        "old": ["vanishes after slice 2"],
        "new": ["appears in slice 3"],
        "x": ["changes from integer to string in slice 2"],
        "deep": [],
        "deep.a": [],
    }


def test_only_some_values_are_looked_into_evenly() -> None:
    rows = _values([{"at": at} for at in range(100)])
    assert _slice(rows, stride=7).fields.looked_at == 15
    assert _slice(rows, stride=7, pieces=9).fields == _slice(rows, stride=7).fields


def test_fields_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_counts, "PROFILE_FIELDS_MAX", 4)
    fields = Fields()
    deep: object = 1
    for _ in range(50):
        deep = {"d": deep}
    fields.add([json.dumps({f"f{at}": at for at in range(9)}).encode(), json.dumps(deep).encode()])
    fields.add([b"no json", b"3", b"[" * 100_000 + b"]" * 100_000])
    assert len(fields.types) == 4
    assert (fields.looked_at, fields.not_json) == (5, 2)


def test_report_shows_what_was_counted_and_believes_nothing() -> None:
    rows = [(b"<script>", b'{"[red]a": 1}'), (b"\xff", None), (b"<script>", b'{"b": 2}')]
    found = profile_report.profile_of("t", [_slice(rows), _slice(_values([{"b": "x"}]), 1)])
    text, page = profile_report.text(found), profile_report.html(found)
    assert "[red]a" in text
    assert "0xff" in text
    assert "changes from integer to string in slice 2" in text
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<svg") == 5
    assert [each.records for each in found.top_keys] == [2, 1, 1]
