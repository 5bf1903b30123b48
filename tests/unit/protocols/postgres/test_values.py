"""Goal: texts of values to JSON, and what types of a database's own are taken for.

Method: literal pairs, and what is refused; round trips by real servers are in
`tests/integration/test_pgoutput_server.py`.
"""

from __future__ import annotations

import json

import pytest

from dragoman.errors import DecodeError
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.types import Kind, Types
from dragoman.protocols.postgres.values import form_of


def shown(name: str, text: bytes, *, is_array: bool = False) -> bytes:
    return form_of(Kind(name, is_array)).to_json(text)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("bool", b"t", b"true"),
        ("int8", b"9223372036854775807", b"9223372036854775807"),
        ("numeric", b"0.10", b'"0.10"'),
        ("float8", b"1e+20", b"1e+20"),
        ("float8", b"NaN", b'"NaN"'),
        ("jsonb", b'{"a":  1.10}', b'{"a":  1.10}'),
        ("bytea", b"\\x00ff", b'"AP8="'),
        ("timestamptz", b"2024-01-01 10:20:30+00", b'"2024-01-01T10:20:30Z"'),
        ("text", b"not \xff UTF-8", b'"not \\\\xff UTF-8"'),
        ("", b'a "b"', b'"a \\"b\\""'),
    ],
)
def test_values(name: str, text: bytes, expected: bytes) -> None:
    assert shown(name, text) == expected


@pytest.mark.parametrize("text", [b"", b"00ff", b"\\x0", b"\\x0g"])
def test_bytes_in_another_form_are_refused(text: bytes) -> None:
    with pytest.raises(DecodeError, match="bytea_output = hex"):
        shown("bytea", text)


@pytest.mark.parametrize("text", [b"", b"{", b'{"a', b"{a}}", b'{a"b"c', b"{{1},{2}", b"1"])
def test_malformed_arrays_are_refused(text: bytes) -> None:
    with pytest.raises(DecodeError, match="is not an array"):
        shown("text", text, is_array=True)


def test_arrays_of_strings() -> None:
    found = shown("text", b'{a,"b,c",NULL,"NULL","x\\"y\\\\z",""}', is_array=True)
    assert json.loads(found) == ["a", "b,c", None, "NULL", 'x"y\\z', ""]


def test_expressions_say_the_same_as_functions() -> None:
    from dragoman.protocols.postgres import values

    samples = {"bool": [b"t", b"f"], "float8": [b"1.5", b"NaN", b"-Infinity"]}
    for name, form in values._FORMS.items():
        for text in samples.get(name, [b"1"]):
            if form.expression:
                code = form.expression.format("text")
                assert eval(code, {"text": text, **values.INLINED}) == form.to_json(text), name


# ---- types


def relation(*oids: int) -> m.Relation:
    columns = tuple(m.Column(f"c{oid}", oid) for oid in oids)
    return m.Relation(0, 1, "public", "t", m.Identity.DEFAULT, columns)


def test_a_domain_is_what_it_is_made_of() -> None:
    types = Types()
    assert types.kind(20_000) == Kind("")
    types.learn_message(m.Type(0, 20_000, "pg_catalog", "numeric"))
    types.learn_message(m.Type(0, 20_001, "pg_catalog", "_int4"))
    types.learn_message(m.Type(0, 20_002, "public", "numeric"))
    assert types.kind(20_000) == Kind("numeric")
    assert types.kind(20_001) == Kind("int4", True)
    assert types.kind(20_002) == Kind("")
    assert types.name(20_001) == "int4[]"


def test_the_catalogue_says_more() -> None:
    types = Types()
    table = relation(23, 20_000, 20_001, 20_002)
    assert types.unknown(table) == (20_000, 20_001, 20_002)
    # An enumeration, an array of it, and a domain over a domain.
    types.learn([(20_000, 0, 0), (20_001, 0, 20_000), (20_002, 20_003, 0), (20_003, 1007, 0)])
    assert types.unknown(table) == ()
    assert types.kind(20_001) == Kind("", True)
    assert types.kind(20_002) == Kind("int4", True)


def test_domains_that_are_made_of_each_other_end() -> None:
    types = Types()
    types.learn([(20_000, 20_001, 0), (20_001, 20_000, 0)])
    assert types.kind(20_000) == Kind("")
