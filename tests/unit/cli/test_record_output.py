"""Records to text: every field of a format, what is refused, and JSON that is read back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.cli.record_input import LineFormat, parse_line
from dragoman.cli.record_output import compile_format, write_json
from dragoman.client.kafka import ConsumedRecord

RECORD = ConsumedRecord("t", 3, 17, 1234, b"k\xff", b"v", (("a", b"1"), ("b", None)))
EMPTY = ConsumedRecord("t", 0, 0, -1, None, None, ())


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%t %p %o %T\n", b"t 3 17 1234\n"),
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
    assert compile_format("[%k|%s|%K|%S|%h|%T]")(EMPTY) == b"[||-1|-1||-1]"


@pytest.mark.parametrize(
    ("text", "token"), [("%q", "'%q'"), ("a%", "'%'"), ("\\", ""), (r"\xZ", "")]
)
def test_unknown_signs_are_refused(text: str, token: str) -> None:
    with pytest.raises(ValueError, match="means nothing in a format") as told:
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
