"""Whether the events are what happened: each change once, in the order of commits, nothing else."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import Any

from cdc_torture.events import Event
from cdc_torture.oracle import Change, Row, Unchanged
from cdc_torture.source import TABLES

_KINDS = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}


def _array(text: str) -> list[str | None]:
    assert text == '{a,NULL,"b \\"c\\""}', text
    return ["a", None, 'b "c"']


def _json(text: str) -> Any:
    return json.loads(text, parse_float=str)


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


_INT: tuple[Callable[[str], Any], Callable[[Any], Any]] = (int, lambda value: value)
#: Table → column → (from PostgreSQL's text, from the event's JSON). Others are text in both.
_FORMS: dict[str, dict[str, tuple[Callable[[str], Any], Callable[[Any], Any]]]] = {
    "public.orders": {
        "id": _INT,
        "customer": _INT,
        "tags": (_array, lambda value: value),
        "details": (_json, lambda value: value),
        "at": (_instant, _instant),
    },
    "public.items": {
        "order_id": _INT,
        "line": _INT,
        "is_gift": (lambda text: text == "t", lambda value: value),
    },
    "stock.levels": {
        "amount": _INT,
        "data": (lambda text: bytes.fromhex(text[2:]), base64.b64decode),
    },
}


def _wanted(table: str, row: Row, *, only: tuple[str, ...] = ()) -> dict[str, Any]:
    forms = _FORMS[table]
    return {
        name: None if text is None else forms[name][0](text) if name in forms else text
        for name, text in row.items()
        if not isinstance(text, Unchanged) and (not only or name in only)
    }


def _found(table: str, row: dict[str, Any]) -> dict[str, Any]:
    forms = _FORMS[table]
    return {
        name: None if value is None else forms[name][1](value) if name in forms else value
        for name, value in row.items()
    }


def _told(changes: list[Change]) -> dict[str, list[tuple[int, str, dict[str, Any]]]]:
    """Table → what its topic has to say, in the order of commits."""
    told = defaultdict(list)
    for each in changes:
        key = TABLES[each.table]
        say = told[each.table].append
        if each.kind == "D":
            say((each.lsn, "DELETE", _wanted(each.table, each.row, only=key)))
        elif each.old is not None:
            # Another key is another thing: the old one goes.
            say((each.lsn, "DELETE", _wanted(each.table, each.old, only=key)))
            say((each.lsn, "INSERT", _wanted(each.table, each.row)))
        else:
            say((each.lsn, _KINDS[each.kind], _wanted(each.table, each.row)))
    return told


def judge_changes(events: list[Event], changes: list[Change]) -> int:
    """Compare what was streamed with what the oracle saw. Returns how much that was."""
    streamed = defaultdict(list)
    for each in events:
        if each.value is not None and each.operation != "SNAPSHOT":
            streamed[each.table].append(each)
    count = 0
    for table, wanted in _told(changes).items():
        found = sorted(streamed.pop(table, []), key=lambda each: (each.lsn, each.seq))
        places = [(each.lsn, each.seq) for each in found]
        assert len(set(places)) == len(places), f"{table}: two events at one place"
        for number, (event, (lsn, operation, row)) in enumerate(zip(found, wanted, strict=False)):
            value = event.value
            assert value is not None
            got = (event.lsn, event.operation, _found(table, value["row"]))
            assert got == (lsn, operation, row), (
                f"{table}, {number}: {got}, not {lsn, operation, row}"
            )
        assert len(found) == len(wanted), f"{table}: {len(found)} events, {len(wanted)} changes"
        count += len(wanted)
    assert not any(streamed.values()), {table: len(each) for table, each in streamed.items()}
    return count


def judge_order(events: list[Event]) -> None:
    """A key is in one partition, its events in order, and a tombstone follows each delete."""
    partitions: dict[tuple[str, bytes], int] = {}
    last: dict[tuple[str, int], int] = {}
    places: dict[tuple[str, bytes], tuple[int, int]] = {}
    deleted: dict[tuple[str, bytes], bool] = {}
    ids: set[str] = set()
    for each in events:
        where, key = (each.table, each.partition), (each.table, each.key)
        assert last.get(where, -1) < each.offset, f"{where} goes back to {each.offset}"
        last[where] = each.offset
        assert partitions.setdefault(key, each.partition) == each.partition, key
        if each.value is None:
            assert deleted.pop(key, False), f"a tombstone for {key} out of nowhere"
            continue
        assert not deleted.get(key), f"no tombstone after the delete of {key}"
        place = (each.lsn, each.seq)
        assert places.get(key, (-1, -1)) < place, f"{key} goes back to {place}"
        places[key] = place
        deleted[key] = each.operation == "DELETE"
        assert each.id not in ids, f"{each.id} twice"
        ids.add(each.id)
    assert not any(deleted.values()), "a delete without a tombstone"


def state(events: list[Event], table: str) -> dict[bytes, dict[str, Any]]:
    """What the events of a table add up to."""
    rows: dict[bytes, dict[str, Any]] = {}
    for each in events:
        if each.table != table:
            continue
        if each.value is None or each.operation == "DELETE":
            rows.pop(each.key, None)
        else:
            row = dict(each.value["row"])
            for name in each.value.get("_unchanged_toast_columns") or ():
                row[name] = rows[each.key][name]
            rows[each.key] = row
    return rows


def judge_state(events: list[Event], table: str, source: dict[str, dict[str, Any]]) -> None:
    """The sum of all events is the table."""
    key = TABLES[table]
    found = {"/".join(str(row[name]) for name in key): row for row in state(events, table).values()}
    assert found.keys() == source.keys(), f"{table}: {len(found)} rows, {len(source)} in the source"
    for name, row in source.items():
        for column, value in row.items():
            assert is_same(column, found[name][column], value), (table, name, column)


def is_same(column: str, event: Any, made_by_postgres: Any) -> bool:
    """Whether an event says of a column what PostgreSQL's own JSON says."""
    if event is None or made_by_postgres is None:
        return event is made_by_postgres
    if column == "at":
        return _instant(event) == _instant(made_by_postgres)
    if column == "data":
        return base64.b64decode(event).hex() == made_by_postgres[2:]
    if column in ("amount", "price"):
        return float(event) == float(made_by_postgres)
    if column == "details":
        # Digits behind the point are kept in the event; PostgreSQL's JSON was read as a float.
        return {**event, "n": float(event["n"])} == made_by_postgres
    return bool(event == made_by_postgres)
