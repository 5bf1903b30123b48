"""Goal: filters take the messages that the specification says, and bad ones say where they are bad.

Method: tables of expressions with messages; random conditions against an oracle that walks the same
tree with SQL's truth tables written out; random text, which compiles or is refused, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.limits import FILTER_CHARACTERS_MAX, FILTER_DEPTH_MAX
from dragoman.protocols.rocketmq.filters import (
    SQL92,
    TAG,
    FilterError,
    compile_condition,
    compile_filter,
)

# ---- tags


@pytest.mark.parametrize("expression", ["", "*", " * "])
@pytest.mark.parametrize("kind", [TAG, "", None])
def test_star_and_nothing_take_every_message(kind: str | None, expression: str) -> None:
    found = compile_filter(kind, expression)
    assert found.takes_all
    assert found.tags is None
    assert found.matches({})
    assert found.matches({"TAGS": "a"})


@pytest.mark.parametrize("expression", ["a||b", " a || b ", "a||||b||", "b||a"])
def test_tags_are_split_at_double_bars_and_trimmed(expression: str) -> None:
    found = compile_filter(TAG, expression)
    assert found.tags == {"a", "b"}
    assert not found.takes_all
    assert found.matches({"TAGS": "a"})
    assert found.matches({"TAGS": "b", "KEYS": "k"})
    assert not found.matches({"TAGS": "c"})
    assert not found.matches({"TAGS": "a||b"})


def test_message_without_tags_matches_no_tag() -> None:
    assert not compile_filter(TAG, "a").matches({"KEYS": "a"})


def test_tags_with_equal_hashes_are_distinct() -> None:
    """`Aa` and `BB` have the same hash in Java."""
    assert not compile_filter(TAG, "Aa").matches({"TAGS": "BB"})


def test_bars_without_a_tag_are_refused() -> None:
    with pytest.raises(FilterError, match="no tag"):
        compile_filter(TAG, "|| ||")


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(FilterError, match="'CLASS'"):
        compile_filter("CLASS", "*")


@pytest.mark.parametrize("kind", [TAG, SQL92])
def test_too_long_expression_is_refused(kind: str) -> None:
    compile_filter(kind, "a".ljust(FILTER_CHARACTERS_MAX))
    with pytest.raises(FilterError, match=f"more than {FILTER_CHARACTERS_MAX} characters"):
        compile_filter(kind, "a".ljust(FILTER_CHARACTERS_MAX + 1))


def test_compiled_filters_are_kept() -> None:
    assert compile_filter(SQL92, "kept = 1") is compile_filter(SQL92, "kept = 1")


# ---- conditions

MESSAGE = {
    "n": "5",
    "minus": "-5",
    "f": "2.5",
    "e": "1e3",
    "t": "TRUE",
    "no": "false",
    "s": "it's",
    "empty": "",
    "big": "9007199254740993",
    "long": "9" * 5000,
    "$x_1": "dollar",
}


@pytest.mark.parametrize(
    "expression",
    [
        "n = 5",
        "5 = n",
        "n = 5L and n=5l",
        "n = '5'",
        "n = 5.0",
        "n <> 6",
        "n > 4 AND n >= 5 AND n < 6 AND n <= 5",
        "-n = minus",
        "-n < 0",
        "- - n = +5",
        "minus > -6",
        "f = 2.5 AND f > 2. AND f < .3e1 AND f < 3e0",
        "e = 1000",
        "n < e",
        "n BETWEEN 5 AND 7 AND n BETWEEN 3 AND 5",
        "n NOT BETWEEN 6 AND 7",
        "n between minus and e",
        "t",
        "t = TRUE AND TRUE = t AND no = FALSE",
        "t <> FALSE",
        "NOT no",
        "(n = 5) = TRUE",
        "s = 'it''s'",
        "s IN ('a', 'it''s')",
        "n IN ('5')",
        "s NOT IN ('a')",
        "s CONTAINS 't''' AND s StartsWith 'it' AND s ENDSWITH 's'",
        "s NOT CONTAINS 'x' AND s NOT STARTSWITH 's' AND s NOT ENDSWITH 't'",
        "missing IS NULL AND n IS NOT NULL",
        "empty IS NOT NULL AND empty = ''",
        "$x_1 = 'dollar'",
        "n = 5 OR missing = 1",
        "missing = 1 or n = 5",
        "n = 4 AND missing = 1 OR n = 5",
        "NOT n = 4",
        "NOT (n = 4 OR n = 3)",
        "NOT NOT t",
        "big > 9007199254740992",
        "long > 9",
        "TRUE",
        "not\tFALSE\n",
        "(((n)) = (5))",
    ],
)
def test_condition_that_is_true_matches(expression: str) -> None:
    assert compile_filter(SQL92, expression).matches(MESSAGE)
    assert compile_condition(f"NOT ({expression})")(MESSAGE) is False


@pytest.mark.parametrize(
    "expression",
    [
        "n = 6",
        "n = '5.0'",
        "n <> 5",
        "n > 5 OR n < 5",
        "n BETWEEN 6 AND 7",
        "no",
        "s",
        "s = TRUE",
        "t = FALSE",
        "s IN ('it')",
        "S = 'it''s' AND FALSE",
        "s = 'IT''S'",
        "n IS NULL",
        "missing = 1 AND n = 4",
        "FALSE",
        "n = 4 AND (n = 5 OR missing = 1)",
    ],
)
def test_condition_that_is_false_does_not_match(expression: str) -> None:
    assert not compile_filter(SQL92, expression).matches(MESSAGE)
    assert compile_condition(f"NOT ({expression})")(MESSAGE) is True


@pytest.mark.parametrize(
    "expression",
    [
        "missing = 1",
        "missing <> 1",
        "missing",
        "NOT missing",
        "missing = missing",
        "missing > 1 OR n = 4",
        "missing > 1 AND n = 5",
        "missing BETWEEN 1 AND 2",
        "missing NOT IN ('a')",
        "missing NOT CONTAINS 'a'",
        "s = 5",
        "s > 5",
        "s <> 5",
        "s > n",
        "empty < 1",
        "-s = 1",
        "1 = TRUE",
        "n = NULL",
        "NULL",
    ],
)
def test_unknown_does_not_match_nor_does_its_negation(expression: str) -> None:
    assert not compile_filter(SQL92, expression).matches(MESSAGE)
    assert not compile_filter(SQL92, f"NOT ({expression})").matches(MESSAGE)


@pytest.mark.parametrize("text", ["1_0", " 10", "10 ", "٣", "nan", "inf", "0x10", "1e", ".", "+-1"])
def test_text_that_is_no_number_here_is_no_number_elsewhere(text: str) -> None:
    assert compile_condition("n < 1 OR n >= 1")({"n": text}) is None


@pytest.mark.parametrize(
    ("expression", "position", "problem"),
    [
        ("", 0, "found the end"),
        ("  ", 2, "found the end"),
        ("a =", 3, "found the end"),
        ("a = = 1", 4, "found '='"),
        ("a = 1 b", 6, "expected end, found 'b'"),
        ("a = 1 = 1", 6, "found '='"),
        ("a IS NULL IS NULL", 10, "found 'IS'"),
        ("a LIKE 'x%'", 2, "found 'LIKE'"),
        ("a + 1 = 2", 2, "found '+'"),
        ("a = 'it''s", 4, "closing quote"),
        ("a ; b", 2, "unexpected ';'"),
        ("a =\xa01", 3, "unexpected '\\xa0'"),
        ('a = "x"', 4, "unexpected '\"'"),
        ("(a = 1", 6, "expected ), found the end"),
        ("a = 1)", 5, "found ')'"),
        ("a IN ()", 6, "expected text, found ')'"),
        ("a IN (1)", 6, "expected text, found '1'"),
        ("a IN ('x',)", 10, "expected text"),
        ("1 IN ('x')", 0, "only a property"),
        ("a IS 1", 5, "expected NULL"),
        ("a NOT = 1", 6, "expected BETWEEN"),
        ("a CONTAINS b", 11, "expected text"),
        ("1 CONTAINS 'b'", 0, "only text"),
        ("a > 'x'", 4, "only numbers"),
        ("TRUE < a", 0, "only numbers"),
        ("a > NULL", 4, "only numbers"),
        ("a BETWEEN 'a' AND 'b'", 10, "only numbers"),
        ("a BETWEEN 1 OR 2", 12, "expected AND"),
        ("-'x' = 1", 1, "not a number"),
        ("1", 0, "not a condition"),
        ("a = 1 AND 'x'", 10, "not a condition"),
        ("NOT 5", 4, "not a condition"),
        ("f(a) = 1", 1, "found '('"),
        ("a = 9223372036854775808", 4, "64 bits"),
        ("a = " + "9" * 5000, 4, "64 bits"),
        ("AND", 0, "found 'AND'"),
    ],
)
def test_bad_condition_is_refused_with_its_position(
    expression: str, position: int, problem: str
) -> None:
    with pytest.raises(FilterError) as refusal:
        compile_filter(SQL92, expression)
    assert refusal.value.position == position
    assert problem in str(refusal.value)
    assert str(refusal.value).endswith(f" at position {position}")


@pytest.mark.parametrize(
    "nested",
    [
        lambda depth: "(" * depth + "a = 1" + ")" * depth,
        lambda depth: "NOT " * depth + "a = 1",
        lambda depth: "- " * depth + "a = 1",
    ],
)
def test_depth_is_bounded(nested: Callable[[int], str]) -> None:
    assert compile_condition(nested(FILTER_DEPTH_MAX))({"a": "1"}) is not None
    for depth in (FILTER_DEPTH_MAX + 1, 2000):
        with pytest.raises(FilterError, match="deep"):
            compile_condition(nested(depth))


def test_long_chains_are_not_deep() -> None:
    text = " OR ".join(f"a = {number}" for number in range(600))
    condition = compile_filter(SQL92, text)
    assert condition.matches({"a": "599"})
    assert not condition.matches({"a": "600"})


# ---- against an oracle

NAMES = ("a", "b", "c")
TEXTS = ("", "x", "xy", "1", "2", "2.5", "-1", "true", "FALSE", "it's")


class Case(NamedTuple):
    """A condition as text, and what it is for given properties by the oracle."""

    text: str
    oracle: Callable[[dict[str, str]], bool | None]


def _number(text: str | None) -> float | None:
    return float(text) if text in ("1", "2", "2.5", "-1") else None


def _compared(name: str, sign: str, number: float) -> Case:
    def oracle(properties: dict[str, str]) -> bool | None:
        value = _number(properties.get(name))
        if value is None:
            return None
        return {
            "=": value == number,
            "<>": value != number,
            "<": value < number,
            "<=": value <= number,
            ">": value > number,
            ">=": value >= number,
        }[sign]

    return Case(f"{name} {sign} {number}", oracle)


def _texts(name: str, word: str, is_not: bool, text: str) -> Case:
    quoted = "'" + text.replace("'", "''") + "'"
    listed = f"({quoted})" if word == "IN" else quoted

    def oracle(properties: dict[str, str]) -> bool | None:
        value = properties.get(name)
        if value is None:
            return None
        found = {
            "IN": value == text,
            "CONTAINS": text in value,
            "STARTSWITH": value[: len(text)] == text,
            "ENDSWITH": value[len(value) - len(text) :] == text,
        }[word]
        return found is not is_not

    return Case(f"{name} {'NOT ' * is_not}{word} {listed}", oracle)


def _is_null(name: str, is_not: bool) -> Case:
    return Case(
        f"{name} IS {'NOT ' * is_not}NULL", lambda properties: (name in properties) is is_not
    )


def _boolean(name: str, value: bool) -> Case:
    def oracle(properties: dict[str, str]) -> bool | None:
        found = properties.get(name)
        return None if found is None else (found in ("true", "TRUE")) is value

    return Case(f"{name} = {str(value).upper()}", oracle)


AND = {
    (True, True): True,
    (True, None): None,
    (None, True): None,
    (None, None): None,
}
OR = {
    (False, False): False,
    (False, None): None,
    (None, False): None,
    (None, None): None,
}


def _joined(left: Case, word: str, right: Case) -> Case:
    def oracle(properties: dict[str, str]) -> bool | None:
        both = left.oracle(properties), right.oracle(properties)
        return AND.get(both, False) if word == "AND" else OR.get(both, True)

    return Case(f"({left.text}) {word} ({right.text})", oracle)


def _negated(case: Case) -> Case:
    def oracle(properties: dict[str, str]) -> bool | None:
        return {True: False, False: True, None: None}[case.oracle(properties)]

    return Case(f"NOT ({case.text})", oracle)


LEAVES = st.one_of(
    st.builds(
        _compared,
        st.sampled_from(NAMES),
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        st.sampled_from([1, 2, 2.5, -1, 0]),
    ),
    st.builds(
        _texts,
        st.sampled_from(NAMES),
        st.sampled_from(["IN", "CONTAINS", "STARTSWITH", "ENDSWITH"]),
        st.booleans(),
        st.sampled_from(TEXTS),
    ),
    st.builds(_is_null, st.sampled_from(NAMES), st.booleans()),
    st.builds(_boolean, st.sampled_from(NAMES), st.booleans()),
)
CASES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(_joined, inner, st.sampled_from(["AND", "OR"]), inner), st.builds(_negated, inner)
    ),
    max_leaves=12,
)
PROPERTIES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS))


@given(CASES, PROPERTIES)
def test_conditions_are_what_the_truth_tables_say(case: Case, properties: dict[str, str]) -> None:
    expected = case.oracle(properties)
    assert compile_condition(case.text)(properties) is expected
    assert compile_filter(SQL92, case.text).matches(properties) is (expected is True)


WORDS = st.sampled_from(
    re.findall(
        r"\S+",
        "a b 1 2.5 'x' '' ' ( ) , = <> < <= > >= + - AND OR NOT IN IS NULL TRUE FALSE BETWEEN "
        "CONTAINS STARTSWITH ENDSWITH 1e400 é",
    )
)


@given(st.one_of(st.text(max_size=40), st.lists(WORDS, max_size=25).map(" ".join)), PROPERTIES)
def test_any_text_is_a_filter_or_refused(expression: str, properties: dict[str, str]) -> None:
    for kind in (TAG, SQL92):
        try:
            found = compile_filter(kind, expression)
        except FilterError as error:
            position = error.position
        else:
            assert isinstance(found.matches(properties), bool)
            position = 0
        assert 0 <= position <= len(expression)
