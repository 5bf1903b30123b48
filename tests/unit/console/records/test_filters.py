"""The language of filters, by examples."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.console.records.decoding.decoders import Schemas
from dragoman.console.records.decoding.forms import Decoded, UndecodableError
from dragoman.console.records.filters.matching import compiled
from dragoman.console.records.filters.syntax import CHARACTERS_MAX, FilterError
from dragoman.console.records.shown import Decoders, ExaminedRecord, decoders_for
from dragoman.console.records.values import Decoding
from dragoman.log.batch import Record

_NOW_MS = 1_800_000_000_000
_VALUE = {
    "amount": 12.5,
    "name": "ann",
    "is_paid": True,
    "items": [{"unit price": 3}, {"unit price": 4}],
    "tags": ["x", 1],
    "none": None,
    "at": _NOW_MS - 60_000,
    "true": "yes",
}
_RECORD = Record(
    key=b"order-7",
    value=msgspec.json.encode(_VALUE),
    headers=(("h", b"y"), ("n", b"42"), ("h", b"second"), ("null", None), ("b", b"\xff\x00")),
    timestamp=_NOW_MS - 1000,
    offset=5,
)
_DECODERS = decoders_for(Decoding(), Schemas())


def _answer(text: str, record: Record = _RECORD) -> bool | None:
    return compiled(text, _NOW_MS)(ExaminedRecord(1, record, _DECODERS))


@pytest.mark.parametrize(
    "text",
    [
        'value.amount > 10 and key contains "der" and headers["h"] == "y"',
        "partition in (0, 1) and offset >= 5 and timestamp > @-1h",
        "timestamp < @2027-01-15T08:00:00Z",
        "value.at > @-2m and value.at < @-30s",
        "value.is_paid",
        "not value.missing",
        'value.items[1]["unit price"] == 4',
        "value.items[-1] != null",
        "value.items[9] == null",
        'value.tags contains "x" and value.tags contains 1',
        'value contains "\\"name\\":\\"ann\\""',
        'value contains "tags" and value.name startswith "a" and value.name endswith \'n\'',
        'key matches "^order-[0-9]+$"',
        "key matches '\\d$'",
        'key == "order-7"',
        'headers.n == "42" and headers.n == 42 and headers["n"] > 41',
        'headers["missing"] == null and headers["null"] == null',
        "value != null and key != null",
        "value.amount == 12.5 or value.amount == 1",
        'value.none == null and value.none != "x"',
        "1 < value.amount",
        'value.amount != "12.5"',
        'value.name == "b" or (value.name == "ann" and not value.amount < 1)',
        'value.true == "yes" and value["true"] == "yes"',
    ],
)
def test_matches(text: str) -> None:
    assert _answer(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "value.amount > 100",
        "value.none > 1",
        'value.none contains "x"',
        'headers["h"] == "second"',
        "value == null",
        "value.is_paid == 1",
        'value.name in ("b", "c", null)',
        "partition == true",
    ],
)
def test_does_not_match(text: str) -> None:
    assert _answer(text) is False


@pytest.mark.parametrize(
    "text",
    [
        'value.amount > "10"',
        "value.name < 3",
        "value.name.first == 1",
        "value.amount contains 1",
        "value.amount",
        "not value.name.first",
        'value.amount matches "1"',
        'value.name contains "x" or value.amount < "x"',
        'headers["b"] == 1',
        "value.tags < 3",
    ],
)
def test_is_unknown(text: str) -> None:
    assert _answer(text) is None


def test_unknown_does_not_hide_what_decides() -> None:
    assert _answer('value.amount < "x" or key startswith "order"') is True
    assert _answer('value.amount < "x" and key startswith "x"') is False


def test_tombstone_is_null_without_fields() -> None:
    tombstone = Record(key=b"k", value=None)
    assert _answer("value == null", tombstone) is True
    assert _answer("value.amount == null", tombstone) is True
    assert _answer('value contains ""', tombstone) is False


def test_fields_of_a_value_that_is_no_json_are_unknown() -> None:
    text = Record(value=b"plain text")
    assert _answer("value.amount > 1", text) is None
    assert _answer('value == "plain text"', text) is True
    assert _answer('value contains "text"', text) is True
    assert _answer("value.a == 1", Record(value=b"\xff\xfe")) is None


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "the filter ends"),
        ("value.x = 3", 8, "write `==`"),
        ("value.a && true", 8, "write `and`"),
        ("amount > 3", 0, "value.amount"),
        ("value.x ==", 10, "the filter ends"),
        ('key == "abc', 7, "no closing quote"),
        ('value.x matches "("', 8, "no pattern of RE2"),
        ("value.x matches key", 8, "pattern in quotes"),
        ("(value.a", 8, "expected ')'"),
        ("value.a)", 7, "expected `and`, `or` or the end"),
        ("timestamp > @yesterday", 12, "expected milliseconds"),
        ("offset.x == 1", 0, "a number without fields"),
        ("headers == 1", 0, "name a header"),
        ("value-a == 1", 5, "not a number"),
        ("value.x == 1e", 11, "not a number"),
        ("5", 1, "expected a comparison"),
        ("value[1.5] == 1", 6, "a whole number"),
        ("value; key", 5, "means nothing here"),
    ],
)
def test_mistake_is_named_with_its_position(text: str, position: int, words: str) -> None:
    with pytest.raises(FilterError) as caught:
        compiled(text, _NOW_MS)
    assert caught.value.position == position
    assert words in str(caught.value)


def test_length_is_bounded() -> None:
    with pytest.raises(FilterError, match="characters"):
        compiled("x" * (CHARACTERS_MAX + 1), _NOW_MS)


def test_pattern_takes_time_in_proportion_to_the_text() -> None:
    slow = Record(value=b"a" * 50_000)
    assert _answer('value matches "(a+)+$" and value matches "(a|aa)+b"', slow) is False


# ---- filters that would never end


@pytest.mark.parametrize(
    "text",
    [
        'value matches "(.{1,200}){1,4}z"',
        " or ".join([f'value matches "a{{{n}}}.*z"' for n in range(50, 120)]),
        'not (key == "" and value matches "\\\\pL{0,100}z")',
    ],
)
def test_patterns_that_search_slowly_are_refused(text: str) -> None:
    with pytest.raises(FilterError, match="too large"):
        compiled(text, _NOW_MS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" or ".join(['value matches "(.{1,200})z"'] * 2), b"x" * 1_000_000),
        (" or ".join(['value contains "y"'] * 130), b"x" * 4_000_000),
        (" or ".join(["value.a contains value.b"] * 100), b'{"a":[%s1],"b":5}' % (b"2," * 50_000)),
    ],
    ids=["pattern", "text", "items"],
)
def test_record_that_takes_too_long_is_unknown(text: str, value: bytes) -> None:
    assert _answer(text, Record(value=value)) is None


def test_part_of_a_record_is_decoded_once() -> None:
    seen: list[bytes] = []

    def decoder(raw: bytes) -> Decoded:
        seen.append(raw)
        raise UndecodableError

    record = Record(key=b"k", value=b"v", headers=(("h", b"[1]"),))
    examined = ExaminedRecord(0, record, Decoders(decoder, decoder, is_typed=True))
    text = " or ".join(['value.a == 1 or key.a == 1 or value contains "x"'] * 9)
    assert compiled(text, _NOW_MS)(examined) is None
    assert seen == [b"v", b"k"]
    assert examined.header_data("h") is examined.header_data("h")


def test_first_of_many_headers_is_found_at_once() -> None:
    record = Record(headers=(("a", b"1"), *[("x", b"")] * 100_000, ("a", b"2")))
    assert _answer(" or ".join(["headers.b == 1"] * 200) + ' or headers.a == "1"', record)
