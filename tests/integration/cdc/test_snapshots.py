"""A snapshot of real tables by the capturing process, beside changes, and killed.

The tables and the comparison are in `captures.snapshot_tables`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from captures import snapshot_tables as scene
from demo.postgres import LocalPostgres
from dragoman.testing import EphemeralBroker

ROWS = 2500


@pytest.fixture
def postgres() -> Iterator[LocalPostgres]:
    with LocalPostgres(18) as server:
        yield server


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with EphemeralBroker(listeners=("kafka",)) as running:
        yield running.bootstrap_servers


def test_a_snapshot_that_is_killed_while_rows_change_ends_with_what_the_tables_have(
    postgres: LocalPostgres, bootstrap: str, tmp_path: Path
) -> None:
    database = postgres.dsn()
    scene.make_tables(database, ROWS)
    dice = random.Random(8)
    process = scene.capture(database, bootstrap, tmp_path)
    with process, scene.Changes(database, ROWS, seed=8) as changes:
        for _ in range(2):
            scene.wait_for_positions(bootstrap, dice.randrange(4, 16))
            process.kill()
            process.start()
        scene.wait_for_positions(bootstrap, 4)
        postgres.kill()
        postgres.start()
        process.until(scene.is_complete)
        enough = changes.committed + 50
        process.until(lambda _: changes.committed >= enough)
        changes.__exit__()
        scene.wait_for_end(process, database)
        assert process.stop() == 0
        items = scene.check_keyed(database, bootstrap, "items")
        assert items["SNAPSHOT"] > ROWS // 2
        assert items["UPDATE"] > 0
        assert items["unchanged"] > 0
        assert scene.check_keyed(database, bootstrap, "pairs")["SNAPSHOT"] > 0
        assert scene.check_bare(database, bootstrap, "bare")["SNAPSHOT"] > 0
        marks = [
            (operation, value["table"])
            for _, operation, value in scene.read_topic(bootstrap, "pgcdc._snapshot")
        ]
        for table in ("items", "pairs", "bare", "nothing"):
            assert marks.count(("SNAPSHOT_STARTED", table)) == 1
            assert marks.count(("SNAPSHOT_COMPLETED", table)) == 1
