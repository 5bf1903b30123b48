"""One record by its position."""

from __future__ import annotations

from dragoman.client.kafka import (
    FetchFrom,
    KafkaClient,
    OffsetRangeError,
    TopicPartition,
    VisibleBatches,
)
from dragoman.console.errors import ConsoleError
from dragoman.errors import OversizedBatchError
from dragoman.limits import CONSOLE_FETCH_PARTITION_BYTES, EXPANDED_BATCH_BYTES_MAX
from dragoman.log.batch import Record, iterate_records


class NoRecordError(ConsoleError):
    code = "record_not_found"
    status = 404


async def record_at(client: KafkaClient, topic: str, partition: int, offset: int) -> Record:
    """Raises `NoRecordError`, and what the client raises."""
    where = TopicPartition(topic, partition)
    wanted = {where: FetchFrom(offset, CONSOLE_FETCH_PARTITION_BYTES)}
    try:
        fetched = (await client.fetch(wanted, max_wait_ms=0))[where]
    except OffsetRangeError:
        raise NoRecordError(f"{where} has no offset {offset}, or not any more") from None
    for header, batch in VisibleBatches(fetched.records, fetched.aborted, offset):
        if header.base_offset > offset:
            break
        try:
            for record in iterate_records(batch, header, EXPANDED_BATCH_BYTES_MAX):
                if record.offset == offset:
                    return record
        except OversizedBatchError:
            raise NoRecordError(
                f"the batch with offset {offset} expands to more than {EXPANDED_BATCH_BYTES_MAX} "
                "bytes; read it with `dragoman consume`"
            ) from None
    raise NoRecordError(
        f"{where} has no record to read at offset {offset}: there is none yet, compaction has "
        "removed it, its transaction was aborted or is open, or it is a mark of a transaction"
    )
