"""The position of a capture: a record of the internal topic, written in one transaction with the
rows.

The position is the last committed record with the capture's name as its key. It is found by reading
backwards in growing windows. A read-committed reader stops at the last stable offset, and another
capture that was killed may have left a transaction open in the same partition. So the records after
that offset are read, too; a record counts if the commit marker of its transaction follows. This is
exact because this capture's own transactions have ended before (`TransactionalProducer`).

Before a capture resumes from its position, it checks that the database is the same one and still
has everything that was captured. Otherwise changes would be lost silently, or topics would keep
rows that the database never had. So each mismatch is an error that needs an operator.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from dragoman.broker.directory import coordinator_partition
from dragoman.captures.definition import POSITIONS_TOPIC, Definition
from dragoman.cdc.source.connection import SourceError
from dragoman.cdc.source.replication import System
from dragoman.errors import CdcError, DecodeError
from dragoman.limits import CAPTURE_POSITION_WINDOW
from dragoman.log.batch import BatchHeader, batches, read_marker, records
from dragoman.log.isolation import visible_records
from dragoman.protocols.kafka.client.client import KafkaClient
from dragoman.protocols.kafka.client.values import (
    EARLIEST,
    LATEST,
    FetchFrom,
    Isolation,
    TopicPartition,
)
from dragoman.protocols.postgres.codec import format_lsn

#: The progress of the snapshots, encoded by `cdc/snapshot/state.py`.
Progress: TypeAlias = dict[str, object]


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The durable position. Older releases ignore unknown fields, so no field may change its
    meaning.
    """

    #: Everything that the database committed before this LSN is in the topics. An integer, so that
    #: positions can be compared.
    lsn: int
    #: The incarnation of the capture, the identifier of the database system, and the slot.
    incarnation: str = ""
    system: str = ""
    slot: str = ""
    #: The timeline of the WAL, which changes when a standby is promoted; 0: unknown.
    timeline: int = 0
    #: Commit time of the last captured transaction.
    time_us: int = 0
    snapshot: Progress = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Position).decode


def encode_position(position: Position) -> bytes:
    return _encode(position)


async def positions_partition(client: KafkaClient, name: str) -> TopicPartition:
    """The partition that holds the position of a capture. Creates the topic if it does not
    exist.
    """
    topic = await client.topic(POSITIONS_TOPIC, auto_create=True)
    return TopicPartition(POSITIONS_TOPIC, coordinator_partition(name, len(topic.partitions)))


async def last_position(client: KafkaClient, where: TopicPartition, name: str) -> Position | None:
    """The capture's position; None if it has none. Raises `CdcError` if it cannot be decoded."""
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
            f"the position of capture {name} in {where} cannot be decoded; if a newer release has"
            f" written it, upgrade ({error})"
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
    """The value of the last committed record with this key after the last stable offset, where
    transaction markers determine which records are committed.
    """
    committed: bytes | None = None
    #: By producer id, the value that the open transaction would commit.
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


# ---- checks against the database


def check_system(definition: Definition, position: Position, system: System) -> None:
    """Check the identifier of the database system and the end of its WAL. Raises `SourceError`."""
    if position.system and position.system != system.identifier:
        raise SourceError(
            f"this is another database: its system identifier is {system.identifier}, the capture"
            f" began with {position.system}",
            f"correct the DSN; or {_add_again(definition)}, with a new snapshot",
        )
    if position.lsn > system.lsn:
        raise SourceError(
            f"the WAL of the database ends at {format_lsn(system.lsn)}, before the captured"
            f" position {format_lsn(position.lsn)}: it was restored from a backup, or a standby"
            " that lacks changes was promoted",
            f"{_add_again(definition)}: a new snapshot corrects the topics",
        )


def check_timeline(definition: Definition, position: Position, end: int | None) -> None:
    """Check that a promoted standby has everything that was captured. `end` is where its WAL left
    the position's timeline, if known. Raises `SourceError`.
    """
    if end is not None and position.lsn > end:
        raise SourceError(
            f"a standby was promoted that lacks captured changes: it has those up to"
            f" {format_lsn(end)}, the capture those up to {format_lsn(position.lsn)}",
            f"{_add_again(definition)}: a new snapshot corrects the topics",
        )


def check_slot(definition: Definition, position: Position, confirmed: int) -> None:
    """Check that the slot reaches back to the position. Raises `SourceError`."""
    if position.slot and position.slot != definition.slot_name:
        raise SourceError(
            f"the capture began with the slot {position.slot}, not with {definition.slot_name}",
            f"{_add_again(definition)}, with a new snapshot",
        )
    if confirmed > position.lsn:
        raise SourceError(
            f"the slot {definition.slot_name} begins at {format_lsn(confirmed)}, after the captured"
            f" position {format_lsn(position.lsn)}: it was created again or advanced, and the"
            " changes in between are lost",
            f"{_add_again(definition)}: a new snapshot replaces the lost changes",
        )


def _add_again(definition: Definition) -> str:
    return f"`dragoman cdc remove {definition.name}` and add it again"
