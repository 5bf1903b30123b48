"""Torture of snapshots: a large one is killed again and again while its rows change. Every fourth
kill is the database's.

    PYTHONPATH=src:tests:examples python -m torture.snapshots --rows 1000000 --kills 8

Compares in the end what the records leave with what the tables have; prints how long it took.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

import psycopg

from captures import snapshot_tables as scene
from demo.postgres import LocalPostgres
from dragoman.testing import EphemeralBroker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chunk", type=int, default=20_000)
    parser.add_argument("--release", type=int, default=18)
    told = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalPostgres(told.release) as postgres,
        EphemeralBroker(
            storage="directory", directory=f"{directory}/broker", listeners=("kafka",)
        ) as broker,
    ):
        _run(told, Path(directory), postgres, broker.bootstrap_servers)


def _run(
    told: argparse.Namespace, directory: Path, postgres: LocalPostgres, bootstrap: str
) -> None:
    dsn = postgres.dsn()
    scene.make_tables(dsn, told.rows)
    dice = random.Random(told.seed)
    begun = time.monotonic()
    process = scene.capture(dsn, bootstrap, directory / "spool", snapshot_rows=told.chunk)
    chunks = told.rows * 3 // 2 // told.chunk
    with process, scene.Changes(dsn, told.rows, told.seed) as changes:
        for number in range(told.kills):
            _until_read(process, dice.randrange(1, 2 * chunks // told.kills + 1) * told.chunk)
            print(f"kill {number}: {scene.rows_read(process)} rows read", flush=True)
            if number % 4 == 3:
                postgres.kill()
                postgres.start()
            else:
                process.kill()
                process.start()
        process.until(scene.is_complete, wait_s=1800)
        took_s = time.monotonic() - begun
        changes.__exit__()
        scene.wait_for_end(process, dsn)
        assert process.stop() == 0
    total = sum(
        (
            scene.check_keyed(dsn, bootstrap, "items"),
            scene.check_keyed(dsn, bootstrap, "pairs"),
            scene.check_bare(dsn, bootstrap, "bare"),
        ),
        start=scene.Counter(),
    )
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*) FROM items").fetchone()
    print(
        f"{total['SNAPSHOT']} rows in {took_s:.0f} s over {told.kills} kills, beside"
        f" {changes.committed} transactions: records {dict(total)}; items has {row and row[0]}"
        " rows: equal"
    )


def _until_read(process: scene.CaptureProcess, rows: int) -> None:
    """So many more than there were, or all of them."""
    process.until(lambda it: bool(it.status and it.status.tables))
    enough = scene.rows_read(process) + rows
    process.until(lambda it: scene.rows_read(it) >= enough or scene.is_complete(it), wait_s=1800)


if __name__ == "__main__":
    main()
