"""The bytes of the transaction log: round trips, fixed bytes, and refusals of what is not ours."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.broker.transactions import ProducerIdentity, Transaction, TransactionState
from dragoman.broker.transactions.records import (
    decode_key,
    decode_value,
    encode_key,
    to_record,
    tombstone,
)
from dragoman.errors import CorruptionError, FormatError
from dragoman.types import Partition, TopicName

STORED = [
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
]

MEMBERS = [("b", 1), ("a", 7), ("a", 0)]


def example(state: TransactionState = TransactionState.ONGOING) -> Transaction:
    return Transaction(
        transactional_id="bänk",
        state=state,
        identity=ProducerIdentity(1 << 40, 32_767),
        previous=ProducerIdentity(9, 3),
        next_producer_id=77,
        timeout_ms=60_000,
        partitions=frozenset(
            (TopicName(topic), Partition(number))
            for topic, number in [("b", 1), ("a", 7), ("a", 0)]
        ),
        groups=frozenset({"g2", "g1"}),
        started_ms=1_700_000_000_000,
        updated_ms=1_700_000_000_001,
    )


@pytest.mark.parametrize("state", STORED)
def test_value_comes_back_unchanged(state: TransactionState) -> None:
    transaction = example(state)
    record = to_record(transaction)
    assert record.value is not None
    assert decode_key(record.key) == "bänk"
    assert decode_value("bänk", record.value) == transaction


def test_bytes_are_fixed() -> None:
    """The log outlives the program: these bytes must stay readable, and sets must be sorted."""
    record = to_record(example())
    assert record.key.hex() == "0162c3a46e6b"
    assert record.value is not None
    body = msgspec.msgpack.decode(record.value[1:])
    assert record.value[0] == 1
    assert body == [
        1,
        1 << 40,
        32_767,
        [9, 3],
        77,
        60_000,
        1_700_000_000_000,
        1_700_000_000_001,
        [["a", [0, 7]], ["b", [1]]],
        ["g1", "g2"],
    ]


def test_tombstone_has_the_key_and_no_value() -> None:
    record = tombstone("x")
    assert (record.key, record.value) == (encode_key("x"), None)


def test_elements_added_by_a_later_release_are_ignored() -> None:
    record = to_record(example())
    assert record.value is not None
    body = msgspec.msgpack.decode(record.value[1:])
    longer = bytes([1]) + msgspec.msgpack.encode([*body, "something new"])
    assert decode_value("bänk", longer) == example()


@pytest.mark.parametrize("data", [b"\x02abc", b"\x00", b"\xff"])
def test_other_versions_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="version"):
        decode_key(data)
    with pytest.raises(FormatError, match="version"):
        decode_value("x", data)


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"\x01\xc0", b"\x01\x91\x00", b"\x01\xdd\xff\xff\xff\xff"]
)
def test_bytes_that_are_no_value_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="__transaction_state"):
        decode_value("x", data)


def test_value_cut_anywhere_is_refused() -> None:
    value = to_record(example()).value
    assert value is not None
    for length in range(len(value)):
        with pytest.raises(CorruptionError):
            decode_value("x", value[:length])


def test_unknown_state_code_is_refused() -> None:
    value = to_record(example()).value
    assert value is not None
    body = msgspec.msgpack.decode(value[1:])
    body[0] = 6
    with pytest.raises(CorruptionError, match="state code 6"):
        decode_value("x", bytes([1]) + msgspec.msgpack.encode(body))


@pytest.mark.parametrize("key", [b"", b"\x01\xff\xfe"])
def test_bytes_that_are_no_key_are_refused(key: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_key(key)


@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE])
def test_states_only_passed_through_are_never_stored(state: TransactionState) -> None:
    with pytest.raises(KeyError):
        to_record(example(state))
