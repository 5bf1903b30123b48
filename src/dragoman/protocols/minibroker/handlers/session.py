"""A minibroker connection: the order in which requests are handled, and error replies.

The original handles one request at a time. Dragoman pipelines PUB and COMMIT, because each waits
for the disk. Any other request begins when all earlier requests have been answered, and later
requests wait for its reply. Clients notice only the speed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, TypeAlias

from dragoman.broker.errors import NotCoordinator, NotLeader
from dragoman.errors import BrokerError, DragomanError, NotControllerError, NotSentError
from dragoman.framing import FrameReader
from dragoman.limits import (
    CONNECTION_CLOSE_GRACE_S,
    PUSHED_UNSENT_BYTES_MAX,
)
from dragoman.net import connection_log
from dragoman.net.channel import Channel
from dragoman.outcome import start
from dragoman.protocols.minibroker import codec, errors
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.constants import FRAME_BYTES_MAX, Op
from dragoman.protocols.minibroker.errors import ANONYMOUS_REFUSED, EVICTED, fitting
from dragoman.protocols.minibroker.handlers.delivery import Pusher
from dragoman.protocols.minibroker.handlers.service import REQUESTS, MinibrokerService
from dragoman.protocols.minibroker.handlers.subscriptions import Subscription
from dragoman.protocols.minibroker.messages import Failed
from dragoman.protocols.service import handlers_by_name
from dragoman.protocols.session import OrderedSession, Place

#: Returns host and port of another node; None if unknown.
AddressOf: TypeAlias = Callable[[int], tuple[str, int] | None]


class Refused(BrokerError):  # noqa: N818
    """A refusal. Its message is the text that is sent to the client."""


def refusal(error: DragomanError, address_of: AddressOf) -> bytes:
    """The ERR frame for an error. It names the leader or coordinator if that is another node."""
    reason = str(error)
    if isinstance(error, NotLeader | NotCoordinator):
        leader = address_of(error.leader)
        reason = errors.not_leader("" if leader is None else f"{leader[0]}:{leader[1]}")
    elif isinstance(error, NotSentError | NotControllerError):
        # The request had no effect. Another node may be able to reach the leader.
        reason = errors.not_leader()
    return codec.encode(Failed(reason=errors.fitting(reason)))


#: A handler takes the session, a request of its class, and the request's place in the queue of
#: replies. It raises `DragomanError` to refuse, and returns a coroutine if it must wait.
Handler: TypeAlias = Callable[..., Coroutine[object, None, None] | None]
HANDLERS: Final[dict[type[m.Request], Handler]] = handlers_by_name(__package__, REQUESTS)
_PIPELINED = frozenset((int(Op.PUB), int(Op.COMMIT)))


class MinibrokerSession(OrderedSession[MinibrokerService]):
    protocol = "minibroker"

    def __init__(self, channel: Channel, service: MinibrokerService) -> None:
        frame_bytes_max = min(FRAME_BYTES_MAX, service.broker.settings.socket_request_max_bytes)
        super().__init__(channel, FrameReader(frame_bytes_max, service.scratch), service)
        channel.keep_unsent_small(PUSHED_UNSENT_BYTES_MAX)
        #: Subscriptions by topic: a connection has at most one to each.
        self.subscriptions: dict[str, Subscription] = {}
        self.pusher = Pusher(self, service.broker.scheduler)
        #: Whether the last request may be handled concurrently with the next one.
        self._is_pipelining = False
        if self.must_log_in:
            self.await_login(frame_bytes_max)

    def may_begin(self, frame: bytearray) -> bool:
        return (self._is_pipelining and frame[0] in _PIPELINED) or not self.has_unanswered

    def received(self, frame: bytearray, place: Place) -> None:
        self._is_pipelining = frame[0] in _PIPELINED
        if self.must_log_in:
            # The protocol has no login: only a certificate or an address could name the client.
            self.refused_anonymous()
            self.channel.complain(ANONYMOUS_REFUSED)
            place.counter.failed("anonymous")
            place.reply(codec.encode(Failed(reason=ANONYMOUS_REFUSED)))
            self.close()
            return
        try:
            request = codec.decode_request(frame)
            place.counter = self.service.requests[type(request)]
            waiting = HANDLERS[type(request)](self, request, place)
        except DragomanError as error:
            self.refuse(place, error)
        else:
            if waiting is not None:
                start(waiting).then(partial(self._finished, place))

    def _finished(self, place: Place, result: DragomanError | None) -> None:
        """Called when a handler's coroutine has replied, or raised the error to reply with."""
        if result is not None:
            self.refuse(place, result)

    def refuse(self, place: Place, error: DragomanError) -> None:
        place.counter.failed(error.code)
        if connection_log.is_on():
            self.note_failure(None, "", None, error.code, str(error))
        place.reply(refusal(error, self.service.registered))

    # ---- the end

    def end(self, reason: str) -> None:
        """Push an ERR with the reason and close, because clients would take an ERR on an open
        connection for their next reply. A peer that does not read it is disconnected after a short
        grace period.
        """
        if not self.channel.is_closing:
            self.push(codec.encode(m.Failed(reason=fitting(reason))))
            self.close()
            scheduler = self.service.broker.scheduler
            scheduler.call_later(CONNECTION_CLOSE_GRACE_S, self.channel.abort)

    def evicted(self) -> None:
        self.end(EVICTED)

    def on_writable(self) -> None:
        self.pusher.resume()

    def on_ended(self) -> None:
        self._end_subscriptions()

    def on_closed(self) -> None:
        self._end_subscriptions()

    def _end_subscriptions(self) -> None:
        subscriptions, self.subscriptions = self.subscriptions, {}
        for each in subscriptions.values():
            each.close()
