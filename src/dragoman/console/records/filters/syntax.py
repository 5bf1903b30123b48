"""The language of filters: a text becomes a tree.

    value.amount > 10 and key contains "x" and headers["h"] == "y"
    partition in (0, 1) and offset >= 5 and timestamp > @-1h
    not (value.name matches "^a.*z$") or value["a b"][0].c != null

Operators are == != < <= > >= in contains startswith endswith matches, and, or, not. Texts are in
double or single quotes. A field alone is a condition: it must be true.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, NoReturn, TypeAlias, cast

from dragoman.api.places import time_of
from dragoman.console.errors import ConsoleError

CHARACTERS_MAX: Final = 4000
DEPTH_MAX: Final = 40
TOKENS_MAX: Final = 2000

Root: TypeAlias = Literal["key", "value", "headers", "partition", "offset", "timestamp"]
Operator: TypeAlias = Literal[
    "==", "!=", "<", "<=", ">", ">=", "contains", "startswith", "endswith", "matches"
]
Scalar: TypeAlias = str | int | float | bool | None

_ROOTS: Final = frozenset(("key", "value", "headers", "partition", "offset", "timestamp"))
#: Parts of a record that are plain numbers.
_NUMBERS: Final = frozenset(("partition", "offset", "timestamp"))
_CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_OPERATORS: Final = frozenset(
    ("==", "!=", "<", "<=", ">", ">=", "contains", "startswith", "endswith", "matches")
)
_MISTAKEN: Final = {"=": "==", "&&": "and", "&": "and", "||": "or", "|": "or", "!": "not"}
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<time>@[^\s()\[\],]+)
    | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?(?![\w.]))
    | (?P<name>[^\W\d]\w*)
    | (?P<sign>==|!=|<=|>=|&&|\|\||[<>()\[\].,=&|!])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_DIGITS_MAX: Final = 40
_EXPECTED: Final = "expected a field, a text in quotes, a number, a time, true, false or null"


class FilterError(ConsoleError):
    """A filter that is not one; `position` is that of its first wrong character."""

    code = "filter"

    def __init__(self, text: str, position: int) -> None:
        super().__init__(f"filter, character {position + 1}: {text}")
        self.position = position


# ---- the tree


class Constant(NamedTuple):
    value: Scalar


class Field(NamedTuple):
    """A part of a record, or what `path` names in it. `position` is where the filter names it."""

    root: Root
    path: tuple[str | int, ...]
    position: int


class Compare(NamedTuple):
    operator: Operator
    left: Operand
    right: Operand
    position: int


class In(NamedTuple):
    left: Operand
    values: tuple[Scalar, ...]


class Not(NamedTuple):
    inner: Condition


class Both(NamedTuple):
    parts: tuple[Condition, ...]


class Either(NamedTuple):
    parts: tuple[Condition, ...]


class Truth(NamedTuple):
    operand: Operand


Operand: TypeAlias = Constant | Field
Condition: TypeAlias = Compare | In | Not | Both | Either | Truth


# ---- tokens


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def _tokens(text: str) -> list[_Token]:
    """The tokens without white space, and one for the end."""
    if len(text) > CHARACTERS_MAX:
        raise FilterError(f"a filter may have {CHARACTERS_MAX} characters", CHARACTERS_MAX)
    found = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise FilterError(_complaint(text[position]), position)
        if match.lastgroup != "space":
            found.append(_Token(str(match.lastgroup), match[0], position))
        position = match.end()
    if len(found) > TOKENS_MAX:
        raise FilterError(f"a filter may have {TOKENS_MAX} words and signs", found[-1].position)
    return [*found, _Token("end", "", len(text))]


def _complaint(character: str) -> str:
    if character in "\"'":
        return "the text has no closing quote"
    if character.isdigit() or character == "-":
        return "this is not a number"
    return f"{character!r} means nothing here"


# ---- the parser


def parse(text: str, now_ms: int) -> Condition:
    """Raises `FilterError`. Times such as @-1h are relative to `now_ms`."""
    return _Parser(_tokens(text), now_ms).whole()


class _Parser:
    def __init__(self, tokens: list[_Token], now_ms: int) -> None:
        self._tokens = tokens
        self._at = 0
        self._now_ms = now_ms
        self._depth = 0

    def whole(self) -> Condition:
        found = self._either()
        if self._next.kind != "end":
            self._fail("expected `and`, `or` or the end")
        return found

    # ---- conditions

    def _either(self) -> Condition:
        parts = [self._both()]
        while self._takes("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _both(self) -> Condition:
        parts = [self._not()]
        while self._takes("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _not(self) -> Condition:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._fail(f"a filter may be {DEPTH_MAX} brackets deep")
        if self._takes("not"):
            found: Condition = Not(self._not())
        elif self._takes("("):
            found = self._either()
            self._expect(")")
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> Condition:
        left = self._operand()
        operator = self._next
        if operator.text == "in" and operator.kind == "name":
            self._at += 1
            return In(left, self._list())
        if operator.kind in ("name", "sign") and operator.text in _OPERATORS:
            self._at += 1
            right = self._operand()
            if operator.text == "matches" and not (
                isinstance(right, Constant) and isinstance(right.value, str)
            ):
                raise FilterError("`matches` needs a pattern in quotes", operator.position)
            return Compare(cast("Operator", operator.text), left, right, operator.position)
        if isinstance(left, Constant) and not isinstance(left.value, bool):
            self._fail("expected a comparison, such as == or contains")
        return Truth(left)

    # ---- operands

    def _operand(self) -> Operand:
        token = self._next
        if token.kind == "name" and token.text not in _CONSTANTS:
            return self._field()
        return Constant(self._scalar())

    def _scalar(self) -> Scalar:
        token = self._next
        self._at += 1
        match token.kind:
            case "text":
                return _unquoted(token)
            case "number":
                return _number(token)
            case "time":
                try:
                    return time_of(token.text, self._now_ms)
                except ValueError as error:
                    raise FilterError(str(error), token.position) from None
            case "name" if token.text in _CONSTANTS:
                return _CONSTANTS[token.text]
        self._at -= 1
        raise self._error(_EXPECTED)

    def _list(self) -> tuple[Scalar, ...]:
        self._expect("(")
        found = [self._scalar()]
        while self._takes(","):
            found.append(self._scalar())
        self._expect(")")
        return tuple(found)

    def _field(self) -> Field:
        token = self._next
        if token.text not in _ROOTS:
            parts = "key, value, headers, partition, offset and timestamp"
            hint = f"; fields of a value are written value.{token.text}"
            self._fail(f"a record has {parts}, not {token.text[:40]!r}{hint}")
        self._at += 1
        path: list[str | int] = []
        while self._next.text in (".", "[") and self._next.kind == "sign":
            path.append(self._step())
        root = cast("Root", token.text)
        if root in _NUMBERS and path:
            raise FilterError(f"{root} is a number without fields", token.position)
        if root == "headers" and not (path and isinstance(path[0], str)):
            raise FilterError('name a header: headers["name"]', token.position)
        return Field(root, tuple(path), token.position)

    def _step(self) -> str | int:
        if self._takes("."):
            token = self._next
            if token.kind != "name":
                self._fail('expected the name of a field; other names are written ["a-b"]')
            self._at += 1
            return token.text
        self._at += 1
        token = self._next
        found = self._scalar() if token.kind in ("text", "number") else None
        if not isinstance(found, str | int):
            raise FilterError("expected a name in quotes or a whole number", token.position)
        self._expect("]")
        return found

    # ---- tokens

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _takes(self, text: str) -> bool:
        token = self._next
        if token.text == text and token.kind in ("name", "sign"):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            self._fail(f"expected {text!r}")

    def _fail(self, text: str) -> NoReturn:
        raise self._error(text)

    def _error(self, text: str) -> FilterError:
        token = self._next
        if token.kind == "sign" and token.text in _MISTAKEN:
            text = f"write `{_MISTAKEN[token.text]}` instead of `{token.text}`"
        elif token.kind == "end":
            text = f"{text}, but the filter ends"
        return FilterError(text, token.position)


def _unquoted(token: _Token) -> str:
    def escaped(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        if match[2] not in _ESCAPED:
            # A pattern's \d, for example: kept as it is.
            return match[0]
        return _ESCAPED[match[2]]

    return _ESCAPE.sub(escaped, token.text[1:-1])


def _number(token: _Token) -> int | float:
    if len(token.text) > _DIGITS_MAX:
        raise FilterError(f"a number may have {_DIGITS_MAX} digits", token.position)
    try:
        return int(token.text)
    except ValueError:
        return float(token.text)
