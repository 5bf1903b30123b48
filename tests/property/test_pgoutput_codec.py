"""Goal: every message of pgoutput decodes to what was sent, and no bytes make a decoder fail
otherwise than it says.

Method: messages from hypothesis, written by `protocols.pgoutput`; every message cut at every byte;
rows written as COPY does.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DecodeError
from dragoman.protocols.postgres import codec
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.codec import Decoder
from dragoman.protocols.postgres.constants import EPOCH_US
from dragoman.types import Lsn
from protocols.pgoutput import encode

LSN = st.integers(0, (1 << 64) - 1)
XID = st.integers(1, (1 << 32) - 1)
OID = st.integers(0, (1 << 32) - 1)
TIME = st.integers(-(1 << 63) + EPOCH_US, (1 << 62))
NAME = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)
SCHEMA = NAME.map(lambda name: name or "pg_catalog")
COLUMN = st.builds(m.Column, NAME, OID, st.integers(-1, 1 << 30), st.booleans())
VALUES = st.one_of(st.none(), st.just(m.UNCHANGED), st.binary(max_size=40))
ROW = st.lists(VALUES, max_size=8)
PREPARED = (LSN, LSN, TIME, XID, NAME)

CHANGES = st.one_of(
    st.builds(
        m.Relation,
        XID,
        OID,
        SCHEMA,
        NAME,
        st.sampled_from(m.Identity),
        st.lists(COLUMN, max_size=5).map(tuple),
    ),
    st.builds(m.Type, XID, OID, SCHEMA, NAME),
    st.builds(m.Insert, XID, OID, ROW),
    st.builds(m.Update, XID, OID, ROW, ROW, st.booleans()),
    st.builds(m.Update, XID, OID, ROW, st.none(), st.just(False)),
    st.builds(m.Delete, XID, OID, ROW, st.booleans()),
    st.builds(m.Truncate, XID, st.lists(OID, max_size=4).map(tuple), st.booleans(), st.booleans()),
    st.builds(m.LogicalMessage, XID, st.booleans(), LSN, NAME, st.binary(max_size=40)),
)
OTHERS = st.one_of(
    st.builds(m.Begin, LSN, TIME, XID),
    st.builds(m.Commit, LSN, LSN, TIME),
    st.builds(m.Origin, LSN, NAME),
    st.builds(m.StreamCommit, XID, LSN, LSN, TIME),
    st.builds(m.StreamAbort, XID, XID),
    st.builds(m.StreamAbort, XID, XID, LSN.filter(bool), TIME),
    st.builds(m.BeginPrepare, *PREPARED),
    st.builds(m.Prepare, *PREPARED),
    st.builds(m.CommitPrepared, *PREPARED),
    st.builds(m.StreamPrepare, *PREPARED),
    st.builds(m.RollbackPrepared, LSN, LSN, TIME, TIME, XID, NAME),
)


def in_block(xid: int) -> Decoder:
    decoder = Decoder(4)
    decoder.decode(encode(m.StreamStart(xid, True)))
    return decoder


@given(CHANGES, st.binary(max_size=30))
def test_changes_of_a_streamed_block_name_their_transaction(
    message: m.Message, before: bytes
) -> None:
    decoder = in_block(1)
    data = encode(message, in_block=True)
    assert decoder.decode(before + data, len(before)) == message
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            decoder.decode(data[:end])
    decoder.decode(encode(m.StreamStop()))
    with pytest.raises(DecodeError):
        decoder.decode(encode(m.StreamStop()))


@given(CHANGES)
def test_changes_outside_a_block_name_no_transaction(message: m.Message) -> None:
    decoded = Decoder(1).decode(encode(message))
    assert type(decoded) is type(message)
    assert encode(decoded) == encode(message)
    assert getattr(decoded, "xid", 0) == 0


@given(OTHERS, st.booleans())
def test_messages_about_transactions(message: m.Message, streams: bool) -> None:
    decoder = in_block(1) if streams else Decoder(4)
    data = encode(message)
    assert decoder.decode(data) == message
    for end in range(len(data)):
        try:
            cut = decoder.decode(data[:end])
        except DecodeError:
            continue
        # One of parallel streaming begins like one without.
        assert isinstance(message, m.StreamAbort)
        assert cut == m.StreamAbort(message.xid, message.sub_xid)


@given(st.binary(max_size=80), st.sampled_from((1, 2, 3, 4)))
def test_no_bytes_raise_anything_but_decode_errors(data: bytes, version: int) -> None:
    for decode in (Decoder(version).decode, codec.decode_frame, in_block(1).decode):
        try:
            decode(data)
        except DecodeError:
            continue


@given(ROW)
def test_rows_of_copy_are_those_of_pgoutput(row: m.Row) -> None:
    known = [text for text in row if not isinstance(text, m.Unchanged)]
    assert codec.decode_line(copied(known), len(known)) == known


def copied(row: list[bytes | None]) -> bytes:
    """As PostgreSQL's manual describes the text format."""
    letters = {8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 92: "\\"}
    fields = []
    for text in row:
        if text is None:
            fields.append(b"\\N")
        else:
            escape = lambda found: b"\\" + letters[found[0][0]].encode()  # noqa: E731
            fields.append(re.sub(rb"[\b\t\n\v\f\r\\]", escape, text))
    return b"\t".join(fields) + b"\n"


@given(st.binary(max_size=60), st.integers(0, 6))
def test_any_line_of_copy_is_a_row_or_refused(line: bytes, count: int) -> None:
    try:
        row = codec.decode_line(line, count)
    except DecodeError:
        return
    assert len(row) == count


@given(LSN)
def test_positions_are_written_as_postgresql_does(lsn: int) -> None:
    assert codec.parse_lsn(codec.format_lsn(lsn)) == lsn


@given(LSN, TIME)
def test_frames(lsn: int, time_us: int) -> None:
    status = codec.encode_status(Lsn(lsn), time_us, wants_reply=True)
    assert status[:9] == b"r" + lsn.to_bytes(8, "big")
    assert len(status) == 34
    moment = (time_us - EPOCH_US).to_bytes(8, "big", signed=True)
    keepalive = b"k" + lsn.to_bytes(8, "big") + moment + b"\1"
    assert codec.decode_frame(keepalive) == codec.Keepalive(lsn, time_us, True)
    data = b"w" + lsn.to_bytes(8, "big") * 2 + moment + b"E"
    assert codec.decode_frame(data) == codec.WalData(lsn, lsn, time_us)
    assert data[codec.MESSAGE_START :] == b"E"
