"""Goal: whatever a database sends, decoders raise nothing but `DecodeError`, and values that are
taken are JSON.

Method: seeded mutations of messages of every kind, of rows of COPY and of values' texts.
`DRAGOMAN_FUZZ_ROUNDS` multiplies the work. Messages of real servers are mutated in
`tests/integration/test_pgoutput_server.py`.
"""

from __future__ import annotations

import json
import os
import random

import pytest

from dragoman.cdc.events.envelopes import debezium_form
from dragoman.errors import DecodeError
from dragoman.protocols.postgres import codec
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.codec import Decoder
from dragoman.protocols.postgres.types import Kind
from dragoman.protocols.postgres.values import form_of
from protocols.pgoutput import STREAMED, encode

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
MUTANTS = 400
COLUMNS = (m.Column("id", 23, -1, True), m.Column("doc", 25))
ROW: m.Row = [b"1", None, m.UNCHANGED, b"some text"]
TIME = 1_750_000_000_000_000
MESSAGES: tuple[m.Message, ...] = (
    m.Begin(1, TIME, 2),
    m.Commit(1, 2, TIME),
    m.Origin(1, "elsewhere"),
    m.Relation(3, 1, "public", "orders", m.Identity.DEFAULT, COLUMNS),
    m.Type(3, 20_000, "public", "mood"),
    m.Insert(3, 1, ROW),
    m.Update(3, 1, ROW, ROW, True),
    m.Delete(3, 1, ROW, False),
    m.Truncate(3, (1, 2), True, False),
    m.LogicalMessage(3, True, 1, "prefix", b"content"),
    m.StreamStart(3, True),
    m.StreamStop(),
    m.StreamCommit(3, 1, 2, TIME),
    m.StreamAbort(3, 4, 1, TIME),
    m.BeginPrepare(1, 2, TIME, 3, "gid"),
    m.Prepare(1, 2, TIME, 3, "gid"),
    m.CommitPrepared(1, 2, TIME, 3, "gid"),
    m.RollbackPrepared(1, 2, TIME, TIME, 3, "gid"),
    m.StreamPrepare(1, 2, TIME, 3, "gid"),
)
#: What a mutation puts in: edges of lengths and what texts are made of.
PIECES = (
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    bytes(4),
    b"{",
    b"}",
    b'"',
    b"\\",
    b",",
    b"NULL",
    b"\xff",
)


def mutate(rng: random.Random, body: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = rng.randbytes(1)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                data[at:at] = rng.choice(PIECES)
            case 4:
                piece = rng.choice(PIECES)
                data[at : at + len(piece)] = piece
    return bytes(data)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_mutated_messages_raise_only_decode_errors(message: m.Message) -> None:
    rng = random.Random(f"fuzz {type(message).__name__}")
    for in_block in {False, isinstance(message, STREAMED)}:
        body = encode(message, in_block=in_block)
        for _ in range(MUTANTS * ROUNDS):
            decoder = Decoder(4)
            if in_block:
                decoder.decode(encode(m.StreamStart(3, True)))
            try:
                decoder.decode(mutate(rng, body))
            except DecodeError:
                continue


def test_mutated_frames_raise_only_decode_errors() -> None:
    rng = random.Random(1)
    frames = (b"w" + bytes(24) + b"E", b"k" + bytes(17))
    for _ in range(MUTANTS * ROUNDS):
        try:
            codec.decode_frame(mutate(rng, rng.choice(frames)))
        except DecodeError:
            continue


def test_mutated_rows_of_copy_raise_only_decode_errors() -> None:
    rng = random.Random(2)
    for _ in range(MUTANTS * ROUNDS):
        try:
            row = codec.decode_line(mutate(rng, b"1\t\\N\ta\\tb\\\\\tx\n"), 4)
        except DecodeError:
            continue
        assert len(row) == 4


TEXTS = {
    "text": b'{a,"b,\\"c",NULL}',
    "int4": b"{{1,2},{3,NULL}}",
    "bytea": b'{"\\\\x00ff"}',
    "box": b"{(1,1),(0,0);(2,2),(1,1)}",
    "timestamptz": b'{"2024-01-01 00:00:00+00",infinity}',
    "": b'{red,"(1,\\"x\\")"}',
}


@pytest.mark.parametrize("name", TEXTS)
def test_mutated_arrays_raise_only_decode_errors(name: str) -> None:
    rng = random.Random(f"fuzz {name}")
    to_json = form_of(Kind(name, True)).to_json
    for _ in range(MUTANTS * ROUNDS):
        data = mutate(rng, TEXTS[name])
        try:
            shown = to_json(data)
        except DecodeError:
            continue
        if name == "text":
            # What could not be JSON was not taken: strings say so themselves.
            json.loads(shown)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("date", b"2024-02-29 BC"),
        ("time", b"10:20:30.123456"),
        ("timestamp", b"2024-02-29 10:20:30.5 BC"),
        ("timetz", b"10:20:30.5+05:30"),
        ("interval", b"1 year 2 mons -3 days +04:05:06.7"),
        ("varbit", b"10101"),
        ("money", b"-$1,234.50"),
    ],
)
def test_mutated_values_of_debezium_raise_only_decode_errors(name: str, text: bytes) -> None:
    rng = random.Random(f"fuzz {name}")
    to_json = debezium_form(Kind(name), m.Column("c", 0)).to_json
    for _ in range(MUTANTS * ROUNDS):
        try:
            json.loads(to_json(mutate(rng, text)))
        except DecodeError:
            continue
