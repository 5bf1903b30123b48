"""One end of an mlog connection, without input or output, for either role.

`reader` cuts frames, with the methods of `asyncio.BufferedProtocol`; `receive` decodes a frame, and
`send` encodes one. A client chooses the encoding. A server detects it with the first frame: JSON is
never empty and begins with `{`, as no protobuf message here does. It does not change afterwards.

There are no request numbers: replies come in the order of the requests, and the caller matches
them. After a `DecodeError` the connection is unusable.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from dragoman.errors import DecodeError, LocalProtocolError
from dragoman.framing import FrameReader, Scratch
from dragoman.protocols.mlog import codec
from dragoman.protocols.mlog.constants import LEAD_BYTES, PAYLOAD_BYTES_MAX, Encoding
from dragoman.protocols.mlog.messages import REPLIES, Message
from dragoman.types import Buffer

_BRACE: Final = ord("{")


class Role(Enum):
    SERVER = auto()
    CLIENT = auto()


class Connection:
    __slots__ = ("_role", "encoding", "reader")

    def __init__(
        self, role: Role, scratch: Scratch | None = None, encoding: Encoding | None = None
    ) -> None:
        if role is Role.CLIENT and encoding is None:
            raise LocalProtocolError("a client has to choose its encoding")
        self._role = role
        #: None until a server has seen a frame.
        self.encoding = encoding
        self.reader = FrameReader(
            PAYLOAD_BYTES_MAX, scratch or Scratch(), lead_bytes=LEAD_BYTES, frame_bytes_min=0
        )

    def receive(self, frame: bytearray) -> Message:
        """The message in a frame of the reader: type and payload. Raises `DecodeError`."""
        encoding = self.encoding
        if encoding is None:
            is_json = len(frame) > LEAD_BYTES and frame[LEAD_BYTES] == _BRACE
            encoding = self.encoding = Encoding.JSON if is_json else Encoding.PROTOBUF
        number = frame[0] << 8 | frame[1]
        message = codec.decode_payload(number, memoryview(frame)[LEAD_BYTES:], encoding)
        if self._role is Role.CLIENT and type(message) in REPLIES:
            raise DecodeError(f"a server sent the request {type(message).__name__}")
        return message

    def receive_data(self, data: Buffer) -> list[Message]:
        """The messages that these bytes complete."""
        return [self.receive(frame) for frame in self.reader.receive(data)]

    def send(self, message: Message) -> bytes:
        """The frame to send. Raises `EncodeError`."""
        if (type(message) in REPLIES) is not (self._role is Role.CLIENT):
            raise LocalProtocolError(f"{type(message).__name__} is what the other side sends")
        if self._role is Role.CLIENT:
            codec.check(message)
        return codec.encode_frame(message, self.encoding or Encoding.JSON)
