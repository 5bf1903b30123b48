"""Places as people write them: what each stands for, what is refused, and how far it may reach."""

from __future__ import annotations

import pytest

from dragoman.api.places import place_of, time_of
from dragoman.cli.positions import Bounds, Place, parse_place, resolve
from dragoman.cli.status import CommandError
from dragoman.client.kafka import TopicPartition

WHERE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
BOUNDS = Bounds({WHERE: 10, OTHER: 0}, {WHERE: 50, OTHER: 3})


NOW_MS = 1_800_000_000_000
#: Partition 0 has a record at 7 as its 20th, partition 1 only ends, further on than it is.
AT_TIME = {WHERE: 20, OTHER: 99}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", Place("beginning")),
        ("earliest", Place("beginning")),
        ("end", Place("end")),
        ("latest", Place("end")),
        ("17", Place("offset", 17)),
        ("-100", Place("last", 100)),
        ("-0", Place("last", 0)),
        ("@1700000000000", Place("time", 1_700_000_000_000)),
        ("1970-01-01T00:00:01.5Z", Place("time", 1500)),
        ("1970-01-01T01:00:00+01:00", Place("time", 0)),
        ("1970-01-02", Place("time", 86_400_000)),
        ("@1970-01-02", Place("time", 86_400_000)),
        ("@-15m", Place("time", NOW_MS - 900_000)),
        ("@-2h30m", Place("time", NOW_MS - 9_000_000)),
        ("@-1w2d3s", Place("time", NOW_MS - 777_603_000)),
        ("@-0s", Place("time", NOW_MS)),
        ("+10", Place("first", 10)),
        ("20261115", Place("offset", 20_261_115)),
    ],
)
def test_place_is_understood(text: str, place: Place) -> None:
    assert parse_place("--from", text, now_ms=lambda: NOW_MS) == place


@pytest.mark.parametrize(
    "text",
    [
        *("", "begin", "@", "@-1", "@x", "1.5", "yesterday", "1960-01-01", "9" * 30, "shift:1"),
        *("--1", "@-", "@-5", "@-5x", "@-m", "@-30m2h", "@+5m", "-15m", "@-99999999w", "@today"),
    ],
)
def test_what_is_no_place_is_refused_by_name(text: str) -> None:
    with pytest.raises(CommandError, match=r"^--from: expected") as told:
        parse_place("--from", text)
    assert told.value.status == 2


@pytest.mark.parametrize(("text", "number"), [("shift:5", 5), ("shift:-5", -5), ("shift:+5", 5)])
def test_shift_is_for_groups(text: str, number: int) -> None:
    assert place_of(text, NOW_MS, with_shift=True) == Place("shift", number)


@pytest.mark.parametrize("text", ["shift:", "shift:x", "shift:" + "9" * 20])
def test_shift_needs_a_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected a number"):
        place_of(text, NOW_MS, with_shift=True)


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("@1700000000000", 1_700_000_000_000),
        ("-15m", NOW_MS - 900_000),
        ("@-15m", NOW_MS - 900_000),
        ("1970-01-01T00:00:01Z", 1000),
        ("@1970-01-01T01:00:01+01:00", 1000),
    ],
)
def test_time_alone_needs_no_sign(text: str, time_ms: int) -> None:
    assert time_of(text, NOW_MS) == time_ms


@pytest.mark.parametrize("text", ["", "@", "-5", "@@5", "soon", "latest", "9" * 30, "-9999999w"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected milliseconds since 1970"):
        time_of(text, NOW_MS)


@pytest.mark.parametrize(
    ("place", "offsets"),
    [
        (Place("beginning"), (10, 0)),
        (Place("end"), (50, 3)),
        (Place("offset", 30), (30, 3)),
        (Place("offset", 1), (10, 1)),
        (Place("first", 2), (12, 2)),
        (Place("last", 5), (45, 0)),
        (Place("last", 0), (50, 3)),
        (Place("time", 7), (20, 3)),
    ],
)
def test_place_is_an_offset_inside_each_partition(place: Place, offsets: tuple[int, int]) -> None:
    found = resolve(place, BOUNDS, at_time=AT_TIME if place.kind == "time" else None)
    assert found == {WHERE: offsets[0], OTHER: offsets[1]}


def test_shift_counts_from_what_is_committed() -> None:
    place = Place("shift", -5)
    assert place.offset(10, 50, committed=40) == 35
    assert place.offset(10, 50, committed=12) == 10
    assert place.offset(10, 50) is None
