"""How far a capture is: a record of the internal topic, written with what was captured up to there.

The last one of the capture's name that is committed counts. Finding it is a walk backwards in
windows that grow. Readers of committed records see only what lies before every open transaction,
and another capture, killed at the wrong moment, may have one open in the same partition. So what
lies behind is read too, and there a record counts once its own transaction's commit has come by.
That is exact because this capture's transactions are settled before it looks
(`TransactionalProducer`).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from dragoman.broker.placement import coordinator_partition
from dragoman.captures.definition import POSITIONS_TOPIC
from dragoman.errors import CdcError, DecodeError
from dragoman.limits import CAPTURE_POSITION_WINDOW
from dragoman.log.batch import BatchHeader, batches, read_marker, records
from dragoman.log.isolation import visible_records
from dragoman.protocols.kafka.client.facade import KafkaClient
from dragoman.protocols.kafka.client.values import (
    EARLIEST,
    LATEST,
    FetchFrom,
    Isolation,
    TopicPartition,
)

#: The progress of the snapshots, as `cdc/snapshot/state.py` writes it.
Progress: TypeAlias = dict[str, object]


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields that are not known are left alone by older releases, so none may change meaning."""

    #: Everything that was committed before this position of the database's log is in ours. As an
    #: integer: it is compared.
    lsn: int
    #: Which addition of the capture this belongs to, and which database.
    incarnation: str = ""
    system: str = ""
    slot: str = ""
    #: Of the database's log, which gets another one when a standby takes over; 0: not known.
    timeline: int = 0
    #: When what was captured last was committed; since 1970.
    time_us: int = 0
    snapshot: Progress = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Position).decode


def encode_position(position: Position) -> bytes:
    return _encode(position)


async def positions_partition(client: KafkaClient, name: str) -> TopicPartition:
    """Where the positions of a capture are; the topic is made if it is missing."""
    topic = await client.topic(POSITIONS_TOPIC, auto_create=True)
    return TopicPartition(POSITIONS_TOPIC, coordinator_partition(name, len(topic.partitions)))


async def last_position(client: KafkaClient, where: TopicPartition, name: str) -> Position | None:
    """Raises `CdcError` when there is one that cannot be read."""
    everything = Isolation.READ_UNCOMMITTED
    begin = (await client.list_offsets({where: EARLIEST}, isolation=everything))[where].offset
    end = (await client.list_offsets({where: LATEST}, isolation=everything))[where].offset
    stable = (await client.list_offsets({where: LATEST}))[where].offset
    key = name.encode()
    found = await _last_undecided(client, where, key, min(stable, end), end)
    size, start = CAPTURE_POSITION_WINDOW, stable
    while found is None and start > begin:
        start = max(begin, stable - size)
        found = await _last_stable(client, where, key, start, stable)
        size *= 8
    if not found:
        return None
    try:
        return _decode(found)
    except msgspec.MsgspecError as error:
        raise CdcError(
            f"the position of capture {name} in {where} was written by a release that this one does"
            f" not understand: start a newer one ({error})"
        ) from None


async def _last_stable(
    client: KafkaClient, where: TopicPartition, key: bytes, start: int, stable: int
) -> bytes | None:
    """The value of the last committed record with this key; empty for a record without one."""
    found: bytes | None = None
    position = start
    while position < stable:
        fetched = (await client.fetch({where: FetchFrom(position)}, max_wait_ms=0))[where]
        read, following = visible_records(fetched.records, fetched.aborted, position)
        for record in read:
            if record.key == key and record.offset < stable:
                found = record.value or b""
        if following == position:
            break
        position = following
    return found


async def _last_undecided(
    client: KafkaClient, where: TopicPartition, key: bytes, start: int, end: int
) -> bytes | None:
    """The same where the outcome of transactions is only told by their markers."""
    committed: bytes | None = None
    #: Producer → value that its open transaction would leave.
    open_values: dict[int, bytes] = {}
    position = start
    while position < end:
        fetched = await client.fetch(
            {where: FetchFrom(position)}, max_wait_ms=0, isolation=Isolation.READ_UNCOMMITTED
        )
        came = position
        for header, batch in batches(fetched[where].records):
            position = max(position, header.last_offset + 1)
            producer = header.producer_id
            if header.is_control:
                if producer in open_values:
                    value = open_values.pop(producer)
                    if _is_commit(batch, header):
                        committed = value
                continue
            for record in records(batch, header):
                if record.key == key and record.offset >= start:
                    open_values[producer] = record.value or b""
        if position == came:
            break
    return committed


def _is_commit(batch: memoryview, header: BatchHeader) -> bool:
    held = records(batch, header)
    try:
        return bool(held) and read_marker(held[0]).is_commit
    except DecodeError:
        return False
