"""A table in events: its topic, its key, its shown and masked columns, and its row encoders.

The names, order and formats of the columns are known in advance. So an encoder is generated and
compiled for each table, as for each Kafka message; a loop over the columns takes twice as long.
Rows with unknown values still use the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec

from dragoman.captures.definition import Definition, MaskWay, table_matches
from dragoman.errors import CdcError, ConfigError
from dragoman.protocols.postgres.messages import Column, Identity, Relation, Row, Unchanged
from dragoman.protocols.postgres.values import AS_IT_IS, INLINED, QUOTED, STRING, Form, string

#: Encodes a row as JSON. Raises `UnknownValueError`, and `CdcError` for a row of another table.
EncodeRow: TypeAlias = Callable[[Row], bytes]


class Field(msgspec.Struct, frozen=True):
    """A column in events: its index in the row, its name and its format."""

    index: int
    name: str
    form: Form
    #: The text for every row, instead of the value.
    constant: bytes | None = None
    #: The name as JSON, with a colon.
    label: bytes = b""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "label", string(self.name.encode()) + b":")


class UnknownValueError(CdcError):
    """The row has values that an update did not change. `partial` encodes it."""


def compiled(
    fields: Sequence[Field], width: int, opening: bytes = b"{", closing: bytes = b"}"
) -> EncodeRow:
    """Compile an encoder for rows of `width` columns whose values are all known."""
    names: dict[str, object] = {"null": b"null", **INLINED}
    pieces: list[str] = []
    text = opening
    for number, field in enumerate(fields):
        text += (b"," if number else b"") + field.label
        if field.constant is not None:
            text += field.constant
            continue
        names[f"form{number}"] = field.form.to_json
        value = f"c{field.index}"
        written = (field.form.expression or f"form{number}({{0}})").format(value)
        pieces += (repr(text), f"(null if {value} is None else {written})")
        text = b""
    pieces.append(repr(text + closing))
    columns = "".join(f"c{index}, " for index in range(width)) or "()"

    def otherwise(row: Row, error: Exception) -> bytes:
        """Encode a row that the expressions cannot encode, or raise the reason."""
        if any(isinstance(text, Unchanged) for text in row):
            raise UnknownValueError("a value that was not changed is not known") from None
        if len(row) != width:
            raise CdcError(f"a row has {len(row)} columns, its table {width}") from None
        if not isinstance(error, UnicodeDecodeError):
            raise CdcError(f"a row does not fit its table's columns: {error!r}") from error
        return opening + partial(fields, row)[0][1:] + closing

    names["otherwise"] = otherwise
    source = _SOURCE.format(columns=columns, pieces=", ".join(pieces))
    exec(compile(source, "<row>", "exec"), names)
    encode: EncodeRow = names["encode"]  # type: ignore[assignment]
    return encode


_SOURCE = """
def encode(row):
    try:
        {columns} = row
        return b"".join(({pieces},))
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        return otherwise(row, error)
"""


def partial(
    fields: Sequence[Field], row: Row, placeholder: bytes | None = None
) -> tuple[bytes, list[str]]:
    """The JSON object without its closing brace, and the columns whose values are unknown. They are
    left out, or contain the placeholder.
    """
    pieces, missing = [], []
    for field in fields:
        text = None if field.constant is not None else row[field.index]
        if isinstance(text, Unchanged):
            missing.append(field.name)
            if placeholder is None:
                continue
            shown = placeholder
        elif field.constant is not None:
            shown = field.constant
        else:
            shown = b"null" if text is None else field.form.to_json(text)
        pieces.append(field.label + shown)
    return b"{" + b",".join(pieces), missing


_PLAIN: Final = (AS_IT_IS, QUOTED, STRING)
_STARS: Final = b'"****"'


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
        #: The columns of an old row that has only the replica identity.
        self.identity_fields = tuple(
            field for field in self.fields if relation.columns[field.index].is_key
        )
        self.key = _key(self.key_fields)

    @property
    def has_key(self) -> bool:
        return bool(self.key_fields)


# ---- keys


def _key(fields: Sequence[Field]) -> Callable[[Row], bytes]:
    """The key in pgcdc's format: the text of one column, or a JSON array of several."""
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
    """The key in Debezium's format."""
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


# ---- columns


def check_patterns(definition: Definition) -> None:
    """Raises `ConfigError` for a pattern of columns that cannot match."""
    for pattern in (*definition.include, *definition.exclude, *definition.mask):
        if "." not in pattern:
            raise ConfigError(f"{pattern!r}: expected a column as schema.table.column")


def column_matches(pattern: str, relation: Relation, column: str = "") -> bool:
    """Whether a pattern, `schema.table.column` or `table.column` in `public`, matches the column.
    Without `column`: whether it may match any column of the table.
    """
    table, _, wanted = pattern.rpartition(".")
    return table_matches(table, relation.schema, relation.name) and (
        not column or table_matches(wanted, "public", column)
    )


def key_columns(
    definition: Definition, relation: Relation, primary_key: Sequence[str]
) -> tuple[str, ...]:
    """The configured key, else the replica identity; for FULL, the primary key or no columns."""
    for pattern, names in definition.keys.items():
        if table_matches(pattern, relation.schema, relation.name):
            return _checked_key(relation, names)
    if relation.identity is Identity.FULL:
        # The catalogue may be ahead of the WAL, and a part of a key does not identify a row.
        known = {column.name for column in relation.columns}
        return tuple(primary_key) if known.issuperset(primary_key) else ()
    return tuple(column.name for column in relation.columns if column.is_key)


def _checked_key(relation: Relation, names: Sequence[str]) -> tuple[str, ...]:
    table = f"{relation.schema}.{relation.name}"
    columns = {column.name: column for column in relation.columns}
    for name in names:
        if name not in columns:
            raise ConfigError(f"the key of {table} cannot be {name}: the column does not exist")
        if not columns[name].is_key:
            raise ConfigError(
                f"the key of {table} cannot be {name}: deletes do not contain it; "
                f"ALTER TABLE {table} REPLICA IDENTITY FULL, or choose columns of the primary key"
            )
    return tuple(names)


def shown_fields(
    definition: Definition,
    relation: Relation,
    key: Sequence[str],
    form_of: Callable[[Column], Form],
) -> tuple[Field, ...]:
    fields = []
    for index, column in enumerate(relation.columns):
        is_key = column.name in key
        if _any(definition.exclude, relation, column.name):
            if is_key:
                raise ConfigError(
                    f"{relation.schema}.{relation.name}.{column.name} is part of the key and "
                    "cannot be left out: choose another key, or mask it with hash"
                )
            continue
        if not (is_key or _is_included(definition, relation, column.name)):
            continue
        way = _mask(definition, relation, column.name)
        if is_key and way in ("null", "stars"):
            raise ConfigError(
                f"{relation.schema}.{relation.name}.{column.name} is part of the key and "
                f"cannot be masked with {way}: mask it with hash"
            )
        fields.append(_field(index, column.name, form_of(column), way, definition.name))
    return tuple(fields)


def _field(index: int, name: str, form: Form, way: MaskWay | None, capture: str) -> Field:
    match way:
        case "null":
            return Field(index, name, form, b"null")
        case "stars":
            return Field(index, name, form, _STARS)
        case "hash":
            return Field(index, name, hashed(capture))
        case None:
            return Field(index, name, form)


def hashed(capture: str) -> Form:
    """A function that hashes values: equal values get equal hashes within a capture, but not across
    captures. A guessed value can be verified by its hash.
    """
    salted = sha256(capture.encode() + b"\0")

    def to_json(text: bytes) -> bytes:
        digest = salted.copy()
        digest.update(text)
        return b'"%b"' % digest.hexdigest().encode()

    return Form(to_json)


def _is_included(definition: Definition, relation: Relation, column: str) -> bool:
    """Whether a column is included. A table without a pattern in `include` has all its columns."""
    patterns = [each for each in definition.include if column_matches(each, relation)]
    return not patterns or _any(patterns, relation, column)


def _mask(definition: Definition, relation: Relation, column: str) -> MaskWay | None:
    for pattern, way in definition.mask.items():
        if column_matches(pattern, relation, column):
            return way
    return None


def _any(patterns: Iterable[str], relation: Relation, column: str) -> bool:
    return any(column_matches(each, relation, column) for each in patterns)
