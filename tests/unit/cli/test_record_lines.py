"""Lines to records: separators, JSON, bytes that are not text, and lines that are wrong. Records to
text: every field of a format, what is refused, and JSON that is read back.
"""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.cli import record_lines
from dragoman.cli.record_clients.session import OutgoingRecord
from dragoman.cli.record_lines import (
    LineFormat,
    compile_format,
    parse_header,
    parse_line,
    read_lines,
    write_json,
)
from dragoman.cli.status import CommandError
from dragoman.client.kafka import ConsumedRecord

PLAIN = LineFormat()
JSON = LineFormat(is_json=True)


def test_plain_line_is_a_value_as_it_is() -> None:
    assert parse_line(b"a\xff:b\r", PLAIN) == OutgoingRecord(value=b"a\xff:b\r")
    assert parse_line(b"", PLAIN) == OutgoingRecord(value=b"")


def test_separator_divides_key_and_value_once() -> None:
    form = LineFormat(key_separator=b"::")
    assert parse_line(b"k::v::w", form) == OutgoingRecord(key=b"k", value=b"v::w")
    assert parse_line(b"::", form) == OutgoingRecord(key=b"", value=b"")
    with pytest.raises(ValueError, match="expected the key separator '::'"):
        parse_line(b"k:v", form)


def test_empty_may_mean_null() -> None:
    form = LineFormat(key_separator=b":", empty_is_null=True)
    assert parse_line(b":", form) == OutgoingRecord()
    assert parse_line(b"k:", form) == OutgoingRecord(key=b"k")


def test_what_all_records_share_is_added() -> None:
    form = LineFormat(key=b"k", headers=(("h", b"1"),), partition=3)
    record = parse_line(b"v", form)
    assert record == OutgoingRecord(key=b"k", value=b"v", headers=(("h", b"1"),), partition=3)


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b"{}", OutgoingRecord()),
        (b'{"value": "\xc3\xa4"}', OutgoingRecord(value="ä".encode())),
        (b'{"key": {"base64": "/w=="}, "value": null}', OutgoingRecord(key=b"\xff")),
        (b'{"value": {"base64": "/w=="}}', OutgoingRecord(value=b"\xff")),
        (b'{"value": {"a": 1.0, "b": "x y"}}', OutgoingRecord(value=b'{"a":1.0,"b":"x y"}')),
        (b'{"value": {"base64": "x", "a": 1}}', OutgoingRecord(value=b'{"base64":"x","a":1}')),
        (b'{"value": [ {"a": null} , 2 ]}', OutgoingRecord(value=b'[{"a":null},2]')),
        (b'{"value": {}}', OutgoingRecord(value=b"{}")),
        (b'{"value": 5}', OutgoingRecord(value=b"5")),
        (b'{"value": -1.50e3}', OutgoingRecord(value=b"-1.50e3")),
        (b'{"value": true}', OutgoingRecord(value=b"true")),
        (b'{"value": "5"}', OutgoingRecord(value=b"5")),
        (b'{"value": ""}', OutgoingRecord(value=b"")),
        (b'{"key": {"id": 1}, "value": false}', OutgoingRecord(key=b'{"id":1}', value=b"false")),
        (b'{"key": 7}', OutgoingRecord(key=b"7")),
        (b'{"headers": {"n": 1, "o": [2]}}', OutgoingRecord(headers=(("n", b"1"), ("o", b"[2]")))),
        (b'{"headers": {"a": "1", "b": null}}', OutgoingRecord(headers=(("a", b"1"), ("b", None)))),
        (
            b'{"headers": [["a", "1"], ["a", {"base64": ""}]]}',
            OutgoingRecord(headers=(("a", b"1"), ("a", b""))),
        ),
        (b'{"partition": 2, "timestamp": 5}', OutgoingRecord(partition=2, timestamp=5)),
        (b'{"topic": "t", "offset": 9, "value": "v"}', OutgoingRecord(value=b"v")),
    ],
)
def test_json_line_becomes_a_record(line: bytes, record: OutgoingRecord) -> None:
    assert parse_line(line, JSON) == record


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "truncated"),
        (b"nonsense", "malformed"),
        (b"[]", "Expected `object`"),
        (b'{"valeu": "v"}', "unknown field `valeu`"),
        (b'{"value": nul}', "malformed"),
        (b'{"value": 05}', "malformed"),
        (b'{"key": {"base64": 1}}', "got `int`"),
        (b'{"headers": {"h": {"base64": null}}}', "got `null`"),
        (b'{"value": {"base64": "*"}}', "base64"),
        (b'{"value": {"a": }}', "malformed"),
        (b'{"value": {"a": "\xff"}}', "utf-8"),
        (b'{"value": "\xff"}', "not a record in JSON"),
        (b'{"partition": -1}', "partition -1 does not exist"),
        (b'{"partition": 4294967296}', "does not exist"),
        (b'{"timestamp": -2}', "out of range"),
        (b'{"timestamp": 9223372036854775808}', "out of range"),
        (b'{"headers": [["a"]]}', "length 2"),
    ],
)
def test_wrong_json_line_says_what_is_wrong(line: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_line(line, JSON)


def test_options_fill_what_json_leaves_out() -> None:
    form = LineFormat(is_json=True, key=b"k", headers=(("h", b"1"),), partition=3)
    record = parse_line(b'{"headers": {"a": "2"}, "partition": 0}', form)
    assert record == OutgoingRecord(key=b"k", headers=(("h", b"1"), ("a", b"2")), partition=3)
    assert parse_line(b'{"key": "own"}', form).key == b"own"


@given(st.binary(max_size=300))
def test_any_line_is_a_record_or_a_value_error(line: bytes) -> None:
    for form in (PLAIN, JSON, LineFormat(key_separator=b":")):
        try:
            assert isinstance(parse_line(line, form), OutgoingRecord)
        except ValueError:
            continue


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.booleans())
def test_lines_are_those_of_the_input_wherever_reads_end(lines: list[bytes], ended: bool) -> None:
    data = b"".join(line + b"\n" for line in lines)
    if not ended and lines and lines[-1]:
        data = data[:-1]
    source = Trickle(data)
    assert [line for some in read_lines(source) for line in some] == lines


class Trickle:
    """Gives 1, 2, 3, … bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)
        self._step = 0

    def read1(self, size: int, /) -> bytes:
        self._step = self._step % 7 + 1
        return self._data.read(min(size, self._step))


def test_line_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_lines, "CLI_LINE_BYTES_MAX", 10)
    with pytest.raises(CommandError, match=r"^line 3: longer than 10 bytes"):
        list(read_lines(Trickle(b"a\nb\n" + b"x" * 100)))


def test_header_may_lack_a_value() -> None:
    assert parse_header("a=b=c") == ("a", b"b=c")
    assert parse_header("a=") == ("a", b"")
    assert parse_header("a") == ("a", None)
    with pytest.raises(ValueError, match="NAME=VALUE"):
        parse_header("=b")


# ---- records to text

RECORD = ConsumedRecord("t", 3, 17, 1234, b"k\xff", b"v", (("a", b"1"), ("b", None)))
EMPTY = ConsumedRecord("t", 0, 0, -1, None, None, ())


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%t %p %o %T\n", b"t 3 17 1234\n"),
        ("%D", b"1970-01-01T00:00:01.234Z"),
        ("%k=%s", b"k\xff=v"),
        ("%K %S", b"2 1"),
        ("%h", b"a=1,b"),
        (r"100%% \\ \t\r\0\x41", b"100% \\ \t\r\x00A"),
        ("ä\n", "ä\n".encode()),
        ("", b""),
    ],
)
def test_format_is_filled_in(text: str, printed: bytes) -> None:
    assert compile_format(text)(RECORD) == printed


def test_null_is_nothing_and_has_no_size() -> None:
    assert compile_format("[%k|%s|%K|%S|%h|%T|%D]")(EMPTY) == b"[||-1|-1||-1|]"


def test_null_may_be_shown_by_a_text() -> None:
    shown = compile_format("%k|%s|%D|%K", b"NULL")
    assert shown(EMPTY) == b"NULL|NULL|NULL|-1"
    assert shown(ConsumedRecord("t", 0, 0, 1 << 62, b"", b"", ())) == b"||NULL|0"


@pytest.mark.parametrize(
    ("text", "token"), [("%q", "'%q'"), ("a%", "'%'"), ("\\", ""), (r"\xZ", "")]
)
def test_unknown_signs_are_refused(text: str, token: str) -> None:
    with pytest.raises(ValueError, match="unknown token") as told:
        compile_format(text)
    assert token in str(told.value)


def test_json_has_everything_and_base64_only_where_needed() -> None:
    assert json.loads(write_json(RECORD)) == {
        "topic": "t",
        "partition": 3,
        "offset": 17,
        "timestamp": 1234,
        "key": {"base64": "a/8="},
        "value": "v",
        "headers": [["a", "1"], ["b", None]],
    }


_CONTENT = st.none() | st.binary(max_size=30)


@given(
    st.builds(
        ConsumedRecord,
        st.text(max_size=10),
        st.integers(0, 100),
        st.integers(0, 1 << 62),
        st.integers(-1, 1 << 62),
        _CONTENT,
        _CONTENT,
        st.lists(st.tuples(st.text(max_size=5), _CONTENT), max_size=3).map(tuple),
    )
)
def test_json_is_read_back_as_the_same_record(record: ConsumedRecord) -> None:
    line = write_json(record)
    assert line.count(b"\n") == 1
    again = parse_line(line.rstrip(b"\n"), LineFormat(is_json=True))
    assert (again.key, again.value, again.headers) == (record.key, record.value, record.headers)
    assert (again.partition, again.timestamp) == (record.partition, record.timestamp)
