"""Goal: the sink's options and columns are understood, or refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from dragoman.errors import ConfigError
from dragoman.log.compression import Codec
from dragoman.spark.options import SINK_OPTIONS, parse_sink
from dragoman.spark.writer import check_columns

BROKER = {"kafka.bootstrap.servers": "localhost:9092"}


def test_defaults():
    options = parse_sink(BROKER)
    assert options.topic == options.writer_id == ""
    assert options.codec is Codec.NONE
    assert options.batch_bytes == 512 << 10
    assert (options.request_timeout_s, options.delivery_timeout_s) == (30, 120)


def test_names_do_not_care_for_case_and_spark_adds_its_own():
    given = {
        "Bootstrap.Servers": "b:1",
        "TOPIC": "t",
        "txnappid": "daily",
        "kafka.compression.type": "zstd",
        "kafka.batch.size": "2048",
        "kafka.acks": "1",
        "checkpointLocation": "/c",
    }
    options = parse_sink(given)
    assert (options.bootstrap, options.topic, options.writer_id) == ("b:1", "t", "daily")
    assert (options.codec, options.batch_bytes) == (Codec.ZSTD, 2048)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give kafka.bootstrap.servers"),
        (BROKER | {"tpic": "t"}, "unknown option 'tpic'; is topic meant"),
        (BROKER | {"kafka.compression.type": "zip"}, "compression.type: expected none, gzip"),
        (BROKER | {"kafka.batch.size": "5"}, "kafka.batch.size: expected a number of at least"),
        (
            BROKER | {"kafka.request.timeout.ms": "x"},
            "kafka.request.timeout.ms: expected a positive number",
        ),
        (BROKER | {"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.jaas.config: expected"),
        (BROKER | {"kafka.key.serializer": "x"}, "key.serializer is not supported: keys are"),
        (BROKER | {"kafka.value.serializer": "x"}, "value.serializer is not supported: values"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_refusals(given: dict[str, str], message: str):
    with pytest.raises(ConfigError, match=message):
        parse_sink(given)


def test_options_that_change_nothing_are_taken():
    given = {"includeHeaders": "true", "kafka.security.protocol": "PLAINTEXT"}
    assert parse_sink(BROKER | given) == parse_sink(BROKER)


def test_every_option_has_a_meaning_and_a_name_of_its_own():
    assert len({option.name.lower() for option in SINK_OPTIONS}) == len(SINK_OPTIONS)
    assert all(option.meaning for option in SINK_OPTIONS)


def test_the_page_has_the_options_as_they_are():
    page = (Path(__file__).parents[3] / "docs/reference/spark-sink.md").read_text()
    for option in SINK_OPTIONS:
        default = f"`{option.default}`" if option.default else ""
        assert f"| `{option.name}` | {default} | {option.meaning} |" in page


def schema(*fields: tuple[str, str]) -> StructType:
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types = {
        "binary": BinaryType(),
        "string": StringType(),
        "int": IntegerType(),
        "long": LongType(),
        "headers": ArrayType(header),
        "strings": ArrayType(StringType()),
    }
    return StructType([StructField(name, types[kind]) for name, kind in fields])


def test_columns_of_the_kafka_sink_are_taken_and_others_ignored():
    fields = [("key", "string"), ("value", "binary"), ("topic", "string"), ("partition", "int")]
    check_columns(schema(*fields, ("headers", "headers"), ("offset", "long")), "")
    check_columns(schema(("value", "string")), "t")


@pytest.mark.parametrize(
    ("fields", "topic", "message"),
    [
        ([("key", "binary")], "t", "the column value is missing; the columns are key"),
        ([("value", "binary")], "", "give the option topic, or a column topic"),
        ([("value", "long")], "t", "column value: expected binary or string, got bigint"),
        ([("value", "binary"), ("key", "int")], "t", "column key: expected binary or string"),
        ([("value", "binary"), ("partition", "long")], "t", "column partition: expected integer"),
        (
            [("value", "binary"), ("headers", "strings")],
            "t",
            "column headers: expected array<struct",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_columns_that_cannot_become_records_are_refused(
    fields: list[tuple[str, str]], topic: str, message: str
):
    with pytest.raises(ConfigError, match=message):
        check_columns(schema(*fields), topic)
