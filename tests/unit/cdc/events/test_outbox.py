"""Goal: rows of an outbox are sent as they say themselves.

Method: messages by hand through `Encoder`.
"""

from __future__ import annotations

import logging

import pytest

from captures.orders import changed, done, encoder, headers, relation, transaction
from dragoman.cdc.events import Encoder
from dragoman.cdc.events.records import partitioner
from dragoman.errors import CdcError, ConfigError
from dragoman.limits import CAPTURE_TOPICS_MAX
from dragoman.protocols.postgres import messages as m

OUTBOX = relation(
    "id:uuid aggregatetype:text aggregateid:text type:text payload:jsonb tenant:text", name="outbox"
)
ID = b"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
ROW: m.Row = [ID, b"order", b"17", b"Created", b'{"total": 1.10}', None]


def outbox(columns: str = "", **settings: object) -> Encoder:
    table = relation(columns, name="outbox") if columns else OUTBOX
    return encoder(table, outbox="outbox", **settings)


def test_a_row_says_where_it_goes() -> None:
    (record,) = changed(outbox(), m.Insert(0, 1, ROW))
    assert record.topic == "outbox.event.order"
    assert (record.key, record.value) == (b"17", b'{"total": 1.10}')
    assert record.partition == partitioner(8)(b"17")
    found = headers(record)
    assert list(found)[:3] == ["id", "type", "tenant"]
    assert (found["id"], found["type"], found["tenant"]) == (ID, b"Created", None)
    assert (found["pgcdc-lsn"], found["pgcdc-seq"]) == (b"00000016b374d848", b"1")
    assert found["pgcdc-xid"] == b"571"


def test_payloads() -> None:
    columns = "id:int4 aggregatetype:text aggregateid:text type:text payload:{}"
    start: m.Row = [b"1", b"a", b"1", b"t"]
    (record,) = changed(outbox(columns.format("bytea")), m.Insert(0, 1, [*start, b"\\x00ff"]))
    assert record.value == b"\x00\xff"
    (record,) = changed(outbox(columns.format("text")), m.Insert(0, 1, [*start, b"as it is"]))
    assert record.value == b"as it is"
    (record,) = changed(outbox(), m.Insert(0, 1, [*start, None, None]))
    assert record.value is None


def test_a_type_is_needed_where_the_topic_has_it() -> None:
    untyped: m.Row = [*ROW[:3], None, *ROW[4:]]
    (record,) = changed(outbox(), m.Insert(0, 1, untyped))
    assert record.topic == "outbox.event.order"
    assert headers(record)["type"] is None
    made = outbox(topics={"outbox": "events.{type}"})
    with pytest.raises(CdcError, match="type"):
        changed(made, m.Insert(0, 1, untyped))


def test_the_topic_may_be_named() -> None:
    made = outbox(topics={"outbox": "events.{aggregatetype}.{type}"})
    assert changed(made, m.Insert(0, 1, ROW))[0].topic == "events.order.Created"
    made = outbox(topics={"outbox": "{aggregatetype}"})
    row: m.Row = [ID, b"__capture_positions", *ROW[2:]]
    assert not changed(made, m.Insert(0, 1, row))[0].topic.startswith("__")


def test_only_inserted_rows_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made = outbox()
        assert changed(made, m.Delete(0, 1, ROW, False)) == []
        assert not caplog.records
        assert changed(made, m.Update(0, 1, ROW, None, False)) == []
        assert changed(made, m.Update(0, 1, ROW, None, False)) == []
        assert changed(made, m.Truncate(0, (1,), False, False)) == []
    assert [each.getMessage() for each in caplog.records] == [
        "a row of outbox public.outbox was updated: only inserted ones are sent"
    ]


def test_what_is_no_outbox() -> None:
    with pytest.raises(ConfigError, match="it has no column aggregateid and no column payload"):
        outbox("id:int4 aggregatetype:text type:text")
    row: m.Row = [ID, None, *ROW[2:]]
    with pytest.raises(CdcError, match="has no aggregatetype: make the column NOT NULL"):
        changed(outbox(), m.Insert(0, 1, row))


def test_rows_cannot_name_any_number_of_topics() -> None:
    made = outbox()
    made.partitions |= {f"t{number}": 1 for number in range(CAPTURE_TOPICS_MAX)}
    with pytest.raises(CdcError, match=r"10000 topics, and outbox\.event\.order would be one more"):
        changed(made, m.Insert(0, 1, ROW))
    made.partitions["outbox.event.order"] = 3
    assert len(changed(made, m.Insert(0, 1, ROW))) == 1


def test_rows_of_a_snapshot() -> None:
    made = outbox()
    found = made.outbox(OUTBOX)
    assert found is not None
    (record,) = done(made, lambda: made.outbox_row(found, ROW, transaction()))
    assert record.topic == "outbox.event.order"
    assert made.outbox(relation("id:int4")) is None
