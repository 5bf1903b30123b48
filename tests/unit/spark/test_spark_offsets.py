"""Goal: begin and end of a read follow from the options, and positions survive their JSON.

Method: a log made of plain numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import pytest

from dragoman.client.kafka import TopicPartition
from dragoman.errors import ConfigError
from dragoman.spark.offsets import Offsets, Position, Topic, ending_offsets, starting_offsets
from dragoman.spark.options import EARLIEST, LATEST, Bound

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


class NumberedLog:
    """Offsets 10 to 99 at ten times their number in milliseconds; B has none."""

    def topics(self, names: Sequence[str] = ()) -> dict[str, Topic]:
        return {"a": Topic("a", "00", (0, 1))}

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {where: 10 if where == A else 0 for where in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {where: 100 if where == A else 0 for where in partitions}

    def at_times(self, times: Mapping[TopicPartition, int]) -> Offsets:
        return {
            where: max(10, -(-time // 10))
            for where, time in times.items()
            if where == A and time < 1000
        }


LOG = NumberedLog()


def _starts(bound: Bound, *, late: bool = False) -> Offsets:
    return starting_offsets(LOG, [A, B], bound, is_late_start_allowed=late)


def test_words_and_numbers() -> None:
    assert _starts(Bound(offsets=EARLIEST)) == {A: 10, B: 0}
    assert _starts(Bound(offsets=LATEST)) == {A: 100, B: 0}
    assert _starts(Bound(offsets={"a": {0: 42, 1: -1}})) == {A: 42, B: 0}
    assert _starts(Bound(offsets={"a": {0: -2, 1: 7}})) == {A: 10, B: 7}


def test_a_time_for_all_beats_times_by_partition_which_beat_offsets() -> None:
    times = {"a": {0: 500, 1: 500}}
    assert ending_offsets(LOG, [A, B], Bound(timestamp=600, timestamps=times)) == {A: 60, B: 0}
    assert ending_offsets(LOG, [A, B], Bound(timestamps=times)) == {A: 50, B: 0}


def test_partition_without_a_record_that_young_is_refused_or_begins_at_its_end() -> None:
    with pytest.raises(ConfigError, match="a-1: no record is at or after"):
        _starts(Bound(timestamp=500))
    assert _starts(Bound(timestamp=500), late=True) == {A: 50, B: 0}


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ({"a": {0: 1}}, "no offset for a-1"),
        ({"a": {0: 1, 1: 1, 2: 1}}, "a-2 is not read"),
        ({"a": {0: -3, 1: 1}}, "-3 for a-0 is not an offset"),
    ],
)
def test_offsets_must_be_said_for_exactly_what_is_read(
    offsets: dict[str, dict[int, int]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _starts(Bound(offsets=offsets))


def test_earliest_is_no_end() -> None:
    with pytest.raises(ConfigError, match="cannot end"):
        ending_offsets(LOG, [A, B], Bound(offsets={"a": {0: -2, 1: 5}}))


def test_position_survives_json() -> None:
    position = Position({A: 5, B: 1 << 60, TopicPartition("b", 12): 0}, {"a": "ff", "b": ""})
    document = json.loads(json.dumps(position.to_json()))
    assert Position.from_json(document) == position
    assert Position.from_json({"a": {"0": 5}}) == Position({A: 5}, {})
