"""The listener `any`: a connection is held until its first bytes tell its protocol.

Then the session of that protocol is made, given the bytes, and takes the connection over. One whose
bytes tell nothing, in time or at all, is closed, and so is one that begins with TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dragoman.errors import RemoteProtocolError
from dragoman.limits import DETECTION_BYTES_MAX
from dragoman.net.channel import Channel, Session
from dragoman.net.detection import TLS, detect
from dragoman.world import Scheduler


class RoutingSession:
    def __init__(
        self,
        channel: Channel,
        services: Mapping[str, Callable[[Channel], Session]],
        scheduler: Scheduler,
        timeout_s: float,
    ) -> None:
        """`services` makes the session of each protocol that is served."""
        self._channel = channel
        self._services = services
        self._first = bytearray(DETECTION_BYTES_MAX)
        self._filled = 0
        self._session: Session | None = None
        self._timeout_s = timeout_s
        self._timer = scheduler.call_later(timeout_s, self._expire)

    def get_buffer(self, size_hint: int) -> memoryview:
        if self._session is not None:
            return self._session.get_buffer(size_hint)
        return memoryview(self._first)[self._filled :]

    def buffer_updated(self, count: int) -> None:
        if self._session is not None:
            self._session.buffer_updated(count)
            return
        self._filled += count
        first = bytes(self._first[: self._filled])
        name = detect(first)
        if name is None:
            if self._filled == len(self._first):
                raise RemoteProtocolError(f"{self._filled} bytes tell no protocol")
            return
        self._timer.cancel()
        if name == TLS:
            raise RemoteProtocolError("TLS is not served")
        service = self._services.get(name)
        if service is None:
            raise RemoteProtocolError(f"protocol {name} is not served")
        self._session = session = service(self._channel)
        self._channel.hand_to(session)
        _feed(self._channel, session, first)

    def _expire(self) -> None:
        self._channel.complain(f"its protocol was not known after {self._timeout_s:g} s")
        self._channel.close()

    @property
    def pending_bytes(self) -> int:
        return 0 if self._session is None else self._session.pending_bytes

    @property
    def waiting_bytes(self) -> int:
        return 0 if self._session is None else self._session.waiting_bytes

    def writable(self) -> None:
        if self._session is not None:
            self._session.writable()

    def ended(self) -> None:
        """What came tells no protocol, and no more will come."""

    @property
    def is_due(self) -> bool:
        return False

    def closed(self) -> None:
        self._timer.cancel()


def _feed(channel: Channel, session: Session, data: bytes) -> None:
    view = memoryview(data)
    while view and not channel.is_closing:
        buffer = session.get_buffer(-1)
        count = min(len(buffer), len(view))
        buffer[:count] = view[:count]
        session.buffer_updated(count)
        view = view[count:]
