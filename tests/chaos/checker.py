"""The judgement: what the log holds in the end against what clients were promised and saw.

Invariants S4, S7, S11 and S12, from outside: every acknowledged record is at the offset of its
acknowledgement, once and in the order in which it was written; no record of a producer with its own
sequence is missing; no client ever saw another record at an offset; the group has read to the end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition

from chaos.clients import GROUP, OPENLY, GroupReader, Place, Writer

_PATIENCE_S = 120.0


def read_all(
    bootstrap: str, topics: dict[str, int], security: Mapping[str, str] = OPENLY
) -> dict[Place, bytes]:
    """Everything that is committed, by a client that begins at the beginning."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "chaos-judge",
        "enable.auto.commit": False,
        "enable.partition.eof": False,
        "log_level": 0,
        **security,
    }
    consumer = Consumer(settings)
    found: dict[Place, bytes] = {}
    try:
        wanted = [TopicPartition(t, p, 0) for t, count in topics.items() for p in range(count)]
        left = {}
        for each in wanted:
            _, end = consumer.get_watermark_offsets(each, timeout=_PATIENCE_S)
            if end > 0:
                left[each.topic, each.partition] = end
        consumer.assign([each for each in wanted if (each.topic, each.partition) in left])
        deadline = time.monotonic() + _PATIENCE_S
        while left:
            assert time.monotonic() < deadline, f"cannot read to the end of {left}"
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None, message.error()
                key = (message.topic(), message.partition())
                found[Place(*key, message.offset())] = message.value()
                if message.offset() + 1 >= left.get(key, 0):
                    left.pop(key, None)
    finally:
        consumer.close()
    return found


def judge(log: dict[Place, bytes], writers: list[Writer], readers: list[GroupReader]) -> list[str]:
    """What is wrong, in words."""
    faults = []
    for writer in writers:
        for place, value in writer.acknowledged.items():
            if log.get(place) != value:
                faults.append(
                    f"{writer.name}: {value!r} was acknowledged at {place}, there is "
                    f"{log.get(place)!r}"
                )
        faults += [f"{writer.name} got a failure: {each}" for each in writer.errors]
        faults += _incomplete(log, writer) if writer.is_exact else _doubled_or_late(log, writer)
    seen: dict[Place, bytes] = {}
    for reader in readers:
        faults += [f"{reader.name} saw a record change: {each}" for each in reader.changed]
        for place, value in reader.seen.items():
            if log.get(place) != value:
                faults.append(f"{reader.name} saw {value!r} at {place}: {log.get(place)!r}")
        seen |= reader.seen
    topics = {place.topic for place in seen}
    unread = [place for place in log if place.topic in topics and place not in seen]
    if unread:
        faults.append(f"group {GROUP} has never read {len(unread)} records, such as {unread[0]}")
    return faults


def _doubled_or_late(log: dict[Place, bytes], writer: Writer) -> list[str]:
    """Of those that were acknowledged, none is there twice, nor before one written earlier."""
    promised = set(writer.acknowledged.values())
    newest: dict[tuple[str, int], int] = {}
    faults = []
    for place, value in sorted(log.items()):
        if value in promised:
            number = int(value.rpartition(b":")[2])
            before = newest.get(place[:2], -1)
            newest[place[:2]] = number
            if number <= before:
                faults.append(f"{writer.name}: {number} after {before} at {place}")
    return faults


def _incomplete(log: dict[Place, bytes], writer: Writer) -> list[str]:
    prefix = f"{writer.name}:".encode()
    found = [value for _, value in sorted(log.items()) if value.startswith(prefix)]
    expected = [prefix + str(number).encode() for number in range(writer.written)]
    if found == expected:
        return []
    where = next(
        (n for n, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]),
        min(len(found), len(expected)),
    )
    return [
        f"{writer.name}: {len(found)} records for {len(expected)} written; "
        f"from number {where} on: {found[where : where + 3]}"
    ]
