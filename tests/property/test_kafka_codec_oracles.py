"""Goal: the codec agrees with two independent ones, byte for byte, for every API, direction and
version.

Method: random messages are encoded here and given to `kio` and `kafka-python`. Each must read the
same values, and must write the same bytes again, which are then decoded here and compared with the
message. So every codec has read what the other wrote, in both directions. kafka-python lacks a few
of the newer APIs.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import importlib
import io
import pkgutil
import random
import uuid
import warnings
from functools import cache

import msgspec
import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from dragoman.protocols.kafka import codec, messages, notation
from dragoman.protocols.kafka.messages import Message
from dragoman.protocols.kafka.notation import FieldSpec, StructSpec
from protocols.kafka_messages import api_messages, random_message

SEED = 20
INSTANCES = 6
NAMES = list(dict.fromkeys(name for name, _ in api_messages()))
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def instances(name: str) -> list[tuple[int, Message]]:
    rng = random.Random(f"{SEED} {name}")
    return [
        (version, random_message(rng, name, version))
        for found, version in api_messages()
        if found == name
        for _ in range(INSTANCES)
    ]


def test_what_the_oracles_cover() -> None:
    """Counts of (API, direction, version) that each oracle has, so that a gap is noticed."""
    every = list(api_messages())
    with_kio = [pair for pair in every if kio_class(*pair) is not None]
    classes = kafka_python_classes()
    with_kafka_python = [
        (name, version)
        for name, version in every
        if name in classes and version <= classes[name].max_version
    ]
    print(f"{len(every)} layouts: kio has {len(with_kio)}, kafka-python {len(with_kafka_python)}")
    assert len(every) == 490
    assert len(with_kio) == len(every)
    assert len(with_kafka_python) >= 400


# ---- kio


def kio_class(name: str, version: int) -> type:
    spec = notation.message(name)
    load = load_request_schema if spec.direction == "Request" else load_response_schema
    return load(spec.api_key, version)


@pytest.mark.parametrize("name", NAMES)
def test_kio_reads_and_writes_the_same(name: str) -> None:
    struct = notation.message(name).struct
    for version, message in instances(name):
        ours = codec.encode_body(message, version)
        kind = kio_class(name, version)
        theirs, used = entity_reader(kind)(ours, 0)
        assert used == len(ours)
        assert kio_values(theirs) == our_values(message, struct, version)
        written = io.BytesIO()
        entity_writer(kind)(written, theirs)
        assert written.getvalue() == ours
        assert codec.decode(type(message), version, written.getvalue()) == message


def kio_values(value: object) -> object:
    """A kio value with its wrappers taken off."""
    if dataclasses.is_dataclass(value):
        return [kio_values(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, tuple):
        return [kio_values(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value


def our_values(message: Message, struct: StructSpec, version: int) -> object:
    """The fields that this version has, as nested lists."""
    return [
        our_value(getattr(message, field.name), field, version)
        for field in struct.fields
        if version in field.versions
    ]


def our_value(value: object, field: FieldSpec, version: int) -> object:
    if isinstance(value, Message):
        assert field.type.struct is not None
        return our_values(value, field.type.struct, version)
    if isinstance(value, list):
        element = field.type.element
        assert element is not None
        if element.struct is not None:
            return [our_values(item, element.struct, version) for item in value]
        return value
    if field.type.kind == "uuid" and value == messages.NO_ID:
        return None
    return value


# ---- kafka-python


@cache
def kafka_python_classes() -> dict[str, type]:
    found: dict[str, object] = {}
    with warnings.catch_warnings():
        # It reads its definitions through a deprecated function of the standard library.
        warnings.simplefilter("ignore", DeprecationWarning)
        for part in ("admin", "consumer", "metadata", "producer"):
            package = importlib.import_module(f"kafka.protocol.{part}")
            for info in pkgutil.iter_modules(package.__path__):
                found.update(vars(importlib.import_module(f"{package.__name__}.{info.name}")))
        for module in ("sasl", "data_container"):
            found.update(vars(importlib.import_module(f"kafka.protocol.{module}")))
    return {name: kind for name, kind in found.items() if isinstance(kind, type)}


DataContainer = kafka_python_classes()["DataContainer"]


@pytest.mark.parametrize("name", sorted(set(NAMES) & set(kafka_python_classes())))
def test_kafka_python_reads_and_writes_the_same(name: str) -> None:
    kind = kafka_python_classes()[name]
    struct = notation.message(name).struct
    for version, message in instances(name):
        if version > kind.max_version:
            continue
        if isinstance(message, messages.ApiVersionsResponse):
            # It reads every reply that has an error in the layout of version 0.
            message = msgspec.structs.replace(message, error_code=0)
        ours = codec.encode_body(message, version)
        theirs = kind.decode(ours, version=version)
        expected = without_absent_structs(message, struct, version)
        assert kafka_python_values(theirs, version) == expected
        theirs._header = None
        written = bytes(theirs.encode(version=version))
        assert written == ours
        assert codec.decode(type(message), version, written) == message


def without_absent_structs(message: Message, struct: StructSpec, version: int) -> object:
    """Our values, with None for tagged structures not on the wire, as kafka-python has it."""
    values = []
    for field in struct.fields:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        inner = field.type.element
        if field.tag is not None and isinstance(value, Message) and value == type(value)():
            value = None
        elif inner is not None and inner.struct is not None and value is not None:
            value = [without_absent_structs(item, inner.struct, version) for item in value]
        else:
            value = our_value(value, field, version)
        values.append(value)
    return values


def kafka_python_field(holder: object, name: str, version: int) -> object:
    value = kafka_python_values(getattr(holder, name), version)
    if value is None and name.endswith("authorized_operations"):
        return -(1 << 31)
    return value


def kafka_python_values(value: object, version: int) -> object:
    """A kafka-python value as nested lists of the fields that this version has."""
    if isinstance(value, DataContainer):
        fields = [field for field in value._struct._fields if field.for_version_q(version)]
        return [kafka_python_field(value, field.name, version) for field in fields]
    if isinstance(value, (list, tuple)):
        return [kafka_python_values(item, version) for item in value]
    if isinstance(value, uuid.UUID):
        return value.bytes if value.int else None
    if isinstance(value, set):
        # Authorized operations: numbers of the bits set in an i32.
        bits = sum(1 << bit for bit in value)
        return bits - (1 << 32) if bits >> 31 else bits
    return bytes(value) if isinstance(value, (memoryview, bytearray)) else value
