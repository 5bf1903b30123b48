"""Decodes and encodes frames: commands, batches, replies.

A request is a batch, a command, or a command in an envelope whose topic is ignored:

    BA 7C …                              batch (6 bytes or more, the topic not empty)
    command text                         command, if its first word is one
    u16 size, topic, command text        command in an envelope

A batch has one of two header layouts. The layout of all published clients is tried first, and
accepted if it consumes the frame exactly. Otherwise the layout of the first protocol page applies,
in which the partition is text and the length of `acks` has two bytes. With one digit and an `acks`
of one character, both layouts consume the frame; then the partition decides, because it is 77,824
or more in the wrong layout.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

import msgspec

from dragoman.errors import MALFORMED, DecodeError, EncodeError
from dragoman.limits import CURSUS_COMMAND_BYTES_MAX, CURSUS_PUBLISHED_MESSAGES_MAX
from dragoman.protocols.cursus.constants import (
    BARE_COMMANDS,
    BATCH_MAGIC,
    BATCH_MESSAGES_MAX,
    COMMANDS,
    INTERNAL_COMMANDS,
    POSITIONAL,
    SENT_FRAME_BYTES_MAX,
)
from dragoman.protocols.cursus.messages import Ack, Batch, Command, KeepAlive, Message, Text
from dragoman.text_cache import cached_by_text
from dragoman.types import Buffer

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_MAGIC_AND_SIZE: Final = Struct(">HH")
_PARTITION_AND_ACKS: Final = Struct(">iB")
_SEQUENCES: Final = Struct(">BQQi")
_MESSAGE_HEAD: Final = Struct(">QQH")
_EPOCH_AND_SIZE: Final = Struct(">qI")
_EVENT: Final = Struct(">IQH")
#: A larger partition is the text of the other layout, read as a number.
_PARTITION_MAX: Final = 0xFFFF
#: Size of a message with empty fields. A message count that exceeds the frame at this size is
#: refused before memory is allocated.
_MESSAGE_BYTES_MIN: Final = 48

_WORDS: Final = frozenset(COMMANDS) | INTERNAL_COMMANDS
_MESSAGE_KEY: Final = b"message="
#: Bytes that are stripped at both ends of a command in an envelope.
_TRIMMED: Final = b"\0 \t\r\n\v\f"
#: Bytes that are stripped at both ends of a command without an envelope.
_BLANK: Final = _TRIMMED[1:]
#: A PUBLISH with more bytes before its payload is not cached, and neither is one with arguments
#: that the next PUBLISH will not share.
_HEAD_BYTES_MAX: Final = 1024
_OWN_ARGUMENTS: Final = frozenset(("key", "seqNum"))
_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", '"': '\\"', "\a": "\\a", "\b": "\\b", "\f": "\\f"}
    | {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
)

#: Reads partition and acks. Returns both, and the position after them.
_ReadHeader: TypeAlias = Callable[[bytes, int], tuple[int, str, int]]

_encode_ack: Final = msgspec.json.Encoder().encode
_decode_ack: Final = msgspec.json.Decoder(Ack).decode


class UnreadableRequest(DecodeError):  # noqa: N818
    """A frame that is not a request. `reply` is the original's error text."""

    def __init__(self, reply: str, *, closes: bool = False) -> None:
        super().__init__(reply)
        self.reply = reply
        #: Whether the connection is closed after the reply.
        self.closes = closes


# ---- requests


class RequestReader:
    """Reads the requests of one connection.

    Successive PUBLISH commands mostly differ only in their payload: the part before it is parsed
    once, and commands that share it share their `arguments`.
    """

    __slots__ = ("_command", "_head", "_trimmed")

    def __init__(self) -> None:
        self._command = Command(word="")
        #: The last PUBLISH up to its payload, and the bytes to strip at the payload's end.
        self._head = b""
        self._trimmed = _BLANK

    def read(self, frame: Buffer) -> Command | Batch:
        """Raises `UnreadableRequest`."""
        data = bytes(frame)
        if self._head and data.startswith(self._head):
            known = self._command
            return Command(
                word=known.word,
                arguments=known.arguments,
                message=data[len(self._head) :].rstrip(self._trimmed).lstrip(),
                last=known.last,
            )
        if data[:2] == b"\xba\x7c" and len(data) >= 6 and data[2:4] != b"\0\0":
            try:
                return decode_batch(data, CURSUS_PUBLISHED_MESSAGES_MAX)
            except DecodeError as error:
                text = f"batch_decode_failed reason={quoted(str(error))}"
                raise UnreadableRequest(text) from None
        # No command begins with a zero byte; most envelopes do.
        start = 0
        command = parse_command(data.strip()) if data[:1] != b"\0" else None
        if command is None:
            start = _start_of_text(data)
            command = parse_command(data[start:].strip(_TRIMMED))
            if command is None:
                text = "malformed_input reason=missing_topic_or_payload"
                raise UnreadableRequest(text, closes=True)
        if command.word == "PUBLISH" and command.message is not None:
            self._remember(command, data, start)
        return command

    def _remember(self, command: Command, data: bytes, start: int) -> None:
        if not _OWN_ARGUMENTS.isdisjoint(command.arguments):
            return
        end = data.find(_MESSAGE_KEY) + len(_MESSAGE_KEY)
        if start < end <= _HEAD_BYTES_MAX:
            self._command, self._head = command, data[:end]
            self._trimmed = _TRIMMED if start else _BLANK


def decode_request(frame: Buffer) -> Command | Batch:
    """Decode a single request. Raises `UnreadableRequest`."""
    return RequestReader().read(frame)


def _start_of_text(data: bytes) -> int:
    """The position of the command in an envelope."""
    if len(data) < 2:
        raise UnreadableRequest('decode_failed reason="data too short"')
    start = 2 + int.from_bytes(data[:2], "big")
    if start > len(data):
        raise UnreadableRequest('decode_failed reason="invalid topic length"')
    return start


def parse_command(text: bytes) -> Command | None:
    """None when the first word is not a command. Raises `UnreadableRequest` for a command without
    its arguments.
    """
    head, found, message = text.partition(_MESSAGE_KEY)
    if len(head) > CURSUS_COMMAND_BYTES_MAX:
        raise UnreadableRequest(f"command_too_large bytes={len(head)}")
    words = head.decode("utf-8", "replace").split()
    word = words[0].upper() if words else ""
    if word not in _WORDS:
        return None
    if len(words) == 1 and not found and word not in BARE_COMMANDS:
        raise UnreadableRequest(f"unknown_command command={quoted(word)}")
    names = POSITIONAL.get(word)
    is_positional = names is not None and len(words) > 1 and "=" not in words[1]
    if is_positional and names is not None:
        arguments = dict(zip(names, words[1:], strict=False))
    else:
        arguments = dict([each.split("=", 1) for each in words[1:] if "=" in each])
    return Command(
        word=word,
        arguments=arguments,
        message=message.strip() if found else None,
        last=words[-1],
        is_positional=is_positional,
    )


def encode_command(command: Command) -> bytes:
    """A command as published clients send it: in an envelope with an empty topic."""
    parts = [command.word]
    parts += [f"{name}={_checked(name, value)}" for name, value in command.arguments.items()]
    if command.last:
        parts.append(_checked("last word", command.last))
    text = b"\0\0" + " ".join(parts).encode()
    if command.message is not None:
        if command.message != command.message.strip(_TRIMMED):
            raise EncodeError("blanks and zeros at the ends of a message are lost in a command")
        text += b" " + _MESSAGE_KEY + command.message
    return text


def _checked(name: str, value: str) -> str:
    """The value, if `parse_command` reads it back unchanged. Raises `EncodeError` otherwise."""
    if not value.isprintable() or " " in value or "message=" in f"{name}={value}":
        raise EncodeError(f"{name}: {value!r} cannot be part of a command")
    return value


# ---- batches


def decode_batch(data: bytes, messages_max: int = BATCH_MESSAGES_MAX) -> Batch:
    """Raises `DecodeError`, also for more messages than `messages_max`."""
    failure: DecodeError | None = None
    published: Batch | None = None
    try:
        published = _decode_batch(data, _published_header, messages_max)
    except DecodeError as error:
        failure = error
    if published is not None and published.partition <= _PARTITION_MAX:
        return published
    try:
        return _decode_batch(data, _first_header, messages_max)
    except DecodeError as error:
        if published is None:
            raise failure or error from None
        return published


def _published_header(data: bytes, position: int) -> tuple[int, str, int]:
    partition, size = _PARTITION_AND_ACKS.unpack_from(data, position)
    acks, position = _text(data, position + 5, size)
    return partition, acks, position


def _first_header(data: bytes, position: int) -> tuple[int, str, int]:
    (size,) = _U16.unpack_from(data, position)
    partition, position = _text(data, position + 2, size)
    if not (partition.isascii() and partition.isdecimal() and len(partition) <= 10):
        raise DecodeError(f"partition {partition!r} is not a number")
    (size,) = _U16.unpack_from(data, position)
    acks, position = _text(data, position + 2, size)
    return int(partition), acks, position


def _decode_batch(data: bytes, read_header: _ReadHeader, messages_max: int) -> Batch:
    try:
        magic, size = _MAGIC_AND_SIZE.unpack_from(data)
        if magic != BATCH_MAGIC:
            raise DecodeError(f"magic {magic:#06x} is not that of a batch")
        topic, position = _text(data, 4, size)
        partition, acks, position = read_header(data, position)
        idempotent, seq_start, seq_end, count = _SEQUENCES.unpack_from(data, position)
        position += 21
        if not 0 <= count <= messages_max or count * _MESSAGE_BYTES_MIN > len(data):
            raise DecodeError(f"{count} messages in a batch of {len(data)} bytes")
        messages: list[Message] = []
        for _ in range(count):
            message, position = _decode_message(data, position)
            messages.append(message)
    except struct.error:
        raise DecodeError(f"batch of {len(data)} bytes is cut off") from None
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes after the last message")
    return Batch(
        topic=topic,
        partition=partition,
        messages=messages,
        acks=acks,
        idempotent=bool(idempotent),
        seq_start=seq_start,
        seq_end=seq_end,
    )


def _decode_message(data: bytes, position: int) -> tuple[Message, int]:
    # Slices of a truncated batch are too short. Then the next fixed field is missing or, for the
    # last field, the position is past the end; both are errors.
    offset, seq_num, size = _MESSAGE_HEAD.unpack_from(data, position)
    start = position + 18
    position = start + size
    producer_id = data[start:position]
    (size,) = _U16.unpack_from(data, position)
    start = position + 2
    position = start + size
    key = data[start:position]
    epoch, size = _EPOCH_AND_SIZE.unpack_from(data, position)
    start = position + 12
    position = start + size
    payload = data[start:position]
    (size,) = _U16.unpack_from(data, position)
    start = position + 2
    position = start + size
    event_type = data[start:position]
    schema_version, aggregate_version, size = _EVENT.unpack_from(data, position)
    start = position + 14
    position = start + size
    try:
        return Message(
            offset=offset,
            seq_num=seq_num,
            producer_id=producer_id.decode(),
            key=key,
            epoch=epoch,
            payload=payload,
            event_type=event_type.decode(),
            schema_version=schema_version,
            aggregate_version=aggregate_version,
            metadata=data[start:position].decode(),
        ), position
    except UnicodeDecodeError as error:
        raise DecodeError(f"text that is not UTF-8: {error.reason}") from None


def _text(data: bytes, start: int, size: int) -> tuple[str, int]:
    end = start + size
    if end > len(data):
        raise DecodeError(f"text of {size} bytes in {len(data) - start}")
    try:
        return data[start:end].decode(), end
    except UnicodeDecodeError as error:
        raise DecodeError(f"text that is not UTF-8: {error.reason}") from None


def encode_batch(batch: Batch) -> bytes:
    """Raises `EncodeError` for values that the layout cannot hold."""
    topic, acks = batch.topic.encode(), batch.acks.encode()
    try:
        parts = [
            _U16.pack(BATCH_MAGIC),
            _U16.pack(len(topic)),
            topic,
            _PARTITION_AND_ACKS.pack(batch.partition, len(acks)),
            acks,
            _SEQUENCES.pack(batch.idempotent, batch.seq_start, batch.seq_end, len(batch.messages)),
        ]
        for each in batch.messages:
            parts += _message_parts(each)
    except struct.error as error:
        raise EncodeError(f"batch for {batch.topic!r} cannot be sent: {error}") from None
    return b"".join(parts)


def _message_parts(message: Message) -> tuple[bytes, ...]:
    producer_id, event_type = message.producer_id.encode(), message.event_type.encode()
    metadata, key, payload = message.metadata.encode(), message.key, message.payload
    return (
        _MESSAGE_HEAD.pack(message.offset, message.seq_num, len(producer_id)),
        producer_id,
        _U16.pack(len(key)),
        key,
        _EPOCH_AND_SIZE.pack(message.epoch, len(payload)),
        payload,
        _U16.pack(len(event_type)),
        event_type,
        _EVENT.pack(message.schema_version, message.aggregate_version, len(metadata)),
        metadata,
    )


# ---- frames and replies


def frame(payload: Buffer) -> bytes:
    """Raises `EncodeError` above 16 MiB, which the original does not accept."""
    size = len(payload)
    if size > SENT_FRAME_BYTES_MAX:
        raise EncodeError(f"frame of {size} bytes; at most {SENT_FRAME_BYTES_MAX} are sent")
    return _U32.pack(size) + payload


def decode_reply(payload: Buffer) -> Text | Batch | KeepAlive:
    """A frame from a server. Raises `DecodeError`."""
    data = bytes(payload)
    if not data:
        return KeepAlive()
    if data[:2] == b"\xba\x7c":
        return decode_batch(data)
    try:
        return Text(data.decode())
    except UnicodeDecodeError as error:
        raise DecodeError(f"reply is not UTF-8: {error.reason}") from None


def ack_end(epoch: int, producer_id: str, seq_start: int, seq_end: int) -> str:
    """The part after the offset of an `Ack` with status OK."""
    return (
        f',"producer_epoch":{epoch},"producer_id":{_json_text(producer_id)},'
        f'"seq_start":{seq_start},"seq_end":{seq_end}}}'
    )


@cached_by_text(1024)
def _json_text(text: str) -> str:
    return _encode_ack(text).decode()


def ack_frame(last_offset: int, end: str) -> bytes:
    """The frame of an `Ack` with status OK; faster than encoding the value."""
    text = f'{{"status":"OK","last_offset":{last_offset}{end}'.encode()
    return _U32.pack(len(text)) + text


def encode_ack(ack: Ack) -> bytes:
    return _encode_ack(ack)


def decode_ack(text: str) -> Ack:
    """Raises `DecodeError`."""
    try:
        return _decode_ack(text)
    except MALFORMED as error:
        raise DecodeError(f"acknowledgement {text[:100]!r}: {error}") from None


def quoted(text: str) -> str:
    """A value that may contain spaces or quotes, as Go's `%q` writes it."""
    escaped = text.translate(_ESCAPES)
    if not escaped.isprintable():
        escaped = "".join(each if each.isprintable() else _code_point(each) for each in escaped)
    return f'"{escaped}"'


def _code_point(character: str) -> str:
    code = ord(character)
    form = "\\x{:02x}" if code < 0x80 else "\\u{:04x}" if code < 0x10000 else "\\U{:08x}"
    return form.format(code)


# ---- routing


def fnv1a_32(data: bytes) -> int:
    """The hash by which the Python and Java clients choose a partition."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def fnv1a_64(data: bytes) -> int:
    """The hash by which the server chooses a partition."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value
