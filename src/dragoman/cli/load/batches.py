"""Prepares batches before anything is measured, so that sending one costs the client little.

A worker sends the prepared batches again and again. The same seed gives the same batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, cycle
from random import Random
from typing import Final, NamedTuple

from dragoman.cli.load.plan import Plan
from dragoman.client.kafka import Codec, TopicPartition, partition_for_key
from dragoman.log.batch import Record, build_batch

_BATCHES_MIN: Final = 64
_BYTES_MAX: Final = 64 << 20
#: Preparing a record takes some microseconds.
_RECORDS_MAX: Final = 200_000
_WORDS: Final = (
    b"account amount broker city country created currency customer delivered email id invoice item"
    b" name order paid price product quantity region shipped status street total updated"
).split()


class Prepared(NamedTuple):
    where: TopicPartition
    data: bytes
    records: int


def prepare(
    plan: Plan,
    targets: Sequence[TopicPartition],
    partition_counts: Mapping[str, int],
    seed: str,
) -> list[Prepared]:
    """Batches for these partitions, in the order in which they fill up.

    Without keys the partitions take turns. With keys, a record's key determines its partition, as
    in other clients, and those for other partitions than the given ones are left out.
    """
    random = Random(seed)
    per_batch = plan.batch_records
    limit = min(_RECORDS_MAX, _BYTES_MAX // max(1, plan.record_bytes))
    wanted = max(1, min(max(_BATCHES_MIN, len(targets)), limit // per_batch))
    value = _value_maker(plan, random)
    if plan.keys == "none":
        wanted = max(wanted, min(len(targets), limit))
        turns = cycle(targets)
        return [
            _batch(plan, next(turns), [(None, value()) for _ in range(per_batch)])
            for _ in range(wanted)
        ]
    return _keyed(plan, targets, partition_counts, wanted, _key_maker(plan, random), value)


def _keyed(
    plan: Plan,
    targets: Sequence[TopicPartition],
    partition_counts: Mapping[str, int],
    wanted: int,
    key: Callable[[], bytes],
    value: Callable[[], bytes],
) -> list[Prepared]:
    own = set(targets)
    topics = cycle(partition_counts)
    filling: dict[TopicPartition, list[tuple[bytes | None, bytes]]] = {}
    found: list[Prepared] = []
    for _ in range(_RECORDS_MAX):
        topic, chosen = next(topics), key()
        where = TopicPartition(topic, partition_for_key(chosen, partition_counts[topic]))
        if where not in own:
            continue
        records = filling.setdefault(where, [])
        records.append((chosen, value()))
        if len(records) == plan.batch_records:
            found.append(_batch(plan, where, filling.pop(where)))
            if len(found) == wanted:
                break
    # Smaller ones are better than none.
    return found or [_batch(plan, where, records) for where, records in filling.items()]


def _batch(
    plan: Plan, where: TopicPartition, records: Sequence[tuple[bytes | None, bytes]]
) -> Prepared:
    now_ms = int(time.time() * 1000)
    built = build_batch(
        [Record(key=key, value=value, timestamp=now_ms) for key, value in records],
        codec=Codec[plan.codec.upper()],
    )
    return Prepared(where, bytes(built), len(records))


def _value_maker(plan: Plan, random: Random) -> Callable[[], bytes]:
    size = plan.record_bytes
    if plan.values == "random":
        return lambda: random.randbytes(size)

    def text() -> bytes:
        parts: list[bytes] = []
        length = 0
        while length < size:
            part = b'"%b":%d,' % (random.choice(_WORDS), random.getrandbits(16))
            parts.append(part)
            length += len(part)
        return b"".join(parts)[:size]

    return text


def _key_maker(plan: Plan, random: Random) -> Callable[[], bytes]:
    count = plan.key_count
    if plan.keys == "uniform":
        return lambda: b"key-%08d" % random.randrange(count)
    weights = list(accumulate(1 / rank for rank in range(1, count + 1)))
    ranks = range(count)
    return lambda: b"key-%08d" % random.choices(ranks, cum_weights=weights)[0]
