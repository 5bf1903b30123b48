"""Goal: what Spark says about batches becomes figures that others can read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dragoman.pipelines.reporter import Reporter
from dragoman.pipelines.state import Progress, StateFolder, Status, new_status

BATCH = {
    "batchId": 7,
    "batchDuration": 250,
    "numInputRows": 600,
    "processedRowsPerSecond": 2400.5,
    "stateOperators": [
        {"numRowsTotal": 3, "memoryUsedBytes": 100},
        {"numRowsTotal": 4, "memoryUsedBytes": 50},
    ],
    "sources": [
        {
            "endOffset": {"in": {"0": 10, "1": 600}, "$topicIds": {"in": "34"}},
            "latestOffset": {"in": {"0": 10, "1": 1000, "2": 5}, "$topicIds": {"in": "34"}},
        },
        {"endOffset": 3, "latestOffset": None},
    ],
    "unknown": [],
}


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    folder = StateFolder(tmp_path, "test")
    folder.path.mkdir()
    return folder


def test_batches_become_figures(folder: StateFolder) -> None:
    seen: list[Status] = []
    reporter = Reporter(folder, new_status("test", "f", "m"), seen.append)
    # Spark may be faster than the thread that started the query.
    reporter.batch("id", json.dumps(BATCH))
    reporter.bind("id", "out")
    reporter.batch("id", json.dumps({**BATCH, "batchId": 8, "processedRowsPerSecond": "NaN"}))
    reporter.publish("running")

    (part,) = seen[-1].parts
    assert part == Progress(
        part="out",
        state="running",
        batches=2,
        rows=1200,
        rows_per_s=0.0,
        lag_records=405,
        batch_id=8,
        batch_ms=250,
        state_rows=7,
        state_bytes=150,
        at_ms=part.at_ms,
    )
    status = folder.status()
    assert status is not None
    assert status.parts == (part,)


def test_sources_that_tell_no_offsets_have_no_lag(folder: StateFolder) -> None:
    seen: list[Status] = []
    reporter = Reporter(folder, new_status("test", "f", "m"), seen.append)
    reporter.bind("id", "out")
    reporter.batch("id", json.dumps({**BATCH, "sources": [{"endOffset": 3}]}))
    reporter.publish("running")

    assert seen[-1].parts[0].lag_records == -1


def test_all_is_reported_when_every_query_has_ended(folder: StateFolder) -> None:
    reporter = Reporter(folder, new_status("test", "f", "m"), lambda _: None)
    assert reporter.has_all()
    reporter.bind("a", "one")
    reporter.ended("b")
    assert not reporter.has_all()
    reporter.ended("a")
    assert reporter.has_all()


def test_a_part_that_failed_says_why(folder: StateFolder) -> None:
    seen: list[Status] = []
    reporter = Reporter(folder, new_status("test", "f", "m"), seen.append)
    reporter.part(Progress(part="out", rows=5))
    reporter.part_state("out", "failed", "no")
    reporter.publish("failed", "out: no")

    assert (seen[-1].state, seen[-1].problem) == ("failed", "out: no")
    part = seen[-1].parts[0]
    assert (part.state, part.problem, part.rows) == ("failed", "no", 5)


def test_a_note_leaves_the_figures_as_they_are(folder: StateFolder) -> None:
    seen: list[Status] = []
    reporter = Reporter(folder, new_status("test", "f", "m"), seen.append)
    reporter.bind("id", "out")
    reporter.batch("id", json.dumps(BATCH))
    reporter.note("out", "column price was added")
    reporter.publish("running")
    (part,) = seen[-1].parts
    assert (part.rows, part.batches, part.note) == (600, 1, "column price was added")
