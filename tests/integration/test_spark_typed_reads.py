"""Goal: typed values reach readers: schemas from options and from topics, nulls, dead letters.

Method: a real broker, read through the source's readers as Spark calls them, with copies as
executors get them, but without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from dragoman.client.kafka import BlockingKafkaClient, NewRecord, ResourceType, TopicPartition
from dragoman.errors import ConfigError, DecodeError
from dragoman.spark.batch import BatchReader
from dragoman.spark.options import parse
from dragoman.spark.value_schemas import SCHEMA_KEY, source_schema
from dragoman.testing import EphemeralBroker
from tables.avro_values import number, sized
from tables.protobuf_values import Protocol
from tables.source_readers import make_topic, options_for, read_partitions

AVRO = """{"type": "record", "name": "Order", "fields": [
    {"name": "n", "type": "int"}, {"name": "s", "type": ["null", "string"]}]}"""
SHOWN = [{"n": 1, "s": "a"}, {"n": 2, "s": None}]


@pytest.fixture
def node() -> Iterator[EphemeralBroker]:
    with EphemeralBroker() as broker:
        make_topic(broker)
        yield broker


def _avro(n: int, s: str | None) -> bytes:
    return number(n) + (number(0) if s is None else number(1) + sized(s.encode()))


def _write(node: EphemeralBroker, *values: bytes | None) -> None:
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        records = [NewRecord(key=b"k", value=each, partition=0) for each in values]
        client.produce_records("orders", records)


def _pinned(node: EphemeralBroker) -> str | None:
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        entries = client.describe_configs(ResourceType.TOPIC, "orders")
    return next(entry.value for entry in entries if entry.name == SCHEMA_KEY)


def _read(options: dict[str, str], schema: StructType | None = None) -> list[Any]:
    """Values, with the source's own schema or with one from the user."""
    parsed = parse(options, "batch")
    if schema is None:
        found = source_schema(parsed)
        assert isinstance(found, StructType)
        schema = found
    reader = BatchReader(parsed, schema)
    return [row["value"] for row in read_partitions(reader, reader.partitions())]


def _protocol(tmp_path: Path) -> tuple[Protocol, str]:
    protocol = Protocol()
    protocol.message("Order", "int32 n", "optional string s")
    file = tmp_path / "orders.desc"
    file.write_bytes(protocol.descriptors.SerializeToString())
    return protocol, str(file)


# ---- schemas


def test_avro_with_its_schema_as_text_in_a_file_and_pinned(
    node: EphemeralBroker, tmp_path: Path
) -> None:
    _write(node, _avro(1, "a"), None, _avro(2, None))
    expected = [SHOWN[0], None, SHOWN[1]]
    assert _read(options_for(node, decode="avro", avroSchema=AVRO)) == expected
    assert not _pinned(node)
    file = tmp_path / "orders.avsc"
    file.write_text(AVRO)
    given = options_for(node, decode="avro", avroSchemaFile=str(file), pinSchema="true")
    assert _read(given) == expected
    assert (_pinned(node) or "").startswith('{"avro":{"type":"record","name":"Order"')
    assert _read(options_for(node, decode="avro")) == expected


def test_protobuf_with_its_descriptors_in_a_file_and_pinned(
    node: EphemeralBroker, tmp_path: Path
) -> None:
    protocol, file = _protocol(tmp_path)
    made = protocol.new("Order")
    _write(node, made(n=1, s="a").SerializeToString(), made(n=2).SerializeToString(), None)
    given = options_for(node, decode="protobuf", descriptorFile=file, messageName="Order")
    reader = BatchReader(parse(given, "batch"), _schema(given))
    # Executors need not see the file.
    Path(file).unlink()
    rows = read_partitions(reader, reader.partitions())
    assert [row["value"] for row in rows] == [*SHOWN, None]
    Path(file).write_bytes(protocol.descriptors.SerializeToString())
    assert _read(given | {"pinSchema": "true"}) == [*SHOWN, None]
    assert _read(options_for(node, decode="protobuf")) == [*SHOWN, None]
    assert _read(options_for(node, decode="protobuf", **{"emit.default.values": "true"}))


def _schema(options: dict[str, str]) -> StructType:
    found = source_schema(parse(options, "batch"))
    assert isinstance(found, StructType)
    return found


def test_large_schemas_are_pinned_too(node: EphemeralBroker) -> None:
    fields = ",".join(
        f'{{"name": "f{i}", "type": "int", "doc": "{"x" * 100}"}}' for i in range(500)
    )
    schema = f'{{"type": "record", "name": "Wide", "fields": [{fields}]}}'
    _write(node, bytes(500))
    assert _read(options_for(node, decode="avro", avroSchema=schema, pinSchema="true"))
    assert len(_pinned(node) or "") > 50_000
    assert _read(options_for(node, decode="avro")) == [{f"f{i}": 0 for i in range(500)}]


@pytest.mark.parametrize(
    ("decode", "pinned", "message"),
    [
        ("avro", "", "needs avroSchema or avroSchemaFile: .* no registry, .*pinSchema=true"),
        (
            "protobuf",
            "",
            "needs descriptorFile and messageName: .* none is pinned in topic 'orders'",
        ),
        ("avro", "n int", "pinned in topic 'orders' is not for decode=avro; give avroSchema"),
        ("protobuf", '{"avro": "int"}', "is not for decode=protobuf; give descriptorFile"),
        ("json", '{"avro": "int"}', "is not for decode=json; give valueSchema"),
    ],
)
def test_without_a_schema_the_options_are_named(
    node: EphemeralBroker, decode: str, pinned: str, message: str
) -> None:
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        client.alter_configs(ResourceType.TOPIC, "orders", {SCHEMA_KEY: pinned})
    with pytest.raises(ConfigError, match=message):
        source_schema(parse(options_for(node, decode=decode), "batch"))


def test_pinned_schemas_are_of_one_topic(node: EphemeralBroker) -> None:
    make_topic(node, "more")
    options = parse(options_for(node, subscribe="orders,more", decode="avro"), "batch")
    with pytest.raises(ConfigError, match="decode=avro of 2 topics needs avroSchema"):
        source_schema(options)
    alone = parse({"path": "/nowhere", "subscribe": "orders", "decode": "avro"}, "batch")
    with pytest.raises(ConfigError, match="decode=avro without a broker needs avroSchema"):
        source_schema(alone)


def test_json_is_pinned_when_it_is_said_so(node: EphemeralBroker) -> None:
    given = options_for(node, decode="json", valueSchema="n int", pinSchema="true")
    assert str(source_schema(parse(given, "batch"))).startswith("key binary, value struct<n int>")
    assert _pinned(node) == "n int"
    other = options_for(node, decode="json")
    assert "struct<n int>" in str(source_schema(parse(other, "batch")))


def test_a_schema_from_the_user_leaves_fields_out_and_changes_no_type(
    node: EphemeralBroker,
) -> None:
    _write(node, _avro(1, "a"))
    given = options_for(node, decode="avro", avroSchema=AVRO)
    assert _read(given, _value_schema(StructField("s", StringType()))) == [{"s": "a"}]
    with pytest.raises(ConfigError, match=r"value\.n is int, the schema has bigint"):
        _read(given, _value_schema(StructField("n", LongType())))


def _value_schema(*fields: StructField, nullable: bool = True) -> StructType:
    return StructType([StructField("value", StructType(list(fields)), nullable)])


# ---- wrong values


def test_wrong_values_fail_with_their_place_or_become_dead_letters(node: EphemeralBroker) -> None:
    bad = _avro(3, "x")[:-1]
    _write(node, _avro(1, "a"), bad, _avro(2, None))
    given = options_for(node, decode="avro", avroSchema=AVRO)
    with pytest.raises(DecodeError, match=r"^orders-0: the value at offset 1 does not decode as"):
        _read(given)
    letters = {"onDecodeError": "deadletter", "deadLetterTopic": "bad"}
    assert _read(given | letters) == SHOWN
    (dead,) = _records(node, "bad")
    headers = dict(dead.headers)
    assert (dead.key, dead.value) == (b"k", bad)
    assert headers["dragoman.topic"] == b"orders"
    assert headers["dragoman.partition"] == b"0"
    assert headers["dragoman.offset"] == b"1"
    assert headers["dragoman.error"] == b"a length goes past the end"


def _records(node: EphemeralBroker, topic: str) -> list[Any]:
    where = TopicPartition(topic, 0)
    with BlockingKafkaClient(node.bootstrap_servers) as client:
        ends = client.list_offsets({where: -1})
        return list(client.reader({where: 0}, until={where: ends[where].offset}))


def test_a_null_in_a_column_that_is_not_null_is_a_wrong_value(node: EphemeralBroker) -> None:
    _write(node, b'{"n": 1}', b'{"n": null}', b"{}", None, b'{"n": 4}')
    given = options_for(node, decode="json", valueSchema="n int not null")
    strict = StructField("n", IntegerType(), nullable=False)
    with pytest.raises(DecodeError, match=r"offset 1 .*value\.n is null, the schema has NOT NULL"):
        _read(given, _value_schema(strict))
    letters = {"onDecodeError": "deadletter", "deadLetterTopic": "bad"}
    assert _read(given | letters, _value_schema(strict)) == [{"n": 1}, None, {"n": 4}]
    # A tombstone is no struct either.
    assert _read(given | letters, _value_schema(strict, nullable=False)) == [{"n": 1}, {"n": 4}]
    assert [record.value for record in _records(node, "bad")][2:] == [b'{"n": null}', b"{}", None]


def test_required_fields_of_protobuf_are_checked(node: EphemeralBroker, tmp_path: Path) -> None:
    protocol = Protocol("proto2")
    protocol.message("Order", "required int32 n")
    file = tmp_path / "orders.desc"
    file.write_bytes(protocol.descriptors.SerializeToString())
    _write(node, protocol.new("Order")(n=1).SerializeToString(), b"")
    given = options_for(node, decode="protobuf", descriptorFile=str(file), messageName="Order")
    with pytest.raises(DecodeError, match=r"offset 1 .*value\.n is null"):
        _read(given)


def test_keys_and_bytes_may_be_null(node: EphemeralBroker) -> None:
    schema = source_schema(parse(options_for(node), "batch"))
    assert isinstance(schema, StructType)
    strict = StructType([StructField(each.name, each.dataType, False) for each in schema.fields])
    for name in ("key", "value"):
        with pytest.raises(ConfigError, match=f"column {name} may be null, the schema has NOT"):
            BatchReader(parse(options_for(node), "batch"), StructType([strict[name]]))
    assert BatchReader(parse(options_for(node), "batch"), StructType(strict.fields[2:]))
