from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from dragoman.broker.directory import coordinator_partition
from dragoman.limits import CACHED_TEXT_CHARACTERS_MAX
from dragoman.protocols.rocketmq.handlers import names
from dragoman.text_cache import cached_by_text


def test_only_results_of_short_texts_are_kept() -> None:
    asked: list[str] = []

    @cached_by_text(2)
    def length(text: str) -> int:
        asked.append(text)
        return len(text)

    short, long = "a" * CACHED_TEXT_CHARACTERS_MAX, "a" * (CACHED_TEXT_CHARACTERS_MAX + 1)
    for text in (short, long, short, long):
        assert length(text) == len(text)
    assert asked == [short, long, long]


def test_too_many_results_are_forgotten() -> None:
    asked: list[str] = []

    @cached_by_text(2)
    def same(text: str) -> str:
        asked.append(text)
        return text

    for text in "abacca":
        assert same(text) == text
    assert "".join(asked) == "abca"


@pytest.mark.parametrize("ask", [names.topic_name, names.spelling, names.is_expressible])
def test_long_name_from_a_client_is_not_kept(ask: Callable[[str], object]) -> None:
    name = "a" * 100_000
    before = sys.getrefcount(name)
    ask(name)
    assert sys.getrefcount(name) == before


def test_coordinator_of_a_name_that_is_too_long_takes_no_time() -> None:
    # Its hash would take minutes.
    assert coordinator_partition("a" * (1 << 28), 50) == 0
