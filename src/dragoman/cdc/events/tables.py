"""A table as events show it: its columns, its key, its topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dragoman.captures.definition import Definition
from dragoman.cdc.events.columns import key_columns, shown_fields
from dragoman.cdc.events.rows import Field
from dragoman.errors import CdcError
from dragoman.protocols.postgres.messages import Column, Relation, Row
from dragoman.protocols.postgres.values import AS_IT_IS, QUOTED, STRING, Form, string

_PLAIN = (AS_IT_IS, QUOTED, STRING)


class Table:
    def __init__(
        self,
        definition: Definition,
        topic: str,
        relation: Relation,
        primary_key: Sequence[str],
        form_of: Callable[[Column], Form],
    ) -> None:
        """Raises `ConfigError` when the capture's settings do not fit the table."""
        self.relation = relation
        self.schema = relation.schema
        self.name = relation.name
        self.label = f"{relation.schema}.{relation.name}"
        self.width = len(relation.columns)
        self.topic = topic
        self.channel = "pgcdc:" + self.label.removeprefix("public.")
        names = key_columns(definition, relation, primary_key)
        self.fields = shown_fields(definition, relation, names, form_of)
        by_name = {field.name: field for field in self.fields}
        self.key_fields = tuple(by_name[name] for name in names if name in by_name)
        #: Columns that an old row has when it is not whole.
        self.identity_fields = tuple(
            field for field in self.fields if relation.columns[field.index].is_key
        )
        self.key = _key(self.key_fields)

    @property
    def has_key(self) -> bool:
        return bool(self.key_fields)


# ---- keys


def _key(fields: Sequence[Field]) -> Callable[[Row], bytes]:
    """A row to the key as pgcdc has it: the text of one column, a JSON array of several."""
    if len(fields) != 1:
        return lambda row: b"[%b]" % b",".join([json_of(field, row) for field in fields])
    (field,) = fields
    index, to_json = field.index, field.form.to_json
    if field.form in _PLAIN:

        def plain(row: Row) -> bytes:
            text = row[index]
            return text if type(text) is bytes else json_of(field, row)

        return plain

    def converted(row: Row) -> bytes:
        text = row[index]
        return to_json(text).strip(b'"') if type(text) is bytes else json_of(field, row)

    return converted


def key_object(fields: Sequence[Field]) -> Callable[[Row], bytes]:
    """A row to the key as Debezium has it."""
    if len(fields) == 1:
        (field,) = fields
        label = field.label
        return lambda row: b"{%b%b}" % (label, json_of(field, row))
    return lambda row: b"{%b}" % b",".join([field.label + json_of(field, row) for field in fields])


def json_of(field: Field, row: Row) -> bytes:
    text = row[field.index]
    if text is None:
        return b"null"
    if not isinstance(text, bytes):
        raise CdcError(f"column {field.name} is part of the key, and its value is not known")
    return field.form.to_json(text)


def json_list(names: Sequence[str]) -> bytes:
    return b"[%b]" % b",".join([string(name.encode()) for name in names])
