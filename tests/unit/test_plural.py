"""Goal: messages count things as people do. Method: a table."""

from __future__ import annotations

import pytest

from dragoman.plural import plural


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "topic", "0 topics"),
        (1, "topic", "1 topic"),
        (2, "topic", "2 topics"),
        (1200, "record", "1,200 records"),
    ],
)
def test_number_with_its_noun(count: int, noun: str, text: str) -> None:
    assert plural(count, noun) == text


def test_noun_with_a_plural_of_its_own() -> None:
    assert plural(1, "copy", "copies") == "1 copy"
    assert plural(2, "copy", "copies") == "2 copies"
