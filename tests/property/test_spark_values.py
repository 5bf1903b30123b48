"""Goal: typed values come out as they were written, whatever their schema.

Method: generated Avro schemas and Protobuf descriptors, with values that are encoded here record by
record (Avro, and fastavro reads the same) or by Google's library (Protobuf).
"""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from tables.avro_values import Typed, decode, records, types
from tables.protobuf_values import Protocol

#: Few values and many are not read the same way.
REPEATS = st.sampled_from((1, 70))


@given(data=st.data(), typed=records(depth=2) | types(depth=2))
def test_avro_values_come_out_as_written(data: st.DataObject, typed: Typed) -> None:
    schema, values = typed
    rows = data.draw(st.lists(values, max_size=5)) * data.draw(REPEATS)
    decoded = decode(json.dumps(schema), [each for each, _ in rows])
    assert decoded.problems == {}
    assert decoded.values.to_pylist() == [row for _, row in rows]
    parsed = fastavro.parse_schema(schema)
    for each, _ in rows[:8]:
        stream = io.BytesIO(each)
        fastavro.schemaless_reader(stream, parsed, None)
        assert stream.read() == b""


@given(data=st.data(), typed=records(depth=2))
def test_wrong_avro_values_differ_from_right_ones(data: st.DataObject, typed: Typed) -> None:
    """Cut off, or longer: those are refused, and no other."""
    schema, values = typed
    rows = data.draw(st.lists(values, min_size=1, max_size=5))
    given_bytes, wrong = [], set()
    for index, (each, _) in enumerate(rows):
        change = data.draw(st.sampled_from(("none", "none", "cut", "more")))
        if change == "cut" and each:
            # Every byte of a value is needed.
            each = each[: data.draw(st.integers(0, len(each) - 1))]
            wrong.add(index)
        elif change == "more":
            each += data.draw(st.binary(min_size=1, max_size=3))
            wrong.add(index)
        given_bytes.append(each)
    times = data.draw(REPEATS)
    decoded = decode(json.dumps(schema), given_bytes * times)
    assert {index % len(rows) for index in decoded.problems} == wrong
    assert len(decoded.problems) == len(wrong) * times
    right: list[Any] = [row for index, (_, row) in enumerate(rows) if index not in wrong]
    assert decoded.values.to_pylist() == right * times


@given(data=st.data(), typed=records(depth=2))
def test_damaged_avro_values_are_refused_or_read_as_fastavro_reads_them(
    data: st.DataObject, typed: Typed
) -> None:
    schema, values = typed
    parsed = fastavro.parse_schema(_without_logical_types(schema))
    damaged = []
    for each, _ in data.draw(st.lists(values, min_size=1, max_size=5)):
        at = data.draw(st.integers(0, len(each) - 1))
        damaged.append(each[:at] + data.draw(st.binary(min_size=1, max_size=2)) + each[at + 1 :])
    times = data.draw(REPEATS)
    decoded = decode(json.dumps(schema), damaged * times)
    assert len(decoded.values) + len(decoded.problems) == len(damaged) * times
    for index, each in enumerate(damaged):
        if index not in decoded.problems:
            stream = io.BytesIO(each)
            fastavro.schemaless_reader(stream, parsed, None)
            assert stream.read() == b""


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        kept = {key: value for key, value in schema.items() if key != "logicalType"}
        return {key: _without_logical_types(value) for key, value in kept.items()}
    return [_without_logical_types(each) for each in schema] if isinstance(schema, list) else schema


# ---- Protobuf

_PROTOBUF = {
    "sint32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=10),
    "bytes": st.binary(max_size=10),
}


@st.composite
def _messages(draw: st.DrawFn, protocol: Protocol, depth: int) -> tuple[str, Any]:
    """The name of a message, and a strategy for pairs of fields given and row expected."""
    fields, values = [], {}
    for index in range(draw(st.integers(1, 4))):
        name = f"f{index}"
        pick = draw(st.integers(0, 5 if depth else 3))
        kind = draw(st.sampled_from(sorted(_PROTOBUF)))
        plain = _PROTOBUF[kind]
        if pick == 0:
            fields.append(f"{kind} {name}")
            # The default is null; a negative zero is none.
            values[name] = plain.map(lambda v: (v, v if v or str(v) == "-0.0" else None))
        elif pick == 1:
            fields.append(f"optional {kind} {name}")
            values[name] = (st.none() | plain).map(lambda v: (v, v))
        elif pick == 2:
            fields.append(f"repeated {kind} {name}")
            values[name] = st.lists(plain, max_size=5).map(lambda v: (v, v))
        elif pick == 3:
            fields.append(f"map<string,{kind}> {name}")
            values[name] = st.dictionaries(st.text(max_size=3), plain, max_size=1).map(
                lambda v: (v, list(v.items()))
            )
        else:
            inner, pairs = draw(_messages(protocol, depth - 1))
            fields.append(f"{'repeated ' if pick == 5 else ''}{inner} {name}")
            values[name] = (
                st.lists(pairs, max_size=3).map(lambda v: ([p[0] for p in v], [p[1] for p in v]))
                if pick == 5
                else pairs | st.just((None, None))
            )
    name = protocol.unused_name()
    protocol.message(name, *fields)
    return name, st.fixed_dictionaries(values).map(
        lambda found: tuple({key: pair[side] for key, pair in found.items()} for side in (0, 1))
    )


@given(data=st.data())
def test_protobuf_values_come_out_as_written(data: st.DataObject) -> None:
    protocol = Protocol()
    name, pairs = data.draw(_messages(protocol, 2))
    rows = data.draw(st.lists(pairs, max_size=8))
    assert protocol.rows(name, *(given for given, _ in rows)) == [row for _, row in rows]


@given(data=st.data())
def test_any_bytes_are_a_message_or_a_problem(data: st.DataObject) -> None:
    protocol = Protocol(data.draw(st.sampled_from(("proto2", "proto3"))))
    protocol.message("In", "sint32 a", "string b")
    protocol.message("M", "sint32 a", "string b", "repeated In c", "map<string,In> d", "double e")
    values = data.draw(st.lists(st.binary(max_size=20), max_size=5))
    decoded = protocol.decode("M", values)
    assert len(decoded.values) + len(decoded.problems) == len(values)
