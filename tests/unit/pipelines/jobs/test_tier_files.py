"""Goal: records in files are those of the log, and the hash of their content says so.

Method: batches by hand, cut differently, written, read back and damaged.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from dragoman import limits
from dragoman.pipelines.jobs import tier_files
from dragoman.pipelines.jobs.tier_files import SCHEMA, ContentHash, _RangeWriter, problem_in

DAY_MS = 86_400_000


def _rows(count: int, seed: int = 1) -> list[dict[str, object]]:
    random = Random(seed)
    return [
        {
            "key": random.choice([None, b"", b"k%d" % number]),
            "value": random.choice([None, b"", b"v" * random.randrange(20)]),
            "offset": 100 + 2 * number,
            "timestamp": (number % 3) * DAY_MS * 1000,
            "timestampType": 0,
            "headers": [
                {"key": f"h{at}", "value": random.choice([None, b"", b"x"])}
                for at in range(random.randrange(3))
            ],
        }
        for number in range(count)
    ]


def _batches(rows: list[dict[str, object]], size: int) -> list[pa.RecordBatch]:
    whole = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    # Slices have offsets of their own into shared buffers.
    return [whole.slice(first, size) for first in range(0, len(rows), size)]


def _digest(batches: list[pa.RecordBatch]) -> str:
    content = ContentHash()
    for batch in batches:
        content.add(batch)
    return content.hexdigest()


def test_hash_does_not_depend_on_how_records_are_cut() -> None:
    rows = _rows(50)
    assert len({_digest(_batches(rows, size)) for size in (1, 7, 50)}) == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("key", b"other"),
        ("value", b"other"),
        ("offset", 1),
        ("timestamp", 7),
        ("timestampType", 1),
        ("headers", [{"key": "other", "value": None}]),
        ("headers", [{"key": "h", "value": b""}]),
    ],
)
def test_every_difference_changes_the_hash(column: str, value: object) -> None:
    rows = _rows(9)
    before = _digest(_batches(rows, 9))
    rows[4] = rows[4] | {column: value}
    assert _digest(_batches(rows, 9)) != before


def test_null_and_empty_are_distinct() -> None:
    rows = _rows(1)
    digests = {
        _digest(_batches([rows[0] | {"key": key, "value": value}], 1))
        for key, value in [(None, b""), (b"", None), (None, None), (b"", b"")]
    }
    assert len(digests) == 4


def test_files_are_cut_by_day_and_hold_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_files, "TIER_OPEN_FILES_MAX", 2)
    rows = _rows(40)
    writer = _RangeWriter(tmp_path, 3, 100)
    for batch in _batches(rows, 16):
        writer.add(batch)
    files = writer.finish()
    assert {each.path.split("/")[0] for each in files} == {
        "date=1970-01-01", "date=1970-01-02", "date=1970-01-03",
    }  # fmt: skip
    assert sum(each.rows for each in files) == 40
    assert [problem_in(str(tmp_path), each) for each in files] == [""] * len(files)
    found = [
        row
        for each in files
        for batch in tier_files.read_file(tmp_path / each.path)
        for row in batch.to_pylist()
    ]
    expected = [row for batch in _batches(rows, 40) for row in batch.to_pylist()]
    assert sorted(found, key=lambda row: row["offset"]) == expected
    assert len(files) > 3, "a file was closed for another"
    assert limits.TIER_OPEN_FILES_MAX > 2


def test_damage_is_found(tmp_path: Path) -> None:
    writer = _RangeWriter(tmp_path, 0, 0)
    writer.add(_batches(_rows(20), 20)[0])
    first, second, third = writer.finish()
    path = tmp_path / first.path
    path.write_bytes((tmp_path / second.path).read_bytes())
    assert "not those that were written" in problem_in(str(tmp_path), first)
    path.write_bytes(b"PAR1 nothing")
    assert problem_in(str(tmp_path), first)
    (tmp_path / third.path).unlink()
    assert problem_in(str(tmp_path), third)
