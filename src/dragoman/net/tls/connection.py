"""One connection's TLS: a protocol to the transport below, a transport to the protocol above.

    begun ──hello──> handshake ──> open ──> closing
      └──── other bytes: plaintext, where the listener allows it

The first bytes decide: `16 03` begins TLS. Until then no memory is taken for it, and a connection
without it is handed to its protocol together with its transport: this layer is gone, and costs it
nothing. The protocol above is made, and called, when the handshake is complete.

Received bytes go through a buffer that all connections share, a record's worth at a time into
OpenSSL, and from there into the session's own buffer. An idle connection therefore holds no
buffers. Bytes that arrive for a protocol that does not read at the moment, at most one read, are
kept here and count in the node's memory budget. Bytes to send are encrypted at once and wait in the
transport, so that its buffer size and limits are those of the connection.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final, cast

from dragoman.limits import (
    TLS_HANDSHAKE_BYTES_MAX,
    TLS_HANDSHAKE_MEMORY_BYTES,
    TLS_PIECE_BYTES_MAX,
)
from dragoman.log_limiter import LogLimiter
from dragoman.net.tls.handshakes import Handshakes
from dragoman.net.tls.peer_certificate import certificate_of
from dragoman.types import Buffer, Certificate

_HANDSHAKE_RECORD: Final = 0x16
_MAJOR_VERSION: Final = 3
_RECORD_HEADER_BYTES: Final = 5
_RECORD_BYTES_MAX: Final = 1 << 14
#: Answers up to this size leave as one buffer.
_JOIN_BYTES_MAX: Final = 64 << 10
_NOTHING: Final = memoryview(b"")


class State(Enum):
    #: No hello has arrived.
    BEGUN = auto()
    HANDSHAKE = auto()
    OPEN = auto()
    #: Closed by either side, or handed over.
    CLOSED = auto()


class TlsEnd:
    """What the TLS connections of one listener, or to one server, have in common."""

    def __init__(
        self,
        handshakes: Handshakes,
        context: Callable[[], ssl.SSLContext | None],
        *,
        allows_plaintext: Callable[[], bool] = lambda: False,
        server_name: str | None = None,
        refusal: Callable[[str, asyncio.BaseTransport], str] = lambda _address, _transport: "",
        counted: Callable[[str, bool], None] = lambda _address, _is_open: None,
        wall_ms: Callable[[], int] = lambda: 0,
        limiter: LogLimiter,
    ) -> None:
        """`context` returns None when there is no certificate to use. `server_name` is the name of
        the server that a client connects to; None on the server's side. `refusal` says why a new
        connection is refused, if it is; `counted` is called when a handshake begins, and when it
        ends. `wall_ms` is the time that certificates are compared with.
        """
        self.handshakes = handshakes
        self.context = context
        self.allows_plaintext = allows_plaintext
        self.server_name = server_name
        self.refusal = refusal
        self.counted = counted
        self.wall_ms = wall_ms
        self.log = limiter


class TlsConnection(asyncio.BufferedProtocol):
    __slots__ = (
        "_above",
        "_certificate",
        "_early",
        "_end",
        "_held",
        "_incoming",
        "_is_buffered",
        "_is_counted",
        "_is_ended",
        "_is_paused",
        "_is_reading",
        "_is_stopped",
        "_loop",
        "_make_above",
        "_outgoing",
        "_received",
        "_rest",
        "_state",
        "_tls",
        "_transport",
    )

    def __init__(
        self,
        end: TlsEnd,
        make_above: Callable[[], asyncio.BaseProtocol],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`make_above` makes the protocol that this is the transport of."""
        self._end = end
        self._make_above = make_above
        self._loop = loop
        self._above: asyncio.BaseProtocol | None = None
        self._is_buffered = False
        self._transport: asyncio.Transport | None = None
        self._state = State.BEGUN
        self._is_counted = False
        self._tls: ssl.SSLObject | None = None
        self._incoming: ssl.MemoryBIO | None = None
        self._outgoing: ssl.MemoryBIO | None = None
        #: A hello that is not complete.
        self._early = bytearray()
        #: Bytes received before the handshake was complete.
        self._received = 0
        self._certificate: Certificate | None = None
        #: Received bytes that OpenSSL does not have yet, and how many of them count in the budget.
        self._rest: memoryview = _NOTHING
        self._held = 0
        self._is_paused = False
        #: Whether the transport below does not read.
        self._is_stopped = False
        #: Whether the protocol above is being called with bytes.
        self._is_reading = False
        #: Whether the peer has closed its half.
        self._is_ended = False

    # ---- from the transport below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        address = self._peer[0]
        refusal = self._end.refusal(address, transport)
        if refusal:
            self._end.log.warning("refusing %s:%d: %s", *self._peer, refusal)
            self._state = State.CLOSED
            transport.abort()
            return
        self._is_counted = True
        self._end.counted(address, True)
        self._end.handshakes.began(self)
        if self._end.server_name is not None:
            self.step()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        scratch = self._end.handshakes.scratch
        if self._state is State.OPEN:
            return scratch
        return scratch[: max(1, TLS_HANDSHAKE_BYTES_MAX - self._received)]

    def buffer_updated(self, nbytes: int) -> None:
        received = self._end.handshakes.scratch[:nbytes]
        match self._state:
            case State.OPEN:
                if self._rest or self._is_paused:
                    # Read by the loop before it was paused.
                    self._rest = memoryview(bytes(self._rest) + received)
                    self._charge()
                else:
                    self._rest = received
                    self._read()
            case State.BEGUN:
                self._receive_hello(received)
            case State.HANDSHAKE:
                assert self._incoming is not None
                self._incoming.write(received)
                self._end.handshakes.due(self, is_new=False)
                self._count(nbytes)
            case State.CLOSED:
                pass

    def eof_received(self) -> bool:
        if self._state is not State.OPEN:
            return False
        if not self._is_ended:
            self._is_ended = True
            if not self._is_paused:
                self._pass_on_end()
        # The peer's half is closed; `close` closes this one.
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        is_above_connected = self._above is not None
        self._leave_handshake(is_complete=False)
        self._state = State.CLOSED
        self._rest = _NOTHING
        self._charge()
        above, self._above = self._above, None
        self._transport = None
        # Frees OpenSSL's memory now: the connection may be part of a reference cycle.
        self._tls = self._incoming = self._outgoing = None
        if is_above_connected:
            assert above is not None
            above.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    # ---- the handshake

    @property
    def _peer(self) -> tuple[str, int]:
        name = self.get_extra_info("peername")
        return (name[0], name[1]) if isinstance(name, tuple) else ("", 0)

    def _count(self, size: int) -> None:
        """Count bytes of a handshake. At the bound, no more are read before the next step: only it
        knows whether the handshake has ended among these bytes, and requests have followed.
        """
        self._received += size
        if self._received >= TLS_HANDSHAKE_BYTES_MAX:
            self._stop_reading()

    def _receive_hello(self, received: memoryview) -> None:
        early = self._early
        early += received
        is_tls = early[0] == _HANDSHAKE_RECORD and early[1:2] in (b"", bytes((_MAJOR_VERSION,)))
        if not is_tls:
            self._begin_plaintext()
            return
        size = int.from_bytes(early[3:_RECORD_HEADER_BYTES], "big")
        if len(early) >= _RECORD_HEADER_BYTES and not 0 < size <= _RECORD_BYTES_MAX:
            self.give_up("its TLS hello is malformed")
            return
        self._count(len(received))
        handshakes = self._end.handshakes
        handshakes.holds(self, len(early))
        is_complete = len(early) >= _RECORD_HEADER_BYTES + size > _RECORD_HEADER_BYTES
        if is_complete and self._state is State.BEGUN:
            handshakes.due(self, is_new=True)

    def _begin_plaintext(self) -> None:
        """Hand the connection to its protocol, without this layer."""
        if not self._end.allows_plaintext():
            self.give_up("it does not begin with TLS, which the listener requires")
            return
        transport, early = self._transport, self._early
        assert transport is not None
        self._end.handshakes.left(self)
        self._uncount()
        self._state = State.CLOSED
        above = self._make_above()
        transport.set_protocol(above)
        above.connection_made(transport)
        _feed(transport, early)

    def step(self) -> None:
        tls = self._tls or self._start()
        if tls is None:
            return
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_pending()
            if self._received >= TLS_HANDSHAKE_BYTES_MAX:
                self.give_up(f"its TLS handshake has more than {TLS_HANDSHAKE_BYTES_MAX} bytes")
        except ssl.SSLError as error:
            # The alert that says what is wrong.
            self._send_pending()
            self.give_up(f"TLS: {_reason(error)}")
        else:
            self._send_pending()
            self._complete(tls)

    def _start(self) -> ssl.SSLObject | None:
        context = self._end.context()
        if context is None:
            self.give_up("the listener has no certificate")
            return None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = self._end.server_name
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=name is None, server_hostname=name or None
        )
        self._incoming.write(self._early)
        self._early = bytearray()
        self._state = State.HANDSHAKE
        self._end.handshakes.holds(self, TLS_HANDSHAKE_MEMORY_BYTES)
        return self._tls

    def _complete(self, tls: ssl.SSLObject) -> None:
        self._certificate = certificate_of(tls)
        if tls.session_reused and self._has_expired(tls):
            # A resumed session brings its certificate along unchecked.
            self.give_up("the certificate of its resumed TLS session has expired")
            return
        self._leave_handshake(is_complete=True)
        self._state = State.OPEN
        self._is_reading = True
        self.set_protocol(self._make_above())
        assert self._above is not None
        self._above.connection_made(cast(asyncio.BaseTransport, self))
        self._is_reading = False
        # Requests may have come with the end of the handshake.
        self._resume()

    def _has_expired(self, tls: ssl.SSLObject) -> bool:
        end = (tls.getpeercert() or {}).get("notAfter")
        return isinstance(end, str) and ssl.cert_time_to_seconds(end) * 1000 < self._end.wall_ms()

    def _leave_handshake(self, *, is_complete: bool) -> None:
        self._end.handshakes.ended(self, is_complete=is_complete)
        self._uncount()

    def _uncount(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._end.counted(self._peer[0], False)

    def give_up(self, reason: str) -> None:
        if self._state is State.CLOSED or self._transport is None:
            return
        self._end.log.log(logging.INFO, "closing %s:%d: %s", *self._peer, reason)
        self._leave_handshake(is_complete=False)
        self._state = State.CLOSED
        self._early = bytearray()
        self._tls = self._incoming = self._outgoing = None
        # What was written so far, a few kilobytes, fits the kernel's buffer: this does not wait for
        # a peer that reads nothing.
        self._transport.close()

    # ---- reading

    def _read(self) -> None:
        """Decrypt what has arrived, and pass it on as long as the protocol above reads."""
        if self._is_reading:
            return
        self._is_reading = True
        try:
            while not self._is_paused and self._state is State.OPEN and self._read_once():
                pass
        finally:
            self._is_reading = False
        if self._state is not State.OPEN:
            self._rest = _NOTHING
        elif self._rest:
            # The shared buffer is used by the next connection.
            self._rest = memoryview(bytes(self._rest))
        self._charge()

    def _read_once(self) -> bool:
        """Whether there may be more to read."""
        if not self._is_buffered:
            buffer = bytearray(TLS_PIECE_BYTES_MAX)
            count, is_more = self._decrypt_into(memoryview(buffer))
            if count:
                cast(asyncio.Protocol, self._above).data_received(bytes(buffer[:count]))
        else:
            above = cast(asyncio.BufferedProtocol, self._above)
            count, is_more = self._decrypt_into(memoryview(above.get_buffer(-1)))
            if count:
                above.buffer_updated(count)
        if not is_more and self._is_ended and self._state is State.OPEN:
            self._pass_on_end()
        return is_more

    def _decrypt_into(self, buffer: memoryview) -> tuple[int, bool]:
        """Fill a buffer with as many records as there are. Returns the number of bytes, and whether
        there may be more.
        """
        tls, incoming = self._tls, self._incoming
        assert tls is not None
        assert incoming is not None
        # With a buffer, `read` returns a number.
        read = cast(Callable[[int, memoryview], int], tls.read)
        filled, size = 0, len(buffer)
        while filled < size:
            try:
                count = read(size - filled, buffer[filled:])
            except ssl.SSLWantReadError:
                rest = self._rest
                if not rest:
                    self._send_pending()
                    return filled, False
                incoming.write(rest[:TLS_PIECE_BYTES_MAX])
                self._rest = rest[TLS_PIECE_BYTES_MAX:]
                continue
            except ssl.SSLZeroReturnError:
                count = 0
            except ssl.SSLError as error:
                self._fail(error)
                return filled, False
            if not count:
                # The peer will send nothing more.
                self._is_ended = True
                self._rest = _NOTHING
                return filled, False
            filled += count
        return filled, True

    def _fail(self, error: ssl.SSLError) -> None:
        """Close because of bytes that are not TLS, or not of this connection."""
        self._end.log.log(logging.INFO, "closing %s:%d: TLS: %s", *self._peer, _reason(error))
        self._send_pending()
        self._rest = _NOTHING
        self._state = State.CLOSED
        if self._transport is not None:
            self._transport.close()

    def _pass_on_end(self) -> None:
        above = self._above
        if isinstance(above, asyncio.Protocol | asyncio.BufferedProtocol):
            stays = above.eof_received()
            if not stays:
                self.close()

    def _charge(self) -> None:
        held = len(self._rest)
        if held != self._held:
            change, self._held = held - self._held, held
            self._end.handshakes.budget.change(change)

    # ---- the transport of the protocol above

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._above = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol | None:
        return self._above

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "ssl_object":
                return self._tls
            case "sslcontext":
                return None if self._tls is None else self._tls.context
            case "certificate":
                return self._certificate
            case _ if self._transport is None:
                return default
            case _:
                return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._state is State.CLOSED or self._transport is None

    def is_reading(self) -> bool:
        return not self._is_paused and not self.is_closing()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._stop_reading()

    def _stop_reading(self) -> None:
        if not self._is_stopped and self._transport is not None:
            self._is_stopped = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            # Later, as a transport does: the protocol above is in the middle of something.
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._state is not State.OPEN or self._is_paused:
            return
        self._read()
        is_wanted = self._state is State.OPEN and not self._is_paused
        if is_wanted and self._is_stopped and self._transport is not None:
            self._is_stopped = False
            self._transport.resume_reading()

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, buffers: Sequence[Buffer]) -> None:
        tls, outgoing, transport = self._tls, self._outgoing, self._transport
        if self._state is not State.OPEN or tls is None or outgoing is None or transport is None:
            return
        sent: list[bytes] = []
        size = 0
        try:
            for data in buffers:
                view = memoryview(data)
                while view:
                    view = view[tls.write(view[:_RECORD_BYTES_MAX]) :]
                    record = outgoing.read()
                    size += len(record)
                    sent.append(record)
        except ssl.SSLError as error:
            self._fail(error)
            return
        if size <= _JOIN_BYTES_MAX:
            transport.write(b"".join(sent))
        else:
            transport.writelines(sent)

    def _send_pending(self) -> None:
        """Send what OpenSSL has to say itself."""
        if self._outgoing is not None and self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return (0, 0) if self._transport is None else self._transport.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Send what waits, and that there is no more, then close."""
        if self._state is not State.OPEN:
            return
        assert self._tls is not None
        self._state = State.CLOSED
        with suppress(ssl.SSLError):
            # The peer's answer is not waited for.
            self._tls.unwrap()
        self._send_pending()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._state = State.CLOSED
        if self._transport is not None:
            self._transport.abort()


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")


def _feed(transport: asyncio.Transport, data: bytearray) -> None:
    """Pass on bytes that were read before the protocol was known."""
    view = memoryview(data)
    while view and not transport.is_closing():
        # The first protocol may have passed the connection on to another one.
        above = transport.get_protocol()
        if isinstance(above, asyncio.Protocol):
            above.data_received(bytes(view))
            return
        assert isinstance(above, asyncio.BufferedProtocol)
        buffer = memoryview(above.get_buffer(-1))
        count = min(len(buffer), len(view))
        buffer[:count] = view[:count]
        above.buffer_updated(count)
        view = view[count:]
