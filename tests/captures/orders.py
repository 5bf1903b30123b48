"""A table of orders and an encoder for its changes: what tests of events begin with."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from dragoman.captures.definition import Definition
from dragoman.cdc.events import Encoder, EventRecord, TopicNeeded, Transaction, build_event_batch
from dragoman.log.batch import batches, records
from dragoman.protocols.postgres import messages as m

#: Of built-in types.
OIDS = {
    "bool": 16,
    "bytea": 17,
    "int8": 20,
    "int4": 23,
    "text": 25,
    "json": 114,
    "numeric": 1700,
    "timestamptz": 1184,
    "uuid": 2950,
    "jsonb": 3802,
}
SYSTEM = "7301234567890"
#: 2025-06-15 12:00 UTC.
NOON_US = 1_749_988_800_000_000


def relation(
    columns: str,
    *,
    name: str = "orders",
    schema: str = "public",
    key: Sequence[str] = ("id",),
    identity: m.Identity = m.Identity.DEFAULT,
    number: int = 1,
) -> m.Relation:
    """`columns` are names with types, such as `id:int4 status:text`."""
    made = []
    for each in columns.split():
        column, _, kind = each.partition(":")
        is_key = column in key or identity is m.Identity.FULL
        made.append(m.Column(column, OIDS[kind], -1, is_key))
    return m.Relation(0, number, schema, name, identity, tuple(made))


ORDERS = relation("id:int4 status:text")


def definition(**settings: Any) -> Definition:
    return Definition(**{"name": "shop", "dsn": "host=db", "tables": ("*.*",)} | settings)


def encoder(*relations: m.Relation, **settings: Any) -> Encoder:
    made = Encoder(definition(**settings), database="shopdb", system=SYSTEM)
    for each in relations or (ORDERS,):
        made.relation(each)
    return made


def transaction(lsn: int = 0x16_B374_D848, xid: int = 571) -> Transaction:
    return Transaction(lsn=lsn, xid=xid, time_us=NOON_US)


def done(made: Encoder, call: Callable[[], list[EventRecord]]) -> list[EventRecord]:
    """With topics made as they are asked for."""
    while True:
        try:
            return call()
        except TopicNeeded as needed:
            made.partitions[needed.topic] = needed.partitions


def changed(
    made: Encoder, *messages: m.Insert | m.Update | m.Delete | m.Truncate
) -> list[EventRecord]:
    """Records of a transaction of these."""
    under_way = transaction()
    records = []
    for message in messages:
        records += done(made, lambda message=message: made.change(message, under_way))  # type: ignore[misc]
    return records


def headers(record: EventRecord) -> dict[str, bytes | None]:
    """By way of the log, which has them in wire form."""
    batch = memoryview(build_event_batch([record]))
    ((header, data),) = batches(batch)
    (read,) = records(data, header)
    assert (read.key, read.value, read.timestamp) == (record.key, record.value, record.timestamp)
    return dict(read.headers)


def value(record: EventRecord) -> Any:
    assert record.value is not None
    return json.loads(record.value)
