"""One Cursus connection: requests in, replies out, in the order of the requests.

The original takes one request after the other. Here, publishing is pipelined, because it waits for
the disk; anything else begins when all before it have been answered, so that a client that sends
CREATE and PUBLISH in one piece gets what it means. STREAM ends all that: from then on the
connection only pushes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from dragoman.errors import DecodeError, DragomanError, EncodeError
from dragoman.net.channel import Channel
from dragoman.net.framed import FramedSession, Place
from dragoman.protocols.cursus import codec, compression
from dragoman.protocols.cursus.codec import UnreadableRequest
from dragoman.protocols.cursus.connection import frame_reader
from dragoman.protocols.cursus.constants import STRUCTURED_ERRORS
from dragoman.protocols.cursus.errors import Refusal, error_text
from dragoman.protocols.cursus.handlers.refusals import refusal_text
from dragoman.protocols.cursus.messages import Batch, Command
from dragoman.security.authorizer import ANONYMOUS
from dragoman.types import Buffer
from dragoman.world import Handle

if TYPE_CHECKING:
    from dragoman.protocols.cursus.handlers.service import CursusService
    from dragoman.protocols.cursus.handlers.streams import Stream

log = logging.getLogger("dragoman.cursus")
Request: TypeAlias = Command | Batch | UnreadableRequest


class Call:
    """A command, and where its answer goes."""

    __slots__ = ("command", "place", "service", "session")

    def __init__(self, session: CursusSession, command: Command, place: Place) -> None:
        self.session = session
        self.service = session.service
        self.command = command
        self.place = place

    def get(self, name: str, default: str = "") -> str:
        return self.command.arguments.get(name, default)

    def require(self, name: str, refusal: str) -> str:
        value = self.command.arguments.get(name, "")
        if not value:
            raise Refusal(refusal)
        return value

    def number(self, name: str, default: int | None = None, *, refusal: str = "") -> int:
        """A whole number that is not negative."""
        text = self.command.arguments.get(name)
        if text is None and default is not None:
            return default
        value = as_number(text or "")
        if value is None:
            code = "invalid_seq_num" if name == "seqNum" else f"invalid_{name}"
            raise Refusal(refusal or f"{code} value={text or ''}")
        return value

    def ok(self, text: str = "") -> None:
        self.place.reply(codec.frame(f"OK {text}".encode() if text else b"OK"))

    def json(self, data: bytes) -> None:
        self.place.reply(codec.frame(data))

    def refuse(self, error: DragomanError) -> None:
        self.session.refuse(self.place, error)


#: Handles a command; raises for what it refuses at once.
Handler: TypeAlias = Callable[[Call], None]


def as_number(text: str) -> int | None:
    """A decimal number of at most 64 bits, without sign; int() would take more than that."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        return None
    value = int(text)
    return value if value < 1 << 64 else None


class CursusSession(FramedSession):
    def __init__(self, channel: Channel, service: CursusService) -> None:
        super().__init__(channel, frame_reader(service.scratch), service.budget)
        self.service = service
        self.principal = ANONYMOUS
        self.features: frozenset[str] = frozenset()
        #: Where the next CONSUME of a partition goes on, whatever it says.
        self.positions: dict[tuple[str, int], int] = {}
        self.stream: Stream | None = None
        #: The request that is to begin next, decoded when it was first looked at.
        self._next: Request | None = None
        self._is_publishing = False
        #: The request under way that lets no other begin.
        self._alone: Place | None = None
        self._idle_timer: Handle = service.scheduler.call_later(service.idle_s, self._check_idle)

    # ---- requests

    def may_begin(self, frame: bytearray) -> bool:
        if self._next is None:
            self._next = _read(frame)
            self._is_publishing = _is_publishing(self._next)
        if self._alone is not None and not self._alone.is_done:
            return False
        return self._is_publishing or not self.has_unanswered

    def received(self, frame: bytearray, place: Place) -> None:  # noqa: ARG002
        request, self._next = self._next, None
        assert request is not None
        if self.stream is not None:
            place.reply()
            return
        self._alone = None if self._is_publishing else place
        self._begin(request, place)

    def _begin(self, request: Request, place: Place) -> None:
        service = self.service
        service.requests += 1
        try:
            if isinstance(request, Batch):
                service.publish_batch(self, request, place)
            elif isinstance(request, Command):
                service.handler(request.word)(Call(self, request, place))
            else:
                place.reply(self.error(request.reply))
                if request.closes:
                    self.close()
        except DragomanError as error:
            self.refuse(place, error)

    # ---- answers

    def error(self, text: str) -> bytes:
        return codec.frame(
            error_text(text, is_structured=STRUCTURED_ERRORS in self.features).encode()
        )

    def refuse(self, place: Place, error: DragomanError) -> None:
        place.reply(self.error(refusal_text(error, self.service.address_of)))

    def address(self) -> tuple[str, int]:
        """Where this client is told to find this node."""
        return self.service.advertised(self.channel)

    # ---- life

    def on_writable(self) -> None:
        if self.stream is not None:
            self.stream.pump()

    def on_closed(self) -> None:
        self._idle_timer.cancel()
        if self.stream is not None:
            self.stream.stop()
        self.service.closed(self)

    def _check_idle(self) -> None:
        service = self.service
        left = self.channel.last_active + service.idle_s - service.scheduler.time()
        if self.stream is not None or self.has_unanswered:
            left = service.idle_s
        if left <= 0:
            log.info("closing %s:%d: silent for %g s", *self.channel.peer_address, service.idle_s)
            self.close()
            return
        self._idle_timer = service.scheduler.call_later(left, self._check_idle)


def _is_publishing(request: Request) -> bool:
    return isinstance(request, Batch) or (
        isinstance(request, Command) and request.word == "PUBLISH"
    )


def _read(frame: Buffer) -> Request:
    """The request in a frame, compressed or not."""
    try:
        return codec.decode_request(compression.plain(frame))
    except UnreadableRequest as unreadable:
        expanded = compression.raw_snappy(frame) if len(frame) else None
        if expanded is not None:
            try:
                return codec.decode_request(expanded)
            except UnreadableRequest:
                pass
        return unreadable
    except DecodeError as error:
        return UnreadableRequest(f"decode_failed reason={codec.quoted(str(error))}")


def batch_frame(batch: Batch) -> bytes:
    """A batch to be sent. Raises `Refusal` for records that Cursus's layout has no room for."""
    try:
        return codec.frame(codec.encode_batch(batch))
    except EncodeError as error:
        raise Refusal(f"command_failed reason={codec.quoted(str(error))}") from None
