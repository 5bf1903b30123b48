"""Decoders of the console against bytes that are anything."""

from __future__ import annotations

import base64
import contextlib
import random

import msgspec
import pytest
from google.protobuf import descriptor_pb2

from dragoman.console.records.decoding.decoders import Schemas, detecting, json, msgpack, utf8
from dragoman.console.records.decoding.forms import Decoder, UndecodableError, text_of
from dragoman.console.records.decoding.topic_schema import schemas_in
from dragoman.console.records.files import writer
from dragoman.console.records.shown import Decoders, show
from dragoman.log.batch import Record

_ROUNDS = 3000
_AVRO = {
    "type": "record",
    "name": "node",
    "fields": [
        {"name": "id", "type": ["null", "long", "string", "double"]},
        {"name": "next", "type": ["null", "node", {"type": "array", "items": "node"}]},
        {"name": "more", "type": {"type": "map", "values": ["boolean", "bytes", "node"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}


def _protobuf() -> str:
    file = descriptor_pb2.FileDescriptorProto(name="n.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="Node")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="next", number=2, type=11, label=3, type_name=".p.Node")
    message.field.add(name="text", number=3, type=9, label=1)
    data = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    pinned = {"message": "p.Node", "descriptors": base64.b64encode(data).decode()}
    return msgspec.json.encode({"protobuf": pinned}).decode()


def _by_schema(found: Schemas) -> Decoder:
    assert found.decoder is not None, found.reason
    return found.decoder


_AVRO_DECODER = _by_schema(schemas_in(msgspec.json.encode({"avro": _AVRO}).decode()))
_PROTOBUF_DECODER = _by_schema(schemas_in(_protobuf()))
_DECODERS = {
    "avro": _AVRO_DECODER,
    "protobuf": _PROTOBUF_DECODER,
    "auto avro": detecting(_AVRO_DECODER),
    "auto protobuf": detecting(_PROTOBUF_DECODER),
    "auto": detecting(None),
    "json": json,
    "msgpack": msgpack,
    "utf-8": utf8,
}


def _bytes(rng: random.Random) -> bytes:
    """Bytes of which many are small, as lengths, counts and branches are."""
    size = rng.choice((0, 1, 2, 5, 6, 10, 40, 200))
    small = bytes(rng.randrange(8) for _ in range(size))
    found = bytearray(rng.randbytes(size) if rng.random() < 0.4 else small)
    if rng.random() < 0.2:
        found[:0] = rng.choice((b"\0\0\0\0\1", b"\xc3\x01" + bytes(8), b"{", b"\x92", b"\x81"))
    return bytes(found)


@pytest.mark.parametrize("name", _DECODERS)
def test_bytes_are_decoded_or_refused(name: str) -> None:
    rng, decoder = random.Random(name), _DECODERS[name]
    lines = writer("jsonl", "t", Decoders(decoder, decoder, is_typed=True))
    rows = writer("csv", "t", Decoders(decoder, decoder, is_typed=True))
    for _ in range(_ROUNDS):
        raw = _bytes(rng)
        with contextlib.suppress(UndecodableError):
            msgspec.json.encode(text_of(raw, decoder(raw)))
        shown = show(raw, decoder, 64, with_bytes=True)
        assert shown is not None
        assert len(shown.text) <= 64
        msgspec.json.encode(shown)
        record = Record(key=raw, value=raw, headers=(("h", raw),))
        msgspec.json.decode(lines([(0, record)]))
        rows([(0, record)]).encode()
