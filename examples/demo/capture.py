"""Steps with PostgreSQL: rows change, and are in a topic, with every client, and in a Spark table.

The database is one of our own, or the one that `--dsn` names, in a schema that goes in the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from demo.kafka import messages
from demo.postgres import LocalPostgres
from demo.spark_job import Materialized, Purchase
from demo.story import DemoError, Stage, Step
from dragoman.captures.definition import Definition
from dragoman.cli.record_clients import record_client
from dragoman.cli.record_clients.session import Plan
from dragoman.cli.status import say

SCHEMA: Final = "dragoman_demo"
PURCHASES_TOPIC: Final = f"pgcdc.{SCHEMA}.purchases"
#: Its rows change as long as the demo runs.
GOODS: Final = f"{SCHEMA}.goods"
_NAME: Final = "demo"
_PARTITIONS: Final = 8
_WAIT_SECONDS_MAX: Final = 60.0
_TABLE: Final = f"""
    drop schema if exists {SCHEMA} cascade;
    create schema {SCHEMA};
    create table {SCHEMA}.purchases (
      id int primary key, item text not null, price numeric(8, 2) not null, state text not null);
    insert into {SCHEMA}.purchases values
      (1, 'lamp', 19.90, 'new'), (2, 'chair', 89.00, 'new'), (3, 'desk', 240.00, 'new');
    create table {GOODS} (item text primary key, pieces int not null);
    insert into {GOODS} values ('lamp', 9), ('chair', 4), ('desk', 2), ('shelf', 7), ('rug', 5);
"""
_TABLES: Final = (f"{SCHEMA}.purchases", GOODS)
#: Each is a transaction.
_CHANGES: Final = (
    f"insert into {SCHEMA}.purchases values (4, 'shelf', 55.50, 'new'), (5, 'rug', 120.00, 'new')",
    f"update {SCHEMA}.purchases set state = 'paid' where id in (1, 4)",
    f"update {SCHEMA}.purchases set price = price * 0.9 where id = 2",
    f"delete from {SCHEMA}.purchases where id = 3",
)
#: Rows of the snapshot, then what the changes say; a delete is followed by an empty record.
_EVENTS: Final = ["SNAPSHOT"] * 3 + ["INSERT"] * 2 + ["UPDATE"] * 3 + ["DELETE"]
_RECORD_COUNT: Final = len(_EVENTS) + 1


class Database:
    """Started when it is first needed."""

    def __init__(self, dsn: str) -> None:
        self._given = dsn
        self._own: LocalPostgres | None = None
        #: Whether there may be a slot, for which the database keeps its log.
        self.is_captured = False

    @property
    def dsn(self) -> str:
        if self._given:
            return self._given
        if self._own is None:
            self._own = LocalPostgres()
            try:
                self._own.start()
            except (OSError, RuntimeError) as error:
                raise DemoError(f"PostgreSQL does not start: {error}") from None
        return self._own.dsn()

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Each in a transaction of its own; returns the rows of the last one."""
        import psycopg

        try:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                for each in statements:
                    found = connection.execute(each.encode())
                return found.fetchall() if found.description else []
        except psycopg.Error as error:
            raise DemoError(f"PostgreSQL: {str(error).strip()}") from None

    def close(self) -> None:
        if self._own is not None:
            self._own.remove()
        elif self._given:
            if self.is_captured:
                self._release()
            with suppress(DemoError):
                self.execute(f"drop schema if exists {SCHEMA} cascade")

    def _release(self) -> None:
        """The demo was interrupted: its broker is gone, and slot and publication are not."""
        from dragoman.cdc.doctor import drop_all

        definition = Definition(name=_NAME, dsn=self._given, tables=_TABLES)
        found = asyncio.run(drop_all(definition))
        if found.level == "problem":
            say(f"{found.what}; {found.remedy}")


def _dragoman(stage: Stage, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dragoman.cli.main", *arguments, "--server", stage.broker.http_url],
        env={**os.environ, "DRAGOMAN_CDC_DSN": stage.database.dsn},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise DemoError(f"dragoman {' '.join(arguments[:2])}: {done.stderr.strip()}")
    return done.stdout


def _start(stage: Stage) -> str:
    stage.database.execute(_TABLE)
    (version,) = stage.database.execute("show server_version")[0]
    stage.screen.note("dragoman cdc add")
    stage.database.is_captured = True
    _dragoman(stage, "cdc", "add", _NAME, "--tables", ",".join(_TABLES), "--detach")
    return f"PostgreSQL {version.split()[0]}, table purchases → topic {PURCHASES_TOPIC}"


def _change(stage: Stage) -> str:
    _wait(lambda: _count(stage) >= _EVENTS.count("SNAPSHOT"), "the snapshot")
    stage.database.execute(*_CHANGES)
    _wait(lambda: _count(stage) >= _RECORD_COUNT, "the changes")
    rows = []
    operations = []
    for message in messages(stage, PURCHASES_TOPIC, _PARTITIONS):
        told = dict(message.headers() or ()).items()
        headers = {name: value.decode() for name, value in told if isinstance(value, bytes)}
        value = message.value()
        operations.append(headers["pgcdc-operation"] if value else "")
        place = (int(headers["pgcdc-lsn"], 16), int(headers["pgcdc-seq"]), not value)
        said = " ".join(map(str, json.loads(value)["row"].values())) if value else "(empty)"
        key = (message.key() or b"").decode()
        rows.append(
            (place, (f"{message.partition()}/{message.offset()}", key, operations[-1], said))
        )
    stage.screen.table(
        f"topic {PURCHASES_TOPIC}, with confluent-kafka, in the order of commits",
        ("place", "key", "operation", "row"),
        [row for _, row in sorted(rows)],
    )
    stage.screen.say("")
    if sorted(operations) != sorted([*_EVENTS, ""]):
        raise DemoError(f"the topic has {operations}")
    return f"{len(_CHANGES)} transactions, {len(rows)} records, each change once"


def _count(stage: Stage) -> int:
    """Records of the topic; none as long as it does not exist."""
    try:
        found = json.loads(_dragoman(stage, "topic", "describe", PURCHASES_TOPIC, "--output=json"))
    except DemoError:
        return 0
    # Transactions end with records that only brokers see: what is counted is what clients get.
    if sum(each["high_watermark"] for each in found["partitions"]) == 0:
        return 0
    return sum(1 for _ in messages(stage, PURCHASES_TOPIC, _PARTITIONS))


def _wait(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise DemoError(f"{what} did not come within {_WAIT_SECONDS_MAX:.0f} s")
        time.sleep(0.1)


def _read_by_rocketmq(stage: Stage) -> str:
    found: list[tuple[str, str]] = []
    plan = Plan(
        bootstrap=stage.broker.address("rocketmq"),
        topic=PURCHASES_TOPIC,
        max_records=_RECORD_COUNT,
    )
    with record_client("rocketmq").read(plan) as reader:
        while len(found) < _RECORD_COUNT and (batch := reader.next_records()):
            found += [((each.key or b"").decode(), (each.value or b"").decode()) for each in batch]
    by_kafka = [
        ((each.key() or b"").decode(), (each.value() or b"").decode())
        for each in messages(stage, PURCHASES_TOPIC, _PARTITIONS)
    ]
    if sorted(found) != sorted(by_kafka):
        raise DemoError(f"RocketMQ reads {found}, Kafka {by_kafka}")
    return f"{len(found)} messages, the same keys and bodies"


def _compare(stage: Stage) -> str:
    table = stage.spark.hear(Materialized).purchases
    rows = stage.database.execute(
        f"select id, item, price::text, state from {SCHEMA}.purchases order by id"
    )
    source = [Purchase(*row) for row in rows]
    stage.screen.table(
        "table purchases: Spark's, and PostgreSQL's beside it",
        ("id", "item", "price", "state", "in PostgreSQL"),
        _side_by_side(table, source),
    )
    stage.screen.say("")
    if table != source:
        raise DemoError(f"the table has {table}, PostgreSQL {source}")
    return f"{len(table)} rows, equal to the source"


def _side_by_side(table: Sequence[Purchase], source: Sequence[Purchase]) -> list[tuple[str, ...]]:
    known = {each.id: each for each in source}
    return [
        (
            str(row.id),
            row.item,
            row.price,
            row.state,
            "the same" if known.get(row.id) == row else "-",
        )
        for row in table
    ]


def _end(stage: Stage) -> str:
    _dragoman(stage, "cdc", "remove", _NAME)
    stage.database.is_captured = False
    return "slot and publication are gone from the database"


START = Step(title="Capture a table of PostgreSQL", run=_start)
CHANGE = Step(title="Change rows, and see them come", run=_change)
READ_BY_ROCKETMQ = Step(title="Read the changes over RocketMQ", run=_read_by_rocketmq)
COMPARE = Step(title="Compare the materialized table", run=_compare)
END = Step(title="Stop capturing", run=_end)
