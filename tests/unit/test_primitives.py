"""Goal: varints are read and written exactly, and nothing is read past the end.

Method: known encodings, edges of the width, and truncations of valid input.
"""

from __future__ import annotations

import pytest

from dragoman import primitives as p
from dragoman.errors import DecodeError, EncodeError

UNSIGNED = {0: "00", 127: "7f", 128: "8001", 300: "ac02", (1 << 32) - 1: "ffffffff0f"}


@pytest.mark.parametrize(("value", "text"), UNSIGNED.items())
def test_unsigned_varints(value: int, text: str) -> None:
    assert p.uvarint(value).hex() == text
    assert p.read_uvarint(b"?" + p.uvarint(value), 1) == (value, 1 + len(text) // 2)


@pytest.mark.parametrize("text", ["ffffffff10", "ffffffffff00", "808080808000"])
def test_varint_of_more_than_32_bits_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="more than 32 bits"):
        p.read_uvarint(bytes.fromhex(text), 0)


@pytest.mark.parametrize("text", ["", "80", "ffffffff"])
def test_cut_off_varint_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="cut off"):
        p.read_uvarint(bytes.fromhex(text), 0)


def test_negative_unsigned_varint_cannot_be_written() -> None:
    with pytest.raises(EncodeError, match="negative"):
        p.uvarint(-1)
