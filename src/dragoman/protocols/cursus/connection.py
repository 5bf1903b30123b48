"""One end of a Cursus connection, without input or output: bytes in, messages out, and back.

There are no request numbers: replies come in the order of the requests, and a stream pushes frames
without requests. The caller matches replies to requests. After a `DecodeError` the connection is
unusable. For a single unreadable request a server gets an `UnreadableRequest` value instead,
because the connection survives most of these.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from dragoman.errors import LocalProtocolError
from dragoman.framing import FrameReader, Scratch
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.constants import FRAME_BYTES_MAX
from dragoman.protocols.cursus.messages import Batch, Command, KeepAlive, Text
from dragoman.types import Buffer

Event: TypeAlias = Command | Batch | Text | KeepAlive | codec.UnreadableRequest


class Role(Enum):
    CLIENT = "client"
    SERVER = "server"


def frame_reader(scratch: Scratch) -> FrameReader:
    return FrameReader(FRAME_BYTES_MAX, scratch, frame_bytes_min=0)


class Connection:
    def __init__(self, role: Role, scratch: Scratch | None = None) -> None:
        self.role = role
        self._reader = frame_reader(scratch or Scratch())
        self._requests = codec.RequestReader()

    def receive_data(self, data: Buffer) -> list[Event]:
        """Raises `DecodeError`, after which the connection is unusable."""
        return [self._event(frame) for frame in self._reader.receive(data)]

    def _event(self, frame: bytearray) -> Event:
        if self.role is Role.CLIENT:
            return codec.decode_reply(frame)
        try:
            return self._requests.read(frame)
        except codec.UnreadableRequest as unreadable:
            return unreadable.with_traceback(None)

    def send(self, message: Command | Batch | Text | KeepAlive) -> bytes:
        """The bytes of a message. Raises `LocalProtocolError` for one that this end cannot send."""
        match message:
            case Command() if self.role is Role.CLIENT:
                return codec.frame(codec.encode_command(message))
            case Batch():
                return codec.frame(codec.encode_batch(message))
            case Text() if self.role is Role.SERVER:
                return codec.frame(message.text.encode())
            case KeepAlive() if self.role is Role.SERVER:
                return codec.frame(b"")
            case _:
                name = type(message).__name__
                raise LocalProtocolError(f"a {self.role.value} sends no {name}")
