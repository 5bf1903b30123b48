"""Goal: integers, varints and text are read and written exactly, and nothing is read past the end.

Method: known encodings, edges of every width, and every truncation of valid input.
"""

from __future__ import annotations

import pytest

from dragoman import primitives as p
from dragoman.errors import DecodeError, EncodeError

ZIGZAG = {0: "00", -1: "01", 1: "02", 63: "7e", 64: "8001", -64: "7f", 300: "d804"}
UNSIGNED = {0: "00", 127: "7f", 128: "8001", 300: "ac02", (1 << 32) - 1: "ffffffff0f"}


@pytest.mark.parametrize(("value", "text"), ZIGZAG.items())
def test_zigzag_varints(value: int, text: str) -> None:
    out = bytearray()
    p.append_varint(out, value)
    assert out.hex() == text
    assert p.read_varint(out, 0) == (value, len(out))
    assert p.read_varlong(out, 0) == (value, len(out))
    assert p.varint_size(value) == len(out)


@pytest.mark.parametrize(("value", "text"), UNSIGNED.items())
def test_unsigned_varints(value: int, text: str) -> None:
    assert p.uvarint(value).hex() == text
    assert p.read_uvarint(b"?" + p.uvarint(value), 1) == (value, 1 + len(text) // 2)
    assert p.uvarint_size(value) == len(text) // 2


@pytest.mark.parametrize("value", [-(1 << 31), (1 << 31) - 1])
def test_edges_of_32_bits(value: int) -> None:
    out = bytearray()
    p.append_varint(out, value)
    assert len(out) == p.UVARINT32_BYTES_MAX
    assert p.read_varint(out, 0) == (value, 5)


@pytest.mark.parametrize("value", [-(1 << 63), (1 << 63) - 1, -1, 0])
def test_edges_of_64_bits(value: int) -> None:
    out = bytearray()
    p.append_varlong(out, value)
    assert p.read_varlong(out, 0) == (value, len(out))
    assert p.varint_size(value) == len(out)


def test_largest_unsigned_64_bits() -> None:
    data = p.uvarint((1 << 64) - 1)
    assert len(data) == p.UVARINT64_BYTES_MAX
    assert p.read_uvarlong(data, 0) == ((1 << 64) - 1, 10)


@pytest.mark.parametrize("text", ["ffffffff10", "ffffffffff00", "808080808000"])
def test_varint_of_more_than_32_bits_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="more than 32 bits"):
        p.read_uvarint(bytes.fromhex(text), 0)


def test_varint_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(DecodeError, match="more than 64 bits"):
        p.read_uvarlong(b"\xff" * 9 + b"\x02", 0)


@pytest.mark.parametrize("text", ["", "80", "ffff"])
def test_cut_off_varint_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="cut off"):
        p.read_uvarint(bytes.fromhex(text), 0)


def test_negative_unsigned_varint_cannot_be_written() -> None:
    with pytest.raises(EncodeError, match="negative"):
        p.uvarint(-1)


def test_text_must_be_utf8() -> None:
    assert p.text("größe".encode()) == "größe"
    with pytest.raises(DecodeError, match="byte 1"):
        p.text(b"a\xff")


def read_everything(data: bytes) -> list[object]:
    reader = p.Reader(data)
    values = [
        reader.uint8(),
        reader.int8(),
        reader.uint16(),
        reader.int16(),
        reader.uint32(),
        reader.int32(),
        reader.uint64(),
        reader.int64(),
        reader.uvarint(),
        reader.varint(),
        reader.varlong(),
        reader.text(2),
        reader.take(1),
        bytes(reader.view(1)),
    ]
    reader.skip(1)
    reader.finish()
    return values


EVERYTHING = (
    bytes.fromhex("ffff" + "ffff" * 2 + "ffffffff" * 2 + "ff" * 16 + "ac02" + "d804" + "01")
    + b"hixyz"
)


def test_reader_reads_every_kind() -> None:
    assert read_everything(EVERYTHING) == [
        255,
        -1,
        65535,
        -1,
        (1 << 32) - 1,
        -1,
        (1 << 64) - 1,
        -1,
        300,
        300,
        -1,
        "hi",
        b"x",
        b"y",
    ]


@pytest.mark.parametrize("size", range(len(EVERYTHING)))
def test_reader_refuses_every_truncation(size: int) -> None:
    with pytest.raises(DecodeError):
        read_everything(EVERYTHING[:size])


def test_reader_refuses_what_is_left_over() -> None:
    with pytest.raises(DecodeError, match="1 bytes left over at byte 40"):
        read_everything(EVERYTHING + b"!")


def test_reader_refuses_negative_sizes() -> None:
    reader = p.Reader(b"abc", 2)
    with pytest.raises(DecodeError, match="-1 bytes announced at byte 2, 1 are left"):
        reader.take(-1)
    assert reader.position == 2
    assert reader.remaining == 1
