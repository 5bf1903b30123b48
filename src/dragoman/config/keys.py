"""One configuration key: its name, the values it accepts, and how they are parsed and formatted.

Values arrive as text (environment, flags, Kafka clients) or as TOML values (a configuration file).
Both are read by the same rules, so a setting means the same wherever it is written. This module
knows no particular key; the tables are in `settings.py` and `overrides.py`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import msgspec

from dragoman.errors import ConfigError

#: A typed value. A list is a tuple without repeats, in the order of the text.
Value: TypeAlias = bool | int | float | str | tuple[str, ...]

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
#: The longest text of an integer that is parsed: Python rejects huge ones slowly.
_NUMBER_CHARS_MAX = 32
#: The longest name that is compared with known ones, which takes long. No key is as long.
_NAME_CHARS_MAX = 100


class Kind(enum.Enum):
    """Kafka's configuration types, by Kafka's names; `INT` has 32 bits and `LONG` 64."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"


class Source(enum.Enum):
    """The origin of a key's value, the strongest first."""

    TOPIC = "topic"
    GROUP = "group"
    #: Changed at run time, for one node.
    DYNAMIC_NODE = "dynamic_node"
    #: Changed at run time, for every node of the cluster.
    DYNAMIC_CLUSTER = "dynamic_cluster"
    #: Set when the node was started.
    NODE = "node"
    DEFAULT = "default"


class Key(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: Kind
    doc: str
    #: Inclusive bounds of a number. A missing upper bound is that of the kind.
    minimum: float | None = None
    maximum: float | None = None
    #: All accepted words of a string, or of each element of a list. Empty: any.
    choices: tuple[str, ...] = ()
    #: Whether a list with `choices` may be empty.
    may_be_empty: bool = False

    @property
    def attribute(self) -> str:
        """The field of `Settings` or `TopicConfig` that holds the value."""
        return self.name.replace(".", "_")

    def read(self, raw: object) -> Value:
        """The typed value of text or of a TOML value. Raises `ConfigError` that names the key."""
        value = _READERS[self.kind](raw)
        if value is None or not self._accepts(value):
            raise ConfigError(f"{self.name}: expected {self.expectation()}, got {_shorten(raw)}")
        return value

    def _accepts(self, value: Value) -> bool:
        if isinstance(value, tuple):
            # A list with choices needs one of them, unless it may be empty.
            if not self.choices:
                return True
            return bool(value or self.may_be_empty) and all(map(self.choices.__contains__, value))
        if isinstance(value, str):
            return not self.choices or value in self.choices
        if isinstance(value, bool):
            return True
        lowest, highest = self.bounds()
        return lowest <= value <= highest

    def bounds(self) -> tuple[float, float]:
        """Lowest and highest number accepted."""
        kind_highest = {Kind.INT: INT_MAX, Kind.LONG: LONG_MAX}.get(self.kind, math.inf)
        kind_lowest = -kind_highest - 1 if kind_highest != math.inf else -math.inf
        lowest = kind_lowest if self.minimum is None else self.minimum
        highest = kind_highest if self.maximum is None else self.maximum
        return lowest, highest

    def expectation(self) -> str:
        """What the key accepts, as the end of the sentence `expected ...`."""
        match self.kind:
            case Kind.BOOLEAN:
                return "true or false"
            case Kind.STRING:
                return f"one of {', '.join(self.choices)}" if self.choices else "text"
            case Kind.LIST:
                words = f" of {', '.join(self.choices)}" if self.choices else ""
                return f"a comma-separated list{words}{', or nothing' if self.may_be_empty else ''}"
            case Kind.DOUBLE:
                return f"a number{self._range_words()}"
            case Kind.INT:
                return f"a 32-bit integer{self._range_words()}"
            case Kind.LONG:
                return f"a 64-bit integer{self._range_words()}"

    def _range_words(self) -> str:
        if self.minimum is not None and self.maximum is not None:
            return f" from {self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f" of at least {self.minimum}"
        return f" of at most {self.maximum}" if self.maximum is not None else ""


class Accepted(NamedTuple):
    kind: Kind
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    may_be_empty: bool = False

    @classmethod
    def parse(cls, text: str) -> Accepted:
        """From a table of keys, such as `int 0..9`, `long -1..` or `string fsync,os`.

        An empty word among those of a list, as in `list ,one,two`, says that it may be empty.
        """
        name, _, rest = text.partition(" ")
        kind = Kind(name)
        if kind in (Kind.STRING, Kind.LIST):
            words = tuple(rest.split(",")) if rest else ()
            return cls(kind, choices=tuple(filter(None, words)), may_be_empty="" in words)
        low, _, high = rest.partition("..")
        return cls(kind, int(low) if low else None, int(high) if high else None)


def table_rows(table: str) -> list[list[str]]:
    """The cells of a table of keys, one key a line."""
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def format_value(value: Value) -> str:
    """The text of a value as Kafka writes it; `Key.read` of it gives the value back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def near_match(name: str, candidates: Iterable[str]) -> str:
    """`; did you mean 'x'?` when a candidate is close to the name, else nothing."""
    if len(name) > _NAME_CHARS_MAX:
        return ""
    # Imported here: only a misspelt name needs it.
    import difflib

    close = difflib.get_close_matches(name, list(candidates), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _read_boolean(raw: object) -> Value | None:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str):
        return {"true": True, "false": False}.get(raw.strip().lower())
    return None


def _read_integer(raw: object) -> Value | None:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    text = _number_text(raw)
    # `int` alone would also take underscores and the digits of every script.
    digits = text[1:] if text[:1] in ("-", "+") else text
    return int(text) if digits.isascii() and digits.isdigit() else None


def _read_double(raw: object) -> Value | None:
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        number = float(raw) if isinstance(raw, float) or abs(raw) <= LONG_MAX else math.inf
    else:
        text = _number_text(raw)
        if "_" in text or not text.isascii():
            return None
        try:
            number = float(text)
        except ValueError:
            return None
    return number if math.isfinite(number) else None


def _number_text(raw: object) -> str:
    """The stripped text; empty when it is too long for a number."""
    text = raw.strip() if isinstance(raw, str) else ""
    return text if len(text) <= _NUMBER_CHARS_MAX else ""


def _read_string(raw: object) -> Value | None:
    return raw.strip() if isinstance(raw, str) else None


def _read_list(raw: object) -> Value | None:
    if isinstance(raw, str):
        parts: list[object] = list(raw.split(",")) if raw.strip() else []
    elif isinstance(raw, list):
        parts = raw
    else:
        return None
    words: dict[str, None] = {}
    for part in parts:
        if not isinstance(part, str) or not part.strip():
            return None
        words[part.strip()] = None
    return tuple(words)


_READERS = {
    Kind.BOOLEAN: _read_boolean,
    Kind.INT: _read_integer,
    Kind.LONG: _read_integer,
    Kind.DOUBLE: _read_double,
    Kind.STRING: _read_string,
    Kind.LIST: _read_list,
}


def _shorten(raw: object) -> str:
    shown = repr(raw)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
