"""Committed records of a topic, for assertions of tests and for their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from dragoman.broker.broker import Broker
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.net.future import settled

_STEP_BYTES, _STEP_RECORDS = 1 << 20, 1_000
_READ_AGAIN_SECONDS: Final = 0.25
#: How much a message shows.
_SHOWN_MAX: Final = 20
_SHOWN_CHARACTERS_MAX: Final = 80


class StoredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A committed record; `timestamp_ms` is -1 for none."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def encoded(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


async def records_of(broker: Broker, partition: PartitionMetadata) -> list[StoredRecord]:
    """All committed records of a partition, without those of aborted transactions."""
    (ends,) = await settled(broker.readers.all_ends([partition]))
    changed = asyncio.Event()
    reader = broker.readers.open(partition, ends.log_start_offset, changed.set)
    found: list[StoredRecord] = []
    try:
        while reader.offset < ends.last_stable_offset:
            changed.clear()
            records = reader.read(_STEP_BYTES, _STEP_RECORDS)
            found += [
                StoredRecord(
                    partition=partition.index,
                    offset=each.offset,
                    timestamp_ms=each.timestamp,
                    key=each.key,
                    value=each.value,
                    headers=each.headers,
                )
                for each in records
            ]
            if not records and reader.offset < ends.last_stable_offset:
                # They are on another node, which sends them; after a fault perhaps another one.
                reader.wait()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_READ_AGAIN_SECONDS):
                        await changed.wait()
    finally:
        reader.close()
    return found


# ---- in messages


def shown(records: Sequence[StoredRecord]) -> str:
    """A line for each record, up to a bound."""
    lines = [f"  found {len(records)}{':' if records else ''}"]
    for each in records[:_SHOWN_MAX]:
        key = "" if each.key is None else f"key {_text(each.key)}, "
        place = f"partition {each.partition}, offset {each.offset}"
        lines.append(f"    {place}: {key}{_text(each.value)}")
    if len(records) > _SHOWN_MAX:
        lines.append(f"    … and {len(records) - _SHOWN_MAX} more")
    return "\n".join(lines)


def listed(values: Iterable[bytes | None]) -> str:
    texts = [_text(each) for each in values]
    rest = len(texts) - _SHOWN_MAX
    return ", ".join(texts[:_SHOWN_MAX]) + (f" … and {rest} more" if rest > 0 else "")


def _text(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        text = repr(value.decode())
    except UnicodeDecodeError:
        text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"
