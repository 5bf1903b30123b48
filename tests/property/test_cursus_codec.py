"""Goal: the codec is total and loses nothing.

Method: hypothesis makes batches, commands and bytes. Batches come back equal through both layouts
of the header and are refused when cut at any byte; any bytes decode or raise the documented error.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DecodeError, EncodeError
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.connection import Connection, Role
from dragoman.protocols.cursus.constants import COMMANDS
from dragoman.protocols.cursus.handlers.records import message_of, record_of
from dragoman.protocols.cursus.messages import Ack, Batch, Command, Message

U64 = st.integers(0, (1 << 64) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
MESSAGES = st.builds(
    Message,
    offset=U64,
    seq_num=U64,
    producer_id=TEXT,
    key=st.binary(max_size=20),
    epoch=st.integers(-(1 << 63), (1 << 63) - 1),
    payload=st.binary(max_size=100),
    event_type=TEXT,
    schema_version=st.integers(0, (1 << 32) - 1),
    aggregate_version=U64,
    metadata=TEXT,
)
BATCHES = st.builds(
    Batch,
    topic=TEXT.filter(bool),
    partition=st.integers(0, 9999),
    messages=st.lists(MESSAGES, max_size=4),
    acks=st.sampled_from(["0", "1", "-1", "all", ""]),
    idempotent=st.booleans(),
    seq_start=U64,
    seq_end=U64,
)
#: Words that survive as part of a command.
WORDS = st.text(
    st.characters(categories=["L", "N", "P"], exclude_characters="="), min_size=1, max_size=20
)


def first_layout(batch: Batch, data: bytes) -> bytes:
    """The same batch with the header of the first protocol page."""
    start = 4 + len(batch.topic.encode())
    acks, partition = batch.acks.encode(), str(batch.partition).encode()
    header = len(partition).to_bytes(2, "big") + partition + len(acks).to_bytes(2, "big") + acks
    return data[:start] + header + data[start + 5 + len(acks) :]


@given(BATCHES)
def test_batches_come_back(batch: Batch) -> None:
    data = codec.encode_batch(batch)
    assert codec.decode_batch(data) == batch
    assert codec.decode_reply(data) == batch


@given(BATCHES.filter(lambda batch: len(batch.messages) > 0))
def test_batches_of_the_first_layout_are_read_when_they_are_no_others(batch: Batch) -> None:
    data = first_layout(batch, codec.encode_batch(batch))
    assert codec.decode_batch(data) == batch


@given(BATCHES, st.data())
def test_a_batch_that_is_cut_is_refused(batch: Batch, draw: st.DataObject) -> None:
    data = codec.encode_batch(batch)
    cut = draw.draw(st.integers(0, len(data) - 1))
    with pytest.raises(DecodeError):
        codec.decode_batch(data[:cut])


@given(
    st.sampled_from(sorted(COMMANDS)),
    st.dictionaries(WORDS, WORDS, min_size=1),
    st.none() | st.binary(),
)
def test_commands_come_back(word: str, arguments: dict[str, str], message: bytes | None) -> None:
    command = Command(word=word, arguments=arguments, message=message)
    try:
        data = codec.encode_command(command)
    except EncodeError:
        return
    read = codec.decode_request(data)
    assert isinstance(read, Command)
    assert (read.word, dict(read.arguments)) == (word, arguments)
    assert read.message == message


PIECES = st.sampled_from(
    [
        *(b"\0\0", b"\0\x05admin", b"\0\x09message=x", b"PUBLISH ", b"publish topic=t ", b"LIST "),
        *(b"topic=t ", b"key=k ", b"message=", b"message=m", b"\0", b" ", b"x" * 1100, b"\xba\x7c"),
    ]
)


@given(st.lists(st.lists(PIECES, max_size=6).map(b"".join), max_size=8))
def test_what_was_read_before_does_not_change_what_is_read(frames: list[bytes]) -> None:
    reader = codec.RequestReader()

    def read(decode: Callable[[bytes], object], frame: bytes) -> object:
        try:
            return decode(frame)
        except codec.UnreadableRequest as unreadable:
            return unreadable.reply, unreadable.closes

    for frame in frames + frames:
        assert read(reader.read, frame) == read(codec.decode_request, frame)


@given(
    st.binary(max_size=200)
    | BATCHES.map(codec.encode_batch).flatmap(
        lambda data: st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)).map(
            lambda change: data[: change[0]] + bytes([change[1]]) + data[change[0] + 1 :]
        )
    )
)
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for decode in (codec.decode_request, codec.decode_reply, codec.decode_batch):
        try:
            decode(data)
        except DecodeError:
            continue
    if len(data) < 200:
        framed = len(data).to_bytes(4, "big") + data
        assert len(Connection(Role.SERVER).receive_data(framed)) == 1


@given(MESSAGES)
def test_messages_survive_the_log(message: Message) -> None:
    stored = msgspec.structs.replace(record_of(message, 1), offset=message.offset)
    assert message_of(stored) == message


@given(st.integers(), U64, TEXT)
def test_acknowledgements_come_back(offset: int, epoch: int, text: str) -> None:
    ack = Ack(
        status="OK",
        last_offset=offset,
        producer_epoch=epoch,
        producer_id=text,
        seq_start=0,
        seq_end=1,
        error=text,
    )
    try:
        encoded = codec.encode_ack(ack)
    except OverflowError:
        return
    assert codec.decode_ack(encoded.decode()) == ack
    plain = msgspec.structs.replace(ack, error="")
    end = codec.ack_end(epoch, text, 0, 1)
    assert codec.ack_frame(offset, end) == codec.frame(codec.encode_ack(plain))


@given(st.text(max_size=30))
def test_quoted_text_has_no_raw_quotes(text: str) -> None:
    inside = codec.quoted(text)[1:-1]
    assert '"' not in inside.replace("\\\\", "").replace('\\"', "")
    assert inside.isprintable()
