"""Marks: events about transactions, schemas, snapshots and heartbeats, in topics of their own.

These topics have one partition. The key is the name of the capture, so captures may share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from dragoman.captures.topics import HEARTBEATS as HEARTBEATS
from dragoman.captures.topics import SCHEMAS as SCHEMAS
from dragoman.captures.topics import SNAPSHOTS as SNAPSHOTS
from dragoman.captures.topics import TRANSACTIONS as TRANSACTIONS
from dragoman.cdc.events.records import Transaction
from dragoman.cdc.events.tables import Table
from dragoman.protocols.postgres.codec import format_lsn
from dragoman.protocols.postgres.messages import Relation
from dragoman.protocols.postgres.types import Types

MARK_PARTITIONS: Final = 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_encode: Final = msgspec.json.Encoder().encode


def iso_time(time_us: int) -> str:
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.isoformat().replace("+00:00", "Z")


def begin_value(transaction: Transaction) -> bytes:
    return _encode({"op": "BEGIN", "transaction": _described(transaction)})


def commit_value(transaction: Transaction) -> bytes:
    """The value of a COMMIT event, with the number of the transaction's events in total and by
    table.
    """
    return _encode(
        {
            "op": "COMMIT",
            "transaction": _described(transaction),
            "events": sum(transaction.counts.values()),
            "tables": transaction.counts,
        }
    )


def _described(transaction: Transaction) -> Mapping[str, object]:
    return {
        "xid": transaction.xid,
        "commit_time": iso_time(transaction.time_us),
        "lsn": format_lsn(transaction.lsn),
    }


def heartbeat_value(capture: str, transaction: Transaction) -> bytes:
    return _encode({"op": "HEARTBEAT", "capture": capture, "transaction": _described(transaction)})


def snapshot_value(operation: str, capture: str, table: Table, rows: int | None) -> bytes:
    value: dict[str, object] = {
        "op": operation,
        "capture": capture,
        "table": table.name,
        "schema": table.schema,
        "topic": table.topic,
    }
    return _encode(value if rows is None else value | {"rows": rows})


def schema_value(before: Relation | None, after: Relation, types: Types) -> bytes:
    """The value of a schema change. `previous` is null if unknown, such as after a process
    start.
    """
    return _encode(
        {
            "op": "SCHEMA_CHANGE",
            **_table(after, types),
            "previous": None if before is None else _table(before, types),
        }
    )


def _table(relation: Relation, types: Types) -> dict[str, object]:
    return {
        "table": relation.name,
        "schema": relation.schema,
        "columns": _columns(relation, types),
    }


def _columns(relation: Relation, types: Types) -> list[dict[str, object]]:
    return [
        {
            "name": column.name,
            "type_oid": column.type_oid,
            "type_name": types.name(column.type_oid),
            "is_key": column.is_key,
        }
        for column in relation.columns
    ]
