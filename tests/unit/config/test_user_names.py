"""Goal: one function decides which names users can have, and every source of names asks it."""

from __future__ import annotations

import pytest

from dragoman.config.user_names import problem_of

POSSIBLE = ("alice", "Ärger", "CN=a,OU=b", "a:b", "a b", "日本", "a" * 255, "anonymous", "**")
IMPOSSIBLE = (
    *("", "*", "ANONYMOUS", " a", "a ", "a\n", "a\0b", "\x7f", "\x9b", "\u200b", "a\u202eb"),
    *("\ud800", "a" * 256, "é" * 128),
)


@pytest.mark.parametrize("name", POSSIBLE)
def test_name_is_possible(name: str) -> None:
    assert problem_of(name) == ""


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_name_is_impossible(name: str) -> None:
    assert problem_of(name)
