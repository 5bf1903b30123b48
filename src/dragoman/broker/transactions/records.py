"""Transactions as records of the internal topic `__transaction_state`.

    key    version u8 = 1, transactional id in UTF-8
    value  version u8 = 1, one MessagePack array:
           state code, producer id, epoch, [previous producer id, previous epoch] or nil,
           next producer id, timeout ms, started ms, updated ms,
           [[topic, [partition, …]], …], [group, …]

The topic is compacted, so a value is always the whole state, and no value removes the id. Names and
numbers are sorted: the same state is always the same bytes. A later version may append elements to
the array; a reader of this version ignores them. Anything else needs a new version byte.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Final

import msgspec

from dragoman.broker.transactions.ports import StateRecord
from dragoman.broker.transactions.state import (
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)
from dragoman.errors import MALFORMED, CorruptionError, FormatError
from dragoman.types import Partition, TopicName

TOPIC: Final = "__transaction_state"
VERSION: Final = 1

_PREFIX = bytes([VERSION])

#: Codes on disk; never renumbered. States that are only passed through have none.
_CODES: dict[TransactionState, int] = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
}
_STATES = {code: state for state, code in _CODES.items()}


class _Value(msgspec.Struct, array_like=True, frozen=True):
    state_code: int
    producer_id: int
    epoch: int
    previous: tuple[int, int] | None
    next_producer_id: int
    timeout_ms: int
    started_ms: int
    updated_ms: int
    topics: list[tuple[str, list[int]]]
    groups: list[str]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Value)


def to_record(transaction: Transaction) -> StateRecord:
    value = _PREFIX + _encoder.encode(_value_of(transaction))
    return StateRecord(
        transaction.transactional_id, encode_key(transaction.transactional_id), value
    )


def tombstone(transactional_id: str) -> StateRecord:
    return StateRecord(transactional_id, encode_key(transactional_id), None)


def encode_key(transactional_id: str) -> bytes:
    return _PREFIX + transactional_id.encode()


def decode_key(key: bytes) -> str:
    """Raises `FormatError` for a version from the future, `CorruptionError` for other bytes."""
    _check_version(key, "key")
    try:
        return key[1:].decode()
    except UnicodeDecodeError as error:
        raise CorruptionError(TOPIC, 1, f"key is not UTF-8: {error}") from error


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    """Raises like `decode_key`."""
    _check_version(value, "value")
    try:
        stored = _decoder.decode(memoryview(value)[1:])
    except MALFORMED as error:
        raise CorruptionError(TOPIC, 1, f"value of {transactional_id}: {error}") from error
    state = _STATES.get(stored.state_code)
    if state is None:
        raise CorruptionError(TOPIC, 1, f"{transactional_id}: state code {stored.state_code}")
    return Transaction(
        transactional_id=transactional_id,
        state=state,
        identity=ProducerIdentity(stored.producer_id, stored.epoch),
        previous=None if stored.previous is None else ProducerIdentity(*stored.previous),
        next_producer_id=stored.next_producer_id,
        timeout_ms=stored.timeout_ms,
        partitions=_partitions_of(stored),
        groups=frozenset(stored.groups),
        started_ms=stored.started_ms,
        updated_ms=stored.updated_ms,
    )


def _value_of(transaction: Transaction) -> _Value:
    identity, previous = transaction.identity, transaction.previous
    by_topic = groupby(sorted(transaction.partitions), key=itemgetter(0))
    return _Value(
        _CODES[transaction.state],
        identity.producer_id,
        identity.epoch,
        None if previous is None else (previous.producer_id, previous.epoch),
        transaction.next_producer_id,
        transaction.timeout_ms,
        transaction.started_ms,
        transaction.updated_ms,
        [(topic, [number for _, number in members]) for topic, members in by_topic],
        sorted(transaction.groups),
    )


def _partitions_of(stored: _Value) -> frozenset[TopicPartition]:
    return frozenset(
        (TopicName(topic), Partition(number))
        for topic, numbers in stored.topics
        for number in numbers
    )


def _check_version(data: bytes, part: str) -> None:
    if not data:
        raise CorruptionError(TOPIC, 0, f"{part} is empty")
    if data[0] != VERSION:
        raise FormatError(f"{TOPIC}: {part} has version {data[0]}, known is {VERSION}")
