"""Goal: what pgoutput's versions allow, and what the decoder says about the rest.

Method: single messages by hand; round trips are in `tests/property/test_pgoutput_codec.py`.
"""

from __future__ import annotations

import pytest

from dragoman.errors import DecodeError
from dragoman.protocols.postgres import codec, constants
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.codec import Decoder
from protocols.pgoutput import encode

STREAMED = m.StreamCommit(1, 2, 3, 4)
PREPARED = m.BeginPrepare(1, 2, 3, 4, "gid")


@pytest.mark.parametrize(("message", "since"), [(STREAMED, 2), (PREPARED, 3)])
def test_messages_of_later_versions_are_refused(message: m.Message, since: int) -> None:
    with pytest.raises(DecodeError, match=f"not one of pgoutput's version {since - 1}"):
        Decoder(since - 1).decode(encode(message))
    assert Decoder(since).decode(encode(message)) == message


def test_an_insert() -> None:
    data = bytes.fromhex("49000040014e0003740000000131740000000361c3a46e")
    assert Decoder(4).decode(data) == m.Insert(0, 0x4001, [b"1", "aä".encode(), None])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "does not parse"),
        (b"?", "not one of pgoutput's"),
        (b"I\0\0\0\1K\0\0", "expected 'N'"),
        (b"U\0\0\0\1X\0\0", "expected N, K or O"),
        (b"D\0\0\0\1N\0\0", "expected K or O"),
        (b"I\0\0\0\1N\0\1b\0\0\0\1x", "expected t, n or u"),
        (b"I\0\0\0\1N\0\1t\xff\xff\xff\xffx", "should end at byte"),
        (b"I\0\0\0\1N\0\0more", "should end at byte 8 and ends at 12"),
        (b"T\xff\xff\xff\xff\0", "4294967295 truncated tables in 6 bytes"),
        (b"R\0\0\0\1a\0b\0z\0\0", "does not parse"),
        (b"Y\0\0\0\1\xff\0b\0", "does not parse"),
    ],
)
def test_malformed_messages(data: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        Decoder(4).decode(data)


def test_a_block_does_not_begin_in_another() -> None:
    decoder = Decoder(2)
    decoder.decode(encode(m.StreamStart(7, True)))
    with pytest.raises(DecodeError, match="begins in another"):
        decoder.decode(encode(m.StreamStart(8, True)))


@pytest.mark.parametrize(
    "text", ["", "1", "1/", "/1", "x/1", "1/1/1", "123456789/1", "-1/1", "1/+1"]
)
def test_malformed_positions(text: str) -> None:
    with pytest.raises(DecodeError, match="not a position"):
        codec.parse_lsn(text)


def test_rows_of_copy() -> None:
    assert codec.decode_line(b"1\t\\N\t\\\\N\t\ta\\tb\n", 5) == [b"1", None, b"\\N", b"", b"a\tb"]
    assert codec.decode_line(b"\n", 1) == [b""]
    assert codec.decode_line(b"\n", 0) == []
    with pytest.raises(DecodeError, match="2 columns, expected 3"):
        codec.decode_line(b"1\t2\n", 3)
    with pytest.raises(DecodeError, match="ends with a backslash"):
        codec.decode_line(b"1\\\t2\n", 2)


@pytest.mark.parametrize(
    ("server", "version"), [(130001, 1), (140000, 2), (150004, 3), (180001, 4)]
)
def test_versions_of_servers(server: int, version: int) -> None:
    assert constants.protocol_version(server) == version
