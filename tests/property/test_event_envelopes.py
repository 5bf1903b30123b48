"""Goal: from events, in any envelope, the table follows: all columns, whatever they are called and
hold, what is not known, keys, order.

Method: tables, settings and histories of changes from hypothesis; a model that applies the events
of each partition by key has to end with the rows of the table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from captures.orders import OIDS, definition, done, headers
from dragoman.cdc.events import Encoder, EventRecord, Transaction, build_event_batch
from dragoman.log.batch import batches, records
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.messages import UNCHANGED, Identity, Row
from tables.changelogs import RECORDS, MemoryMaterializer
from tables.changelogs import record as changelog_record

ENVELOPES = ("pgcdc", "debezium", "flat")
#: The job takes tens of milliseconds for each of them.
MATERIALIZED = int(os.environ.get("DRAGOMAN_MATERIALIZED", "40"))
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
VALUES: dict[str, st.SearchStrategy[str]] = {
    "int4": st.integers(-(2**31), 2**31 - 1).map(str),
    "bool": st.sampled_from(("t", "f")),
    "text": TEXTS,
    "numeric": st.decimals(allow_nan=False, allow_infinity=False).map(lambda n: format(n, "f")),
}


def parsed(kind: str, text: str) -> Any:
    match kind:
        case "int4":
            return int(text)
        case "bool":
            return text == "t"
        case _:
            return text


@st.composite
def relations(
    draw: st.DrawFn, names: st.SearchStrategy[str] = NAMES
) -> tuple[m.Relation, list[str]]:
    """And the types of its columns; the first one or two are the key."""
    names = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    kinds = [draw(st.sampled_from(sorted(VALUES))) for _ in names]
    keys = draw(st.integers(1, min(2, len(names))))
    identity = draw(st.sampled_from((Identity.DEFAULT, Identity.FULL)))
    columns = tuple(
        m.Column(name, OIDS[kind], -1, index < keys or identity is Identity.FULL)
        for index, (name, kind) in enumerate(zip(names, kinds, strict=True))
    )
    table = draw(st.sampled_from(("orders", 'the "best"', "täble")))
    schema = draw(st.sampled_from(("public", "s.p")))
    return m.Relation(0, 1, schema, table, identity, columns), kinds


class Source:
    """A table of the database: makes messages as a server does."""

    def __init__(self, draw: st.DrawFn, relation: m.Relation, kinds: list[str]) -> None:
        self._draw = draw
        self._kinds = kinds
        self._is_full = relation.identity is Identity.FULL
        self._key_count = 1 if self._is_full else sum(column.is_key for column in relation.columns)
        self.rows: dict[tuple[Any, ...], Row] = {}

    @property
    def key_names(self) -> slice:
        return slice(0, self._key_count)

    def _value(self, index: int) -> bytes | None:
        text = VALUES[self._kinds[index]]
        shown = self._draw(text if index < self._key_count else text | st.none())
        return None if shown is None else shown.encode()

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[: self._key_count])

    def change(self) -> m.Insert | m.Update | m.Delete | m.Truncate:
        kind = self._draw(st.sampled_from(("insert", "update", "update", "delete", "truncate")))
        if kind == "truncate":
            self.rows.clear()
            return m.Truncate(0, (1,), False, False)
        row: Row = [self._value(index) for index in range(len(self._kinds))]
        if kind == "insert" or not self.rows:
            if (old := self.rows.pop(self._key(row), None)) is not None:
                return self._deleted(old)
            self.rows[self._key(row)] = row
            return m.Insert(0, 1, [*row])
        old = self.rows.pop(self._draw(st.sampled_from(sorted(self.rows, key=repr))))
        if kind == "delete" or self._key(row) in self.rows:
            return self._deleted(old)
        if self._draw(st.booleans()):
            row[self.key_names] = old[self.key_names]
        self.rows[self._key(row)] = row
        return self._updated(row, old)

    def _deleted(self, old: Row) -> m.Delete:
        return m.Delete(0, 1, self._identity(old), self._is_full)

    def _updated(self, row: Row, old: Row) -> m.Update:
        sent: Row = [*row]
        if self._key(row) == self._key(old):
            for index in range(self._key_count, len(row)):
                # A large value that stays is not sent.
                if row[index] == old[index] and self._draw(st.booleans()):
                    sent[index] = UNCHANGED
            if not self._is_full:
                return m.Update(0, 1, sent, None, False)
        return m.Update(0, 1, sent, self._identity(old), self._is_full)

    def _identity(self, old: Row) -> Row:
        if self._is_full:
            return [*old]
        return [text if index < self._key_count else None for index, text in enumerate(old)]


def shown_row(envelope: str, event: dict[str, Any]) -> tuple[str, dict[str, Any], list[str]]:
    """What is done, the columns, and which of them are not known."""
    if envelope == "pgcdc":
        return event["op"], event["row"], event.get("_unchanged_toast_columns", [])
    if envelope == "flat":
        row = {name: shown for name, shown in event.items() if not name.startswith("__")}
        return event["__op"], row, event.get("__unchanged", [])
    operation = {"c": "INSERT", "u": "UPDATE", "d": "DELETE", "t": "TRUNCATE"}[event["op"]]
    row = event["before" if operation == "DELETE" else "after"] or {}
    missing = [name for name, text in row.items() if text == "__debezium_unavailable_value"]
    return operation, {k: v for k, v in row.items() if k not in missing}, missing


class Reader:
    """Applies the events of one partition after the other, each in its order."""

    def __init__(self, envelope: str) -> None:
        self._envelope = envelope
        self.rows: dict[bytes, dict[str, Any]] = {}
        self._partitions: dict[bytes, int] = {}

    def read(self, record: EventRecord) -> None:
        if record.value is None:
            assert record.key not in self.rows
            return
        operation, row, missing = shown_row(self._envelope, json.loads(record.value))
        assert headers(record)["pgcdc-operation"] == operation.encode()
        if operation == "TRUNCATE":
            for key in [k for k, number in self._partitions.items() if number == record.partition]:
                self.rows.pop(key, None)
            return
        assert record.key is not None
        assert self._partitions.setdefault(record.key, record.partition) == record.partition
        if operation == "DELETE":
            del self.rows[record.key]
            return
        assert (operation == "UPDATE") == (record.key in self.rows)
        before = self.rows.get(record.key, {})
        self.rows[record.key] = row | {name: before[name] for name in missing}


class Story:
    """Some changes of a table: what is sent about them, and the rows at the end."""

    def __init__(
        self, data: st.DataObject, envelope: str, relation: m.Relation, kinds: list[str]
    ) -> None:
        source = Source(data.draw, relation, kinds)
        names = [column.name for column in relation.columns]
        made = Encoder(definition(envelope=envelope), database="d", system="1")
        made.relation(relation, names[source.key_names])
        self.events: list[EventRecord] = []
        for lsn in range(data.draw(st.integers(1, 6))):
            transaction = Transaction(lsn=lsn, xid=1, time_us=lsn)
            for _ in range(data.draw(st.integers(1, 3))):
                message = source.change()
                self.events += done(made, lambda: made.change(message, transaction))  # noqa: B023
        self.rows = [
            {
                name: None if text is None else parsed(kind, text.decode())  # type: ignore[union-attr]
                for name, kind, text in zip(names, kinds, row, strict=True)
            }
            for row in source.rows.values()
        ]


def ordered(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


@given(st.data(), st.sampled_from(ENVELOPES), relations())
def test_events_lead_to_the_table(
    data: st.DataObject, envelope: str, table: tuple[m.Relation, list[str]]
) -> None:
    story = Story(data, envelope, *table)
    reader = Reader(envelope)
    for record in sorted(story.events, key=lambda record: record.partition):
        reader.read(record)
    assert ordered(reader.rows.values()) == ordered(story.rows)
    assert len({record.topic for record in story.events}) == 1


@settings(max_examples=MATERIALIZED)
@given(st.data(), st.sampled_from(ENVELOPES), relations(st.sampled_from("abcdef")), st.randoms())
def test_events_are_materialized(
    data: st.DataObject, envelope: str, table: tuple[m.Relation, list[str]], random: Random
) -> None:
    """By the job of pipelines, which is given them in any order."""
    story = Story(data, envelope, *table)
    random.shuffle(story.events)
    job = MemoryMaterializer(envelope=envelope)
    size = random.randint(1, len(story.events))
    for number, first in enumerate(range(0, len(story.events), size)):
        batch = [
            changelog_record(
                each.key,
                each.value,
                first + place,
                at_us=each.timestamp * 1000,
                headers=[(name, text or b"") for name, text in headers(each).items()],
            )
            for place, each in enumerate(story.events[first : first + size])
        ]
        job.apply(pa.Table.from_pylist(batch, schema=RECORDS), number, "writer")
    names = [column.name for column in table[0].columns]
    found = [{name: row.get(name) for name in names} for row in job.rows()]
    # Types are inferred: a column may have become one that holds all it has seen.
    assert ordered(found) == ordered(story.rows)


@given(
    st.lists(
        st.builds(
            EventRecord,
            st.just("t"),
            st.just(0),
            st.none() | st.binary(max_size=3000),
            st.none() | st.binary(max_size=3000),
            st.just(b"\x02\x02a\x02b"),
            st.integers(0, 1 << 42),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_batches_are_read_as_they_were_written(written: list[EventRecord]) -> None:
    ((header, data),) = batches(memoryview(build_event_batch(written)))
    read = records(data, header)
    assert [(each.key, each.value, each.timestamp) for each in read] == [
        (each.key, each.value, each.timestamp) for each in written
    ]
    assert {each.headers for each in read} == {(("a", b"b"),)}
    assert header.max_timestamp == max(each.timestamp for each in written)
