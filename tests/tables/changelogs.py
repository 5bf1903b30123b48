"""Changelogs to materialize: random histories of a table, as records, and what is true of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dragoman.pipelines.jobs.columns import cast_column
from dragoman.pipelines.jobs.materialize import Options
from dragoman.pipelines.jobs.table_updates import Made, Materializer

RECORDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
#: Every commit is stamped so many microseconds after the one before.
TICK_US = 1_000_000


class Event(msgspec.Struct, frozen=True, kw_only=True):
    operation: str
    lsn: int
    seq: int = 0
    key: str | None = None
    row: dict[str, Any] = {}
    left_out: tuple[str, ...] = ()

    @property
    def at_us(self) -> int:
        return self.lsn * TICK_US


def history(random: Random, count: int, keys: int = 4) -> list[Event]:
    """Changes of rows `id, a, doc` in the order of their commits; updates may leave `doc` out."""
    events: list[Event] = []
    live: dict[str, dict[str, Any]] = {}
    lsn = 10
    seq = 0
    for number in range(count):
        if random.random() < 0.6:
            lsn, seq = lsn + random.randint(1, 3), 0
        else:
            seq += 1
        at = {"lsn": lsn, "seq": seq}
        if random.random() < 0.04:
            live.clear()
            events.append(Event(operation="TRUNCATE", **at))
            continue
        key = f"k{random.randrange(keys)}"
        if key not in live:
            live[key] = {"id": key, "a": number, "doc": f"doc {number}"}
            events.append(Event(operation="INSERT", key=key, row=dict(live[key]), **at))
        elif random.random() < 0.25:
            del live[key]
            events.append(Event(operation="DELETE", key=key, row={"id": key}, **at))
        elif random.random() < 0.6:
            live[key]["a"] = number
            row = {"id": key, "a": number}
            events.append(Event(operation="UPDATE", key=key, row=row, left_out=("doc",), **at))
        else:
            live[key] |= {"a": number, "doc": f"doc {number}"}
            events.append(Event(operation="UPDATE", key=key, row=dict(live[key]), **at))
    return events


def in_order(events: Sequence[Event]) -> list[Event]:
    """Each once."""
    return sorted({(each.lsn, each.seq): each for each in events}.values(), key=_version)


def _version(event: Event) -> tuple[int, int]:
    return event.lsn, event.seq


def current(events: Sequence[Event]) -> dict[str, dict[str, Any]]:
    """The rows after these changes; a column that nothing has said anything about is None."""
    rows: dict[str, dict[str, Any]] = {}
    for event in in_order(events):
        if event.operation == "TRUNCATE":
            rows.clear()
        elif event.operation == "DELETE":
            rows.pop(event.key or "", None)
        elif event.operation == "UPDATE":
            before = rows.get(event.key or "", {"doc": None})
            rows[event.key or ""] = before | event.row
        else:
            rows[event.key or ""] = dict(event.row)
    return rows


def ranges(events: Sequence[Event]) -> set[tuple[Any, ...]]:
    """(key, a, doc, valid from, valid to) of every version there was."""
    found: set[tuple[Any, ...]] = set()
    open_since: dict[str, int] = {}
    rows: dict[str, dict[str, Any]] = {}
    for event in in_order(events):
        ended = list(rows) if event.operation == "TRUNCATE" else [event.key or ""]
        for key in ended:
            if key in rows:
                row = rows[key]
                found.add((key, row["a"], row["doc"], open_since.pop(key), event.at_us))
        if event.operation in ("TRUNCATE", "DELETE"):
            for key in ended:
                rows.pop(key, None)
            continue
        key = event.key or ""
        before = rows.get(key, {"doc": None}) if event.operation == "UPDATE" else {}
        rows[key] = before | event.row
        open_since[key] = event.at_us
    for key, row in rows.items():
        found.add((key, row["a"], row["doc"], open_since[key], None))
    return found


# ---- records


def pgcdc(event: Event) -> tuple[bytes, list[tuple[str, bytes]]]:
    document: dict[str, Any] = {"op": event.operation, "table": "t", "row": event.row, "old": None}
    if event.left_out:
        document["_unchanged_toast_columns"] = list(event.left_out)
    return json.dumps(document).encode(), _headers(event)


def debezium(event: Event) -> tuple[bytes, list[tuple[str, bytes]]]:
    code = {"INSERT": "c", "UPDATE": "u", "DELETE": "d", "TRUNCATE": "t", "SNAPSHOT": "r"}
    row = event.row | dict.fromkeys(event.left_out, "__debezium_unavailable_value")
    is_delete = event.operation == "DELETE"
    document = {
        "before": row if is_delete else None,
        "after": None if is_delete or event.operation == "TRUNCATE" else row,
        "source": {"lsn": event.lsn},
        "op": code[event.operation],
        "ts_ms": event.at_us // 1000,
    }
    return json.dumps(document).encode(), _headers(event)


def flat(event: Event) -> tuple[bytes, list[tuple[str, bytes]]]:
    document = event.row | {
        "__op": event.operation,
        "__table": "t",
        "__lsn": f"{event.lsn:016X}",
        "__seq": event.seq,
        "__deleted": event.operation in ("DELETE", "TRUNCATE"),
    }
    if event.left_out:
        document["__unchanged"] = list(event.left_out)
    return json.dumps(document).encode(), []


ENVELOPES = {"pgcdc": pgcdc, "debezium": debezium, "flat": flat}


def _headers(event: Event) -> list[tuple[str, bytes]]:
    return [
        ("pgcdc-operation", event.operation.encode()),
        ("pgcdc-lsn", b"%016X" % event.lsn),
        ("pgcdc-seq", b"%d" % event.seq),
    ]


def records(events: Sequence[Event], envelope: str = "pgcdc", first_offset: int = 0) -> pa.Table:
    """As the source hands them over."""
    rows = []
    for offset, event in enumerate(events, first_offset):
        value, headers = ENVELOPES[envelope](event)
        rows.append(record(event.key, value, offset, at_us=event.at_us, headers=headers))
    return pa.Table.from_pylist(rows, schema=RECORDS)


def record(
    key: str | bytes | None,
    value: bytes | None,
    offset: int = 0,
    *,
    at_us: int = 0,
    headers: Sequence[tuple[str, bytes]] = (),
) -> dict[str, Any]:
    return {
        "key": key.encode() if isinstance(key, str) else key,
        "value": value,
        "partition": 0,
        "offset": offset,
        "timestamp": at_us,
        "headers": [{"key": name, "value": held} for name, held in headers],
    }


def shuffled(random: Random, events: Sequence[Event]) -> list[list[Event]]:
    """Micro-batches with all events, in any order, some of them several times."""
    every = [*events, *random.choices(events, k=len(events) // 3)] if events else []
    random.shuffle(every)
    batches: list[list[Event]] = []
    while every:
        size = random.randint(1, max(1, len(every)))
        batches.append(every[:size])
        every = every[size:]
    return batches


# ---- a table in memory


class MemoryTable:
    """What `KeyedTable` does, in a few lines and without files."""

    def __init__(self, schema: pa.Schema, made: Made) -> None:
        self.made = made
        self.rows = schema.empty_table()
        self.last = -1
        self.puts: list[bool] = []

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def made_for(self, kind: type) -> Made:
        return self.made

    def last_batch(self, writer: str) -> int:
        return self.last

    def rows_of(
        self, keys: pa.Array | None, columns: list[str], *, with_pending: bool = False
    ) -> pa.Table:
        key = self.rows.column("_key")
        if keys is None:
            return self.rows.select(columns)
        wanted = pc.or_(pc.is_in(key, keys), pc.is_null(key))
        if with_pending:
            wanted = pc.or_(wanted, pc.is_valid(self.rows.column("_pending")))
        return self.rows.filter(wanted).select(columns)

    def add_columns(self, fields: list[pa.Field]) -> None:
        for field in fields:
            self.rows = self.rows.append_column(field, pa.nulls(len(self.rows), field.type))

    def retype(self, types: dict[str, pa.DataType]) -> None:
        for name, kind in types.items():
            place = self.schema.get_field_index(name)
            self.rows = self.rows.set_column(place, name, cast_column(self.rows[name], kind))

    def put(self, rows: pa.Table, *, identity, is_new, truncated, writer, batch_id) -> None:  # type: ignore[no-untyped-def]
        self.puts.append(is_new)
        found: dict[Any, dict[str, Any]] = {}

        def place(row: dict[str, Any]) -> Any:
            # As in SQL, null equals nothing.
            names = tuple(row[name] for name in identity)
            return object() if None in names else names

        fresh = {place(row): row for row in rows.to_pylist()}
        assert len(fresh) == len(rows), "two rows for one place"
        for row in self.rows.to_pylist():
            at = place(row)
            assert not (is_new and at in fresh), "not new"
            if truncated and at not in fresh and (row["_lsn"], row["_seq"]) <= truncated:
                continue
            found[at] = row
        self.rows = pa.Table.from_pylist([*(found | fresh).values()], schema=self.schema)
        self.last = batch_id


class MemoryMaterializer(Materializer):
    def __init__(self, declared: dict[str, pa.DataType] | None = None, **options: Any) -> None:
        self.notes: list[str] = []
        given = Options(topic="t", table="memory", tidy_every=0, **options)
        super().__init__(given, declared, lambda each: self.notes.append(each.note))
        self.table: MemoryTable | None = None

    def opened(self) -> Any:
        return self.table

    def created(self, schema: pa.Schema, made: Made) -> Any:
        self.table = MemoryTable(schema, made)
        return self.table

    def rows(self) -> list[dict[str, Any]]:
        """Without markers."""
        held = self.table.rows.to_pylist() if self.table is not None else []
        return [row for row in held if not row["_deleted"]]
