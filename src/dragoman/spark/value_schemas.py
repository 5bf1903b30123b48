"""The schema of values: from the options, pinned in the topic's configuration, or inferred.

A pinned schema is text under `dragoman.value.schema`: Spark's DDL of the fields for JSON, else a
JSON object that names the format:

    {"avro": SCHEMA}
    {"protobuf": {"message": NAME, "descriptors": BASE64 OF A FileDescriptorSet}}

The schema of JSON is inferred once and pinned. Avro and Protobuf are not self-describing, so no
schema can be inferred: one reader gives the schema, and `pinSchema` stores it for all later
readers.
"""

from __future__ import annotations

import json
import logging
from contextlib import closing
from typing import Any, TypeAlias

import msgspec
from pyspark.sql.types import StructField, StructType

from dragoman.client.kafka import (
    AccessDeniedError,
    BlockingKafkaClient,
    ClientError,
    ResourceType,
)
from dragoman.errors import ConfigError
from dragoman.spark import planner
from dragoman.spark.logs import AnyLog, BrokerLog, open_logs
from dragoman.spark.offsets import Topic
from dragoman.spark.options import SourceOptions
from dragoman.spark.planner import OffsetRange
from dragoman.spark.reader import read_range
from dragoman.spark.schema import columns_wanted
from dragoman.spark.storage import StoredLog
from dragoman.spark.values.avro import AvroFormat
from dragoman.spark.values.json import JsonFormat, TextFormat, inferred_type
from dragoman.spark.values.protobuf import ProtobufFormat

log = logging.getLogger("dragoman.spark")

#: The topic's configuration key for the schema.
SCHEMA_KEY = "dragoman.value.schema"
_SAMPLE_RECORDS = 1000
_NEEDED = {
    "json": "valueSchema",
    "avro": "avroSchema or avroSchemaFile",
    "protobuf": "descriptorFile and messageName",
}

ValueFormat: TypeAlias = TextFormat | JsonFormat | AvroFormat | ProtobufFormat


class _PinnedProtobuf(msgspec.Struct):
    message: str
    descriptors: bytes


class _Pinned(msgspec.Struct):
    """A pinned schema of Avro or Protobuf. Exactly one field is set."""

    avro: Any = None
    protobuf: _PinnedProtobuf | None = None


def source_schema(options: SourceOptions) -> str | StructType:
    """The columns of the source; as DDL, which Spark parses, if JSON fields are given as DDL."""
    columns = columns_wanted(options.columns, include_headers=options.include_headers)
    if not options.decode or "value" not in columns.fieldNames():
        return columns
    if options.decode == "json":
        kinds = {"value": f"struct<{_json_fields(options)}>"}
        fields = (
            f"{field.name} {kinds.get(field.name, field.dataType.simpleString())}"
            for field in columns.fields
        )
        return ", ".join(fields)
    found = value_format(options)
    kind = found.spark_type()
    assert kind is not None
    if options.pin_schema:
        _pin(options, found)
    return StructType(
        [
            StructField(field.name, kind if field.name == "value" else field.dataType)
            for field in columns.fields
        ]
    )


def value_format(options: SourceOptions) -> ValueFormat:
    """Raises `ConfigError` when the format needs a schema and there is none."""
    if options.decode == "string":
        return TextFormat()
    if options.decode == "json":
        return JsonFormat()
    if options.decode == "avro":
        schema = options.avro_schema or json.dumps(_pinned_or_refused(options).avro)
        return AvroFormat(schema, options.avro_framing)
    flags = {
        "emit_defaults": options.emit_defaults,
        "upcast_unsigned": options.upcast_unsigned,
    }
    if options.descriptors:
        return ProtobufFormat.of(options.descriptors, options.message_name, **flags)
    pinned = _pinned_or_refused(options).protobuf
    assert pinned is not None
    return ProtobufFormat(pinned.descriptors, pinned.message, **flags)


# ---- pinned schemas


def _pinned_or_refused(options: SourceOptions) -> _Pinned:
    needed = _NEEDED[options.decode]
    if not options.bootstrap:
        raise ConfigError(f"decode={options.decode} without a broker needs {needed}")
    with closing(BrokerLog(options)) as served:
        topic = _only_topic(served, options)
        text = _pinned_text(served.client, topic)
    if not text:
        raise ConfigError(
            f"decode={options.decode} needs {needed}: records do not carry their schema, there is "
            f"no registry, and none is pinned in topic {topic.name!r} (pinSchema=true does that)"
        )
    try:
        found = msgspec.json.decode(text, type=_Pinned)
    except msgspec.DecodeError:
        found = _Pinned()
    if getattr(found, options.decode) is None:
        raise ConfigError(
            f"the schema pinned in topic {topic.name!r} is not for decode={options.decode}; "
            f"give {needed}"
        )
    return found


def _pinned_text(client: BlockingKafkaClient, topic: Topic) -> str:
    try:
        entries = client.describe_configs(ResourceType.TOPIC, topic.name)
    except AccessDeniedError:
        raise ConfigError(
            f"topic {topic.name!r}: the user may not read a pinned schema, for which it needs"
            " `describe_configs`; or give the schema as an option"
        ) from None
    return next((entry.value or "" for entry in entries if entry.name == SCHEMA_KEY), "")


def _pin(options: SourceOptions, found: ValueFormat | str) -> None:
    """Store the schema of the options in the topics' configurations."""
    if isinstance(found, AvroFormat):
        found = json.dumps({"avro": json.loads(found.schema)}, separators=(",", ":"))
    elif isinstance(found, ProtobufFormat):
        pinned = _PinnedProtobuf(found.message, found.descriptors)
        found = msgspec.json.encode({"protobuf": pinned}).decode()
    assert isinstance(found, str)
    with closing(BrokerLog(options)) as served:
        for topic in planner.chosen_topics(served, options.topics).values():
            if _pinned_text(served.client, topic) != found:
                served.client.alter_configs(ResourceType.TOPIC, topic.name, {SCHEMA_KEY: found})


def _only_topic(log_: AnyLog, options: SourceOptions) -> Topic:
    topics = planner.chosen_topics(log_, options.topics)
    if len(topics) != 1:
        needed = _NEEDED[options.decode]
        raise ConfigError(f"decode={options.decode} of {len(topics)} topics needs {needed}")
    (topic,) = topics.values()
    return topic


# ---- JSON


def _json_fields(options: SourceOptions) -> str:
    if options.value_schema:
        if options.pin_schema:
            _pin(options, options.value_schema)
        return options.value_schema
    log_, stored = open_logs(options)
    with closing(log_):
        topic = _only_topic(log_, options)
        client = log_.client if isinstance(log_, BrokerLog) else None
        if client is not None and (pinned := _pinned_text(client, topic)):
            if pinned.startswith("{"):
                raise ConfigError(
                    f"the schema pinned in topic {topic.name!r} is not for decode=json; "
                    "give valueSchema"
                )
            return pinned
        partitions = planner.partitions_of({topic.name: topic})
        first, last = log_.earliest(partitions), log_.latest(partitions)
        sample = {where: min(last[where], first[where] + _SAMPLE_RECORDS) for where in partitions}
        ranges = planner.ranges_between({topic.name: topic}, first, sample)
        found = inferred_type(_values_in(ranges, options, stored))
        fields = found.simpleString().removeprefix("struct<").removesuffix(">")
        if client is not None:
            try:
                client.alter_configs(ResourceType.TOPIC, topic.name, {SCHEMA_KEY: fields})
            except ClientError as error:
                log.warning("the inferred schema of %s is not pinned: %s", topic.name, error)
        return fields


def _values_in(
    ranges: list[OffsetRange], options: SourceOptions, stored: StoredLog | None
) -> list[bytes]:
    found: list[bytes] = []
    planned, lease = planner.plan(ranges, options, stored)
    for each in planned:
        for batch in read_range(each, options, ["value"]):
            found += [value for value in batch.column(0).to_pylist() if value is not None]
    if lease is not None:
        lease.release()
    return found
