"""What typed values cost on their way to Arrow: `python tests/benchmarks/bench_spark_values.py`.

Prints nanoseconds of processor time per value, on one thread, best of several passes. The same
orders, of about 100 bytes, are JSON, Avro and Protobuf; all seven fields are read, or two. For
comparison, fastavro reads the Avro values into dictionaries, from which pyarrow makes a column.
"""

from __future__ import annotations

import argparse
import io
import json
from functools import partial
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
from bench_spark_batches import cost, show
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from dragoman.spark.values.avro import AvroFormat
from dragoman.spark.values.decoded import converted
from dragoman.spark.values.json import JsonFormat, inferred_type
from dragoman.spark.values.protobuf import ProtobufFormat

EVENTS = ("view", "click", "order", "refund")
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "event", "type": {"type": "enum", "name": "Event", "symbols": EVENTS}},
        {"name": "amount", "type": "double"},
        {"name": "session", "type": ["null", "string"]},
        {"name": "note", "type": "string"},
        {"name": "at", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
TWO = ("id", "note")
_INT64, _DOUBLE, _STRING, _ENUM, _REPEATED = 3, 1, 9, 14, 3


def rows(count: int) -> list[dict[str, Any]]:
    rng = Random(1)
    return [
        {
            "id": rng.randrange(10**12),
            "event": rng.choice(EVENTS),
            "amount": rng.random() * 1000,
            "session": None if rng.random() < 0.2 else f"{rng.getrandbits(64):016x}",
            "note": "x" * rng.randint(30, 50),
            "at": 1_700_000_000_000 + rng.randrange(10**6),
            "tags": [f"tag{rng.randrange(9)}" for _ in range(rng.randint(0, 3))],
        }
        for _ in range(count)
    ]


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    made = descriptor_pb2.FileDescriptorSet()
    file = made.file.add(name="order.proto", syntax="proto3")
    events = file.enum_type.add(name="Event")
    for number, name in enumerate(EVENTS):
        events.value.add(name=name, number=number)
    message = file.message_type.add(name="Order")
    kinds = (_INT64, _ENUM, _DOUBLE, _STRING, _STRING, _INT64, _STRING)
    for number, (field, kind) in enumerate(zip(AVRO["fields"], kinds, strict=True), 1):
        message.field.add(name=field["name"], number=number, type=kind, label=1)
    message.field[1].type_name = ".Event"
    message.field[3].proto3_optional = True
    message.oneof_decl.add(name="_session")
    message.field[3].oneof_index = 0
    message.field[6].label = _REPEATED
    return made


def avro_values(given: list[dict[str, Any]]) -> list[bytes]:
    parsed, values = fastavro.parse_schema(AVRO), []
    for each in given:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, each)
        values.append(stream.getvalue())
    return values


def protobuf_values(given: list[dict[str, Any]]) -> list[bytes]:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptors().file[0].SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    return [made(**each).SerializeToString() for each in given]


def fastavro_cost(values: list[bytes], kind: pa.DataType, options: argparse.Namespace) -> float:
    parsed = fastavro.parse_schema(AVRO)

    def parse(value: bytes) -> object:
        return fastavro.schemaless_reader(io.BytesIO(value), parsed, None)

    def read() -> object:
        return converted(values, parse, lambda found: pa.array(found, kind))

    return cost(read, len(values), options.passes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=80_000)
    parser.add_argument("--passes", type=int, default=5)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    given = rows(options.rows)
    as_json = [json.dumps(each).encode() for each in given]
    avro = AvroFormat(json.dumps(AVRO))
    protobuf = ProtobufFormat(descriptors().SerializeToString(), "Order")
    every: dict[str, tuple[Any, StructType, list[bytes]]] = {
        "json": (JsonFormat(), inferred_type(as_json[:1000]), as_json),
        "avro": (avro, avro.spark_type(), avro_values(given)),
        "protobuf": (protobuf, protobuf.spark_type(), protobuf_values(given)),
    }
    print(f"{'ns/value':<24}{'bytes':>15}{'all fields':>15}{'two fields':>15}")
    for name, (made, schema, values) in every.items():
        few = StructType([field for field in schema.fields if field.name in TWO])
        column = pa.array(values, pa.binary())
        costs = []
        for kind in (schema, few):
            decode = made.decoder(to_arrow_type(kind, timezone="UTC"))
            assert not decode(column).problems
            costs.append(cost(partial(decode, column), len(values), options.passes))
        show(name, sum(map(len, values)) / len(values), *costs)
    _, schema, values = every["avro"]
    kind = to_arrow_type(schema, timezone="UTC")
    show("fastavro", sum(map(len, values)) / len(values), fastavro_cost(values, kind, options))


if __name__ == "__main__":
    main()
