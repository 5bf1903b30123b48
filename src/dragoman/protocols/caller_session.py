"""The caller of a connection: who it is, what it may do, and its login.

The certificate or the network of a connection may name its caller; a login replaces it. A
connection that has to log in first gets little time and sends small frames until then. It is closed
when its caller ends, and when its listener would name or accept it differently.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

from dragoman.errors import DecodeError
from dragoman.framing import FrameReader
from dragoman.limits import LOGIN_FRAME_BYTES_MAX
from dragoman.net.channel import Channel
from dragoman.protocols.service import Core, Service
from dragoman.security.access import ANONYMOUS, Caller, Operation, Resource
from dragoman.security.audit import login
from dragoman.security.identity import initial_caller

ServiceT_co = TypeVar("ServiceT_co", bound=Service[Core], covariant=True)


def is_loopback(host: str) -> bool:
    return host == "::1" or host.startswith(("127.", "::ffff:127."))


class LoginWait:
    """The time that a connection has for its login."""

    __slots__ = ("_channel", "_timer", "frame_bytes_max")

    def __init__(self, session: CallerSession[Service[Core]], frame_bytes_max: int | None) -> None:
        #: The bound of frames after the login; None: it stays the same.
        self.frame_bytes_max = frame_bytes_max
        self._channel = session.channel
        broker = session.service.broker
        seconds = broker.settings.connections_max_login_ms / 1000
        self._timer = broker.scheduler.call_later(seconds, self._expired)

    def _expired(self) -> None:
        self._channel.cut("no login in time")

    def end(self) -> None:
        self._timer.cancel()


class CallerSession(Generic[ServiceT_co]):
    """A session that knows its caller."""

    __slots__ = ("_has_logged_in", "_login_wait", "_reader", "caller", "channel", "service")

    def __init__(self, channel: Channel, reader: FrameReader, service: ServiceT_co) -> None:
        self.channel = channel
        self.service = service
        self._reader = reader
        #: The caller of requests that name none of their own; with a login it changes.
        self.caller: Caller = self._named()
        self._has_logged_in = False
        self._login_wait: LoginWait | None = None

    def _named(self) -> Caller:
        """The caller that the certificate or the network names."""
        channel, broker = self.channel, self.service.broker
        found = initial_caller(
            channel.security,
            channel.certificate,
            channel.peer_address[0],
            broker.settings.ssl_principal_mapping_rules,
        )
        return found if found.principal == ANONYMOUS else broker.logins.before_login(found)

    # ---- rights

    @property
    def must_log_in(self) -> bool:
        """Whether the listener serves no anonymous callers, and this connection's caller is one."""
        return (
            self.channel.security.authentication == "required"
            and self.caller.principal == ANONYMOUS
        )

    def is_allowed(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self.service.is_allowed(self.caller, operation, resource, name)

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        """`is_allowed` for filters and alternatives, where a negative answer refuses nothing."""
        return self.service.may(self.caller, operation, resource, name)

    def describable(self, resource: Resource, names: Collection[str]) -> frozenset[str]:
        """The names of resources that the caller may describe."""
        return self.service.describable(self.caller, resource, names)

    def authorize(self, operation: Operation, resource: Resource, name: str) -> None:
        """Raises `NotAuthorized`, in the class of the resource."""
        service, caller = self.service, self.caller
        if not service.broker.authorizer.is_allowed(caller, operation, resource, name):
            raise service.refused(caller, operation, resource, name)

    def authorize_new_topic(self, name: str) -> None:
        """Raises `NotAuthorized` if the caller may create neither any topic nor this one."""
        self.service.authorize_new_topic(self.caller, name)

    # ---- the login

    def await_login(self, frame_bytes_max: int | None) -> None:
        """Bound the time of a connection that has to log in, and its frames, which then have
        `frame_bytes_max`. None: the frames are bounded with those of other connections
        (`count_unverified`), because only a whole frame can be authenticated.
        """
        refusal = self.service.broker.logins.admission.refusal(self.channel.peer_address[0])
        if refusal:
            # The channel is still being made.
            self.channel.complain(refusal)
            self.service.broker.scheduler.call_soon(self.channel.abort)
            return
        if frame_bytes_max is not None:
            self._reader.allow(min(LOGIN_FRAME_BYTES_MAX, frame_bytes_max))
        self._login_wait = LoginWait(self, frame_bytes_max)

    def login_awaited(self) -> None:
        """The login that was awaited has succeeded, or the connection is gone."""
        wait, self._login_wait = self._login_wait, None
        if wait is not None:
            wait.end()
            if wait.frame_bytes_max is not None:
                self._reader.allow(wait.frame_bytes_max)
            self.service.broker.logins.unverified_frames.left(self.channel)
            self.service.broker.logins.admission.left(self.channel.peer_address[0])

    @property
    def awaits_login(self) -> bool:
        """Whether the connection has to log in, and has not."""
        return self._login_wait is not None

    def count_unverified(self, size: int) -> None:
        """Note how many bytes the connection holds before its login."""
        if self._login_wait is not None:
            frames = self.service.broker.logins.unverified_frames
            frames.holds(self.channel, self.channel.peer_address[0], size)

    def _unreadable(self, error: DecodeError) -> DecodeError:
        """The error of a frame, which says if the same frame would be fine after a login."""
        if self._login_wait is None:
            return error
        return DecodeError(f"{error} before the login, on listener {self.channel.listener}")

    @property
    def is_private(self) -> bool:
        """Whether the client may send secrets in clear: by TLS, from this machine, or because a
        setting allows it.
        """
        return (
            self.channel.is_encrypted
            or is_loopback(self.channel.peer_address[0])
            or self.service.broker.settings.sasl_insecure_clear_text
        )

    def refused_anonymous(self) -> None:
        """Note for the audit log that a request was refused because nothing names its caller."""
        event = login("none", self.caller, self.channel.listener, succeeded=False)
        self.service.broker.logins.record(event)

    def log_in(self, caller: Caller) -> None:
        """Continue as a caller that has logged in; later requests are its own."""
        self.login_awaited()
        self.service.broker.logins.closed(self)
        self.caller = caller
        self._has_logged_in = True
        self.service.broker.logins.opened(self)

    def is_renamed(self) -> bool:
        return not self._has_logged_in and self._named() != self.caller

    def login_ended(self, reason: str) -> None:
        """The caller's user was removed, disabled or replaced: close at once."""
        self.channel.cut(reason)

    def reexamine(self, *, must_log_in_anew: bool) -> None:
        if self.is_renamed():
            self.channel.cut("the listener names its caller differently now")
        elif must_log_in_anew and self.must_log_in and self._login_wait is None:
            # Its streams and parked requests would go on. A connection whose login is awaited has
            # none.
            self.channel.cut("the listener demands a login now")
