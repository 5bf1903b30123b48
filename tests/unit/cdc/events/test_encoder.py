"""Goal: what a change of a row becomes, in each envelope, with key, headers and topic.

Method: messages by hand through `Encoder`; pgcdc's own test vectors byte for byte.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from captures.orders import (
    NOON_US,
    ORDERS,
    SYSTEM,
    changed,
    definition,
    done,
    encoder,
    headers,
    relation,
    transaction,
    value,
)
from dragoman.cdc.events import Encoder, EventRecord, TopicNeeded
from dragoman.cdc.events.records import build_event_batch, headers_bytes, partitioner
from dragoman.errors import CdcError, ConfigError
from dragoman.log.batch import batches, read_header, records
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.messages import UNCHANGED, Identity

INSERT = m.Insert(0, 1, [b"1", b"new"])
UPDATE = m.Update(0, 1, [b"1", b"shipped"], [b"1", b"new"], True)
DELETE = m.Delete(0, 1, [b"1", None], False)
FULL = relation("id:int4 status:text", identity=Identity.FULL)


# ---- pgcdc


def test_values_are_pgcdc_s_own_vectors() -> None:
    made = encoder(relation("id:int4"))
    (inserted,) = changed(made, m.Insert(0, 1, [b"1"]))
    assert inserted.value == b'{"op":"INSERT","table":"orders","row":{"id":1},"old":null}'
    full = encoder()
    full.relation(FULL, ["id"])
    (updated,) = changed(full, UPDATE)
    assert updated.value == (
        b'{"op":"UPDATE","table":"orders","row":{"id":1,"status":"shipped"},'
        b'"old":{"id":1,"status":"new"}}'
    )


def test_a_batch_is_pgcdc_s_own_vector() -> None:
    pairs = (
        ("pgcdc-channel", b"pgcdc:orders"),
        ("pgcdc-operation", b"INSERT"),
        ("pgcdc-event-id", b"019576a0-0000-7000-8000-000000000001"),
    )
    payload = b'{"op":"INSERT","table":"orders","row":{"id":1},"old":null}'
    record = EventRecord("t", 0, b"1", payload, headers_bytes(pairs), 1_750_000_000_000)
    assert build_event_batch([record], is_transactional=False).hex() == (
        "0000000000000000000000da00000000026f441f52000000000000000001977420dc00000001977420dc00ffffff"
        "ffffffffffffffffffffff00000001ce020000000231747b226f70223a22494e53455254222c227461626c65223a"
        "226f7264657273222c22726f77223a7b226964223a317d2c226f6c64223a6e756c6c7d061a70676364632d636861"
        "6e6e656c1870676364633a6f72646572731e70676364632d6f7065726174696f6e0c494e534552541c7067636463"
        "2d6576656e742d69644830313935373661302d303030302d373030302d383030302d303030303030303030303031"
    )


def test_partitions_are_pgcdc_s_own_vectors() -> None:
    assert [partitioner(8)(key) for key in (b"1", b"2", b"order-1")] == [4, 5, 5]
    assert [partitioner(7)(key) for key in (b"1", b"2")] == [0x340CA71C % 7, 0x370CABD5 % 7]
    assert partitioner(1 << 25)(b"1") == 0x340CA71C % (1 << 25)
    assert partitioner(1)(b"anything") == 0


def test_headers_name_the_change_and_its_place() -> None:
    made = encoder()
    first, second = changed(made, INSERT, m.Insert(0, 1, [b"2", b"new"]))
    found = headers(first)
    event_id = uuid.UUID(found["pgcdc-event-id"].decode())
    assert list(found) == [
        "pgcdc-channel",
        "pgcdc-operation",
        "pgcdc-event-id",
        "pgcdc-lsn",
        "pgcdc-seq",
        "pgcdc-xid",
        "pgcdc-capture",
        "pgcdc-database",
    ]
    assert found["pgcdc-channel"] == b"pgcdc:orders"
    assert found["pgcdc-operation"] == b"INSERT"
    assert found["pgcdc-lsn"] == b"00000016b374d848"
    assert (found["pgcdc-seq"], headers(second)["pgcdc-seq"]) == (b"1", b"2")
    assert found["pgcdc-xid"] == b"571"
    assert (found["pgcdc-capture"], found["pgcdc-database"]) == (b"shop", b"shopdb")
    assert (event_id.version, event_id.variant) == (7, uuid.RFC_4122)
    assert event_id.int >> 80 == NOON_US // 1000
    assert first.timestamp == NOON_US // 1000
    # Captured again, it has the same id; another event and another system have others.
    assert changed(encoder(), INSERT)[0].headers == first.headers
    assert headers(second)["pgcdc-event-id"] > found["pgcdc-event-id"]
    other = transaction()
    other.belong_to("another", b"")
    assert other.event_id(1) != found["pgcdc-event-id"]


def test_positions_far_into_a_transaction() -> None:
    made = encoder()
    under_way = transaction()
    under_way.seq = 12_345
    (record,) = done(made, lambda: made.change(INSERT, under_way))
    assert headers(record)["pgcdc-seq"] == b"12346"


def test_a_delete_names_the_key_and_is_followed_by_a_tombstone() -> None:
    deleted, tombstone = changed(encoder(), DELETE)
    assert deleted.value == b'{"op":"DELETE","table":"orders","row":{"id":1},"old":null}'
    assert (tombstone.key, tombstone.value, tombstone.partition) == (b"1", None, deleted.partition)
    assert tombstone.headers == deleted.headers
    (alone,) = changed(encoder(tombstones=False), DELETE)
    assert alone == deleted


def test_a_whole_old_row_is_shown() -> None:
    made = encoder()
    made.relation(FULL, ["id"])
    deleted, _ = changed(made, m.Delete(0, 1, [b"1", b"gone"], True))
    assert value(deleted)["row"] == {"id": 1, "status": "gone"}


DOTTED = relation("id:int4", name="dot.ted", number=2)
PLAIN = relation("id:int4", name="ted", schema="dot", number=3)


def topics_of(made: Encoder, *numbers: int) -> list[str]:
    return [changed(made, m.Insert(0, each, [b"1"]))[0].topic for each in numbers]


def test_tables_whose_names_differ_by_dots_only_do_not_share_a_topic() -> None:
    assert topics_of(encoder(DOTTED), 2) == ["pgcdc.dot.ted"]
    assert topics_of(encoder(PLAIN), 3) == ["pgcdc.dot.ted"]
    both = topics_of(encoder(DOTTED, PLAIN), 2, 3)
    assert both[1] == "pgcdc.dot.ted"
    assert re.fullmatch(r"pgcdc\.dot\.ted-[0-9a-f]{8}", both[0])
    # In whatever order they come, and after a restart.
    assert topics_of(encoder(PLAIN, DOTTED), 2, 3) == both
    again = Encoder(definition(), database="shopdb", system=SYSTEM)
    needed = again.topics_to_be([("public", "dot.ted"), ("dot", "ted"), ("public", "orders")])
    assert [each.topic for each in needed] == [*both, "pgcdc.orders"]
    again.relation(DOTTED)
    assert topics_of(again, 2) == both[:1]
    (warning,) = again.warnings
    assert warning.startswith(f"public.dot.ted goes to the topic {both[0]}, since pgcdc.dot.ted is")


def test_two_dotted_tables_both_get_topics_of_their_own() -> None:
    first = relation("id:int4", schema="a", name="b.c", number=2)
    second = relation("id:int4", schema="a.b", name="c", number=3)
    found = topics_of(encoder(first, second), 2, 3)
    assert len(set(found)) == 2
    assert all(each.startswith("pgcdc.a.b.c-") for each in found)


def test_a_table_called_like_events_of_the_capture_has_a_topic_of_its_own() -> None:
    beats = relation("id:int4", name="_heartbeat", number=2)
    (topic,) = topics_of(encoder(beats), 2)
    assert topic.startswith("pgcdc._heartbeat-")
    assert topics_of(encoder(beats, heartbeat_s=0), 2) == ["pgcdc._heartbeat"]


def test_tables_that_shall_share_a_topic_do() -> None:
    for template in ("all", "all.{table}"):
        topics = {"*.*": template}
        made = encoder(
            DOTTED, relation("id:int4", name="dot.ted", schema="x", number=3), topics=topics
        )
        assert len(set(topics_of(made, 2, 3))) == 1
        assert made.warnings == ()


def test_column_with_a_default_is_warned_of_until_a_snapshot() -> None:
    made = encoder()
    wider = relation("id:int4 status:text rank:int4")
    assert made.new_columns(ORDERS) == ()
    assert made.new_columns(wider) == ("rank",)
    made.filled_by_default(wider, ["rank"])
    made.relation(wider)
    (warning,) = made.warnings
    assert "rank was added to public.orders with a default" in warning
    assert "`dragoman cdc snapshot shop --tables public.orders`" in warning
    table = made.table(wider)
    done(made, lambda: made.snapshot_completed(table, 3, transaction()))
    assert made.warnings == ()
    assert encoder(exclude=("public.orders.rank",)).new_columns(wider) == ()
    assert encoder(tables=("other",)).new_columns(wider) == ()


def test_outside_public_the_schema_is_named() -> None:
    made = encoder(relation("id:int4 doc:text", schema="sales"))
    (record,) = changed(made, m.Insert(0, 1, [b"1", None]))
    assert record.topic == "pgcdc.sales.orders"
    assert headers(record)["pgcdc-channel"] == b"pgcdc:sales.orders"
    assert record.value == (
        b'{"op":"INSERT","table":"orders","row":{"id":1,"doc":null},"old":null,"schema":"sales"}'
    )


# ---- what is not known


def test_unchanged_values_are_listed_and_left_out() -> None:
    made = encoder(relation("id:int4 doc:text status:text", schema="s"))
    (record,) = changed(made, m.Update(0, 1, [b"1", UNCHANGED, b"x"], None, False))
    assert record.value == (
        b'{"op":"UPDATE","table":"orders","row":{"id":1,"status":"x"},"old":null,"schema":"s",'
        b'"_unchanged_toast_columns":["doc"]}'
    )


def test_unchanged_values_in_the_other_envelopes() -> None:
    update = m.Update(0, 1, [b"1", UNCHANGED], None, False)
    (record,) = changed(encoder(envelope="debezium"), update)
    assert value(record)["after"] == {"id": 1, "status": "__debezium_unavailable_value"}
    (record,) = changed(encoder(envelope="flat"), update)
    assert value(record)["__unchanged"] == ["status"]
    assert "status" not in value(record)
    nothing = relation("doc:text", key=())
    (record,) = changed(encoder(nothing, envelope="flat"), m.Update(0, 1, [UNCHANGED], None, False))
    assert value(record)["__unchanged"] == ["doc"]


@pytest.mark.parametrize("envelope", ["pgcdc", "debezium", "flat"])
def test_unchanged_values_come_from_a_whole_old_row(envelope: str) -> None:
    made = encoder(envelope=envelope)
    made.relation(FULL, ["id"])
    (record,) = changed(made, m.Update(0, 1, [b"1", UNCHANGED], [b"1", b"kept"], True))
    row = {"pgcdc": "row", "debezium": "after"}.get(envelope)
    shown = value(record)[row] if row else value(record)
    assert shown["status"] == "kept"
    assert b"nchanged" not in record.value


def test_what_is_not_known_when_the_key_changes_is_not_known_of_the_new_key() -> None:
    moved = m.Update(0, 1, [b"2", UNCHANGED], [b"1", None], False)
    for envelope in ("pgcdc", "debezium", "flat"):
        *_, inserted = changed(encoder(envelope=envelope), moved)
        shown = value(inserted)
        if envelope == "pgcdc":
            assert (shown["row"], shown["_unchanged_toast_columns"]) == ({"id": 2}, ["status"])
        elif envelope == "flat":
            assert shown["__unchanged"] == ["status"]
        else:
            assert shown["after"]["status"] == "__debezium_unavailable_value"


def test_unchanged_values_beside_an_old_key() -> None:
    # As when the key itself is large: the server sends the old one with every update.
    update = m.Update(0, 1, [b"1", UNCHANGED], [b"1", None], False)
    (record,) = changed(encoder(envelope="debezium"), update)
    assert value(record)["before"] == {"id": 1}
    assert value(record)["after"] == {"id": 1, "status": "__debezium_unavailable_value"}


# ---- keys


def test_a_changed_key_is_a_delete_and_an_insert() -> None:
    made = encoder()
    deleted, tombstone, inserted = changed(made, m.Update(0, 1, [b"2", b"x"], [b"1", None], False))
    assert [each.key for each in (deleted, tombstone, inserted)] == [b"1", b"1", b"2"]
    assert value(deleted)["op"] == "DELETE"
    assert tombstone.value is None
    assert value(inserted) == {
        "op": "INSERT",
        "table": "orders",
        "row": {"id": 2, "status": "x"},
        "old": None,
    }
    assert [headers(each)["pgcdc-seq"] for each in (deleted, tombstone, inserted)] == [
        b"1",
        b"1",
        b"2",
    ]
    assert headers(inserted)["pgcdc-operation"] == b"INSERT"


def test_an_old_row_with_the_same_key_is_an_update() -> None:
    (record,) = changed(encoder(), m.Update(0, 1, [b"1", b"x"], [b"1", None], False))
    assert value(record)["op"] == "UPDATE"
    assert value(record)["old"] == {"id": 1}


@pytest.mark.parametrize(
    ("columns", "key", "row", "text", "document"),
    [
        ("id:int4", ["id"], [b"17"], b"17", b'{"id":17}'),
        (
            "id:text",
            ["id"],
            ['a "b" ä'.encode()],
            'a "b" ä'.encode(),
            '{"id":"a \\"b\\" ä"}'.encode(),
        ),
        ("id:bool", ["id"], [b"t"], b"true", b'{"id":true}'),
        ("id:bytea", ["id"], [b"\\x00ff"], b"AP8=", b'{"id":"AP8="}'),
        ("id:int4 b:text", ["id", "b"], [b"1", b"x"], b'[1,"x"]', b'{"id":1,"b":"x"}'),
    ],
)
def test_keys(columns: str, key: list[str], row: m.Row, text: bytes, document: bytes) -> None:
    table = relation(columns, key=key)
    assert changed(encoder(table), m.Insert(0, 1, row))[0].key == text
    assert changed(encoder(table, envelope="flat"), m.Insert(0, 1, row))[0].key == text
    assert changed(encoder(table, envelope="debezium"), m.Insert(0, 1, row))[0].key == document


def test_a_table_without_a_key_has_event_ids_for_keys() -> None:
    table = relation("a:int4", key=(), identity=Identity.NOTHING)
    (record,) = changed(encoder(table), m.Insert(0, 1, [b"1"]))
    assert record.key == headers(record)["pgcdc-event-id"]
    assert record.partition == partitioner(8)(record.key)
    (other,) = changed(encoder(table, envelope="debezium"), m.Insert(0, 1, [b"1"]))
    assert (other.key, other.partition) == (None, record.partition)
    without = relation("a:int4", key=(), identity=Identity.FULL)
    (deleted,) = changed(encoder(without), m.Delete(0, 1, [b"1"], True))
    assert value(deleted)["row"] == {"a": 1}


def test_a_key_that_the_table_has_no_longer_is_none() -> None:
    made = encoder()
    made.relation(FULL, ["id", "region"])
    (record,) = changed(made, INSERT)
    assert record.key == headers(record)["pgcdc-event-id"]
    # What is said again, with another key, counts.
    made.relation(FULL, ["id"])
    assert changed(made, INSERT)[0].key == b"1"


def test_a_table_follows_what_becomes_known_about_its_types() -> None:
    price = m.Column("price", 20_000)
    table = m.Relation(0, 1, "public", "orders", Identity.NOTHING, (price,))
    made = encoder(table)
    assert value(changed(made, m.Insert(0, 1, [b"7"]))[0])["row"] == {"price": "7"}
    made.type(m.Type(0, 20_000, "pg_catalog", "int4"))
    made.relation(table)
    assert value(changed(made, m.Insert(0, 1, [b"7"]))[0])["row"] == {"price": 7}


def test_a_key_of_one_s_own() -> None:
    table = relation("id:int4 tenant:text", key=("id", "tenant"))
    made = encoder(table, keys={"order*": ("tenant",)})
    assert changed(made, m.Insert(0, 1, [b"1", b"acme"]))[0].key == b"acme"
    with pytest.raises(ConfigError, match="the column does not exist"):
        encoder(table, keys={"orders": ("other",)})
    with pytest.raises(ConfigError, match="REPLICA IDENTITY FULL"):
        encoder(ORDERS, keys={"orders": ("status",)})
    with pytest.raises(CdcError, match="not known"):
        changed(encoder(), m.Update(0, 1, [UNCHANGED, b"x"], None, False))
    null = encoder(relation("id:int4 t:text", identity=Identity.FULL), keys={"orders": ("t",)})
    assert changed(null, m.Insert(0, 1, [b"1", None]))[0].key == b"null"


# ---- debezium, flat


def test_debezium() -> None:
    made = encoder(envelope="debezium")
    made.relation(FULL, ["id"])
    inserted, updated, deleted, tombstone = changed(
        made, INSERT, UPDATE, m.Delete(0, 1, [b"1", b"x"], True)
    )
    source = {
        "version": "0.1.0",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": NOON_US // 1000,
        "snapshot": "false",
        "db": "shopdb",
        "sequence": f'["{0x16_B374_D848}","1"]',
        "schema": "public",
        "table": "orders",
        "txId": 571,
        "lsn": 0x16_B374_D848,
        "xmin": None,
    }
    assert value(inserted) == {
        "before": None,
        "after": {"id": 1, "status": "new"},
        "source": source,
        "op": "c",
        "ts_ms": NOON_US // 1000,
        "transaction": None,
    }
    assert list(value(inserted)["source"]) == list(source)
    assert value(updated)["before"] == {"id": 1, "status": "new"}
    assert value(updated)["after"] == {"id": 1, "status": "shipped"}
    assert (value(updated)["op"], value(deleted)["op"]) == ("u", "d")
    assert (value(deleted)["before"], value(deleted)["after"]) == ({"id": 1, "status": "x"}, None)
    assert value(updated)["source"]["sequence"] == f'["{0x16_B374_D848}","2"]'
    assert {each.key for each in (inserted, updated, deleted, tombstone)} == {b'{"id":1}'}
    # Another transaction is not shown with what the one before it had.
    later = transaction(lsn=7, xid=9)
    (record,) = done(made, lambda: made.change(INSERT, later))
    assert (value(record)["source"]["txId"], value(record)["source"]["lsn"]) == (9, 7)


def test_flat() -> None:
    inserted, updated, deleted, _ = changed(
        encoder(envelope="flat"), INSERT, m.Update(0, 1, [b"1", b"x"], None, False), DELETE
    )
    assert value(inserted) == {
        "id": 1,
        "status": "new",
        "__op": "INSERT",
        "__table": "public.orders",
        "__lsn": "00000016b374d848",
        "__seq": 1,
        "__ts_ms": NOON_US // 1000,
        "__deleted": False,
    }
    assert value(updated)["__op"] == "UPDATE"
    assert value(deleted).items() >= {"id": 1, "__op": "DELETE", "__deleted": True}.items()
    assert "status" not in value(deleted)


@pytest.mark.parametrize("envelope", ["pgcdc", "debezium", "flat"])
def test_a_truncate_is_in_every_partition(envelope: str) -> None:
    made = encoder(ORDERS, relation("id:int4", name="other", number=2), envelope=envelope)
    found = changed(made, m.Truncate(0, (1, 2), False, False))
    assert [(each.topic, each.partition) for each in found] == [
        *(("pgcdc.orders", partition) for partition in range(8)),
        *(("pgcdc.other", partition) for partition in range(8)),
    ]
    assert {headers(each)["pgcdc-seq"] for each in found[:8]} == {b"1"}
    assert {headers(each)["pgcdc-seq"] for each in found[8:]} == {b"2"}
    assert headers(found[0])["pgcdc-operation"] == b"TRUNCATE"
    shown = value(found[0])
    operation = shown["__op"] if envelope == "flat" else shown["op"]
    assert operation == ("t" if envelope == "debezium" else "TRUNCATE")


@pytest.mark.parametrize("envelope", ["pgcdc", "debezium", "flat"])
def test_rows_of_a_snapshot(envelope: str) -> None:
    made = encoder(envelope=envelope)
    table = made.table(ORDERS)
    (record,) = done(made, lambda: made.snapshot_row(table, [b"1", b"new"], transaction()))
    shown = value(record)
    assert headers(record)["pgcdc-operation"] == b"SNAPSHOT"
    if envelope == "debezium":
        assert (shown["op"], shown["source"]["snapshot"]) == ("r", "true")
        assert shown["after"] == {"id": 1, "status": "new"}
    elif envelope == "flat":
        assert shown.items() >= {"id": 1, "status": "new", "__op": "SNAPSHOT"}.items()
    else:
        assert shown["op"] == "SNAPSHOT"
        assert shown["row"] == {"id": 1, "status": "new"}


# ---- what is captured


def test_tables_that_were_not_named_are_left_out() -> None:
    made = encoder(tables=("public.other",))
    assert changed(made, INSERT, m.Truncate(0, (1,), False, False)) == []
    with pytest.raises(CdcError, match="not described"):
        changed(made, m.Insert(0, 99, []))


def test_a_row_of_another_width_is_refused() -> None:
    with pytest.raises(CdcError, match="3 columns, its table 2"):
        changed(encoder(), m.Insert(0, 1, [b"1", b"2", b"3"]))
    # A database in SQL_ASCII checks nothing.
    (record,) = changed(encoder(), m.Insert(0, 1, [b"1", b"\xff"]))
    assert value(record)["row"] == {"id": 1, "status": "\\xff"}
    with pytest.raises(CdcError, match="does not fit"):
        changed(encoder(relation("id:bool")), m.Insert(0, 1, [b"maybe"]))


def test_nothing_has_changed_when_a_topic_is_needed() -> None:
    made = encoder(transactions=True)
    under_way = transaction()
    with pytest.raises(TopicNeeded) as needed:
        made.change(INSERT, under_way)
    assert (needed.value.topic, needed.value.partitions) == ("pgcdc.orders", 8)
    assert (under_way.seq, under_way.counts) == (0, {})
    made.partitions["pgcdc.orders"] = 3
    assert made.change(INSERT, under_way)[0].partition == partitioner(3)(b"1")


# ---- batches


def test_batches_are_read_as_they_were_written() -> None:
    rows: list[Any] = [[b"%d" % number, b"x" * number] for number in range(1, 2600, 7)]
    made = encoder()
    found = changed(made, *(m.Insert(0, 1, row) for row in rows), DELETE)
    batch = memoryview(build_event_batch(found, producer_id=7, producer_epoch=1, base_sequence=5))
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 5)
    assert header.is_transactional
    ((header, data),) = batches(batch)
    read = records(data, header)
    assert [(each.key, each.value, each.timestamp) for each in read] == [
        (each.key, each.value, each.timestamp) for each in found
    ]
    assert sum(each.size for each in found) >= len(batch) - 61


def test_times_in_a_batch_may_go_back() -> None:
    times = [10_000, 5, 20_000]
    found = [EventRecord("t", 0, None, b"v", b"\0", time) for time in times]
    ((header, data),) = batches(memoryview(build_event_batch(found)))
    assert [each.timestamp for each in records(data, header)] == times
    assert header.max_timestamp == 20_000


def test_settings_of_columns_are_checked_at_once() -> None:
    with pytest.raises(ConfigError, match="expected a column as"):
        encoder(exclude=("status",))
