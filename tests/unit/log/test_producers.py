"""The rules for producers on one partition, one behaviour per test.

Goal: every row of the table in `dragoman.log.producer_states`, the transaction index, the bounds
and the snapshot format, each by a small example; combinations are left to the property test.
"""

from __future__ import annotations

import gc
import struct
import sys

import pytest
from crc32c import crc32c

from dragoman.errors import CorruptionError, FormatError
from dragoman.log import producer_states as states_module
from dragoman.log.isolation import AbortedTransaction
from dragoman.log.producer import (
    ACCEPT,
    CoordinatorFencedError,
    Duplicate,
    DuplicateSequenceError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    TooManyAbortedError,
    TooManyProducersError,
    TransactionExpectedError,
)
from dragoman.log.producer_file import load_snapshot, take_snapshot
from dragoman.log.producer_states import ProducerStates

LAST_SEQUENCE = (1 << 31) - 1


def with_batches(count: int, records: int = 1) -> ProducerStates:
    """Producer 7, epoch 3, `count` batches from offset and sequence 0; timestamps 1000, 1001, …"""
    states = ProducerStates()
    for index in range(count):
        states.append(7, 3, index * records, records, index * records, 1000 + index, 50)
    return states


# ---- sequences


def test_new_producer_starts_at_sequence_zero() -> None:
    assert ProducerStates().check(7, 0, 0, 5) is ACCEPT


def test_new_producer_in_the_middle_is_out_of_order() -> None:
    with pytest.raises(OutOfOrderSequenceError, match="expected sequence 0, got 4"):
        ProducerStates().check(7, 0, 4, 1)


def test_new_producer_may_begin_with_any_epoch() -> None:
    assert ProducerStates().check(7, 12, 0, 1) is ACCEPT


def test_unknown_producer_may_start_anywhere_when_its_state_may_be_lost() -> None:
    states = ProducerStates()
    states.state_lost(producer_ids_below=8)
    assert states.check(7, 0, 41, 1) is ACCEPT
    with pytest.raises(OutOfOrderSequenceError):
        states.check(8, 0, 41, 1)


def test_batches_pipelined_before_any_is_durable_follow_each_other() -> None:
    states = ProducerStates()
    for index in range(5):
        assert states.check(7, 0, index * 3, 3) is ACCEPT
        states.append(7, 0, index * 3, 3, index * 3, 0, 0)
    assert states.check(7, 0, 15, 3) is ACCEPT


def test_gap_is_out_of_order() -> None:
    with pytest.raises(OutOfOrderSequenceError, match="expected sequence 2, got 3"):
        with_batches(2).check(7, 3, 3, 1)


@pytest.mark.parametrize("index", range(3, 8))
def test_repeat_of_one_of_the_last_five_returns_original_offset_and_timestamp(index: int) -> None:
    states = with_batches(8, records=10)
    assert states.check(7, 3, index * 10, 10) == Duplicate(index * 10, 1000 + index)


def test_repeat_older_than_five_batches_is_a_duplicate_without_offset() -> None:
    states = with_batches(8, records=10)
    with pytest.raises(DuplicateSequenceError, match="remembered from sequence 30"):
        states.check(7, 3, 20, 10)


def test_batch_that_overlaps_the_window_is_out_of_order() -> None:
    states = with_batches(8, records=10)
    with pytest.raises(OutOfOrderSequenceError):
        states.check(7, 3, 25, 10)


def test_part_of_a_remembered_batch_is_out_of_order() -> None:
    states = with_batches(3, records=10)
    with pytest.raises(OutOfOrderSequenceError):
        states.check(7, 3, 10, 5)


def test_records_before_a_lenient_start_are_never_called_duplicates() -> None:
    """Clients take a duplicate for success, and these may never have been written."""
    states = ProducerStates()
    states.state_lost(producer_ids_below=8)
    for index in range(6):
        states.append(7, 0, 100 + index, 1, index, 0, 0)
    with pytest.raises(DuplicateSequenceError):
        states.check(7, 0, 100, 1)
    with pytest.raises(OutOfOrderSequenceError):
        states.check(7, 0, 99, 1)


def test_sequence_wraps_from_the_last_number_to_zero() -> None:
    states = ProducerStates()
    states.state_lost(producer_ids_below=8)
    states.append(7, 0, LAST_SEQUENCE, 1, 0, 0, 0)
    assert states.check(7, 0, 0, 1) is ACCEPT
    with pytest.raises(OutOfOrderSequenceError):
        states.check(7, 0, 1, 1)


def test_batch_across_the_wrap_is_followed_and_recognised() -> None:
    states = ProducerStates()
    states.state_lost(producer_ids_below=8)
    states.append(7, 0, LAST_SEQUENCE - 1, 5, 0, 44, 0)
    assert states.check(7, 0, LAST_SEQUENCE - 1, 5) == Duplicate(0, 44)
    assert states.check(7, 0, 3, 1) is ACCEPT


def test_lower_epoch_is_refused() -> None:
    with pytest.raises(InvalidProducerEpochError, match="epoch is 3, got 2"):
        with_batches(1).check(7, 2, 1, 1)


def test_higher_epoch_restarts_at_zero() -> None:
    states = with_batches(2)
    assert states.check(7, 4, 0, 1) is ACCEPT
    with pytest.raises(OutOfOrderSequenceError):
        states.check(7, 4, 2, 1)


def test_higher_epoch_forgets_the_batches_of_the_lower() -> None:
    states = with_batches(2)
    states.append(7, 4, 0, 1, 2, 0, 0)
    assert states.check(7, 4, 1, 1) is ACCEPT
    assert states.check(7, 4, 0, 1) == Duplicate(2, 0)


@pytest.mark.parametrize(
    ("epoch", "sequence", "count", "error"),
    [
        (-1, 0, 1, InvalidProducerEpochError),
        (3, -1, 1, OutOfOrderSequenceError),
        (3, 1, 0, OutOfOrderSequenceError),
    ],
)
def test_numbers_no_producer_has_are_refused(
    epoch: int, sequence: int, count: int, error: type[Exception]
) -> None:
    for states in (ProducerStates(), with_batches(1)):
        with pytest.raises(error):
            states.check(7, epoch, sequence, count)


def test_refusal_changes_nothing() -> None:
    states = with_batches(2)
    before = take_snapshot(states, 2)
    for epoch, sequence in ((2, 0), (3, 9), (4, 9)):
        with pytest.raises((InvalidProducerEpochError, OutOfOrderSequenceError)):
            states.check(7, epoch, sequence, 1)
    assert take_snapshot(states, 2) == before


# ---- transactions


def test_first_open_offset_is_the_earliest_transaction_still_open() -> None:
    states = ProducerStates()
    assert states.first_open_offset() is None
    states.append(1, 0, 0, 1, 10, 0, 0, True)
    states.append(2, 0, 0, 1, 11, 0, 0, True)
    states.append(1, 0, 1, 1, 12, 0, 0, True)
    assert states.first_open_offset() == 10
    states.complete_transaction(1, 0, 13, True, 0)
    assert states.first_open_offset() == 11
    states.complete_transaction(2, 0, 14, True, 0)
    assert states.first_open_offset() is None


def test_transaction_is_unstable_until_its_marker_is_settled() -> None:
    states = ProducerStates()
    states.append(1, 0, 0, 1, 10, 0, 0, True)
    states.complete_transaction(1, 0, 11, True, 0)
    assert states.first_unstable_offset() == 10
    states.settle(11)
    assert states.first_unstable_offset() == 10
    states.settle(12)
    assert states.first_unstable_offset() is None


def test_unstable_offset_covers_open_and_unsettled_transactions() -> None:
    states = ProducerStates()
    states.append(1, 0, 0, 1, 10, 0, 0, True)
    states.append(2, 0, 0, 1, 11, 0, 0, True)
    states.complete_transaction(2, 0, 12, True, 0)
    assert states.first_unstable_offset() == 10
    states.complete_transaction(1, 0, 13, False, 0)
    states.append(3, 0, 0, 1, 14, 0, 0, True)
    assert states.first_unstable_offset() == 10
    states.settle(14)
    assert states.first_unstable_offset() == 14


def test_aborted_transaction_is_indexed_with_the_stable_offset_of_that_moment() -> None:
    states = ProducerStates()
    states.append(1, 0, 0, 1, 10, 0, 0, True)
    states.append(2, 0, 0, 1, 11, 0, 0, True)
    assert states.complete_transaction(2, 0, 12, False, 0) == AbortedTransaction(2, 11, 12, 10)
    assert states.complete_transaction(1, 0, 13, False, 0) == AbortedTransaction(1, 10, 13, 14)


def test_committed_transaction_is_not_indexed() -> None:
    states = ProducerStates()
    states.append(1, 0, 0, 1, 10, 0, 0, True)
    assert states.complete_transaction(1, 0, 11, True, 0) is None
    assert states.aborted() == []


def test_aborted_between_is_ordered_by_first_offset_and_cut_to_the_range() -> None:
    states = ProducerStates()
    states.append(1, 0, 0, 1, 10, 0, 0, True)
    states.append(2, 0, 0, 1, 11, 0, 0, True)
    states.complete_transaction(2, 0, 12, False, 0)
    states.complete_transaction(1, 0, 13, False, 0)
    states.append(3, 0, 0, 1, 14, 0, 0, True)
    states.complete_transaction(3, 0, 15, False, 0)

    def producers(start: int, end: int) -> list[int]:
        return [each.producer_id for each in states.aborted_between(start, end)]

    assert producers(0, 100) == [1, 2, 3]
    assert producers(13, 14) == [1]
    assert producers(0, 11) == [1]
    assert producers(14, 15) == [3]
    assert producers(16, 100) == []
    assert producers(0, 10) == []


def test_log_start_drops_what_ended_below_it() -> None:
    states = ProducerStates()
    for producer_id in (1, 2):
        states.append(producer_id, 0, 0, 1, producer_id * 10, 0, 0, True)
        states.complete_transaction(producer_id, 0, producer_id * 10 + 1, False, 0)
    states.drop_below(21)
    assert [each.producer_id for each in states.aborted()] == [2]


def test_marker_with_a_higher_epoch_fences_what_came_before_it() -> None:
    states = ProducerStates()
    states.append(1, 5, 0, 1, 10, 0, 0, True)
    states.complete_transaction(1, 6, 11, True, 0)
    with pytest.raises(InvalidProducerEpochError):
        states.check(1, 5, 1, 1, True)
    assert states.check(1, 6, 0, 1, True) is ACCEPT


def test_marker_with_the_same_epoch_lets_the_sequence_go_on() -> None:
    states = ProducerStates()
    states.append(1, 5, 0, 3, 10, 0, 0, True)
    states.complete_transaction(1, 5, 13, True, 0)
    assert states.check(1, 5, 3, 1, True) is ACCEPT
    assert states.check(1, 5, 0, 3, True) == Duplicate(10, 0)


def test_marker_on_a_partition_never_written_leaves_the_sequence_at_zero() -> None:
    states = ProducerStates()
    assert states.complete_transaction(1, 5, 0, False, 0) is None
    assert states.check(1, 5, 0, 1, True) is ACCEPT
    with pytest.raises(OutOfOrderSequenceError):
        states.check(1, 5, 1, 1, True)


def test_marker_of_a_forgotten_producer_leaves_its_sequence_open() -> None:
    states = ProducerStates()
    states.state_lost(producer_ids_below=2)
    states.complete_transaction(1, 5, 0, False, 0)
    assert states.check(1, 5, 77, 1, True) is ACCEPT
    states.append(1, 5, 77, 1, 1, 0, 0, True)
    with pytest.raises(OutOfOrderSequenceError):
        states.check(1, 5, 79, 1, True)


def test_marker_with_a_lower_epoch_is_refused() -> None:
    with pytest.raises(InvalidProducerEpochError):
        with_batches(1).check_marker(7, 2)


def test_marker_of_a_replaced_coordinator_is_refused() -> None:
    states = ProducerStates()
    states.complete_transaction(1, 0, 0, True, 0, coordinator_epoch=4)
    states.check_marker(1, 0, coordinator_epoch=4)
    with pytest.raises(CoordinatorFencedError, match="coordinator epoch is 4, got 3"):
        states.check_marker(1, 0, coordinator_epoch=3)


def test_plain_batch_inside_an_open_transaction_is_refused() -> None:
    states = ProducerStates()
    states.append(1, 0, 0, 1, 0, 0, 0, True)
    with pytest.raises(TransactionExpectedError):
        states.check(1, 0, 1, 1, False)


def test_open_transaction_is_known_by_producer_and_epoch() -> None:
    states = ProducerStates()
    assert not states.has_open_transaction(1, 0)
    states.append(1, 0, 0, 1, 0, 0, 0, True)
    assert states.has_open_transaction(1, 0)
    assert not states.has_open_transaction(1, 1)
    states.complete_transaction(1, 0, 1, True, 0)
    assert not states.has_open_transaction(1, 0)


# ---- truncation


def test_truncation_takes_back_batches_epochs_and_producers() -> None:
    states = with_batches(2)
    before = take_snapshot(states, 2)
    for index in range(8):
        states.append(7, 3, 2 + index, 1, 2 + index, 0, 0)
    states.append(7, 4, 0, 1, 10, 0, 0)
    states.append(8, 0, 0, 1, 11, 0, 0)
    assert states.truncate(2)
    assert take_snapshot(states, 2) == before


def test_truncation_opens_a_transaction_again_whose_marker_goes() -> None:
    states = ProducerStates()
    states.append(1, 0, 0, 1, 0, 0, 0, True)
    states.append(2, 0, 0, 1, 1, 0, 0, True)
    states.complete_transaction(1, 0, 2, False, 0)
    assert states.truncate(2)
    assert states.first_open_offset() == 0
    assert states.aborted() == []
    assert states.has_open_transaction(1, 0)


def test_truncation_closes_a_transaction_that_began_above() -> None:
    states = ProducerStates()
    states.append(1, 0, 0, 1, 0, 0, 0)
    states.append(1, 0, 1, 1, 1, 0, 0, True)
    assert states.truncate(1)
    assert states.first_open_offset() is None
    assert states.check(1, 0, 1, 1) is ACCEPT


def test_truncation_below_the_settled_offset_asks_for_a_rebuild() -> None:
    states = with_batches(4)
    states.settle(3)
    before = take_snapshot(states, 4)
    assert not states.truncate(2)
    assert take_snapshot(states, 4) == before
    assert states.truncate(3)


def test_undo_list_is_bounded_and_truncation_says_when_it_is_too_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states_module, "PRODUCER_UNDO_MAX", 8)
    states = with_batches(100)
    assert not states.truncate(50)
    assert states.truncate(98)
    assert states.check(7, 3, 98, 1) is ACCEPT


# ---- forgetting


def test_idle_producers_expire_and_may_come_back_anywhere() -> None:
    states = with_batches(3)
    states.settle(3)
    assert states.expire(now_ms=150, idle_max_ms=100) == 0
    assert states.expire(now_ms=151, idle_max_ms=100) == 1
    assert len(states) == 0
    assert states.check(7, 3, 3, 1) is ACCEPT


def test_open_transaction_keeps_its_producer() -> None:
    states = ProducerStates()
    states.append(1, 0, 0, 1, 0, 0, 0, True)
    states.settle(1)
    assert states.expire(now_ms=10_000, idle_max_ms=1) == 0


def test_full_table_forgets_the_longest_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states_module, "PRODUCERS_PER_PARTITION_MAX", 3)
    states = ProducerStates()
    for producer_id, active in ((1, 30), (2, 10), (3, 20)):
        states.append(producer_id, 0, 0, 1, producer_id, 0, active)
    assert states.check(4, 0, 0, 1) is ACCEPT
    states.append(4, 0, 0, 1, 4, 0, 40)
    assert sorted(each.producer_id for each in states.describe()) == [1, 3, 4]


def test_table_full_of_open_transactions_refuses_new_producers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states_module, "PRODUCERS_PER_PARTITION_MAX", 2)
    states = ProducerStates()
    for producer_id in (1, 2):
        states.append(producer_id, 0, 0, 1, producer_id, 0, 0, True)
    with pytest.raises(TooManyProducersError):
        states.check(3, 0, 0, 1)
    assert states.check(1, 0, 1, 1, True) is ACCEPT


def test_full_index_of_aborted_transactions_refuses_to_open_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states_module, "ABORTED_PER_PARTITION_MAX", 1)
    states = ProducerStates()
    states.append(1, 0, 0, 1, 0, 0, 0, True)
    states.complete_transaction(1, 0, 1, False, 0)
    with pytest.raises(TooManyAbortedError):
        states.check(1, 0, 1, 1, True)
    assert states.check(1, 0, 1, 1, False) is ACCEPT
    states.drop_below(2)
    assert states.check(1, 0, 1, 1, True) is ACCEPT


def test_empty_partitions_share_everything() -> None:
    gc.collect()
    assert sys.getsizeof(ProducerStates()) <= 128
    first, second = ProducerStates(), ProducerStates()
    first.append(1, 0, 0, 1, 0, 0, 0, True)
    first.complete_transaction(1, 0, 1, False, 0)
    assert len(second) == 0
    assert second.first_unstable_offset() is None
    assert second.aborted_between(0, 100) == []
    assert second.truncate(0)


def test_description_shows_what_operators_ask_for() -> None:
    states = with_batches(2)
    states.append(7, 3, 2, 1, 2, 1234, 0, True)
    states.complete_transaction(9, 1, 3, True, 0, coordinator_epoch=6)
    seven, nine = states.describe()
    assert (seven.producer_id, seven.epoch, seven.last_sequence) == (7, 3, 2)
    assert (seven.last_timestamp, seven.open_offset, seven.coordinator_epoch) == (1234, 2, -1)
    assert (nine.producer_id, nine.last_sequence, nine.coordinator_epoch) == (9, -1, 6)


# ---- snapshots


def busy() -> ProducerStates:
    states = with_batches(7, records=2)
    states.append(1, 0, 0, 1, 20, 5, 60, True)
    states.append(2, 0, 0, 1, 21, 5, 60, True)
    states.complete_transaction(2, 1, 22, False, 61, coordinator_epoch=3)
    states.state_lost(2)
    return states


def test_snapshot_returns_the_same_state_and_its_offset() -> None:
    states = busy()
    loaded, offset = load_snapshot(take_snapshot(states, 23), "here")
    assert offset == 23
    assert loaded.describe() == states.describe()
    assert loaded.aborted() == states.aborted()
    assert loaded.first_open_offset() == 20
    assert loaded.check(7, 3, 12, 2) == Duplicate(12, 1006)
    assert loaded.check(7, 3, 14, 1) is ACCEPT
    assert loaded.truncate(23)
    assert not loaded.truncate(22)


def test_snapshot_of_nothing() -> None:
    loaded, offset = load_snapshot(take_snapshot(ProducerStates(), 5), "here")
    assert (len(loaded), offset) == (0, 5)
    loaded.append(1, 0, 0, 1, 5, 0, 0)
    assert len(ProducerStates()) == 0


def test_snapshot_with_any_byte_flipped_is_refused() -> None:
    data = bytearray(take_snapshot(busy(), 23))
    for position in range(len(data)):
        if position in (6, 7):  # reserved bytes
            continue
        data[position] ^= 0x40
        with pytest.raises((CorruptionError, FormatError)):
            load_snapshot(data, "here")
        data[position] ^= 0x40


def test_snapshot_cut_anywhere_is_refused() -> None:
    data = take_snapshot(busy(), 23)
    for length in range(len(data)):
        with pytest.raises(CorruptionError, match="here"):
            load_snapshot(data[:length], "here")


def test_snapshot_from_the_future_is_refused_by_version() -> None:
    data = bytearray(take_snapshot(busy(), 23))
    struct.pack_into("<H", data, 4, 2)
    with pytest.raises(FormatError, match="version 2"):
        load_snapshot(data, "here")


@pytest.mark.parametrize(
    ("position", "format_", "value", "reason"),
    [
        (28, "<I", 1 << 31, "too many"),
        (32, "<I", 1 << 31, "too many"),
        (28, "<I", 4, "ends inside|claims|aborted"),
        (32, "<I", 2, "expected 2 aborted"),
        (46, "<B", 6, "claims 6 batches"),
    ],
)
def test_counts_that_do_not_fit_are_refused_even_with_a_right_checksum(
    position: int, format_: str, value: int, reason: str
) -> None:
    data = bytearray(take_snapshot(busy(), 23))
    struct.pack_into(format_, data, position, value)
    struct.pack_into("<I", data, 8, crc32c(bytes(data[12:])))
    with pytest.raises(CorruptionError, match=reason):
        load_snapshot(data, "here")
