"""One mlog connection: requests in, replies out, in order.

A FetchStream may wait for records; the requests behind it are begun when it has been answered, so
that their replies need not be kept meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from dragoman.broker.local_reader import LocalReader
from dragoman.errors import DragomanError, EncodeError, RemoteProtocolError
from dragoman.net.channel import Channel
from dragoman.protocols.mlog.codec import encode_frame
from dragoman.protocols.mlog.connection import Connection, Role
from dragoman.protocols.mlog.constants import Encoding
from dragoman.protocols.mlog.errors import ErrorCode
from dragoman.protocols.mlog.handlers.refusals import Refused, refusal
from dragoman.protocols.mlog.handlers.service import REQUESTS, MlogService
from dragoman.protocols.mlog.messages import Message, RPCError
from dragoman.protocols.service import handlers_by_name
from dragoman.protocols.session import OrderedSession, Place

# Looked up once: members of enumerations are slow to find.
_JSON = Encoding.JSON
#: Raises `DragomanError` to refuse.
Handler: TypeAlias = "Callable[[MlogSession, Any, Place], None]"
HANDLERS: Final[dict[type[Message], Handler]] = handlers_by_name(__package__, REQUESTS)


class MlogSession(OrderedSession[MlogService]):
    def __init__(self, channel: Channel, service: MlogService) -> None:
        self._connection = Connection(Role.SERVER, service.scratch)
        super().__init__(channel, self._connection.reader, service)
        #: Where this connection read last: most clients read on from there.
        self.reading: LocalReader | None = None
        #: Stops the request that waits for records, while one does.
        self._stop_waiting: Callable[[], None] | None = None
        #: Answers it with what there is.
        self._answer_now: Callable[[], None] | None = None

    def may_begin(self, frame: bytearray) -> bool:  # noqa: ARG002
        return self._stop_waiting is None

    def received(self, frame: bytearray, place: Place) -> None:
        request = self._connection.receive(frame)
        handler = HANDLERS.get(type(request))
        try:
            if handler is None:
                name = type(request).__name__
                raise Refused(ErrorCode.UNKNOWN, f"a server does not take {name}")
            handler(self, request, place)
        except RemoteProtocolError:
            raise
        except DragomanError as error:
            self.fail(place, error)

    @property
    def encoding(self) -> Encoding:
        return self._connection.encoding or _JSON

    def reply(self, place: Place, message: Message) -> None:
        encoding = self.encoding
        try:
            frame = encode_frame(message, encoding)
        except EncodeError as error:
            # More than a message may have: a record that only other protocols could write.
            told = RPCError(code=ErrorCode.UNKNOWN, message=str(error))
            frame = encode_frame(told, encoding)
        place.reply(frame)

    def fail(self, place: Place, error: DragomanError) -> None:
        self.reply(place, refusal(error))

    # ---- one request that waits

    @property
    def is_waiting(self) -> bool:
        return self._stop_waiting is not None

    def wait(self, stop: Callable[[], None], answer: Callable[[], None] | None = None) -> None:
        """Begin nothing more until `end_wait`; `stop` is called when the connection goes, `answer`
        when the client sends no more.
        """
        assert self._stop_waiting is None
        self._stop_waiting, self._answer_now = stop, answer

    def end_wait(self) -> None:
        """The reply, which is due now, lets the next request begin."""
        self._stop_waiting = self._answer_now = None

    def on_ended(self) -> None:
        if self._answer_now is not None:
            self._answer_now()

    def on_closed(self) -> None:
        stop, self._stop_waiting = self._stop_waiting, None
        if stop is not None:
            stop()
        if self.reading is not None:
            self.reading.close()
