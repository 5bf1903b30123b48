"""Goal: every codec both ways; damaged input and bombs are errors, never memory."""

from __future__ import annotations

import cramjam
import pytest

from dragoman.errors import DecodeError, EncodeError
from dragoman.log import compression
from dragoman.log.compression import Codec, codec_by_name, compress, decompress

DATA = bytes(range(256)) * 600
PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", DATA], ids=["empty", "byte", "large"])
def test_round_trip(codec: Codec, data: bytes):
    assert decompress(codec, compress(codec, data)) == data


def test_raw_snappy_is_recognised():
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(DATA))) == DATA


def test_snappy_is_written_in_xerial_blocks():
    packed = compress(Codec.SNAPPY, DATA)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")


@pytest.mark.parametrize("codec", PACKED)
def test_damaged_input_is_a_decode_error(codec: Codec):
    packed = bytearray(compress(codec, DATA))
    for position in range(18, len(packed), max(1, len(packed) // 40)):
        damaged = packed.copy()
        damaged[position] ^= 0xFF
        try:
            assert isinstance(decompress(codec, damaged), bytes)
        except DecodeError:
            continue


@pytest.mark.parametrize("codec", PACKED)
def test_cut_off_input_is_a_decode_error(codec: Codec):
    packed = compress(codec, DATA)
    with pytest.raises(DecodeError):
        decompress(codec, packed[: len(packed) // 2])


@pytest.mark.parametrize("codec", PACKED)
def test_bombs_are_refused_within_the_bound(codec: Codec, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compression, "DECOMPRESSED_BATCH_BYTES_MAX", 100_000)
    with pytest.raises(DecodeError, match="more than 100000 bytes"):
        decompress(codec, compress(codec, bytes(200_000)))
    assert len(decompress(codec, compress(codec, bytes(100_000)))) == 100_000


def test_output_larger_than_the_first_guess_grows():
    data = bytes(5_000_000)
    assert decompress(Codec.ZSTD, compress(Codec.ZSTD, data)) == data


@pytest.mark.parametrize("tail", [b"\0\0", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_bad_xerial_block_lengths_are_refused(tail: bytes):
    head = compress(Codec.SNAPPY, b"")
    with pytest.raises(DecodeError, match="snappy block"):
        decompress(Codec.SNAPPY, head + tail)


def test_unknown_codec_is_refused():
    with pytest.raises(DecodeError, match="codec 6"):
        decompress(6, b"")


def test_names():
    assert codec_by_name("uncompressed") is Codec.NONE
    assert codec_by_name("zstd") is Codec.ZSTD
    with pytest.raises(EncodeError, match="brotli"):
        codec_by_name("brotli")
