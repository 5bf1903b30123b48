"""A connection's bytes: between a transport and the session that parses them.

The session receives one buffer's worth of bytes at a time and returns buffers to send. Reading
pauses while the peer does not receive what was sent, while the session has read ahead enough, while
others hold more of the node's memory than the connection's ceiling, and for the rest of a loop turn
in which a connection has used its share. The reasons are flags; reading resumes when none is set.

A peer that half-closes the connection still gets its replies: complete requests are answered,
parked ones at once, and then the connection is closed.

This file is longer than most on purpose: a channel and what the channels of a listener share call
each other at every step.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from enum import Flag, auto
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from dragoman.config.listeners import OPEN, ListenerSecurity, base_name
from dragoman.errors import RemoteProtocolError
from dragoman.limits import (
    CLOSE_DELIVERY_S,
    ENDED_GRACE_S,
    READ_PER_TURN_BYTES_MAX,
    SEND_BUFFER_BYTES_MAX,
    SHORT_READ_BYTES_MAX,
)
from dragoman.log_limiter import LogLimiter
from dragoman.net import connection_log
from dragoman.net.admission import (
    Ceiling,
    ConnectionCount,
    DescriptorShare,
    MemoryBudget,
)
from dragoman.types import Buffer, Certificate
from dragoman.world import Handle, Scheduler

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("dragoman.net")
#: Buffers of up to this average size are joined; larger ones are passed on one by one.
_JOIN_BYTES_MAX = 4 << 10
#: A loop reads at most 32 times from one connection in a turn: smaller reads cannot fill one.
_COUNTED_READ_BYTES_MIN = READ_PER_TURN_BYTES_MAX // 32
#: TCP keep-alive: idle seconds before the first probe, which macOS calls TCP_KEEPALIVE, seconds
#: between probes, their number.
_KEEP_ALIVE = (
    ("TCP_KEEPIDLE", 60),
    ("TCP_KEEPALIVE", 60),
    ("TCP_KEEPINTVL", 15),
    ("TCP_KEEPCNT", 4),
)
#: Linux and macOS: the kernel, too, then buffers no more than that unsent.
_TCP_NOTSENT_LOWAT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)


class Session(Protocol):
    """One connection as its protocol sees it."""

    def get_buffer(self, size_hint: int) -> memoryview:
        """The buffer for incoming bytes; no memory is allocated for more than `size_hint` of them,
        unless it is -1.
        """
        ...

    def buffer_updated(self, count: int) -> None:
        """Bytes arrived. Raises `RemoteProtocolError` for bytes that the protocol forbids."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Memory held by an incomplete message."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """Memory held by requests and replies that wait for others on the same connection."""
        ...

    def writable(self) -> None:
        """The peer receives replies again."""
        ...

    def ended(self) -> None:
        """The peer has half-closed: parked requests are answered now, or end."""
        ...

    @property
    def is_due(self) -> bool:
        """Whether a request is unanswered."""
        ...

    def reexamine(self, *, must_log_in_anew: bool) -> None:
        """The listener's requirements, or the principals that it derives from certificates and
        networks, have changed: close the connection if its caller would be another one now.
        `must_log_in_anew`: the listener has begun to refuse anonymous callers.
        """
        ...

    def closed(self) -> None:
        """The connection is gone: release everything that waits for it."""
        ...


class Flushed(Protocol):
    def flush(self) -> None:
        """Pass pending replies to the channel."""
        ...


class Reason(Flag):
    """The reasons for which a channel does not read."""

    NONE = 0
    PEER_IS_SLOW = auto()
    HAD_ITS_TURN = auto()
    READ_AHEAD = auto()
    NO_MEMORY = auto()
    #: The client has exceeded a quota.
    THROTTLED = auto()


class Channels:
    """All open connections of a node, and what they share."""

    def __init__(
        self,
        budget: MemoryBudget,
        scheduler: Scheduler,
        *,
        listener: str = "",
        closes_idle: bool = True,
        connections: ConnectionCount | None = None,
        descriptors: DescriptorShare | None = None,
        limiter: LogLimiter | None = None,
        security: ListenerSecurity = OPEN,
    ) -> None:
        """`listener` is the name of the listener that accepts the connections, and `security` what
        it demands of them, until `reexamine`. `closes_idle` is false for protocols whose clients
        may stay silent. `connections` is None where the number of connections is bounded
        elsewhere.
        """
        self.budget = budget
        self.listener = listener
        self.closes_idle = closes_idle
        self.security = security
        #: Limits the rate of log lines that peers can cause.
        self.log = limiter if limiter is not None else LogLimiter(log, scheduler)
        self._scheduler = scheduler
        self._connections = connections
        self._descriptors = DescriptorShare() if descriptors is None else descriptors
        #: Sessions with replies to flush at the end of the turn, and channels with replies to
        #: write.
        self._due: list[Flushed] = []
        self._unsent: list[Channel] = []
        self._is_sending_soon = False
        #: Bytes that each channel has read in this loop turn.
        self._turn: dict[Channel, int] = {}
        self.open: dict[Channel, None] = {}
        self.accepted = 0
        #: Connections closed at once because there were too many.
        self.refused = 0
        self.bytes_in = 0
        self.bytes_out = 0
        #: Called when the last connection has closed.
        self.on_empty: Callable[[], None] = _nothing

    def take(self, channel: Channel, transport: asyncio.BaseTransport) -> bool:
        """Whether a new connection may stay."""
        self.accepted += 1
        refusal = self.refusal(channel.peer_address[0], transport)
        if refusal:
            self.refused += 1
            self.log.warning("refusing %s:%d: %s", *channel.peer_address, refusal)
            return False
        if self._connections is not None:
            self._connections.opened(channel.peer_address[0])
        self.open[channel] = None
        return True

    def refusal(self, address: str, transport: asyncio.BaseTransport) -> str:
        """The reason for refusing a new connection; empty when it may stay."""
        if not self._descriptors.admits(transport):
            return f"{self._descriptors.highest()} files are open, and the log may need the others"
        return "" if self._connections is None else self._connections.refusal(address)

    def lost(self, channel: Channel) -> None:
        if channel not in self.open:
            return
        del self.open[channel]
        if self._connections is not None:
            self._connections.closed(channel.peer_address[0])

    def count_read(self, channel: Channel, size: int) -> None:
        """Pause a connection that has used its share of the loop turn; it reads on later."""
        if not self._turn:
            self._scheduler.call_soon(self._next_turn)
        read = self._turn[channel] = self._turn.get(channel, 0) + size
        if read >= READ_PER_TURN_BYTES_MAX:
            channel.pause(Reason.HAD_ITS_TURN)

    def _next_turn(self) -> None:
        turn, self._turn = self._turn, {}
        for channel, read in turn.items():
            if read >= READ_PER_TURN_BYTES_MAX:
                channel.unpause(Reason.HAD_ITS_TURN)

    def send_soon(self, channel: Channel) -> None:
        """At the end of this loop turn, write the channel's pending replies in one piece."""
        self._unsent.append(channel)
        self._send_all_soon()

    def flush_soon(self, session: Flushed) -> None:
        """At the end of this loop turn, before the write, have the session flush its replies."""
        self._due.append(session)
        self._send_all_soon()

    def _send_all_soon(self) -> None:
        if not self._is_sending_soon:
            self._is_sending_soon = True
            self._scheduler.call_soon(self.send_all)

    def flush_due(self) -> None:
        # A flushed session may begin requests that it answers at once.
        while self._due:
            due, self._due = self._due, []
            for session in due:
                session.flush()

    def send_all(self) -> None:
        self.flush_due()
        unsent, self._unsent = self._unsent, []
        self._is_sending_soon = False
        for channel in unsent:
            channel.hand_over()

    def reexamine(
        self, now: ListenerSecurity, *, has_new_names: bool
    ) -> Iterator[Callable[[], None]]:
        """The examinations that are due after settings have changed: each closes a connection that
        the listener would no longer accept, or whose caller would be another one. `now` is what
        the listener demands from now on. `has_new_names`: what names the owners of certificates has
        changed.
        """
        before, self.security = self.security, now
        if before == now and not has_new_names:
            return iter(())
        must_log_in_anew = now.authentication == "required" != before.authentication
        due = list(self.open)
        return (partial(each.reexamine, must_log_in_anew=must_log_in_anew) for each in due)

    def close_idle(self, before: float) -> int:
        """Close connections that have been silent since `before`; returns how many."""
        if not self.closes_idle:
            return 0
        idle = [each for each in self.open if each.last_active < before]
        for channel in idle:
            channel.end_reason = "it was idle for too long"
            channel.close()
        return len(idle)

    def close_all(self) -> None:
        """Close each connection once its peer has received everything."""
        for channel in list(self.open):
            channel.close()

    def abort_all(self) -> None:
        """Close each connection at once, discarding unsent data."""
        for channel in list(self.open):
            channel.abort()


def _nothing() -> None:
    return None


def keep_alive(connected: socket.socket) -> None:
    """Have the kernel detect within minutes that the peer's machine is gone."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


class Channel(asyncio.BufferedProtocol):
    __slots__ = (
        "_channels",
        "_ending",
        "_loop",
        "_make_session",
        "_moved",
        "_out",
        "_out_size",
        "_reasons",
        "_receiving",
        "_session",
        "_transport",
        "_unsent",
        "client_id",
        "end_reason",
        "is_closing",
        "is_ended",
        "is_working",
        "is_writable",
        "last_active",
        "local_address",
        "number",
        "opened_at",
        "peer_address",
    )

    def __init__(
        self,
        channels: Channels,
        make_session: Callable[[Channel], Session],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._channels = channels
        self._make_session = make_session
        self._loop = loop
        #: Number of the connection on its listener.
        self.number = 0
        #: Why this node closes the connection, if that is known.
        self.end_reason = ""
        self._session: Session | None = None
        self._transport: asyncio.Transport | None = None
        self._reasons = Reason.NONE
        #: The replies of this loop turn.
        self._out: list[Buffer] = []
        self._out_size = 0
        #: Bytes of the budget held by an incomplete message, and by unsent replies.
        self._receiving = 0
        self._unsent = 0
        #: Bytes received, and bytes passed to the transport.
        self._moved = 0
        self.is_writable = True
        self.is_closing = False
        #: Whether the peer has half-closed.
        self.is_ended = False
        #: Runs until a half-closed peer has to be answered, and while a closed one has unsent data.
        self._ending: Handle | None = None
        #: Whether the peer has been sent anything, or is an identified node: its requests were
        #: understood.
        self.is_working = False
        self.opened_at = self.last_active = 0.0
        #: What the client calls itself, if its protocol and its requests say so.
        self.client_id = ""
        self.local_address: tuple[str, int] = ("", 0)
        self.peer_address: tuple[str, int] = ("", 0)

    @property
    def listener(self) -> str:
        """Name of the listener that accepted the connection."""
        return self._channels.listener

    @property
    def name(self) -> str:
        """How lines of the log call the connection."""
        return f"{self._channels.listener}-{self.number}"

    @property
    def session(self) -> Session | None:
        """None before the connection is made, and after it is lost."""
        return self._session

    @property
    def security(self) -> ListenerSecurity:
        """What the listener demands of the connection at the moment."""
        return self._channels.security

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection is TLS."""
        return self.tls is not None

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The connection's TLS."""
        transport = self._transport
        return None if transport is None else transport.get_extra_info("ssl_object")

    @property
    def certificate(self) -> Certificate | None:
        """The client's certificate, if it has presented one that the listener's CA has signed."""
        transport = self._transport
        return None if transport is None else transport.get_extra_info("certificate")

    # ---- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        self.local_address = tuple(transport.get_extra_info("sockname") or ("", 0))[:2]
        self.peer_address = tuple(transport.get_extra_info("peername") or ("", 0))[:2]
        taken = self._channels.take(self, transport)
        self.number = self._channels.accepted
        if not taken:
            self.abort()
            return
        transport.set_write_buffer_limits(high=SEND_BUFFER_BYTES_MAX)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self._channels.closes_idle:
                # Without keep-alive, a lost peer has to be detected in another way.
                keep_alive(connected)
        self.opened_at = self.last_active = self._loop.time()
        if connection_log.is_on():
            connection_log.opened(self.name, self.peer_address, base_name(self.listener))
        self._session = self._make_session(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        session = self._session
        assert session is not None
        budget = self._channels.budget
        if budget.used >= budget.new.bytes_max and self._is_over_ceiling():
            # Too late to refuse this read. Reading stops after it: libuv does not survive a stop in
            # between.
            buffer = session.get_buffer(SHORT_READ_BYTES_MAX)[:SHORT_READ_BYTES_MAX]
        else:
            buffer = session.get_buffer(-1)
        if self._receiving:
            # The message's buffer has grown for the coming bytes; there may be no read after all.
            self._charge(session.pending_bytes)
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._loop.time()
        self._channels.bytes_in += nbytes
        self._moved += nbytes
        if nbytes >= _COUNTED_READ_BYTES_MIN:
            self._channels.count_read(self, nbytes)
        session = self._session
        if session is None or self.is_closing:
            return
        try:
            session.buffer_updated(nbytes)
        except RemoteProtocolError as error:
            self.complain(error)
            self.close()
            return
        self._charge(session.pending_bytes)
        budget = self._channels.budget
        if budget.used >= budget.new.bytes_max and self._is_over_ceiling():
            self.pause(Reason.NO_MEMORY)
            budget.wait(self, self._ceiling)

    def _charge(self, pending: int) -> None:
        if pending != self._receiving:
            change, self._receiving = pending - self._receiving, pending
            self._channels.budget.change(change)

    @property
    def _ceiling(self) -> Ceiling:
        budget = self._channels.budget
        if not self.is_working:
            return budget.new
        return budget.finishing if self._receiving else budget.working

    def _is_over_ceiling(self) -> bool:
        return self._channels.budget.used - self._receiving >= self._ceiling.bytes_max

    def eof_received(self) -> bool:
        session = self._session
        if session is None or self.is_closing:
            return False
        if not self.is_ended:
            # First of all, so that requests from now on do not wait, either.
            self.is_ended = True
            session.ended()
            self.close_if_answered()
        # The peer's half is closed; `close` closes this one.
        return True

    def close_if_answered(self) -> None:
        """Called when a half-closed peer may have got all its replies."""
        session = self._session
        if not self.is_ended or self.is_closing or session is None:
            return
        if not session.is_due:
            self.close()
        elif self._ending is None:
            self._ending = self._loop.call_later(ENDED_GRACE_S, self.close)

    def connection_lost(self, exc: Exception | None) -> None:
        if connection_log.is_on():
            connection_log.closed(self.name, self.peer_address, self._why_lost(exc))
        self.is_closing = True
        channels = self._channels
        channels.lost(self)
        if self._ending is not None:
            self._ending.cancel()
        channels.budget.forget(self)
        channels.budget.give_back(self._receiving + self._unsent)
        self._receiving = self._unsent = 0
        session, self._session = self._session, None
        self._transport = None
        if session is not None:
            session.closed()
        if not channels.open:
            channels.on_empty()

    def _why_lost(self, error: Exception | None) -> str:
        if self.end_reason:
            return self.end_reason
        if error is not None:
            return str(error) or type(error).__name__
        if self.is_ended or not self.is_closing:
            return "the client closed it"
        return "this node closed it"

    def pause_writing(self) -> None:
        assert self._transport is not None
        self.is_writable = False
        self._unsent = self._transport.get_write_buffer_size()
        self._channels.budget.take(self._unsent)
        self.pause(Reason.PEER_IS_SLOW)

    def resume_writing(self) -> None:
        self.is_writable = True
        unsent, self._unsent = self._unsent, 0
        self._channels.budget.give_back(unsent)
        self.unpause(Reason.PEER_IS_SLOW)
        if self._session is not None:
            self._session.writable()

    # ---- for `stalled.py`

    @property
    def held_bytes(self) -> int:
        """Memory held until the peer acts: sends the rest, or receives replies."""
        held = self._unsent if self._session is None else self._unsent + self._session.waiting_bytes
        # While reading is paused for other reasons, the peer cannot send the rest.
        return held if self._reasons & Reason.READ_AHEAD else held + self._receiving

    @property
    def waits_for_memory(self) -> bool:
        """Whether this node is the one that does not read."""
        return bool(self._reasons & Reason.NO_MEMORY)

    def look_again(self) -> None:
        """Resume if the others hold less by now; this connection's own memory does not count."""
        if self.waits_for_memory and not self._is_over_ceiling():
            self._channels.budget.forget(self)
            self.resume()

    @property
    def moved_bytes(self) -> int:
        """Bytes that the peer has sent and received."""
        transport = self._transport
        return self._moved if transport is None else self._moved - transport.get_write_buffer_size()

    # ---- from the session

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Queue a reply. The replies of a turn leave together, in one system call."""
        if self.is_closing:
            return
        if not self._out:
            self._channels.send_soon(self)
        self._out.extend(buffers)
        self._out_size += sum(map(len, buffers))
        if self._out_size >= SEND_BUFFER_BYTES_MAX:
            # Enough for one write; and only the transport knows whether the peer receives.
            self.hand_over()

    def flush_soon(self, session: Flushed) -> None:
        """Have `session.flush` called when the replies of this loop turn leave."""
        self._channels.flush_soon(session)

    def hand_over(self) -> None:
        transport = self._transport
        out, self._out = self._out, []
        size, self._out_size = self._out_size, 0
        if transport is None or not out:
            return
        self._channels.bytes_out += size
        self.is_working = True
        self._moved += size
        if not self.is_writable:
            self._unsent += size
            self._channels.budget.take(size)
        if len(out) == 1:
            transport.write(out[0])
        elif size <= _JOIN_BYTES_MAX * len(out):
            transport.write(b"".join(out))
        else:
            # An empty last buffer stays in asyncio's transport, which then never closes.
            transport.writelines([each for each in out if each])

    def keep_unsent_small(self, bytes_max: int) -> None:
        """Use a small send buffer, so that later replies do not wait behind much data."""
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=bytes_max)
        connected = self._transport.get_extra_info("socket")
        if connected is not None and _TCP_NOTSENT_LOWAT is not None:
            connected.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, bytes_max)

    def hand_to(self, session: Session) -> None:
        """Pass the connection to another session."""
        self._session = session

    def reexamine(self, *, must_log_in_anew: bool) -> None:
        """Close the connection if its listener, whose security has changed, would refuse it."""
        session, security = self._session, self.security
        if session is None or self.is_closing:
            return
        if security.tls == "required" and not self.is_encrypted:
            self.cut("the listener demands TLS now")
        elif (
            security.client_certificates == "required"
            and self.is_encrypted
            and self.certificate is None
        ):
            self.cut("the listener demands a certificate now")
        else:
            session.reexamine(must_log_in_anew=must_log_in_anew)

    def cut(self, why: str) -> None:
        """Close at once, with a line in the log."""
        self.complain(why)
        self.abort()

    def pause(self, reason: Reason) -> None:
        if not self._reasons and self._transport is not None and not self.is_ended:
            self._transport.pause_reading()
        self._reasons |= reason

    def unpause(self, reason: Reason) -> None:
        if not self._reasons:
            return
        self._reasons &= ~reason
        if self._reasons or self.is_closing or self.is_ended:
            return
        if self._transport is not None:
            self._transport.resume_reading()

    def resume(self) -> None:
        """The budget has room again."""
        self.unpause(Reason.NO_MEMORY)

    def complain(
        self,
        why: object,
        level: int = logging.INFO,
        *,
        doing: str = "closing",
        request: int | None = None,
    ) -> None:
        """Log why the connection is closed, or another action. The rate of such lines is
        limited. `request` is the number of the request that is the reason.
        """
        if doing == "closing":
            self.end_reason = str(why)
        if self._channels.log.admits(level):
            fields = {"connection": self.name}
            if request is not None:
                fields["request"] = connection_log.request_name(self.name, request)
            log.log(level, "%s %s:%d: %s", doing, *self.peer_address, why, extra=fields)

    def close(self) -> None:
        """Send pending replies, then close; abort a peer that receives nothing for too long."""
        self._channels.flush_due()
        if not self.is_closing and self._transport is not None:
            self.hand_over()
            self.is_closing = True
            self._transport.close()
            self._await_delivery(-1)

    def _await_delivery(self, taken_before: int) -> None:
        """Abort a closing transport whose peer does not receive: it would wait indefinitely."""
        transport = self._transport
        if self._ending is not None:
            self._ending.cancel()
        if transport is None or not transport.get_write_buffer_size():
            return
        taken = self.moved_bytes
        if taken == taken_before:
            transport.abort()
        else:
            again = partial(self._await_delivery, taken)
            self._ending = self._loop.call_later(CLOSE_DELIVERY_S, again)

    def abort(self) -> None:
        """Close without waiting for the peer."""
        self.is_closing = True
        if self._transport is not None:
            self._transport.abort()
