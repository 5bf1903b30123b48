"""Goal: events that are not about rows go to topics of their own; NOTIFY as pgcdc has it.

Method: calls of `Encoder`.
"""

from __future__ import annotations

import uuid

import msgspec
import pytest

from captures.orders import ORDERS, changed, done, encoder, headers, relation, transaction, value
from dragoman.cdc.events import TopicNeeded
from dragoman.cdc.events.records import partitioner
from dragoman.protocols.postgres import messages as m

INSERT = m.Insert(0, 1, [b"1", b"new"])


def test_boundaries_of_transactions() -> None:
    made = encoder(transactions=True)
    under_way = transaction()
    (begin,) = done(made, lambda: made.begin(under_way))
    for message in (INSERT, m.Delete(0, 1, [b"1", None], False), m.Truncate(0, (1,), False, False)):
        done(made, lambda message=message: made.change(message, under_way))  # type: ignore[misc]
    (commit,) = done(made, lambda: made.commit(under_way))
    described = {"xid": 571, "commit_time": "2025-06-15T12:00:00Z", "lsn": "16/B374D848"}
    assert value(begin) == {"op": "BEGIN", "transaction": described}
    assert value(commit) == {
        "op": "COMMIT",
        "transaction": described,
        "events": 3,
        "tables": {"public.orders": 3},
    }
    assert {begin.topic, commit.topic} == {"pgcdc._txn"}
    assert (begin.key, begin.partition) == (b"shop", 0)
    assert headers(commit)["pgcdc-channel"] == b"pgcdc:_txn"
    assert headers(commit)["pgcdc-operation"] == b"COMMIT"
    assert headers(begin)["pgcdc-seq"] == b"1"
    assert headers(commit)["pgcdc-seq"] == b"5"


def test_a_changed_key_counts_as_the_two_events_that_it_is() -> None:
    made = encoder(transactions=True)
    under_way = transaction()
    update = m.Update(0, 1, [b"2", b"new"], [b"1", None], False)
    records = done(made, lambda: made.change(update, under_way))
    assert [each.value is None for each in records] == [False, True, False]
    (commit,) = done(made, lambda: made.commit(under_way))
    assert value(commit)["events"] == 2


def test_boundaries_are_sent_when_asked_for() -> None:
    made = encoder()
    assert made.begin(transaction()) == []
    assert made.commit(transaction()) == []


def test_marks_ask_for_topics_of_one_partition() -> None:
    made = encoder()
    with pytest.raises(TopicNeeded) as needed:
        made.heartbeat(transaction())
    assert (needed.value.topic, needed.value.partitions) == ("pgcdc._heartbeat", 1)


def test_changed_table_writes_a_schema_change_event() -> None:
    made = encoder(schema_changes=True)
    made.partitions["pgcdc._schema"] = 1
    after = relation("id:int4 status:text total:numeric")
    assert made.relation(ORDERS, (), transaction()) == []
    (record,) = made.relation(after, (), transaction())
    assert record.topic == "pgcdc._schema"
    shown = value(record)
    assert (shown["op"], shown["table"], shown["schema"]) == ("SCHEMA_CHANGE", "orders", "public")
    assert [column["name"] for column in shown["columns"]] == ["id", "status", "total"]
    assert shown["columns"][2] == {
        "name": "total",
        "type_oid": 1700,
        "type_name": "numeric",
        "is_key": False,
    }
    assert [column["name"] for column in shown["previous"]["columns"]] == ["id", "status"]
    assert changed(made, m.Insert(0, 1, [b"1", b"x", b"1.50"]))[0].value is not None
    # The server says the same again now and then, in streamed blocks with a transaction.
    assert made.relation(msgspec.structs.replace(after, xid=7), (), transaction()) == []
    silent = encoder()
    assert silent.relation(after, (), transaction()) == []


def test_first_event_of_a_table_writes_its_schema() -> None:
    made = encoder(schema_changes=True)
    made.partitions["pgcdc._schema"] = 1
    other = relation("id:int4", name="other", number=2)
    (record,) = made.relation(other, (), transaction())
    assert value(record)["previous"] is None
    skipped = encoder(schema_changes=True, tables=("orders",))
    assert skipped.relation(other, (), transaction()) == []


def test_nothing_has_changed_when_a_topic_is_needed() -> None:
    made = encoder(schema_changes=True)
    after = relation("id:int4")
    with pytest.raises(TopicNeeded):
        made.relation(after, (), transaction())
    made.partitions["pgcdc._schema"] = 1
    assert len(made.relation(after, (), transaction())) == 1


def test_snapshots_and_heartbeats() -> None:
    made = encoder()
    table = made.table(ORDERS)
    under_way = transaction()
    (started,) = done(made, lambda: made.snapshot_started(table, under_way))
    (completed,) = done(made, lambda: made.snapshot_completed(table, 7, under_way))
    expected = {"capture": "shop", "table": "orders", "schema": "public", "topic": "pgcdc.orders"}
    assert value(started) == {"op": "SNAPSHOT_STARTED", **expected}
    assert value(completed) == {"op": "SNAPSHOT_COMPLETED", **expected, "rows": 7}
    assert started.topic == "pgcdc._snapshot"
    (beat,) = done(made, lambda: made.heartbeat(under_way))
    assert value(beat)["capture"] == "shop"
    assert value(beat)["transaction"]["lsn"] == "16/B374D848"


# ---- notifications


@pytest.mark.parametrize(
    ("payload", "operation", "sent", "key"),
    [
        ('{"op":"INSERT","row":{"id": 7}}', b"INSERT", b'{"op":"INSERT","row":{"id": 7}}', b"7"),
        ('{"op":""}', b"NOTIFY", b'{"op":""}', None),
        ('{"op":1, "id":"a\\u00e4"}', b"NOTIFY", b'{"op":1, "id":"a\\u00e4"}', "aä".encode()),
        ('{"a":{"id":true}}', b"NOTIFY", b'{"a":{"id":true}}', b"true"),
        ('{"id":[1]}', b"NOTIFY", b'{"id":[1]}', None),
        ('not JSON: "id":"\\q"', b"NOTIFY", b'"not JSON: \\"id\\":\\"\\\\q\\""', None),
        ("[1,2]", b"NOTIFY", b'"[1,2]"', None),
        ("42", b"NOTIFY", b'"42"', None),
        ('plain "text"', b"NOTIFY", b'"plain \\"text\\""', None),
        ("", b"NOTIFY", b'""', None),
    ],
)
def test_notifications(payload: str, operation: bytes, sent: bytes, key: bytes | None) -> None:
    made = encoder()
    (record,) = done(made, lambda: made.notification("app:orders", payload, 1_750_000_000_000_999))
    found = headers(record)
    assert record.topic == "app.orders"
    assert record.value == sent
    assert list(found) == [
        "pgcdc-channel",
        "pgcdc-operation",
        "pgcdc-event-id",
        "pgcdc-capture",
        "pgcdc-database",
    ]
    assert (found["pgcdc-channel"], found["pgcdc-operation"]) == (b"app:orders", operation)
    assert uuid.UUID(str(found["pgcdc-event-id"], "ascii")).version == 7
    assert record.key == (found["pgcdc-event-id"] if key is None else key)
    assert record.partition == partitioner(8)(record.key)
    assert record.timestamp == 1_750_000_000_000


def test_the_same_notification_twice_is_two_events() -> None:
    made = encoder()
    first, second = (done(made, lambda: made.notification("c", "x", 5))[0] for _ in range(2))
    assert headers(first)["pgcdc-event-id"] != headers(second)["pgcdc-event-id"]
