"""An mlog connection without input and output, for either side of it.

Frames are cut by `reader`, which has the shape of `asyncio.BufferedProtocol`; `receive` reads one,
`send` writes one. A client chooses the encoding. A server takes it from the first frame: JSON
begins with `{`, which protobuf never does here, and is never empty. Then it stays.

There are no request numbers: replies come in the order of the requests, which is the caller's
business. After a `DecodeError` the stream cannot go on.
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
            raise LocalProtocolError("a client chooses its encoding")
        self._role = role
        #: None until a server has seen a frame.
        self.encoding = encoding
        self.reader = FrameReader(
            PAYLOAD_BYTES_MAX, scratch or Scratch(), lead_bytes=LEAD_BYTES, frame_bytes_min=0
        )

    def receive(self, frame: bytearray) -> Message:
        """A frame of the reader, which is its type and payload. Raises `DecodeError`."""
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
        """Every message that is complete with these bytes."""
        return [self.receive(frame) for frame in self.reader.receive(data)]

    def send(self, message: Message) -> bytes:
        """The frame to send. Raises `EncodeError`."""
        if (type(message) in REPLIES) is not (self._role is Role.CLIENT):
            raise LocalProtocolError(f"{type(message).__name__} is what the other side sends")
        if self._role is Role.CLIENT:
            codec.check(message)
        return codec.encode_frame(message, self.encoding or Encoding.JSON)
