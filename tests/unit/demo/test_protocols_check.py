"""The demo's own check of what five protocols have read: it must notice every way to be wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("confluent_kafka")

from demo.protocols import PROTOCOLS, Records, check_records, order, rows_of
from demo.story import DemoError

WRITTEN = [(number, order(number)) for number in range(10)]


def test_each_protocol_writes_in_its_turn() -> None:
    assert [order(number) for number in range(6)] == [
        *("kafka 0", "rocketmq 1", "minibroker 2", "cursus 3", "mlog 4", "kafka 5")
    ]


def test_readers_that_agree_with_the_writers_are_fine() -> None:
    found = dict.fromkeys(PROTOCOLS, WRITTEN)
    check_records(found)
    assert rows_of(found) == [[str(offset), *[value] * 5] for offset, value in WRITTEN]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda records: records[:-1],
        lambda records: [*records, records[-1]],
        lambda records: records[::-1],
        lambda records: [(offset + 1, value) for offset, value in records],
        lambda records: [(0, "kafka 5"), *records[1:]],
        lambda records: [],
    ],
    ids=["missing", "twice", "order", "offsets", "changed", "nothing"],
)
def test_reader_that_differs_is_named(protocol: str, spoil: Callable[[Records], Records]) -> None:
    found = {each: spoil(WRITTEN) if each == protocol else WRITTEN for each in PROTOCOLS}
    with pytest.raises(DemoError, match=f"^{protocol} read "):
        check_records(found)


def test_offset_that_a_reader_has_not_found_is_shown_as_such() -> None:
    found = {each: WRITTEN[:1] if each == "mlog" else WRITTEN[:2] for each in PROTOCOLS}
    assert rows_of(found)[1] == ["1", *["rocketmq 1"] * 4, "-"]
