"""Checking what a producer sent and placing it in the log.

The whole path costs per batch, not per record. Records are looked into only where a rule needs it:
keys of a compacted topic, and time stamps of a batch whose latest lies outside the bounds.
"""

from __future__ import annotations

from dragoman.broker.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedFormat,
)
from dragoman.broker.replica import Replica
from dragoman.checksum import crc32c
from dragoman.errors import DecodeError
from dragoman.limits import BATCH_HEADER_BYTES
from dragoman.log.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_PRODUCER,
    NO_TIMESTAMP,
    UNCHECKED_PREFIX_BYTES,
    BatchHeader,
    build_batch,
    records,
    stamp_append_time,
)
from dragoman.log.compression import Codec, codec_by_name
from dragoman.log.partition import Appended

_make_header = BatchHeader._make
_unpack_header = HEADER.unpack_from


def check_produced(batch: memoryview | None) -> BatchHeader:
    """Header of the one batch that a producer may send to a partition at a time."""
    if batch is None or len(batch) < BATCH_HEADER_BYTES:
        if batch is not None and len(batch) > 16 and batch[16] in (0, 1):
            raise UnsupportedFormat(f"magic {batch[16]} is not supported, only {MAGIC}")
        raise CorruptMessage(f"{len(batch) if batch else 0} bytes are not a record batch")
    header = _make_header(_unpack_header(batch))
    if header.magic != MAGIC:
        if header.magic in (0, 1):
            raise UnsupportedFormat(f"magic {header.magic} is not supported, only {MAGIC}")
        raise CorruptMessage(f"magic {header.magic} is unknown")
    size = header.length + LENGTH_PREFIX_BYTES
    if size != len(batch):
        if BATCH_HEADER_BYTES <= size < len(batch):
            raise InvalidRecord("a producer may send one batch to a partition at a time")
        raise CorruptMessage(f"batch length {header.length} in {len(batch)} bytes")
    if crc32c(batch[UNCHECKED_PREFIX_BYTES:]) != header.crc:
        raise CorruptMessage("batch fails its CRC")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"{header.record_count} records but last offset delta {header.last_offset_delta}"
        )
    if header.attributes & CONTROL:
        raise InvalidRecord("a producer may not write control batches")
    if header.producer_id != NO_PRODUCER and (
        header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0
    ):
        raise InvalidRecord(
            f"producer id {header.producer_id} with epoch {header.producer_epoch} and sequence "
            f"{header.base_sequence}; none may be negative"
        )
    return header


def place(replica: Replica, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
    """Append a checked batch under the topic's rules. Raises `BrokerError` or `LogError`.

    `batch` is the producer's own buffer; the log keeps it and writes offsets into it.
    """
    config = replica.config
    if config.compression_type != "producer":
        batch, header = _recompressed(batch, header, codec_by_name(config.compression_type))
    if len(batch) > config.max_message_bytes:
        raise MessageTooLarge(
            f"{replica.log.describe()}: batch of {len(batch)} bytes, "
            f"max.message.bytes is {config.max_message_bytes}"
        )
    if config.is_compacted:
        _require_keys(batch, header)
    if config.message_timestamp_type == "LogAppendTime":
        stamp_append_time(batch, now_ms)
        header = _make_header(_unpack_header(batch))
    elif header.max_timestamp != NO_TIMESTAMP:
        _check_time(replica, header, now_ms)
    return replica.log.append(batch, header, replica.metadata.leader_epoch)


def _recompressed(
    batch: memoryview, header: BatchHeader, codec: Codec
) -> tuple[memoryview, BatchHeader]:
    """The same records under the topic's own `compression.type`."""
    if header.attributes & CODEC_MASK == codec:
        return batch, header
    try:
        plain = records(batch, header)
    except DecodeError as error:
        raise CorruptMessage(str(error)) from None
    rebuilt = build_batch(
        plain,
        codec=codec,
        attributes=header.attributes & ~CODEC_MASK,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        base_timestamp=header.base_timestamp,
    )
    return memoryview(rebuilt), _make_header(_unpack_header(rebuilt))


def _require_keys(batch: memoryview, header: BatchHeader) -> None:
    try:
        missing = tuple(
            index for index, record in enumerate(records(batch, header)) if record.key is None
        )
    except DecodeError as error:
        raise CorruptMessage(str(error)) from None
    if missing:
        raise InvalidRecord("records of a compacted topic need a key", missing)


def _check_time(replica: Replica, header: BatchHeader, now_ms: int) -> None:
    config = replica.config
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    if header.max_timestamp > latest or header.base_timestamp < earliest:
        raise InvalidTimestamp(
            f"{replica.log.describe()}: timestamps {header.base_timestamp} to "
            f"{header.max_timestamp} are outside {earliest} to {latest}"
        )
