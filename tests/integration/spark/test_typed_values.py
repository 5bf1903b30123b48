"""Goal: Spark takes Avro and Protobuf columns, and NOT NULL, as the source hands them over.

Method: one topic of each on the shared session. What decoders give is tested without Spark.
"""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from dragoman.client.kafka import BlockingKafkaClient, NewRecord
from dragoman.spark import readable, table
from dragoman.testing import EphemeralBroker
from tables.avro_values import number, sized
from tables.protobuf_values import Protocol
from tables.source_readers import make_topic, options_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

_ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "name", "type": "string"}, {"name": "count", "type": "int"}],
}
_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "items", "type": {"type": "array", "items": _ITEM}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "double"]}},
        {"name": "either", "type": ["null", "string", "int"]},
    ],
}


def _write(node: EphemeralBroker, *values: bytes | None) -> None:
    make_topic(node)
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.produce_records("orders", [NewRecord(value=each, partition=0) for each in values])


def test_an_avro_topic_is_a_table_and_its_schema_stays_with_it(
    spark: SparkSession, node: EphemeralBroker
) -> None:
    full = b"".join(
        [
            *(number(2**40), number(1), number(1_700_000_000_123), sized(b"\x04\xd2")),
            *(number(2), sized(b"pear"), number(3), sized(b"fig"), number(4), number(0)),
            *(number(1), sized(b"w"), number(1), struct.pack("<d", 2.5), number(0)),
            *(number(2), number(7)),
        ]
    )
    _write(node, full, None)
    at = {"bootstrap": node.bootstrap_servers, "decode": "avro"}
    table("orders", avroSchema=json.dumps(_AVRO), pinSchema="true", **at)
    frame = table("orders", **at)
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,day:date,at:timestamp,amount:decimal(9,2),"
        "items:array<struct<name:string,count:int>>,tags:map<string,double>,"
        "either:struct<member0:string,member1:int>>"
    )
    first, tombstone = frame.selectExpr("value").collect()
    assert tombstone.value is None
    row = first.value.asDict(recursive=True)
    assert row.pop("at").astimezone(UTC) == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert row == {
        "id": 2**40,
        "day": date(1970, 1, 2),
        "amount": Decimal("12.34"),
        "items": [{"name": "pear", "count": 3}, {"name": "fig", "count": 4}],
        "tags": {"w": 2.5},
        "either": {"member0": None, "member1": 7},
    }
    total = frame.selectExpr("sum(value.amount)", "sum(size(value.items))").first()
    assert total == (Decimal("12.34"), 2)


def test_a_protobuf_topic_is_a_table(
    spark: SparkSession, node: EphemeralBroker, tmp_path: Path
) -> None:
    protocol = Protocol()
    protocol.enum("Kind", "NONE", "NEW")
    protocol.message("Item", "string name", "uint32 count")
    protocol.message(
        "Order", "int64 id", "Kind kind", "repeated Item items", "map<string,double> tags",
        "google.protobuf.Duration took", "choice string left", "choice int32 right",
    )  # fmt: skip
    file = tmp_path / "orders.desc"
    file.write_bytes(protocol.descriptors.SerializeToString())
    order = protocol.new("Order")(
        id=5, kind=1, items=[{"name": "pear", "count": 3}], tags={"w": 2.5}, right=0
    )
    order.took.seconds = 90
    _write(node, order.SerializeToString(), b"")
    named = {"decode": "protobuf", "messageName": "shop.Order", "descriptorFile": str(file)}
    frame = table("orders", bootstrap=node.bootstrap_servers, **named)
    rows = frame.selectExpr(
        "value.id", "value.kind", "get(value.items, 0).count n", "value.tags['w'] w",
        "extract(minute from value.took) minutes", "value.left", "value.right",
    ).collect()  # fmt: skip
    assert [tuple(row) for row in rows] == [(5, "NEW", 3, 2.5, 1, None, 0), (None,) * 7]


def test_not_null_is_kept(spark: SparkSession, node: EphemeralBroker) -> None:
    """Spark reads no null where its schema has none, so that one there would be a wrong value."""
    _write(node, b'{"n": 1}', b"{}")
    given = options_for(node, decode="json", valueSchema="n int not null")
    with pytest.raises(PySparkException) as failed:
        spark.read.format("dragoman").options(**given).load().collect()
    assert "offset 1" in readable(failed.value)
    assert "value.n is null, the schema has NOT NULL" in readable(failed.value)
    strict = spark.read.format("dragoman").schema("key binary not null, offset bigint")
    with pytest.raises(PySparkException) as refused:
        strict.options(**options_for(node)).load().collect()
    assert readable(refused.value) == "column key may be null, the schema has NOT NULL"
