"""Which columns of a table are shown, which are masked, and which are its key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final

from dragoman.captures.definition import Definition, MaskWay
from dragoman.captures.patterns import table_matches
from dragoman.cdc.events.rows import Field
from dragoman.errors import ConfigError
from dragoman.protocols.postgres.messages import Column, Identity, Relation
from dragoman.protocols.postgres.values import Form

_STARS: Final = b'"****"'


def check_patterns(definition: Definition) -> None:
    """Raises `ConfigError` for one that could never fit."""
    for pattern in (*definition.include, *definition.exclude, *definition.mask):
        if "." not in pattern:
            raise ConfigError(f"{pattern!r} names no table: columns are schema.table.column")


def column_matches(pattern: str, relation: Relation, column: str = "") -> bool:
    """`schema.table.column`, or `table.column` of `public`; without `column`, any of the table."""
    table, _, wanted = pattern.rpartition(".")
    return table_matches(table, relation.schema, relation.name) and (
        not column or table_matches(wanted, "public", column)
    )


def key_columns(
    definition: Definition, relation: Relation, primary_key: Sequence[str]
) -> tuple[str, ...]:
    """As the capture is told, or the replica identity; with FULL, the primary key; or nothing."""
    for pattern, names in definition.keys.items():
        if table_matches(pattern, relation.schema, relation.name):
            return _checked_key(relation, names)
    if relation.identity is Identity.FULL:
        # The catalogue may be ahead of the log. A part of a key would take rows for others.
        known = {column.name for column in relation.columns}
        return tuple(primary_key) if known.issuperset(primary_key) else ()
    return tuple(column.name for column in relation.columns if column.is_key)


def _checked_key(relation: Relation, names: Sequence[str]) -> tuple[str, ...]:
    table = f"{relation.schema}.{relation.name}"
    columns = {column.name: column for column in relation.columns}
    for name in names:
        if name not in columns:
            raise ConfigError(f"the key of {table} cannot be {name}: there is no such column")
        if not columns[name].is_key:
            raise ConfigError(
                f"the key of {table} cannot be {name}: deletes do not name it; "
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
    """Equal values stay equal within a capture, not between captures. It does not hide values that
    can be guessed."""
    salted = sha256(capture.encode() + b"\0")

    def to_json(text: bytes) -> bytes:
        digest = salted.copy()
        digest.update(text)
        return b'"%b"' % digest.hexdigest().encode()

    return Form(to_json)


def _is_included(definition: Definition, relation: Relation, column: str) -> bool:
    """All columns are, of a table that `include` says nothing about."""
    said = [each for each in definition.include if column_matches(each, relation)]
    return not said or _any(said, relation, column)


def _mask(definition: Definition, relation: Relation, column: str) -> MaskWay | None:
    for pattern, way in definition.mask.items():
        if column_matches(pattern, relation, column):
            return way
    return None


def _any(patterns: Iterable[str], relation: Relation, column: str) -> bool:
    return any(column_matches(each, relation, column) for each in patterns)
