"""Kills of the job materialize: its driver is restarted while a database changes.

    python -m spark_torture.materialize_rounds --seed 1 --kills 20  (from tests/, src on the path)

A real PostgreSQL is changed in every way (large values that updates leave out, keys that change,
truncations, large transactions, new columns), captured, and materialized as current rows and as
history. At the end both tables are compared with the database.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
from deltalake import DeltaTable

from captures.process import CaptureProcess
from demo.postgres import LocalPostgres
from dragoman.captures.definition import Definition
from dragoman.testing import EphemeralBroker
from nodes.process import SOURCE

TOPIC = "pgcdc.items"
KEYS = 300
LIFE_S = 1800.0
#: Points of a batch that a driver passes before it dies, at most.
POINTS = 8
#: Drivers that end by themselves, as Spark does on a machine that is busy with other things.
FAILURES_MAX = 5


class Source:
    """Changes rows, some transactions a second, until stopped."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn = dsn
        self._dice = random.Random(seed)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.transactions = 0
        self.error: BaseException | None = None
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE items (id int PRIMARY KEY, n bigint, doc text, amount numeric, "
                "flag boolean, at timestamptz, ratio float8)"
            )
            connection.execute("ALTER TABLE items ALTER doc SET STORAGE EXTERNAL")
            connection.execute(
                "INSERT INTO items SELECT i, i, repeat('s', 3000) FROM generate_series(1, 100) i"
            )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(60)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            with psycopg.connect(self._dsn) as connection:
                while not self._is_over.wait(0.1):
                    for _ in range(self._dice.randint(1, 6)):
                        self._change(connection)
                    if self._dice.random() < 0.1:
                        connection.rollback()
                    else:
                        connection.commit()
                        self.transactions += 1
        except BaseException as error:  # noqa: BLE001 - raised again by `stop`
            self.error = error

    def _change(self, connection: psycopg.Connection) -> None:
        dice = self._dice
        key, other, number = dice.randrange(KEYS), dice.randrange(KEYS), dice.randrange(10**9)
        values = {
            "key": key,
            "other": other,
            "number": number,
            "doc": f"{number}" * 500,
            "amount": Decimal(number) / 1000,
            "ratio": dice.choice([1.0, 2.5, float("nan"), number / 7]),
        }
        chance = dice.random()
        if chance < 0.3:
            sql = (
                "INSERT INTO items (id, n, doc, amount, flag, at, ratio) VALUES (%(key)s, "
                "%(number)s, %(doc)s, %(amount)s, true, now(), %(ratio)s) "
                "ON CONFLICT (id) DO UPDATE SET n = excluded.n, flag = NOT items.flag"
            )
        elif chance < 0.6:
            sql = "UPDATE items SET n = %(number)s, amount = %(amount)s WHERE id = %(key)s"
        elif chance < 0.7:
            sql = "UPDATE items SET doc = %(doc)s, ratio = %(ratio)s WHERE id = %(key)s"
        elif chance < 0.8:
            sql = (
                "UPDATE items SET id = %(other)s, doc = %(doc)s WHERE id = %(key)s AND NOT EXISTS "
                "(SELECT FROM items WHERE id = %(other)s)"
            )
        elif chance < 0.985:
            sql = "DELETE FROM items WHERE id = %(key)s"
        elif chance < 0.993:
            sql = (
                "INSERT INTO items (id, n) SELECT i, %(number)s FROM "
                "generate_series(100000, 101500) i ON CONFLICT (id) DO UPDATE SET n = excluded.n"
            )
        elif chance < 0.997:
            sql = "TRUNCATE items"
        else:
            column = f"extra_{dice.randint(1, 5)}"
            connection.execute(f"ALTER TABLE items ADD COLUMN IF NOT EXISTS {column} text")  # type: ignore[arg-type]
            sql = f"UPDATE items SET {column} = 'x' WHERE id < %(key)s"
        connection.execute(sql, values if "%(" in sql else None)  # type: ignore[arg-type]


class Scene:
    def __init__(self, directory: Path, seed: int) -> None:
        self._home = directory / "home"
        self._home.mkdir()
        self._dice = random.Random(seed)
        self.kills = 0
        self.postgres = LocalPostgres(18, {"logical_decoding_work_mem": "64kB"}).start()
        self.broker = EphemeralBroker(
            storage="directory", directory=str(directory / "broker"), listeners=("kafka",)
        ).start()
        self.source = Source(self.postgres.dsn(), seed)
        definition = Definition(
            name="items", dsn=self.postgres.dsn(), tables=("public.items",), partitions=3
        )
        bootstrap = self.broker.bootstrap_servers
        self.capture = CaptureProcess(definition, bootstrap, directory / "spool").start()
        self.capture.until_state("streaming")
        self.source.start()

    def close(self) -> None:
        self.capture.kill()
        self.broker.stop()
        self.postgres.remove()

    def live(self, points: int, tables: str = "current,history") -> int:
        """The status that the driver ended with."""
        trigger = "continuous" if points else "once"
        tests = Path(__file__).parents[1]
        driver = subprocess.Popen(
            [
                *(sys.executable, "-m", "spark_torture.materialize_driver"),
                *(self.broker.bootstrap_servers, TOPIC, str(self._home), trigger, str(points)),
                tables,
            ],
            env={**os.environ, "PYTHONPATH": f"{tests}:{SOURCE}"},
            start_new_session=True,
        )
        try:
            status = driver.wait(LIFE_S)
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
        self.kills += status == -signal.SIGKILL
        return status

    def torture(self, kills: int, seconds: float) -> None:
        failures = 0
        deadline = time.monotonic() + seconds
        while self.kills < kills and time.monotonic() < deadline:
            points = self._dice.randint(1, POINTS)
            started, before = time.monotonic(), self.source.transactions
            # One at a time is sooner at the point where it dies.
            status = self.live(points, ("current", "history")[self.kills % 2])
            assert self.source.transactions > before, f"nothing changes: {self.source.error}"
            if status != -signal.SIGKILL:
                failures += 1
                print(f"the driver ended by itself with {status}", flush=True)
                assert failures < FAILURES_MAX, "more than a machine that is too slow for Spark"
                continue
            print(
                f"kill {self.kills} at point {points} after {time.monotonic() - started:.0f} s, "
                f"{self.source.transactions} transactions",
                flush=True,
            )

    # ---- judgement

    def judge(self) -> None:
        self.source.stop()
        self._catch_up()
        statuses = [self.live(0)]
        while statuses[-1] and len(statuses) < FAILURES_MAX:
            statuses.append(self.live(0))
        assert not statuses[-1], f"the driver ended with {statuses}"
        columns, expected = self._rows_of_database()
        current = self._rows_of_table("current", columns)
        assert current == expected, _difference(current, expected)
        history = DeltaTable(str(self._home / "history")).to_pyarrow_table().to_pylist()
        now = {
            row["id"]: {name: _plain(name, row.get(name)) for name in columns}
            for row in history
            if row["_is_current"]
        }
        assert now == expected, _difference(now, expected)
        self._check_ranges(history)
        print(
            f"{len(expected)} rows of {len(columns)} columns, {len(history)} versions, "
            f"{self.source.transactions} transactions, {self.kills} kills: all equal"
        )

    def _catch_up(self) -> None:
        with psycopg.connect(self.postgres.dsn()) as connection:
            row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        end = _lsn(row[0])
        self.capture.until(lambda it: it.status is not None and _lsn(it.status.lsn) >= end)

    def _rows_of_database(self) -> tuple[list[str], dict[int, dict[str, Any]]]:
        with psycopg.connect(self.postgres.dsn()) as connection:
            connection.execute("SET timezone = 'UTC'")
            cursor = connection.execute("SELECT * FROM items")
            names = [each.name for each in cursor.description or ()]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
        return names, {
            row["id"]: {name: _plain(name, value) for name, value in row.items()} for row in rows
        }

    def _rows_of_table(self, name: str, columns: list[str]) -> dict[int, dict[str, Any]]:
        rows = DeltaTable(str(self._home / name)).to_pyarrow_table().to_pylist()
        kept = [row for row in rows if not row["_deleted"]]
        found = {row["id"]: {each: _plain(each, row.get(each)) for each in columns} for row in kept}
        assert len(found) == len(kept), "a key has two rows"
        return found

    @staticmethod
    def _check_ranges(history: list[dict[str, Any]]) -> None:
        """Ranges of a key follow each other."""
        by_key: dict[str, list[dict[str, Any]]] = {}
        for row in history:
            if row["_key"] is not None:
                by_key.setdefault(row["_key"], []).append(row)
        for rows in by_key.values():
            rows.sort(key=lambda row: (row["_lsn"], row["_seq"]))
            for row, following in pairwise(rows):
                assert row["_valid_to"] is not None
                assert row["_valid_from"] <= row["_valid_to"] <= following["_valid_from"]


def _plain(name: str, value: Any) -> Any:
    """What both sides say in their own way: numbers and times are text in the table."""
    if value is None:
        return None
    if name == "amount":
        return str(value)
    if name == "ratio":
        # Not the number: NaN is not equal to itself.
        return repr(float(value))
    if name == "at":
        return value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return value


def _difference(found: dict[int, Any], expected: dict[int, Any]) -> str:
    """What is wrong, in the first rows that are: column → (found, expected)."""
    wrong = {
        key: _columns_that_differ(found.get(key), expected.get(key))
        for key in sorted(found.keys() | expected.keys())
        if found.get(key) != expected.get(key)
    }
    return f"{len(wrong)} of {len(expected)} rows differ: {dict(list(wrong.items())[:5])}"


def _columns_that_differ(found: dict[str, Any] | None, expected: dict[str, Any] | None) -> Any:
    if found is None or expected is None:
        return "missing" if found is None else "not in the database"
    return {
        name: (str(found.get(name))[:50], str(value)[:50])
        for name, value in expected.items()
        if found.get(name) != value
    }


def _lsn(text: str) -> int:
    high, _, low = (text or "0/0").partition("/")
    return int(high, 16) << 32 | int(low, 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=120.0, help="at most; then it is judged")
    told = parser.parse_args()
    # So that what was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with tempfile.TemporaryDirectory() as directory:
        scene = Scene(Path(directory), told.seed)
        try:
            scene.torture(told.kills, told.minutes * 60)
            scene.judge()
        finally:
            scene.close()


if __name__ == "__main__":
    main()
