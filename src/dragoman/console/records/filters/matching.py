"""Compiles the tree of a filter into functions over a record.

- A missing field is null. Null equals null only, and is neither less nor greater than anything.
- `==` and `!=` compare any types; values of different types are different. `<` and its like compare
  numbers with numbers and texts with texts; for others the answer is unknown.
- `contains` finds a text in a text, an item in an array or a name in an object.
- A whole key, value or header counts as its text where texts are compared or searched, and as what
  its decoder makes of it elsewhere.
- `matches` searches for a pattern of RE2, which takes time in proportion to the text.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias

from dragoman.console.records.filters.patterns import TOO_LARGE, PatternError, compiled_pattern
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
    Scalar,
    Truth,
    parse,
)
from dragoman.limits import CONSOLE_PATTERN_INSTRUCTIONS_MAX

#: Comparing an item takes as long as searching so many characters.
_STEPS_PER_ITEM: Final = 200


class UnreadableError(Exception):
    """A value that cannot be decoded, or has no fields: what is asked of it is unknown."""


class Examined(Protocol):
    """A record as filters see it. Contents are null where the record has none."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...

    def key_text(self) -> str | None: ...
    def value_text(self) -> str | None: ...
    def header_text(self, name: str) -> str | None: ...

    # As decoded: text, number, boolean, null, list or dictionary. Raise `UnreadableError`.
    def key_data(self) -> Any: ...
    def value_data(self) -> Any: ...
    def header_data(self, name: str) -> Any: ...

    def spend(self, steps: int) -> None:
        """Count work on this record. Raises `UnreadableError` when it is too much."""


#: None: unknown.
Matches: TypeAlias = Callable[[Examined], bool | None]
Get: TypeAlias = Callable[[Examined], Any]

_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compiled(text: str, now_ms: int) -> Matches:
    """Raises `FilterError`."""
    condition = parse(text, now_ms)
    _bound_patterns(condition)
    return _condition(condition)


def _bound_patterns(given: Condition) -> None:
    """Records are examined a slice at a time, and all patterns of a filter search all of it."""
    size = 0
    for pattern, position in _patterns(given):
        size += int(_compiled(pattern, position).programsize)
        if size > CONSOLE_PATTERN_INSTRUCTIONS_MAX:
            raise FilterError(TOO_LARGE, position)


def _patterns(given: Condition) -> Iterator[tuple[str, int]]:
    match given:
        case Both(parts) | Either(parts):
            for part in parts:
                yield from _patterns(part)
        case Not(inner):
            yield from _patterns(inner)
        case Compare("matches", _, Constant(pattern), position):
            yield str(pattern), position


def _condition(given: Condition) -> Matches:
    match given:
        case Both(parts):
            return _both([_condition(each) for each in parts])
        case Either(parts):
            return _either([_condition(each) for each in parts])
        case Not(inner):
            return _not(_condition(inner))
        case Truth(operand):
            return _guarded(_truth(_data(operand)))
        case In(left, values):
            return _either([_guarded(_equality(left, Constant(each))) for each in values])
        case Compare("==", left, right):
            return _guarded(_equality(left, right))
        case Compare("!=", left, right):
            return _not(_guarded(_equality(left, right)))
        case Compare("matches", left, Constant(pattern), position):
            return _guarded(_pattern(_text(left), str(pattern), position))
        case Compare("contains", left, right):
            return _guarded(_contains(_text(left), _text(right)))
        case Compare("startswith" | "endswith", left, right):
            test = str.startswith if given.operator == "startswith" else str.endswith
            return _guarded(_text_test(_text(left), _text(right), test))
        case Compare(_, left, right):
            return _guarded(_order(left, right, _ORDER[given.operator]))


# ---- three values of truth


def _both(parts: list[Matches]) -> Matches:
    def matches(record: Examined) -> bool | None:
        found: bool | None = True
        for part in parts:
            answer = part(record)
            if answer is False:
                return False
            if answer is None:
                found = None
        return found

    return matches


def _either(parts: list[Matches]) -> Matches:
    def matches(record: Examined) -> bool | None:
        found: bool | None = False
        for part in parts:
            answer = part(record)
            if answer:
                return True
            if answer is None:
                found = None
        return found

    return matches


def _not(part: Matches) -> Matches:
    def matches(record: Examined) -> bool | None:
        answer = part(record)
        return None if answer is None else not answer

    return matches


def _guarded(part: Matches) -> Matches:
    def matches(record: Examined) -> bool | None:
        try:
            return part(record)
        except (UnreadableError, RecursionError):
            # Values may be as deep as the interpreter goes, and a filter compares deeper down.
            return None

    return matches


# ---- operands


def _data(operand: Operand) -> Get:
    """The decoded operand."""
    if isinstance(operand, Constant):
        value = operand.value
        return lambda _: value
    match operand:
        case Field("partition" | "offset" | "timestamp"):
            return operator.attrgetter(operand.root)
        case Field("key", path):
            return _within(lambda record: record.key_data(), path)
        case Field("value", path):
            return _within(lambda record: record.value_data(), path)
    name = str(operand.path[0])
    return _within(lambda record: record.header_data(name), operand.path[1:])


def _text(operand: Operand) -> Get:
    """The text of a whole key, value or header, else the decoded operand."""
    match operand:
        case Field("key", ()):
            return lambda record: record.key_text()
        case Field("value", ()):
            return lambda record: record.value_text()
        case Field("headers", (str() as name,)):
            return lambda record: record.header_text(name)
    return _data(operand)


def _is_whole(operand: Operand) -> bool:
    match operand:
        case Field("key" | "value", ()) | Field("headers", (_,)):
            return True
    return False


def _within(whole: Get, path: tuple[str | int, ...]) -> Get:
    if not path:
        return whole
    if len(path) == 1:
        (only,) = path
        return lambda record: _step(whole(record), only)

    def get(record: Examined) -> Any:
        found = whole(record)
        for step in path:
            found = _step(found, step)
        return found

    return get


def _step(found: Any, step: str | int) -> Any:
    if isinstance(found, dict):
        return found.get(step)
    if found is None:
        return None
    if isinstance(found, list) and isinstance(step, int):
        return found[step] if -len(found) <= step < len(found) else None
    raise UnreadableError


# ---- comparisons


def _truth(get: Get) -> Matches:
    def matches(record: Examined) -> bool | None:
        found = get(record)
        if found is None or isinstance(found, bool):
            return bool(found)
        return None

    return matches


def _equal(one: Any, other: Any) -> bool:
    """Python counts true as 1, filters do not."""
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _equality(left: Operand, right: Operand) -> Matches:
    if isinstance(left, Constant):
        left, right = right, left
    if isinstance(right, Constant):
        return _equals(left, right.value)
    one, other = _data(left), _data(right)
    return lambda record: _equal(one(record), other(record))


def _equals(left: Operand, constant: Scalar) -> Matches:
    get = _data(left)
    if constant is None and _is_whole(left):
        # Whether a record has a value at all does not depend on whether it can be decoded.
        text = _text(left)
        return lambda record: text(record) is None
    if not isinstance(constant, str):
        return lambda record: _equal(get(record), constant)
    if not _is_whole(left):
        return lambda record: bool(get(record) == constant)
    text = _text(left)

    def matches(record: Examined) -> bool:
        if text(record) == constant:
            return True
        try:
            return bool(get(record) == constant)
        except UnreadableError:
            return False

    return matches


def _order(left: Operand, right: Operand, compare: Callable[[Any, Any], bool]) -> Matches:
    def is_text(operand: Operand) -> bool:
        return isinstance(operand, Constant) and isinstance(operand.value, str)

    one = _text(left) if is_text(right) else _data(left)
    other = _text(right) if is_text(left) else _data(right)

    def matches(record: Examined) -> bool | None:
        found, limit = one(record), other(record)
        if found is None or limit is None:
            return False
        if isinstance(found, str):
            return compare(found, limit) if isinstance(limit, str) else None
        if _is_number(found) and _is_number(limit):
            return compare(found, limit)
        return None

    return matches


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains(get: Get, wanted: Get) -> Matches:
    def matches(record: Examined) -> bool | None:
        found, part = get(record), wanted(record)
        if found is None or part is None:
            return False
        if isinstance(found, str):
            record.spend(len(found))
            return part in found if isinstance(part, str) else None
        if isinstance(found, list):
            record.spend(len(found) * _STEPS_PER_ITEM)
            return any(_equal(each, part) for each in found)
        if isinstance(found, dict):
            return part in found if isinstance(part, str) else None
        return None

    return matches


def _text_test(get: Get, wanted: Get, test: Callable[[str, str], bool]) -> Matches:
    def matches(record: Examined) -> bool | None:
        found, part = get(record), wanted(record)
        if found is None or part is None:
            return False
        if isinstance(found, str) and isinstance(part, str):
            return test(found, part)
        return None

    return matches


def _pattern(get: Get, pattern: str, position: int) -> Matches:
    compiled_ = _compiled(pattern, position)
    search, size = compiled_.search, int(compiled_.programsize)

    def matches(record: Examined) -> bool | None:
        found = get(record)
        if found is None:
            return False
        if not isinstance(found, str):
            return None
        record.spend(len(found) * size)
        return search(found) is not None

    return matches


def _compiled(pattern: str, position: int) -> Any:
    try:
        return compiled_pattern(pattern)
    except PatternError as error:
        raise FilterError(str(error), position) from None
