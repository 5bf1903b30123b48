"""Goal: offsets of a twin are contiguous, and what is missing is said.

Method: manifests by hand, in a folder.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import ConfigError
from dragoman.pipelines.jobs.tier_manifest import (
    Manifest,
    TierError,
    TierFile,
    TierRange,
    Twin,
    Wanted,
    wanted_ranges,
)


def _file(path: str) -> TierFile:
    return TierFile(
        path=path,
        rows=1,
        size=1,
        first_offset=0,
        last_offset=0,
        first_timestamp=0,
        last_timestamp=0,
        content="",
    )


def _manifest(*ranges: tuple[int, int, int]) -> Manifest:
    made = [TierRange(partition=at, start=start, end=end) for at, start, end in ranges]
    return Manifest(topic="t", topic_id="1").with_ranges(made)


def test_ranges_of_a_partition_follow_each_other() -> None:
    manifest = _manifest((0, 5, 10), (1, 0, 3), (0, 10, 12))
    assert manifest.starts == {0: 5, 1: 0}
    assert manifest.ends == {0: 12, 1: 3}


@pytest.mark.parametrize("second", [(0, 11, 12), (0, 9, 12), (0, 5, 10), (0, 10, 9)])
def test_gaps_and_overlaps_are_refused(second: tuple[int, int, int]) -> None:
    with pytest.raises(TierError, match="gap or an overlap"):
        _manifest((0, 5, 10)).with_ranges(
            [TierRange(partition=second[0], start=second[1], end=second[2])]
        )


def test_manifest_is_saved_whole_and_other_files_are_swept(tmp_path: Path) -> None:
    twin = Twin(str(tmp_path), "a/b")
    folder = twin.directory / "date=2026-01-01" / "partition=0"
    folder.mkdir(parents=True)
    named, orphan = folder / "0-a.parquet", folder / "0-b.parquet"
    for path in (named, orphan):
        path.touch()
    whole = TierRange(
        partition=0, start=0, end=4, files=(_file("date=2026-01-01/partition=0/0-a.parquet"),)
    )
    manifest = twin.manifest("1").with_ranges([whole])
    twin.save(manifest)
    assert twin.manifest("1") == manifest
    assert twin.sweep(manifest) == 1
    assert (named.exists(), orphan.exists()) == (True, False)


def test_manifest_of_another_topic_or_damaged_is_refused(tmp_path: Path) -> None:
    twin = Twin(str(tmp_path), "t")
    twin.directory.mkdir()
    twin.save(_manifest((0, 0, 1)))
    with pytest.raises(TierError, match="deleted and created again"):
        twin.manifest("2")
    path = twin.directory / "manifest.json"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TierError, match="is damaged"):
        twin.manifest()


def test_only_one_job_writes(tmp_path: Path) -> None:
    twin = Twin(str(tmp_path), "t")
    with twin.held(), pytest.raises(ConfigError, match="another job"), twin.held():
        pass


def test_what_is_missing_begins_where_the_twin_ends() -> None:
    manifest = _manifest((0, 0, 10), (1, 0, 10))
    found = wanted_ranges(manifest, {0: 4, 1: 0, 2: 7}, {0: 30, 1: 10, 2: 9}, is_loss_allowed=False)
    assert found == [
        Wanted(partition=0, start=10, end=30),
        Wanted(partition=2, start=7, end=9),
    ]


def test_what_was_deleted_before_it_was_copied_is_an_error_or_noted() -> None:
    manifest = _manifest((0, 0, 10))
    with pytest.raises(TierError, match="offsets 10 to 14 were deleted before"):
        wanted_ranges(manifest, {0: 15}, {0: 20}, is_loss_allowed=False)
    assert wanted_ranges(manifest, {0: 15}, {0: 20}, is_loss_allowed=True) == [
        Wanted(partition=0, start=15, end=20, lost_from=10)
    ]
