"""Filters: tags, or a condition in RocketMQ's subset of SQL92 (spec, 8.4).

Tags are compared as text instead of by hash, so that a message whose tag only has the same hash is
not sent.

    condition    all { OR all }
    all          each { AND each }
    each         NOT each | comparison
    comparison   operand [ (= | <> | < | <= | > | >=) operand | [NOT] BETWEEN operand AND operand
                 | [NOT] IN ('text', …) | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) 'text'
                 | IS [NOT] NULL ]
    operand      (+ | -) operand | name | number | 'text' | TRUE | FALSE | NULL | ( condition )

Names refer to properties of the message. Property values are text, which is converted for a
comparison with a number or a boolean. A comparison with a missing or unsuitable value is unknown,
as in SQL, and a message matches only if the condition is true. Comparisons cannot be chained
without parentheses, so the bound on the parsing depth also bounds the evaluation depth.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NamedTuple

from dragoman.errors import DecodeError
from dragoman.limits import FILTER_CHARACTERS_MAX, FILTER_DEPTH_MAX, FILTERS_CACHED_MAX
from dragoman.protocols.rocketmq.constants import Property

TAG: Final = "TAG"
SQL92: Final = "SQL92"
_EVERYTHING: Final = ("", "*")


class Filter:
    """A compiled filter. `tags` are the accepted tags, or None if the filter is a condition."""

    __slots__ = ("matches", "tags", "takes_all")

    def __init__(
        self,
        matches: Callable[[Mapping[str, str]], bool],
        tags: frozenset[str] | None = None,
        *,
        takes_all: bool = False,
    ) -> None:
        #: A predicate on the properties of a message.
        self.matches = matches
        self.tags = tags
        #: Whether every message matches, whatever its properties.
        self.takes_all = takes_all


TAKES_ALL: Final = Filter(lambda _: True, takes_all=True)


@lru_cache(FILTERS_CACHED_MAX)
def compile_filter(kind: str | None, expression: str) -> Filter:
    """Kinds are `TAG`, the default, and `SQL92`. Raises `FilterError`."""
    if len(expression) > FILTER_CHARACTERS_MAX:
        raise FilterError(
            f"an expression of more than {FILTER_CHARACTERS_MAX} characters", FILTER_CHARACTERS_MAX
        )
    if kind in (None, "", TAG):
        return _tag_filter(expression)
    if kind != SQL92:
        raise FilterError(f"filter type {kind!r} is not supported", 0)
    condition = compile_condition(expression)
    return Filter(lambda properties: condition(properties) is True)


def _tag_filter(expression: str) -> Filter:
    if expression.strip() in _EVERYTHING:
        return TAKES_ALL
    tags = frozenset(filter(None, map(str.strip, expression.split("||"))))
    if not tags:
        raise FilterError("no tags", 0)
    return Filter(lambda properties: properties.get(Property.TAGS) in tags, tags)


Value = str | int | float | bool | None
Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]
#: True, false, or None for unknown.
Condition = Callable[[Properties], bool | None]

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<float>(?:\d+\.\d*|\.\d+)(?:e[+-]?\d+)?|\d+e[+-]?\d+)
      | (?P<integer>\d+)l?
      | (?P<text>'[^']*(?:''[^']*)*+')
      | (?P<name>[a-z_$][a-z0-9_$]*)
      | (?P<sign><>|<=|>=|[=<>(),+-])
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)
_NOT_BLANK: Final = re.compile(r"\S", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:(\d{1,18})|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)", re.A | re.I)
_INTEGER_MAX: Final = (1 << 63) - 1
_ORDERS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT_TESTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_KEYWORDS: Final = frozenset(
    ("AND", "BETWEEN", "FALSE", "IN", "IS", "NOT", "NULL", "OR", "TRUE", *_TEXT_TESTS)
)


class FilterError(DecodeError):
    """An invalid expression; `position` is that of the first invalid character."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(f"{problem} at position {position}")
        self.position = position


class _Kind(Enum):
    """What is known about an operand at compile time."""

    PROPERTY = auto()
    NUMBER = auto()
    TEXT = auto()
    BOOLEAN = auto()
    NULL = auto()


class _Token(NamedTuple):
    #: The keyword or operator itself, or the name of the group in `_TOKEN`.
    sort: str
    text: str
    position: int


class _Operand(NamedTuple):
    evaluate: Evaluate
    kind: _Kind
    position: int


def compile_condition(expression: str) -> Condition:
    """Raises `FilterError`."""
    return _Parser(expression).condition()


def _tokens(expression: str) -> Iterator[_Token]:
    position = 0
    while True:
        found = _TOKEN.match(expression, position)
        if found is None:
            bad = _NOT_BLANK.search(expression, position)
            assert bad is not None
            what = "text without a closing quote" if bad[0] == "'" else f"unexpected {bad[0]!r}"
            raise FilterError(what, bad.start())
        sort = found.lastgroup
        assert sort is not None
        text = found[sort]
        if sort == "sign" or (sort == "name" and text.upper() in _KEYWORDS):
            sort = text.upper()
        yield _Token(sort, text, found.start(found.lastindex or 0))
        if sort == "end":
            return
        position = found.end()


class _Parser:
    def __init__(self, expression: str) -> None:
        self._tokens = _tokens(expression)
        self._next = next(self._tokens)
        self._depth = 0

    def condition(self) -> Condition:
        condition = _boolean_of(self._any())
        self._expect("end")
        return condition

    # ---- tokens

    def _take(self, *sorts: str) -> _Token | None:
        """Consume the next token if it is of one of these sorts."""
        token = self._next
        if token.sort not in sorts:
            return None
        if token.sort != "end":
            self._next = next(self._tokens)
        return token

    def _expect(self, *sorts: str) -> _Token:
        token = self._take(*sorts)
        if token is None:
            raise self._unexpected(" or ".join(sorts))
        return token

    def _unexpected(self, wanted: str) -> FilterError:
        found = "the end" if self._next.sort == "end" else repr(self._next.text)
        return FilterError(f"expected {wanted}, found {found}", self._next.position)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > FILTER_DEPTH_MAX:
            raise FilterError(f"nested more than {FILTER_DEPTH_MAX} deep", self._next.position)

    # ---- conditions

    def _any(self) -> _Operand:
        return self._joined("OR", self._all, _any_of)

    def _all(self) -> _Operand:
        return self._joined("AND", self._each, _all_of)

    def _joined(
        self,
        word: str,
        part: Callable[[], _Operand],
        join: Callable[[tuple[Condition, ...]], Condition],
    ) -> _Operand:
        first = part()
        if self._next.sort != word:
            return first
        parts = [_boolean_of(first)]
        while self._take(word):
            parts.append(_boolean_of(part()))
        return _Operand(join(tuple(parts)), _Kind.BOOLEAN, first.position)

    def _each(self) -> _Operand:
        token = self._take("NOT")
        if token is None:
            return self._comparison()
        self._deeper()
        negated = _not(_boolean_of(self._each()))
        self._depth -= 1
        return _Operand(negated, _Kind.BOOLEAN, token.position)

    def _comparison(self) -> _Operand:
        left = self._operand()
        condition = self._compared(left)
        return left if condition is None else _Operand(condition, _Kind.BOOLEAN, left.position)

    def _compared(self, left: _Operand) -> Condition | None:
        if self._take("IS"):
            is_not = self._take("NOT") is not None
            self._expect("NULL")
            return _is_null(left, is_not)
        if token := self._take("=", "<>"):
            equal = _equal(left, self._operand())
            return equal if token.sort == "=" else _not(equal)
        if token := self._take(*_ORDERS):
            return _ordered(_ORDERS[token.sort], left, self._operand())
        negation = self._take("NOT")
        condition: Condition
        if self._take("BETWEEN"):
            low = self._operand()
            self._expect("AND")
            high = self._operand()
            condition = _all_of(
                (_ordered(operator.ge, left, low), _ordered(operator.le, left, high))
            )
        elif self._take("IN"):
            condition = _is_one_of(left, self._texts())
        elif token := self._take(*_TEXT_TESTS):
            condition = _text_test(_TEXT_TESTS[token.sort], left, self._text())
        elif negation is not None:
            raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
        else:
            return None
        return condition if negation is None else _not(condition)

    def _texts(self) -> frozenset[str]:
        self._expect("(")
        texts = [self._text()]
        while self._take(","):
            texts.append(self._text())
        self._expect(")")
        return frozenset(texts)

    def _text(self) -> str:
        return _unquoted(self._expect("text").text)

    # ---- operands

    def _operand(self) -> _Operand:
        position = self._next.position
        if sign := self._take("+", "-"):
            self._deeper()
            operand = _signed(sign.sort, self._operand())
            self._depth -= 1
            return operand
        if self._take("("):
            self._deeper()
            inner = self._any()
            self._depth -= 1
            self._expect(")")
            return inner
        if token := self._take("name"):
            return _Operand(_property(token.text), _Kind.PROPERTY, position)
        if token := self._take("integer"):
            return _Operand(_constant(_integer(token)), _Kind.NUMBER, position)
        if token := self._take("float"):
            return _Operand(_constant(float(token.text)), _Kind.NUMBER, position)
        if token := self._take("text"):
            return _Operand(_constant(_unquoted(token.text)), _Kind.TEXT, position)
        if token := self._take("TRUE", "FALSE"):
            return _Operand(_constant(token.sort == "TRUE"), _Kind.BOOLEAN, position)
        if self._take("NULL"):
            return _Operand(_constant(None), _Kind.NULL, position)
        raise self._unexpected("a property, a value or (")


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _integer(token: _Token) -> int:
    # Digits are counted first, because Python refuses to convert thousands of them.
    digits = token.text.lstrip("0") or "0"
    if len(digits) > len(str(_INTEGER_MAX)) or int(digits) > _INTEGER_MAX:
        raise FilterError("an integer of more than 64 bits", token.position)
    return int(digits)


# ---- values


def as_number(value: Value) -> float | None:
    """The value as a number; None if it is not one."""
    if isinstance(value, str):
        found = _NUMBER.fullmatch(value)
        if found is None:
            return None
        return int(value) if found[1] else float(value)
    return None if isinstance(value, bool) else value


def as_boolean(value: Value) -> bool | None:
    """The value as a boolean; None for a number. As in Java, any text but `true` is false."""
    if isinstance(value, str):
        return value.lower() == "true"
    return value if isinstance(value, bool) else None


def _constant(value: Value) -> Evaluate:
    return lambda _: value


def _property(name: str) -> Evaluate:
    return lambda properties: properties.get(name)


def _signed(sign: str, operand: _Operand) -> _Operand:
    if operand.kind not in (_Kind.PROPERTY, _Kind.NUMBER):
        raise FilterError(f"{sign} before an operand that is not a number", operand.position)
    evaluate = operand.evaluate

    def signed(properties: Properties) -> Value:
        number = as_number(evaluate(properties))
        return number if number is None or sign == "+" else -number

    return _Operand(signed, _Kind.NUMBER, operand.position)


# ---- conditions


def _boolean_of(operand: _Operand) -> Condition:
    if operand.kind in (_Kind.NUMBER, _Kind.TEXT):
        raise FilterError("a value that is not a condition", operand.position)
    evaluate = operand.evaluate
    return lambda properties: as_boolean(evaluate(properties))


def _all_of(parts: tuple[Condition, ...]) -> Condition:
    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = True
        for part in parts:
            value = part(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return evaluate


def _any_of(parts: tuple[Condition, ...]) -> Condition:
    return _not(_all_of(tuple(map(_not, parts))))


def _not(condition: Condition) -> Condition:
    def evaluate(properties: Properties) -> bool | None:
        value = condition(properties)
        return None if value is None else not value

    return evaluate


def _is_null(operand: _Operand, is_not: bool) -> Condition:
    evaluate = operand.evaluate
    return lambda properties: (evaluate(properties) is None) is not is_not


def _equal(left: _Operand, right: _Operand) -> Condition:
    left_value, right_value = left.evaluate, right.evaluate
    return lambda properties: are_equal(left_value(properties), right_value(properties))


def are_equal(left: Value, right: Value) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    convert: Callable[[Value], Value] = as_number
    if isinstance(left, bool) or isinstance(right, bool):
        convert = as_boolean
    left, right = convert(left), convert(right)
    return None if left is None or right is None else left == right


def _ordered(compare: Callable[[float, float], bool], left: _Operand, right: _Operand) -> Condition:
    for each in (left, right):
        if each.kind not in (_Kind.PROPERTY, _Kind.NUMBER):
            raise FilterError("only numbers can be compared by order", each.position)
    left_value, right_value = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> bool | None:
        first, second = as_number(left_value(properties)), as_number(right_value(properties))
        return None if first is None or second is None else compare(first, second)

    return evaluate


def _is_one_of(operand: _Operand, texts: frozenset[str]) -> Condition:
    if operand.kind is not _Kind.PROPERTY:
        raise FilterError("only a property can be IN a list", operand.position)
    evaluate = operand.evaluate

    def is_one_of(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return None if value is None else value in texts

    return is_one_of


def _text_test(test: Callable[[str, str], bool], operand: _Operand, text: str) -> Condition:
    if operand.kind not in (_Kind.PROPERTY, _Kind.TEXT):
        raise FilterError("only text can be searched", operand.position)
    evaluate = operand.evaluate

    def tested(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return test(value, text) if isinstance(value, str) else None

    return tested
