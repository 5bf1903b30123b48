"""Filters of the console against a naive evaluator, and their parser against broken texts."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dragoman.console.records.decoding.decoders import Schemas
from dragoman.console.records.filters.matching import compiled
from dragoman.console.records.filters.syntax import (
    Both,
    Compare,
    Condition,
    Constant,
    Either,
    Field,
    FilterError,
    In,
    Not,
    Operand,
    Truth,
    parse,
)
from dragoman.console.records.shown import ExaminedRecord, decoders_for
from dragoman.console.records.values import Decoding
from dragoman.log.batch import Record

_DECODERS: Final = decoders_for(Decoding(value="json"), Schemas())
_NOW_MS: Final = 2_000_000_000_000

# ---- expressions and their meaning, made together

_NAMES = st.sampled_from(["a", "b", "c"])
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, -2.5]),
    st.text("ab", max_size=2),
)
_DATA = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=3)
    ),
    max_leaves=8,
)
_FIELDS = st.builds(
    lambda path: Field("value", tuple(path), 0),
    st.lists(st.one_of(_NAMES, st.integers(0, 2)), min_size=1, max_size=3),
)
_OPERANDS: st.SearchStrategy[Operand] = st.one_of(
    _FIELDS, st.builds(Constant, _SCALARS), st.just(Field("partition", (), 0))
)
_OPERATORS = ["==", "!=", "<", "<=", ">", ">=", "contains", "startswith", "endswith"]
_CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    st.one_of(
        st.builds(Compare, st.sampled_from(_OPERATORS), _OPERANDS, _OPERANDS, st.just(0)),
        st.builds(In, _FIELDS, st.lists(_SCALARS, min_size=1, max_size=3).map(tuple)),
        st.builds(Truth, _FIELDS),
    ),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda each: Both(tuple(each))),
        st.lists(inner, min_size=2, max_size=3).map(lambda each: Either(tuple(each))),
    ),
    max_leaves=6,
)


def _written(given: Any) -> str:
    match given:
        case Constant(None):
            return "null"
        case Constant(bool() as value):
            return str(value).lower()
        case Constant(str() as value):
            return f'"{value}"'
        case Constant(value):
            return str(value)
        case Field(root, path, _):
            return root + "".join(
                f"[{each}]" if isinstance(each, int) else f'["{each}"]' for each in path
            )
        case Compare(operator, left, right, _):
            return f"{_written(left)} {operator} {_written(right)}"
        case In(left, values):
            listed = ", ".join(_written(Constant(each)) for each in values)
            return f"{_written(left)} in ({listed})"
        case Not(inner):
            return f"not ({_written(inner)})"
        case Both(parts):
            return " and ".join(f"({_written(each)})" for each in parts)
        case Either(parts):
            return " or ".join(f"({_written(each)})" for each in parts)
        case Truth(operand):
            return _written(operand)
    raise AssertionError(given)


class _Unknown(Exception): ...


def _value(operand: Operand, data: Any, partition: int) -> Any:
    if isinstance(operand, Constant):
        return operand.value
    if operand.root == "partition":
        return partition
    for step in operand.path:
        if data is None:
            return None
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            data = data[step] if step < len(data) else None
        else:
            raise _Unknown
    return data


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _same(one: Any, other: Any) -> bool:
    return _kind(one) == _kind(other) and bool(one == other)


def _naive(given: Condition, data: Any, partition: int) -> bool | None:
    """What a condition means, written as its documentation says it."""
    try:
        match given:
            case Both(parts):
                found = {_naive(each, data, partition) for each in parts}
                return False if False in found else None if None in found else True
            case Either(parts):
                found = {_naive(each, data, partition) for each in parts}
                return True if True in found else None if None in found else False
            case Not(inner):
                answer = _naive(inner, data, partition)
                return None if answer is None else not answer
            case Truth(operand):
                value = _value(operand, data, partition)
                return value if isinstance(value, bool) else False if value is None else None
            case In(left, values):
                value = _value(left, data, partition)
                return any(_same(value, each) for each in values)
            case Compare(operator, left, right, _):
                one, other = _value(left, data, partition), _value(right, data, partition)
                return _compared(operator, one, other)
    except _Unknown:
        return None
    raise AssertionError(given)


def _compared(operator: str, one: Any, other: Any) -> bool | None:
    if operator == "==":
        return _same(one, other)
    if operator == "!=":
        return not _same(one, other)
    if one is None or other is None:
        return False
    if operator == "contains" and isinstance(one, list):
        return any(_same(each, other) for each in one)
    if operator in ("contains", "startswith", "endswith"):
        if not isinstance(other, str) or not isinstance(one, str | dict):
            return None
        if isinstance(one, dict):
            return other in one if operator == "contains" else None
        pattern = {"contains": ".*{}.*", "startswith": "{}.*", "endswith": ".*{}"}[operator]
        return re.fullmatch(pattern.format(re.escape(other)), one, re.DOTALL) is not None
    if _kind(one) != _kind(other) or _kind(one) not in ("number", "str"):
        return None
    return {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[operator]


@given(_CONDITIONS, _DATA, st.integers(0, 3))
def test_filter_means_what_a_naive_evaluator_says(
    condition: Condition, data: Any, partition: int
) -> None:
    record = ExaminedRecord(partition, Record(value=msgspec.json.encode(data)), _DECODERS)
    assert compiled(_written(condition), _NOW_MS)(record) == _naive(condition, data, partition)


_PIECES = st.lists(
    st.sampled_from(
        [
            *("value", "key", "headers", "offset", ".", "a", "[", "]", "(", ")", '"x"', "'y'"),
            *("1", "-2.5", "@-1h", "==", "<", "in", "contains", "matches", "and", "or", "not"),
            *("null", "true", ",", "=", "&&", " ", "\\", '"', "\x00", "é", "1e9999", "@"),
        ]
    ),
    max_size=30,
)


@given(st.one_of(st.text(max_size=60), _PIECES.map("".join), _PIECES.map(" ".join)))
def test_any_text_is_a_filter_or_is_refused_with_a_position(text: str) -> None:
    try:
        matches = compiled(text, _NOW_MS)
    except FilterError as error:
        positions, answers = [error.position], []
        str(error).encode()
    else:
        positions, answers = [], [matches(ExaminedRecord(0, Record(), _DECODERS))]
    assert all(0 <= each <= len(text) for each in positions)
    assert set(answers) <= {True, False, None}


def test_depth_is_bounded() -> None:
    for text in ("(" * 3000, "not " * 900 + "true", "value" + "[0]" * 400 + " == 1"):
        try:
            parse(text, _NOW_MS)
        except FilterError:
            continue
        assert "[0]" in text
