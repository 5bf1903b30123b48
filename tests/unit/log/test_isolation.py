"""What a reader sees of interleaved transactions, by hand-made batches and by a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DecodeError
from dragoman.log.batch import CONTROL, TRANSACTIONAL, Marker, Record, build_batch, build_marker
from dragoman.log.isolation import VisibleBatches, visible_records


def data(offset: int, value: bytes, producer: int = -1, count: int = 1) -> bytearray:
    return build_batch(
        [Record(value=value, timestamp=1) for _ in range(count)],
        base_offset=offset,
        attributes=TRANSACTIONAL if producer >= 0 else 0,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
    )


def marker(offset: int, producer: int, is_commit: bool) -> bytearray:
    batch = build_marker(Marker(is_commit, 0), producer_id=producer, producer_epoch=0, timestamp=1)
    batch[:8] = offset.to_bytes(8, "big")
    return batch


def fetched(
    *batches: bytes | bytearray, aborted: tuple[tuple[int, int], ...] = ()
) -> tuple[memoryview, tuple[tuple[int, int], ...]]:
    return memoryview(b"".join(batches)), aborted


def values(
    reply: tuple[memoryview, tuple[tuple[int, int], ...]], offset: int = 0
) -> list[bytes | None]:
    return [record.value for record in visible_records(*reply, offset)[0]]


def test_control_batches_are_nobodys_data() -> None:
    reply = fetched(data(0, b"a", 7), marker(1, 7, True), data(2, b"b"))
    assert values(reply) == [b"a", b"b"]
    assert visible_records(*reply, 0)[1] == 3


def test_aborted_transaction_is_left_out_between_its_first_offset_and_its_marker() -> None:
    reply = fetched(
        data(0, b"committed", 7),
        marker(1, 7, True),
        data(2, b"aborted", 7),
        data(3, b"other", 8),
        data(4, b"plain"),
        marker(5, 7, False),
        data(6, b"next", 7),
        aborted=((7, 2),),
    )
    assert values(reply) == [b"committed", b"other", b"plain", b"next"]


def test_list_need_not_be_in_order_and_one_producer_may_abort_twice() -> None:
    reply = fetched(
        data(0, b"x", 7),
        marker(1, 7, False),
        data(2, b"y", 7),
        marker(3, 7, True),
        data(4, b"z", 7),
        marker(5, 7, False),
        aborted=((7, 4), (7, 0)),
    )
    assert values(reply) == [b"y"]


def test_transaction_that_began_before_the_fetch_is_left_out_too() -> None:
    reply = fetched(data(10, b"x", 7), marker(11, 7, False), aborted=((7, 2),))
    assert values(reply, 10) == []
    assert visible_records(*reply, 10)[1] == 12


def test_without_a_list_everything_is_seen() -> None:
    reply = fetched(data(0, b"x", 7), marker(1, 7, False))
    assert values(reply) == [b"x"]


def test_records_before_the_offset_are_left_out() -> None:
    reply = fetched(data(0, b"a", count=5), data(5, b"b"))
    found, next_offset = visible_records(*reply, 3)
    assert [record.offset for record in found] == [3, 4, 5]
    assert next_offset == 6


def test_whole_batches_before_the_offset_do_not_move_it_back() -> None:
    assert visible_records(*fetched(data(0, b"a")), 5) == ([], 5)


def test_control_record_of_another_kind_ends_nothing() -> None:
    strange = build_batch(
        [Record(key=b"\0\0\0\5", value=b"\0\0\0\0\0\0", timestamp=1)],
        base_offset=1,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=7,
        producer_epoch=0,
    )
    reply = fetched(
        data(0, b"x", 7), strange, data(2, b"y", 7), marker(3, 7, False), aborted=((7, 0),)
    )
    assert values(reply) == []


def test_broken_batch_is_reported_after_the_good_ones() -> None:
    broken = data(1, b"bad")
    broken[-1] ^= 1
    walk = VisibleBatches(*fetched(data(0, b"good"), broken), 0)
    seen = []
    with pytest.raises(DecodeError, match="CRC"):
        seen.extend(header.base_offset for header, _ in walk)
    assert walk.next_offset == 1


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["write", "commit", "abort"])), max_size=40
    ),
    st.integers(0, 40),
)
def test_reader_sees_what_a_model_says(steps: list[tuple[int, str]], start: int) -> None:
    """Producers 1 to 3 write in transactions, 0 does not; ends without a transaction do nothing."""
    batches: list[bytearray] = []
    open_since: dict[int, int] = {}
    owners: list[int | None] = []
    fates: dict[tuple[int, int], str] = {}
    for producer, step in steps:
        offset = len(batches)
        if step == "write" or producer == 0:
            batches.append(data(offset, b"%d" % offset, producer or -1))
            owners.append(open_since.setdefault(producer, offset) if producer else None)
        elif producer in open_since:
            batches.append(marker(offset, producer, step == "commit"))
            owners.append(-1)
            fates[producer, open_since.pop(producer)] = step
    # What is still open lies behind the last stable offset and is not returned.
    stable = min(open_since.values(), default=len(batches))
    aborted = tuple(
        (producer, first)
        for (producer, first), fate in fates.items()
        if fate == "abort" and first < stable
    )
    aborted_firsts = {first for _, first in aborted}
    expected = [
        offset
        for offset in range(start, stable)
        if owners[offset] is None or (owners[offset] != -1 and owners[offset] not in aborted_firsts)
    ]
    # A broker starts with the batch that holds the offset, and lists aborts that reach it.
    relevant = tuple(
        each
        for each in aborted
        if any(owners[offset] == each[1] for offset in range(start, len(owners)))
    )
    found, _ = visible_records(*fetched(*batches[start:stable], aborted=relevant), start)
    assert [record.offset for record in found] == expected
