"""Goal: records of the internal topic are read back as they were written, keep their bytes from
release to release, and are refused when they are of the future. Method: round trips, fixed bytes,
damage.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.broker.groups.records import (
    CommittedOffset,
    GroupKey,
    GroupValue,
    Key,
    OffsetKey,
    StagedKey,
    StoredMember,
    decode_group,
    decode_key,
    decode_offset,
    record,
)
from dragoman.errors import FormatError

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
KEYS = st.one_of(
    st.builds(GroupKey, st.text()),
    st.builds(OffsetKey, st.text(), st.text(), st.integers(0, 1 << 31)),
    st.builds(StagedKey, st.text(), I64, st.text(), st.integers(0, 1 << 31)),
)
OFFSETS = st.builds(CommittedOffset, I64, I64, st.text(), I64, I64, st.none() | I64)
MEMBERS = st.builds(
    StoredMember,
    st.text(),
    st.none() | st.text(),
    st.text(),
    st.text(),
    I64,
    I64,
    st.lists(st.tuples(st.text(), st.binary())).map(tuple),
    st.binary(),
)
GROUPS = st.builds(
    GroupValue,
    kind=st.text(),
    owner=st.text(),
    generation=I64,
    protocol_type=st.text(),
    protocol=st.text(),
    leader=st.none() | st.text(),
    since_ms=I64,
    members=st.lists(MEMBERS, max_size=3).map(tuple),
)
PROFILE = settings(max_examples=100, derandomize=True, deadline=None, database=None)


@PROFILE
@given(KEYS)
def test_key_round_trip(key: Key) -> None:
    assert decode_key(record(key, None).key) == key


@PROFILE
@given(KEYS, KEYS)
def test_keys_are_equal_when_their_bytes_are(one: Key, other: Key) -> None:
    assert (record(one, None).key == record(other, None).key) == (one == other)


@PROFILE
@given(OFFSETS)
def test_offset_round_trip(value: CommittedOffset) -> None:
    key = OffsetKey("g", "t", 0)
    data = record(key, value).value
    assert data is not None
    assert decode_offset(data, key) == value


@PROFILE
@given(GROUPS)
def test_group_round_trip(value: GroupValue) -> None:
    data = record(GroupKey("g"), value).value
    assert data is not None
    assert decode_group(data, "g") == value


def test_bytes_of_the_first_format() -> None:
    """What is on disk must stay readable: a change here is a change of the format."""
    offset = record(OffsetKey("g", "t", 3), CommittedOffset(5, 2, "m", 7, 9))
    assert offset.key.hex() == "9402a167a17403"
    assert offset.value is not None
    assert offset.value.hex() == "97010502a16d0709c0"
    staged = record(StagedKey("g", 1000, "t", 3), None)
    assert staged.key.hex() == "9503a167cd03e8a17403"
    assert staged.value is None
    member = StoredMember("a", None, "c", "/h", 10_000, 60_000, (("range", b"\x01"),), b"\x02")
    group = record(
        GroupKey("g"),
        GroupValue(
            kind="classic",
            owner="kafka",
            generation=4,
            protocol_type="consumer",
            protocol="range",
            leader="a",
            since_ms=7,
            members=(member,),
        ),
    )
    assert group.key.hex() == "9201a167"
    assert group.value is not None
    assert group.value.hex() == (
        "9901a7636c6173736963a56b61666b6104a8636f6e73756d6572a572616e6765a16107"
        "9198a161c0a163a22f68cd2710cdea609192a572616e6765c40101c40102"
    )


def test_field_appended_by_a_later_release_is_read_over() -> None:
    key = OffsetKey("g", "t", 3)
    assert decode_offset(bytes.fromhex("98010502a16d0709c02a"), key).offset == 5


def test_field_with_default_may_be_missing() -> None:
    key = OffsetKey("g", "t", 3)
    assert decode_offset(bytes.fromhex("96010502a16d0709"), key).expires_ms is None


@pytest.mark.parametrize("data", ["", "9204a167", "9402a167a174", "c0", "9402a167a174a133"])
def test_unknown_or_damaged_key_is_refused(data: str) -> None:
    with pytest.raises(FormatError, match="__consumer_offsets"):
        decode_key(bytes.fromhex(data))


@pytest.mark.parametrize("data", ["", "97020502a16d0709c0", "920105", "c0"])
def test_unknown_or_damaged_offset_is_refused_by_name(data: str) -> None:
    with pytest.raises(FormatError, match="'g' for t-3"):
        decode_offset(bytes.fromhex(data), OffsetKey("g", "t", 3))


@pytest.mark.parametrize("data", ["", "9901", "9902a7636c6173736963"])
def test_unknown_or_damaged_group_is_refused_by_name(data: str) -> None:
    with pytest.raises(FormatError, match="'g'"):
        decode_group(bytes.fromhex(data), "g")
