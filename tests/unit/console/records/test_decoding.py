"""What bytes become, by the form that is wanted or found."""

from __future__ import annotations

import base64
import io
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import msgspec
import pytest
from google.protobuf import descriptor_pb2

from dragoman.console.records.decoding.avro import avro_decoder
from dragoman.console.records.decoding.decoders import (
    Schemas,
    detecting,
    hexadecimal,
    key_decoder,
    msgpack,
    utf8,
    value_decoder,
)
from dragoman.console.records.decoding.decoders import json as json_decoder
from dragoman.console.records.decoding.forms import SchemaError, UndecodableError, text_of
from dragoman.console.records.decoding.protobuf import protobuf_decoder
from dragoman.console.records.decoding.topic_schema import schemas_in
from dragoman.console.records.shown import ALONE, LISTED, decoders_for, show, show_record
from dragoman.console.records.values import Decoding
from dragoman.log.batch import Record

_PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
_AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": _PRICE},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "ok", "type": "boolean"},
        {"name": "ratio", "type": "float"},
        {"name": "total", "type": "double"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "other", "type": ["null", "State", "Order"]},
    ],
}  # fmt: skip
_ORDER = {
    "id": -(1 << 62),
    "name": "Ånn",
    "price": Decimal("-12.50"),
    "state": "PAID",
    "hash": b"\x00\x01\x02\xff",
    "tags": ["a", "b"],
    "counts": {"x": 1, "y": -1},
    "ok": True,
    "ratio": 0.5,
    "total": 1e100,
    "day": date(2026, 11, 19),
    "at": datetime(2026, 11, 19, 12, 0, tzinfo=UTC),
    "other": None,
}
_PLAIN_ORDER = {
    **_ORDER,
    "price": "-12.50",
    "day": "2026-11-19",
    "at": "2026-11-19T12:00:00+00:00",
}


def _avro_bytes(value: object, schema: Any = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema or _AVRO), value)
    return out.getvalue()


@pytest.mark.parametrize(
    ("raw", "form", "text"),
    [
        (b'{"a": 12345678901234567890.10}', "json", '{"a": 12345678901234567890.10}'),
        (b"[1]", "json", "[1]"),
        (b"12", "json", "12"),
        (b"", "utf-8", ""),
        (b"{not json", "utf-8", "{not json"),
        ("Zoë\n".encode(), "utf-8", "Zoë\n"),
        (msgspec.msgpack.encode({"a": b"\xff"}), "msgpack", '{"a":"/w=="}'),
        (msgspec.msgpack.encode({1: [2]}), "msgpack", '{"1":[2]}'),
        (b"\x00\x01", "hex", "0001"),
        (b"\xff\xfe\x00", "hex", "fffe00"),
        (b"text\x00", "hex", "7465787400"),
        (b"\0\0\0\0\x07" + b'{"a":1}', "json", '{"a":1}'),
    ],
)
def test_form_is_found(raw: bytes, form: str, text: str) -> None:
    decoded = detecting(None)(raw)
    assert (decoded.form, text_of(raw, decoded)) == (form, text)


def test_value_of_a_registry_is_named_when_its_schema_is_not_known() -> None:
    shown = show(b"\0\0\0\x01\x00\x06abc", detecting(None), 1000)
    assert shown is not None
    assert (shown.form, shown.schema_id) == ("hex", 256)
    assert "schema 256" in shown.note


@pytest.mark.parametrize(
    ("decoder", "raw"),
    [(utf8, b"\xff"), (json_decoder, b"{"), (json_decoder, b"\0\0\0\0\1{"), (msgpack, b"\x91")],
)
def test_bytes_of_another_form_are_refused_and_shown_with_the_reason(
    decoder: Any, raw: bytes
) -> None:
    with pytest.raises(UndecodableError):
        decoder(raw)
    shown = show(raw, decoder, 1000)
    assert shown is not None
    assert shown.note


def test_deep_json_is_refused() -> None:
    assert detecting(None)(b"[" * 100_000).form == "utf-8"
    with pytest.raises(UndecodableError):
        msgpack(b"\x91" * 100_000)


def test_long_values_are_cut() -> None:
    for raw, decoder in ((b"a" * 3000, utf8), (b"\x01" * 3000, hexadecimal)):
        shown = show(raw, decoder, 2048)
        assert shown is not None
        assert (len(shown.text), shown.size, shown.is_cut) == (2048, 3000, True)


# ---- Avro


def test_avro_says_what_another_library_wrote() -> None:
    decoded = avro_decoder(_AVRO)(_avro_bytes(_ORDER))
    assert decoded.data == _PLAIN_ORDER
    inner = {**_ORDER, "other": {**_ORDER, "other": "NEW"}}
    assert avro_decoder(_AVRO)(_avro_bytes(inner)).data["other"]["other"] == "NEW"


def test_avro_behind_a_registry_number_or_a_fingerprint() -> None:
    raw = _avro_bytes(_ORDER)
    framed = avro_decoder(_AVRO)(b"\0\0\0\0\x09" + raw)
    assert (framed.data, framed.schema_id) == (_PLAIN_ORDER, 9)
    assert avro_decoder(_AVRO)(b"\xc3\x01" + bytes(8) + raw).data == _PLAIN_ORDER


def test_avro_that_is_cut_or_too_long_is_refused() -> None:
    raw = _avro_bytes(_ORDER)
    decode = avro_decoder(_AVRO)
    for broken in (*(raw[:end] for end in range(len(raw))), raw + b"\0"):
        with pytest.raises(UndecodableError):
            decode(broken)


@pytest.mark.parametrize(
    ("schema", "raw"),
    [
        ("bytes", b"\xfe\xff\xff\xff\x0f"),
        ("bytes", b"\x01"),
        ("long", b"\xff" * 11),
        ("boolean", b"\x02"),
        (["null"], b"\x02"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\0"),
        ({"type": "array", "items": "null"}, b"\x04\0"),
        ({"type": "enum", "name": "e", "symbols": ["a"]}, b"\x02"),
        ({"type": "record", "name": "r", "fields": [{"name": "r", "type": ["null", "r"]}]},
         b"\x02" * 5000),
    ],
)  # fmt: skip
def test_avro_that_announces_what_it_does_not_have_is_refused(schema: object, raw: bytes) -> None:
    with pytest.raises(UndecodableError):
        avro_decoder(schema)(raw)


@pytest.mark.parametrize(
    "schema",
    ["unknown", {"type": "enum", "name": "e"}, {"type": "fixed", "name": "f"}, 5, {"a": 1},
     {"type": "record", "name": "r", "fields": [{"type": "int"}]}],
)  # fmt: skip
def test_schema_that_is_none_is_refused(schema: object) -> None:
    with pytest.raises(SchemaError):
        avro_decoder(schema)


# ---- the topic's schema


def _protobuf_schema() -> tuple[str, bytes]:
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="unit_price", number=2, type=1, label=1)
    message.field.add(name="tags", number=3, type=9, label=3)
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    encoded = base64.b64encode(descriptors).decode()
    return json.dumps({"protobuf": {"message": "shop.Order", "descriptors": encoded}}), (
        b"\x08\x07\x11" + b"\0\0\0\0\0\0\xe0\x3f" + b"\x1a\x01a"
    )


def test_values_are_decoded_by_the_pinned_schema() -> None:
    found = schemas_in(json.dumps({"avro": _AVRO}))
    assert found.form == "avro"
    decoded = value_decoder("auto", lambda: found)(_avro_bytes(_ORDER))
    assert (decoded.form, decoded.data["name"]) == ("avro", "Ånn")
    # A value of another form is shown as what it is.
    assert value_decoder("auto", lambda: found)(b'{"a":1}').form == "json"


def test_protobuf_by_the_pinned_schema() -> None:
    schema, raw = _protobuf_schema()
    decode = value_decoder("protobuf", lambda: schemas_in(schema))
    expected = {"id": 7, "unit_price": 0.5, "tags": ["a"]}
    assert decode(raw).data == expected
    assert decode(b"\0\0\0\0\x05\0" + raw) == decode(b"\0\0\0\0\x05\x02\0" + raw)
    assert decode(b"\0\0\0\0\x05\0" + raw).schema_id == 5
    for broken in (b"\x08", b"\0\0\0\0\x05", b"\0\0\0\0\x05\xff\xff\xff", b"\xff" * 9):
        with pytest.raises(UndecodableError):
            decode(broken)


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    found = schemas_in(_protobuf_schema()[0])
    with pytest.raises(SchemaError, match=r"dragoman\[spark\]"):
        value_decoder("protobuf", lambda: found)
    assert value_decoder("auto", lambda: found)(b"\x08\x07").form == "hex"


@pytest.mark.parametrize(
    ("pinned", "words"),
    [
        ("", "none is pinned"),
        ("a int, b string", "none is pinned"),
        ("{", "not valid"),
        ('{"avro": {"type": "enum"}}', "symbols"),
        ('{"protobuf": {"message": "x", "descriptors": "AAAA"}}', "not valid"),
    ],
)
def test_schema_that_is_wanted_and_missing_is_refused_with_the_reason(
    pinned: str, words: str
) -> None:
    with pytest.raises(SchemaError, match=words):
        value_decoder("avro", lambda: schemas_in(pinned))


def test_keys_have_no_schema() -> None:
    assert key_decoder("auto")(b"k").form == "utf-8"
    with pytest.raises(SchemaError, match="for its values"):
        key_decoder("avro")


def test_form_that_is_wanted_must_be_that_of_the_schema() -> None:
    with pytest.raises(SchemaError, match="another form"):
        value_decoder("protobuf", lambda: schemas_in(json.dumps({"avro": "string"})))
    assert value_decoder("auto", Schemas)(b"x").form == "utf-8"


# ---- bombs


def test_avro_of_empty_records_that_double_with_each_is_refused() -> None:
    schema: dict[str, Any] = {"type": "record", "name": "R0", "fields": []}
    for n in range(1, 40):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{n - 1}"}]
        schema = {"type": "record", "name": f"R{n}", "fields": fields}
    decode = avro_decoder(schema)
    with pytest.raises(UndecodableError, match="fields"):
        decode(b"")


def test_protobuf_of_many_empty_messages_with_many_fields_is_refused() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="wide.proto", syntax="proto3")
    wide = file.message_type.add(name="Wide")
    for n in range(1, 2001):
        wide.field.add(name=f"f{n}", number=n, type=5, label=1)
    outer = file.message_type.add(name="Outer")
    outer.field.add(name="items", number=1, type=11, type_name=".Wide", label=3)
    decode = protobuf_decoder(files.SerializeToString(), "Outer")
    assert decode(b"\x0a\x00").data == {"items": [{f"f{n}": 0 for n in range(1, 2001)}]}
    with pytest.raises(UndecodableError, match="fields"):
        decode(b"\x0a\x00" * 10_000)


@pytest.mark.parametrize(
    ("raw", "form"), [(b"[%s1]" % (b"[]," * 1_500_000), "utf-8"), (b"\x90" * 5_000_000, "hex")]
)
def test_structure_that_would_take_much_memory_is_text_or_bytes(raw: bytes, form: str) -> None:
    assert detecting(None)(raw).form == form
    for choice in ("json", "msgpack"):
        with pytest.raises(UndecodableError, match="4 MiB"):
            key_decoder(choice)(raw)
    decoder = value_decoder("avro", lambda: Schemas(form="avro", decoder=avro_decoder("bytes")))
    with pytest.raises(UndecodableError, match="4 MiB"):
        decoder(raw)


def test_record_with_many_headers_is_shown_in_part() -> None:
    headers = (("n" * 5000, b"v" * 5000), *((str(n), b"") for n in range(100_000)))
    record = Record(headers=headers)
    decoders = decoders_for(Decoding(), Schemas())
    listed = show_record(0, record, decoders, LISTED)
    assert (len(listed.headers), listed.header_count) == (50, 100_001)
    first = listed.headers[0]
    assert first.value is not None
    assert (len(first.name), len(first.value.text), first.value.is_cut) == (2048, 2048, True)
    assert len(show_record(0, record, decoders, ALONE).headers) == 1000
