"""Column types: OIDs of the built-in ones, and catalogue rows of the database's own.

A domain is treated as its base type, and an unknown type as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from dragoman.protocols.postgres.messages import Relation, Type

#: Name → OID of the type, and OID of its array.
_BUILT_IN: Final = {
    "bool": (16, 1000),
    "bytea": (17, 1001),
    "char": (18, 1002),
    "name": (19, 1003),
    "int8": (20, 1016),
    "int2": (21, 1005),
    "int4": (23, 1007),
    "text": (25, 1009),
    "oid": (26, 1028),
    "json": (114, 199),
    "xml": (142, 143),
    "point": (600, 1017),
    "lseg": (601, 1018),
    "path": (602, 1019),
    "box": (603, 1020),
    "polygon": (604, 1027),
    "line": (628, 629),
    "cidr": (650, 651),
    "float4": (700, 1021),
    "float8": (701, 1022),
    "circle": (718, 719),
    "macaddr8": (774, 775),
    "money": (790, 791),
    "macaddr": (829, 1040),
    "inet": (869, 1041),
    "bpchar": (1042, 1014),
    "varchar": (1043, 1015),
    "date": (1082, 1182),
    "time": (1083, 1183),
    "timestamp": (1114, 1115),
    "timestamptz": (1184, 1185),
    "interval": (1186, 1187),
    "timetz": (1266, 1270),
    "bit": (1560, 1561),
    "varbit": (1562, 1563),
    "numeric": (1700, 1231),
    "uuid": (2950, 2951),
    "pg_lsn": (3220, 3221),
    "tsvector": (3614, 3643),
    "tsquery": (3615, 3645),
    "jsonb": (3802, 3807),
    "int4range": (3904, 3905),
    "numrange": (3906, 3907),
    "tsrange": (3908, 3909),
    "tstzrange": (3910, 3911),
    "daterange": (3912, 3913),
    "int8range": (3926, 3927),
    "jsonpath": (4072, 4073),
    "int4multirange": (4451, 6150),
    "nummultirange": (4532, 6151),
    "tsmultirange": (4533, 6152),
    "tstzmultirange": (4534, 6153),
    "datemultirange": (4535, 6155),
    "int8multirange": (4536, 6157),
    "xid8": (5069, 271),
}
_NAMES: Final = {oid: name for name, (oid, _) in _BUILT_IN.items()}
_ELEMENTS: Final = {array: oid for oid, array in _BUILT_IN.values()}
_BY_NAME: Final = {
    **{name: oid for name, (oid, _) in _BUILT_IN.items()},
    **{f"_{name}": array for name, (_, array) in _BUILT_IN.items()},
}
#: OIDs below belong to PostgreSQL itself and are the same in every database.
FIRST_OWN_OID: Final = 16384
#: Rows for `Types.learn`: OID, base type of a domain, element type of an array.
TYPES_QUERY: Final = f"""
SELECT oid::int8, CASE WHEN typtype = 'd' THEN typbasetype ELSE 0 END::int8,
  CASE WHEN typtype = 'b' AND typcategory = 'A' THEN typelem ELSE 0 END::int8
FROM pg_catalog.pg_type WHERE oid >= {FIRST_OWN_OID} AND (typtype <> 'c' OR EXISTS (
  SELECT FROM pg_catalog.pg_class c WHERE c.oid = typrelid AND c.relkind = 'c'))
"""
_DOMAINS_DEEP_MAX = 32


class Kind(msgspec.Struct, frozen=True):
    """`name` is empty unless the type, or the element type of an array, is built in."""

    name: str
    is_array: bool = False


class Types:
    def __init__(self) -> None:
        self._bases: dict[int, int] = {}
        self._elements: dict[int, int] = dict(_ELEMENTS)
        self._learnt: set[int] = set()

    def learn(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Learn types from rows of `TYPES_QUERY`."""
        for oid, base, element in rows:
            self._learnt.add(oid)
            if base:
                self._bases[oid] = base
            elif element:
                self._elements[oid] = element

    def learn_message(self, message: Type) -> None:
        """Learn from a `Type` message, which names the base type of a domain."""
        base = _BY_NAME.get(message.name) if message.schema == "pg_catalog" else None
        if base is not None:
            self._bases[message.oid] = base

    def unknown(self, relation: Relation) -> tuple[int, ...]:
        """Types of the table's columns that must be looked up in the catalogue."""
        oids = {column.type_oid for column in relation.columns}
        return tuple(sorted(oid for oid in oids - self._learnt if oid >= FIRST_OWN_OID))

    def kind(self, oid: int) -> Kind:
        base = self._base(oid)
        element = self._elements.get(base)
        if element is None:
            return Kind(_NAMES.get(base, ""))
        return Kind(_NAMES.get(self._base(element), ""), is_array=True)

    def name(self, oid: int) -> str:
        """The name for display; empty when the type is not built in."""
        kind = self.kind(oid)
        return kind.name + "[]" if kind.is_array else kind.name

    def _base(self, oid: int) -> int:
        for _ in range(_DOMAINS_DEEP_MAX):
            if oid not in self._bases:
                break
            oid = self._bases[oid]
        return oid
