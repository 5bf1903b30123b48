"""Messages that applications write: rows of an outbox, and payloads of NOTIFY.

Each row of an outbox is a message, in columns with Debezium's names:

    id             header `id`, for consumers that drop duplicates
    aggregatetype  the topic: `outbox.event.<aggregatetype>`
    aggregateid    the key
    type           header `type`
    payload        the value: JSON and text unchanged, bytea as bytes, NULL as no value

Every other column becomes a header. A payload of NOTIFY is forwarded as by pgcdc.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from dragoman.captures.definition import Definition
from dragoman.captures.topics import OUTBOX_PLACES, checked_template, filled, template_for
from dragoman.cdc.events.records import COMMON_HEADERS, EVENT_ID_NAME, Transaction, sized
from dragoman.errors import CdcError, ConfigError
from dragoman.log.batch import varint
from dragoman.protocols.postgres.messages import Relation, Row
from dragoman.protocols.postgres.types import Types
from dragoman.protocols.postgres.values import bytes_of, string

_COLUMNS: Final = ("id", "aggregatetype", "aggregateid", "type", "payload")
_DEFAULT: Final = "outbox.event.{aggregatetype}"
_NULL: Final = varint(-1)


class Outbox:
    def __init__(
        self, definition: Definition, database: str, relation: Relation, types: Types
    ) -> None:
        """Raises `ConfigError` for a table that lacks the columns of an outbox."""
        self.relation = relation
        self._database = database
        places = {column.name: index for index, column in enumerate(relation.columns)}
        if missing := [name for name in _COLUMNS if name not in places]:
            raise ConfigError(
                f"{relation.schema}.{relation.name} cannot be an outbox: it has no column "
                f"{' and no column '.join(missing)}"
            )
        _, self._type_at, self._id_at, _, self._payload_at = (places[name] for name in _COLUMNS)
        self._kind_at = places["type"]
        payload = relation.columns[self._payload_at]
        self._is_bytes = types.kind(payload.type_oid).name == "bytea"
        shown = ["id", "type", *(name for name in places if name not in _COLUMNS)]
        self._headers = [(sized(name.encode()), places[name]) for name in shown]
        self._count = varint(len(shown) + COMMON_HEADERS)
        template = template_for(definition.topics, relation.schema, relation.name)
        self._template = checked_template(template or _DEFAULT, OUTBOX_PLACES)

    def topic(self, row: Row) -> str:
        values = {
            "database": self._database,
            "schema": self.relation.schema,
            "table": self.relation.name,
        }
        for name, index in (("aggregatetype", self._type_at), ("type", self._kind_at)):
            if f"{{{name}}}" in self._template:
                values[name] = self._text(row, index).decode("utf-8", "replace")
        return filled(self._template, values)

    def key(self, row: Row) -> bytes:
        return self._text(row, self._id_at)

    def value(self, row: Row) -> bytes | None:
        payload = row[self._payload_at]
        if payload is None:
            return None
        text = self._text(row, self._payload_at)
        return bytes_of(text) if self._is_bytes else text

    def headers(self, row: Row, transaction: Transaction, seq: int) -> bytes:
        pieces = [self._count]
        for name, index in self._headers:
            text = row[index]
            pieces += (name, sized(text) if isinstance(text, bytes) else _NULL)
        return transaction.headers(b"".join((*pieces, EVENT_ID_NAME)), seq)

    def _text(self, row: Row, index: int) -> bytes:
        text = row[index]
        if not isinstance(text, bytes):
            raise CdcError(
                f"a row of outbox {self.relation.schema}.{self.relation.name} has no "
                f"{self.relation.columns[index].name}: make the column NOT NULL"
            )
        return text


# ---- payloads of NOTIFY


_ID: Final = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false)')


def operation_and_value(payload: str) -> tuple[str, bytes]:
    """For a JSON object, its `op` and the payload. Other text becomes a JSON string."""
    try:
        parsed = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        return "NOTIFY", string(payload.encode())
    operation = parsed.get("op")
    if not isinstance(operation, str) or not operation:
        operation = "NOTIFY"
    return operation, payload.encode()


def key_in(payload: str) -> bytes | None:
    """The value of the first `id` in the payload, at any depth."""
    found = _ID.search(payload)
    if found is None:
        return None
    text = found[1]
    if text.startswith('"'):
        try:
            text = msgspec.json.decode(text, type=str)
        except msgspec.DecodeError:
            return None
    return text.encode()
