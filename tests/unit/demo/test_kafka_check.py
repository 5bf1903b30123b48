"""The demo's own check: it must notice every way in which records can come back wrong."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")

from demo.kafka import Check
from demo.readings import record
from demo.story import DemoError


class FakeMessage:
    def __init__(self, partition: int, offset: int, key: bytes, value: bytes) -> None:
        self._fields = (partition, offset, key, value)

    def partition(self) -> int:
        return self._fields[0]

    def offset(self) -> int:
        return self._fields[1]

    def key(self) -> bytes:
        return self._fields[2]

    def value(self) -> bytes:
        return self._fields[3]


def _message(offset: int, number: int, partition: int = 0) -> FakeMessage:
    return FakeMessage(partition, offset, *record(number))


def test_all_records_in_order_are_fine() -> None:
    check = Check(3)
    for number in range(3):
        check.take(_message(number, number))
    check.finish()
    assert check.count == 3


def test_order_counts_per_key_and_not_between_partitions() -> None:
    check = Check(102)
    check.take(_message(0, 1, partition=1))
    check.take(_message(0, 0))
    check.take(_message(1, 100))
    check.take(_message(1, 101, partition=1))


def test_missing_record_is_noticed() -> None:
    check = Check(2)
    check.take(_message(0, 0))
    with pytest.raises(DemoError, match="1 of 2 records did not come back"):
        check.finish()


def test_repeat_is_noticed() -> None:
    check = Check(2)
    check.take(_message(0, 0))
    with pytest.raises(DemoError, match="came late or twice"):
        check.take(_message(1, 0))


def test_gap_between_offsets_is_noticed() -> None:
    with pytest.raises(DemoError, match="offset 1: expected 0"):
        Check(2).take(_message(1, 0))


def test_late_record_of_a_key_is_noticed() -> None:
    check = Check(200)
    check.take(_message(0, 100))
    with pytest.raises(DemoError, match="came late or twice"):
        check.take(_message(1, 0))


def test_changed_bytes_are_noticed() -> None:
    key, value = record(0)
    with pytest.raises(DemoError, match="was never sent"):
        Check(1).take(FakeMessage(0, 0, key, value.replace(b"10", b"11")))
    with pytest.raises(DemoError, match="was never sent"):
        Check(1).take(FakeMessage(0, 0, b"other", value))
