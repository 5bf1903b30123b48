"""Validation of produced batches, and their append to the log.

The whole path costs per batch, not per record. Records are decoded only where a rule needs it: keys
of a compacted topic, and timestamps of a batch whose first record has none.
"""

from __future__ import annotations

from dragoman.broker.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    NotLeader,
    UnsupportedFormat,
)
from dragoman.checksum import crc32c
from dragoman.config.overrides import TopicConfig
from dragoman.errors import BrokerError, DecodeError, OversizedBatchError
from dragoman.limits import BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BATCH_RECORDS_MAX
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
    iterate_records,
    records,
    stamp_append_time,
    stamp_max_timestamp,
)
from dragoman.log.compression import Codec, codec_by_name
from dragoman.log.expansion import expanded_bytes_max, is_oversized
from dragoman.log.partition import Appended
from dragoman.log.producer import OutOfOrderSequenceError
from dragoman.replication.replica import Replica, not_leader

_make_header = BatchHeader._make
_unpack_header = HEADER.unpack_from


def check_produced(batch: memoryview | None) -> BatchHeader:
    """The header of a produced batch; a producer may send one batch per partition at a time."""
    if batch is None or len(batch) < BATCH_HEADER_BYTES:
        raise _not_a_batch(batch)
    fields = _unpack_header(batch)
    _, length, _, magic, crc, attributes, last_delta, _, _, producer_id, epoch, sequence, count = (
        fields
    )
    if magic != MAGIC or length + LENGTH_PREFIX_BYTES != len(batch):
        raise _wrong_shape(batch, magic, length)
    if crc32c(batch[UNCHECKED_PREFIX_BYTES:]) != crc:
        raise CorruptMessage("batch fails its CRC")
    if count != last_delta + 1 or count <= 0:
        raise InvalidRecord(f"{count} records but last offset delta {last_delta}")
    if attributes & CONTROL:
        raise InvalidRecord("a producer may not write control batches")
    if producer_id != NO_PRODUCER and (producer_id < 0 or epoch < 0 or sequence < 0):
        raise InvalidRecord(
            f"producer id {producer_id} with epoch {epoch} and sequence {sequence}; "
            "none may be negative"
        )
    return _make_header(fields)


def _not_a_batch(batch: memoryview | None) -> BrokerError:
    if batch is not None and len(batch) > 16 and batch[16] in (0, 1):
        return UnsupportedFormat(f"magic {batch[16]} is not supported, only {MAGIC}")
    return CorruptMessage(f"{len(batch) if batch else 0} bytes are not a record batch")


def _wrong_shape(batch: memoryview, magic: int, length: int) -> BrokerError:
    if magic in (0, 1):
        return UnsupportedFormat(f"magic {magic} is not supported, only {MAGIC}")
    if magic != MAGIC:
        return CorruptMessage(f"magic {magic} is unknown")
    if BATCH_HEADER_BYTES <= length + LENGTH_PREFIX_BYTES < len(batch):
        return InvalidRecord("a producer may send one batch to a partition at a time")
    return CorruptMessage(f"batch length {length} in {len(batch)} bytes")


def place(replica: Replica, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
    """Append a checked batch under the topic's rules. Raises `BrokerError` or `LogError`.

    `batch` is the producer's own buffer; the log keeps it and writes offsets into it.
    """
    check_led(replica)
    if header.attributes & CODEC_MASK or header.record_count > BATCH_RECORDS_MAX:
        check_expansion(replica, batch, header)
    if not is_ordinary(replica.config, batch, header, now_ms):
        batch, header = as_configured(replica, batch, header, now_ms)
        check_rules(replica, batch, header, now_ms)
    return append_fitted(replica, batch, header)


def is_ordinary(config: TopicConfig, batch: memoryview, header: BatchHeader, now_ms: int) -> bool:
    """Whether `as_configured` and `check_rules` would neither change nor refuse a batch. Most
    batches are found ordinary by a few comparisons.
    """
    return (
        config.takes_batches_as_they_are
        and len(batch) <= config.max_message_bytes
        and len(batch) <= BATCH_BYTES_MAX
        and header.base_timestamp != NO_TIMESTAMP
        and now_ms - config.message_timestamp_before_max_ms <= header.base_timestamp
        and header.max_timestamp <= now_ms + config.message_timestamp_after_max_ms
    )


def check_expansion(replica: Replica, batch: memoryview, header: BatchHeader) -> None:
    """Raises `MessageTooLarge` for a batch that readers of records could not expand.

    Hardly any batch is expanded for that: most compressed data has its size (`log/expansion.py`).
    """
    if header.record_count > BATCH_RECORDS_MAX:
        raise MessageTooLarge(
            f"{replica.log.describe()}: batch of {header.record_count} records; "
            f"at most {BATCH_RECORDS_MAX}"
        )
    bytes_max = expanded_bytes_max(replica.config.max_message_bytes)
    if is_oversized(header.attributes & CODEC_MASK, batch[BATCH_HEADER_BYTES:], bytes_max):
        raise MessageTooLarge(
            f"{replica.log.describe()}: batch expands to more than {bytes_max} bytes"
        )


def append_fitted(replica: Replica, batch: memoryview, header: BatchHeader) -> Appended:
    """Append a batch that satisfies the topic's rules. Raises `NotLeader` or `LogError`."""
    try:
        return replica.log.append(batch, header, replica.metadata.leader_epoch)
    except OutOfOrderSequenceError as error:
        who = (header.producer_id, header.producer_epoch, header.base_sequence)
        if replica.role is None or replica.role.is_sure(who):
            raise
        # The missing batch may be at a newer leader, if there is one. The producer retries.
        raise NotLeader(f"{error}; whether this node still leads is not known yet") from None


def check_led(replica: Replica) -> None:
    """Raises `NotLeader` if the leadership has ended since the look-up. Records appended to a
    follower would carry the leader's epoch and could not be recognised as foreign.
    """
    if not replica.is_led:
        raise not_leader(replica.metadata)


def as_configured(
    replica: Replica, batch: memoryview, header: BatchHeader, now_ms: int
) -> tuple[memoryview, BatchHeader]:
    """The batch with the codec and the type of timestamps that the topic's configuration
    requires.
    """
    config = replica.config
    if config.compression_type != "producer":
        codec = codec_by_name(config.compression_type)
        bytes_max = expanded_bytes_max(config.max_message_bytes)
        batch, header = _recompressed(batch, header, codec, bytes_max)
    if config.message_timestamp_type == "LogAppendTime":
        stamp_append_time(batch, now_ms)
        header = _make_header(_unpack_header(batch))
    elif header.base_timestamp == NO_TIMESTAMP and 0 >= header.max_timestamp != NO_TIMESTAMP:
        # librdkafka sends a maximum of 0 for records without a timestamp, which would count as
        # 1970. Records are not decoded: few bytes may expand to millions.
        stamp_max_timestamp(batch, NO_TIMESTAMP)
        header = _make_header(_unpack_header(batch))
    return batch, header


def check_rules(replica: Replica, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
    """Raises `BrokerError` for a batch that the topic's configuration does not allow."""
    config = replica.config
    if len(batch) > config.max_message_bytes or len(batch) > BATCH_BYTES_MAX:
        raise MessageTooLarge(
            f"{replica.log.describe()}: batch of {len(batch)} bytes, "
            f"max.message.bytes is {min(config.max_message_bytes, BATCH_BYTES_MAX)}"
        )
    if config.is_compacted:
        _require_keys(batch, header, expanded_bytes_max(config.max_message_bytes))
    if config.message_timestamp_type != "LogAppendTime" and header.max_timestamp != NO_TIMESTAMP:
        _check_time(replica, header, now_ms)


def _recompressed(
    batch: memoryview, header: BatchHeader, codec: Codec, bytes_max: int
) -> tuple[memoryview, BatchHeader]:
    """The batch with its records compressed by the topic's own `compression.type`."""
    if header.attributes & CODEC_MASK == codec:
        return batch, header
    try:
        plain = records(batch, header, bytes_max)
    except OversizedBatchError as error:
        raise MessageTooLarge(str(error)) from None
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


def _require_keys(batch: memoryview, header: BatchHeader, bytes_max: int) -> None:
    try:
        missing = tuple(
            index
            for index, record in enumerate(iterate_records(batch, header, bytes_max))
            if record.key is None
        )
    except OversizedBatchError as error:
        raise MessageTooLarge(str(error)) from None
    except DecodeError as error:
        raise CorruptMessage(str(error)) from None
    if missing:
        raise InvalidRecord("records of a compacted topic need a key", missing)


def _check_time(replica: Replica, header: BatchHeader, now_ms: int) -> None:
    config = replica.config
    last = header.max_timestamp
    first = header.base_timestamp
    if first == NO_TIMESTAMP:
        # A record without a timestamp is within any bounds; others in the same batch may not be.
        if last <= 0:
            return
        first = last
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    if last > latest or first < earliest:
        raise InvalidTimestamp(
            f"{replica.log.describe()}: timestamps {first} to {last} are outside "
            f"{earliest} to {latest}"
        )
