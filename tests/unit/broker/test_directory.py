"""Which partition coordinates a name. Expected hashes are those of Java's `String.hashCode`."""

from __future__ import annotations

import pytest

from dragoman.broker.directory import coordinator_partition, java_string_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
        ("Aa", 2112),
        ("BB", 2112),
        ("ü", 252),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_partition_is_the_absolute_hash_modulo_the_count() -> None:
    assert coordinator_partition("hello", 50) == 99162322 % 50
    negative = java_string_hash("my-transactional-id-7")
    assert coordinator_partition("my-transactional-id-7", 50) == abs(negative) % 50


def test_lowest_integer_has_partition_zero() -> None:
    assert coordinator_partition("polygenelubricants", 50) == 0
