"""Reading and showing values of one key: every kind, good and bad, as text and as TOML values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.config.keys import INT_MAX, LONG_MAX, Key, Kind, Value, format_value, near_match
from dragoman.errors import ConfigError

INT = Key(name="some.int", kind=Kind.INT, minimum=-1, doc="")
LONG = Key(name="some.long", kind=Kind.LONG, doc="")
RATIO = Key(name="some.ratio", kind=Kind.DOUBLE, minimum=0, maximum=1, doc="")
FLAG = Key(name="some.flag", kind=Kind.BOOLEAN, doc="")
WORD = Key(name="some.word", kind=Kind.STRING, choices=("red", "blue"), doc="")
TEXT = Key(name="some.text", kind=Kind.STRING, doc="")
WORDS = Key(name="some.words", kind=Kind.LIST, choices=("red", "blue"), doc="")
NO_WORDS = Key(name="k", kind=Kind.LIST, choices=("red", "blue"), may_be_empty=True, doc="")


@pytest.mark.parametrize(
    ("key", "raw", "value"),
    [
        (INT, "7", 7),
        (INT, " -1 ", -1),
        (INT, "+3", 3),
        (INT, 12, 12),
        (INT, str(INT_MAX), INT_MAX),
        (LONG, str(LONG_MAX), LONG_MAX),
        (LONG, str(-LONG_MAX - 1), -LONG_MAX - 1),
        (RATIO, "0.5", 0.5),
        (RATIO, 1, 1.0),
        (RATIO, "1e-1", 0.1),
        (FLAG, "TRUE", True),
        (FLAG, "false", False),
        (FLAG, True, True),
        (WORD, " red ", "red"),
        (TEXT, "anything at all", "anything at all"),
        (WORDS, "red, blue", ("red", "blue")),
        (WORDS, "blue,blue", ("blue",)),
        (WORDS, ["red"], ("red",)),
    ],
)
def test_good_value_is_read(key: Key, raw: object, value: Value) -> None:
    read = key.read(raw)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        (INT, "-2"),
        (INT, str(INT_MAX + 1)),
        (INT, ""),
        (INT, "1_000"),
        (INT, "1.0"),
        (INT, "٣"),
        (INT, "--1"),
        (INT, "9" * 5000),
        (INT, 10**40),
        (INT, True),
        (INT, 1.0),
        (INT, None),
        (INT, [1]),
        (LONG, str(LONG_MAX + 1)),
        (LONG, str(-LONG_MAX - 2)),
        (RATIO, "1.01"),
        (RATIO, "nan"),
        (RATIO, "inf"),
        (RATIO, float("nan")),
        (RATIO, 10**400),
        (RATIO, "0_1"),
        (RATIO, False),
        (RATIO, "half"),
        (FLAG, "yes"),
        (FLAG, "1"),
        (FLAG, 1),
        (WORD, "green"),
        (WORD, "Red"),
        (WORD, 3),
        (TEXT, 3),
        (WORDS, ""),
        (WORDS, "red,,blue"),
        (WORDS, "red,green"),
        (WORDS, []),
        (WORDS, ["red", 1]),
        (WORDS, 5),
        (NO_WORDS, "green"),
        (NO_WORDS, ","),
    ],
)
def test_bad_value_is_refused_with_the_keys_name(key: Key, raw: object) -> None:
    with pytest.raises(ConfigError, match=rf"^{key.name}: expected .*, got ") as caught:
        key.read(raw)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("raw", ["", " ", []])
def test_a_list_of_words_may_be_empty_where_the_key_says_so(raw: object) -> None:
    assert NO_WORDS.read(raw) == ()
    assert NO_WORDS.read("blue") == ("blue",)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (INT, "a 32-bit integer of at least -1"),
        (LONG, "a 64-bit integer"),
        (RATIO, "a number from 0 to 1"),
        (Key(name="k", kind=Kind.INT, maximum=5, doc=""), "a 32-bit integer of at most 5"),
        (FLAG, "true or false"),
        (WORD, "one of red, blue"),
        (TEXT, "text"),
        (WORDS, "a comma-separated list of red, blue"),
        (NO_WORDS, "a comma-separated list of red, blue, or nothing"),
        (Key(name="k", kind=Kind.LIST, doc=""), "a comma-separated list"),
    ],
)
def test_expectation_names_the_bounds(key: Key, words: str) -> None:
    assert key.expectation() == words


@given(st.integers(-1, INT_MAX))
def test_integers_survive_text(number: int) -> None:
    assert INT.read(format_value(number)) == number


@given(st.floats(0, 1))
def test_ratios_survive_text(number: float) -> None:
    assert RATIO.read(format_value(number)) == number


@given(st.lists(st.sampled_from(["red", "blue"]), min_size=1, max_size=2, unique=True))
def test_lists_survive_text(words: list[str]) -> None:
    assert WORDS.read(format_value(tuple(words))) == tuple(words)


def test_booleans_are_written_as_kafka_writes_them() -> None:
    assert (format_value(True), format_value(False)) == ("true", "false")


def test_near_match_names_the_closest_and_keeps_silent_otherwise() -> None:
    assert near_match("num.partition", ["num.partitions", "data"]) == (
        "; did you mean 'num.partitions'?"
    )
    assert near_match("zzz", ["num.partitions", "data"]) == ""


def test_a_very_long_name_is_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from a client, and would keep the node busy."""

    def compare(*_: object, **__: object) -> list[str]:
        raise AssertionError("compared")

    monkeypatch.setattr("difflib.get_close_matches", compare)
    assert near_match("n" * 1_000_000, ["num.partitions"]) == ""
