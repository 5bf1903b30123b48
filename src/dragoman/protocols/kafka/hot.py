"""Hand-written decoders where they beat the compiled ones by enough to matter: Produce requests.

They cover one shape, the one that clients send nearly always: one topic, one partition, no
transaction. Whatever is not exactly of that shape, malformed or only rare, they leave to the
compiled decoder of the same version, which also words the errors; so these need no error handling
of their own and cannot disagree with it. Tests compare the two.

A hand-written encoder of Produce responses was tried and gained too little (0.2 of 1.2 us) to keep.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from dragoman.errors import DecodeError
from dragoman.protocols.kafka.decoding import FAULTS, Decoder, rest_of_uvarint
from dragoman.protocols.kafka.messages import (
    NO_ID,
    Message,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)

_Data: TypeAlias = bytes | bytearray

#: What reading bytes of another shape as if they were of this one may raise.
_NOT_THIS_SHAPE: Final = (*FAULTS, DecodeError)


def specialise(name: str, version: int, compiled: Decoder) -> Decoder:
    """The decoder to use for a message version."""
    if name == "ProduceRequest":
        if version <= 8:
            return _produce_request_classic(compiled)
        if version <= 12:
            return _produce_request_compact(compiled)
    return compiled


def _produce_request_classic(compiled: Decoder) -> Decoder:
    """Versions 3 to 8: 14 bytes, the topic's name, 12 bytes, records."""
    # Transactional id's length, acks, timeout, topic count, length of the first name.
    unpack_head = Struct(">hhiih").unpack_from
    # Partition count, index of the first, length of its records.
    unpack_partition = Struct(">iii").unpack_from

    def decode(data: _Data, position: int) -> Message:
        try:
            null, acks, timeout_ms, topics, name_size = unpack_head(data, position)
            start = position + 14
            end = start + name_size
            partitions, index, size = unpack_partition(data, end)
            records = end + 12
            if not (
                null == -1
                and topics == partitions == 1
                and name_size >= 0 <= size
                and records + size == len(data)
            ):
                return compiled(data, position)
            name = data[start:end].decode()
        except _NOT_THIS_SHAPE:
            return compiled(data, position)
        partition = ProduceRequestPartition(index, memoryview(data)[records:])
        topic = ProduceRequestTopic(name, NO_ID, [partition])
        return ProduceRequest(None, acks, timeout_ms, [topic])

    return decode


def _produce_request_compact(compiled: Decoder) -> Decoder:
    """Versions 9 to 12: 9 bytes, the name, 6 or more bytes, records, three empty tag sections."""
    # Transactional id, acks, timeout, topic count, length of the first name; lengths are compact.
    unpack_head = Struct(">BhiBB").unpack_from
    # Partition count, index of the first, first byte of the length of its records.
    unpack_partition = Struct(">BiB").unpack_from
    no_tags = bytes(3)

    def decode(data: _Data, position: int) -> Message:
        try:
            null, acks, timeout_ms, topics, name_size = unpack_head(data, position)
            start = position + 9
            end = start + name_size - 1
            partitions, index, size = unpack_partition(data, end)
            records = end + 6
            if size > 127:
                size, records = rest_of_uvarint(data, records, size)
            after = records + size - 1
            if not (
                null == 0
                and topics == partitions == 2
                and 0 < name_size < 128
                and size
                and after + 3 == len(data)
                and data.endswith(no_tags)
            ):
                return compiled(data, position)
            name = data[start:end].decode()
        except _NOT_THIS_SHAPE:
            return compiled(data, position)
        partition = ProduceRequestPartition(index, memoryview(data)[records:after])
        topic = ProduceRequestTopic(name, NO_ID, [partition])
        return ProduceRequest(None, acks, timeout_ms, [topic])

    return decode
