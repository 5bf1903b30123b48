"""One end of a minibroker connection, without input or output: bytes in, messages out, and back.

Replies carry no number: the next reply belongs to the oldest unanswered request. `Connection` keeps
these requests for either role. A client receives replies (`Reply`) and pushes (`Push`) in the order
of the wire; an ERR that answers no request is an event like any other. A server must answer its
requests in order, and may push at any time.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TypeAlias, get_args

from dragoman.errors import LocalProtocolError, RemoteProtocolError
from dragoman.framing import FrameReader, Scratch
from dragoman.protocols.minibroker import codec
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.constants import FRAME_BYTES_MAX, Op
from dragoman.types import Buffer

Event: TypeAlias = m.Request | m.Reply | m.Push
_REQUESTS = get_args(m.Request)


class Role(Enum):
    CLIENT = auto()
    SERVER = auto()


class Connection:
    def __init__(self, role: Role, scratch: Scratch | None = None) -> None:
        self.role = role
        self._reader = FrameReader(FRAME_BYTES_MAX, scratch if scratch is not None else Scratch())
        #: Requests without a reply, oldest first.
        self._waiting: deque[m.Request] = deque()

    @property
    def unanswered(self) -> int:
        return len(self._waiting)

    def receive_data(self, data: Buffer) -> list[Event]:
        """Raises `RemoteProtocolError`, after which the connection is unusable."""
        return [self._event(frame) for frame in self._reader.receive(data)]

    def send(self, message: m.Message) -> bytes:
        """The bytes to send. Raises `EncodeError`, `LocalProtocolError`."""
        is_request = isinstance(message, _REQUESTS)
        if is_request != (self.role is Role.CLIENT):
            raise LocalProtocolError(f"a {self.role.name.lower()} does not send {message!r}")
        data = codec.encode(message)
        if is_request:
            assert isinstance(message, _REQUESTS)
            self._waiting.append(message)
        elif not isinstance(message, m.Delivered | m.Rebalanced):
            if self._waiting:
                self._waiting.popleft()
            elif not isinstance(message, m.Failed):
                raise LocalProtocolError(f"{message!r} answers nothing")
        return data

    def _event(self, frame: bytearray) -> Event:
        if self.role is Role.SERVER:
            request = codec.decode_request(frame)
            self._waiting.append(request)
            return request
        if codec.is_push(frame):
            return codec.decode_push(frame)
        if not self._waiting:
            if frame[0] == Op.ERR:
                return codec.decode_failure(frame)
            raise RemoteProtocolError("a reply to no request")
        return codec.decode_reply(frame, self._waiting.popleft())
