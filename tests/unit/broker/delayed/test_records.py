"""Goal: what is kept aside is read back as it was written, and other versions are refused.

Method: round trips from hypothesis, bytes written down by hand, and bytes that are wrong.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.broker.delayed import records
from dragoman.broker.delayed.records import Kind, Release, Stored
from dragoman.broker.delayed.state import Batch
from dragoman.errors import CorruptionError, FormatError

_longs = st.integers(0, (1 << 63) - 1)
_bytes = st.none() | st.binary(max_size=20)
_stored = st.builds(
    Stored,
    target_id=_longs,
    when_ms=_longs,
    is_held=st.booleans(),
    labels=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    key=_bytes,
    value=_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), _bytes), max_size=3).map(tuple),
)
_batches = st.builds(
    Batch,
    producer_id=_longs,
    first_sequence=st.integers(0, (1 << 31) - 1),
    decided_ms=_longs,
    offsets=st.lists(_longs, max_size=5).map(tuple),
)


@given(st.sampled_from(Kind), st.integers(0, (1 << 32) - 1), _longs)
def test_keys_come_back(kind: Kind, partition: int, number: int) -> None:
    key = records.encode_key(kind, partition, number)
    assert records.decode_key(key) == (kind, partition, number)


@given(_stored | _batches | st.builds(Release, released_ms=_longs))
def test_values_come_back(value: Stored | Batch | Release) -> None:
    assert records.decode_value(type(value), records.encode_value(value)) == value


def test_the_bytes_are_those_that_are_documented() -> None:
    assert records.encode_key(Kind.RECORD, 2, 5).hex() == "01" + "01" + "00000002" + "0" * 15 + "5"
    assert records.encode_key(Kind.RELEASE, 2, 5)[1] == 2
    assert records.encode_key(Kind.BATCH, 2, 5)[1] == 3
    held = Stored(1, 2, True, {"a": "b"}, None, b"v", (("h", None),))
    expected = "01" + "97" + "01" + "02" + "c3" + "81a161a162" + "c0" + "c40176" + "9192a168c0"
    assert records.encode_value(held).hex() == expected
    assert records.encode_value(Batch(1, 2, 3, (4, 5))).hex() == "01" + "94010203" + "920405"
    assert records.encode_value(Release(7)).hex() == "01" + "9107"


def test_elements_that_a_later_version_appends_are_ignored() -> None:
    assert records.decode_value(Release, bytes.fromhex("01920709")) == Release(7)


@pytest.mark.parametrize("key", ["01", "0101", "0109" + "0" * 24, "0101" + "0" * 26])
def test_keys_that_are_wrong(key: str) -> None:
    with pytest.raises(CorruptionError):
        records.decode_key(bytes.fromhex(key))


def test_other_versions_and_damage() -> None:
    with pytest.raises(FormatError, match="version 2"):
        records.decode_key(bytes.fromhex("0201" + "0" * 24))
    with pytest.raises(FormatError, match="version 2"):
        records.decode_value(Release, b"\x02\x91\x07")
    for value in (b"", b"\x01", b"\x01\x90", b"\x01\x91\xa1a"):
        with pytest.raises(CorruptionError):
            records.decode_value(Release, value)


def test_a_record_that_was_released_is_removed_with_its_release() -> None:
    kinds = [records.decode_key(key).kind for key, _ in records.removal(0, 3, is_released=True)]
    assert kinds == [Kind.RECORD, Kind.RELEASE]
    ((key, value),) = records.removal(0, 3, is_released=False)
    assert (records.decode_key(key), value) == ((Kind.RECORD, 0, 3), None)
