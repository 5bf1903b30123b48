"""One end of a RocketMQ connection without input and output: bytes in, commands out.

Both ends send requests, and responses come in any order; matching them by `opaque` is the caller's
business. After a `DecodeError` the stream cannot go on.
"""

from __future__ import annotations

from dragoman.framing import FrameReader, Scratch
from dragoman.protocols.rocketmq.codec import Command, decode
from dragoman.protocols.rocketmq.constants import FRAME_BYTES_MAX
from dragoman.types import Buffer

_SIZE_BYTES = 4


class Connection:
    __slots__ = ("reader",)

    def __init__(self, scratch: Scratch | None = None) -> None:
        self.reader = FrameReader(
            FRAME_BYTES_MAX - _SIZE_BYTES, scratch or Scratch(), frame_bytes_min=_SIZE_BYTES
        )

    def receive_data(self, data: Buffer) -> list[Command]:
        """Every command that is complete with these bytes. Raises `DecodeError`."""
        return [decode(frame) for frame in self.reader.receive(data)]
