"""Messages that wait for a reply, which the broker brings over the connection of whoever asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dragoman.errors import DecodeError, EncodeError
from dragoman.protocols.rocketmq.client.compression import inflate
from dragoman.protocols.rocketmq.client.remoting import Remoting
from dragoman.protocols.rocketmq.client.values import ReceivedMessage
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Property, Request, Response
from dragoman.protocols.rocketmq.messages import decode_properties
from dragoman.world import Random

#: Of a message that waits for a reply, in milliseconds.
TIME_TO_LIVE: Final = "TTL"
_KIND: Final = "MSG_TYPE"
_CARRIED: Final = (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, TIME_TO_LIVE)


class Replies:
    def __init__(self, remoting: Remoting, random: Random) -> None:
        self._random = random
        #: By the number that goes with message and reply.
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        remoting.on_request(Request.PUSH_REPLY_MESSAGE_TO_CLIENT, self._replied)

    @contextmanager
    def awaited(self) -> Iterator[tuple[str, asyncio.Future[ReceivedMessage]]]:
        number = f"{self._random.getrandbits(128):032x}"
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            yield number, future
        finally:
            del self._waiting[number]
            future.cancel()

    async def _replied(self, _address: str, request: Command) -> Command:
        fields = request.fields
        properties = decode_properties(fields.get("properties", ""))
        future = self._waiting.get(properties.get(Property.CORRELATION_ID, ""))
        if future is None or future.done():
            return Command(code=Response.SYSTEM_ERROR, remark="nobody waits for this reply")
        try:
            sys_flag, born_ms = int(fields.get("sysFlag", 0)), int(fields.get("bornTimestamp", 0))
        except ValueError:
            raise DecodeError(f"a reply with {fields}") from None
        future.set_result(
            ReceivedMessage(
                topic=fields.get("topic", ""),
                body=inflate(bytes(request.body), sys_flag),
                properties=properties,
                born_ms=born_ms,
            )
        )
        return Command(code=Response.SUCCESS)


def reply_properties(message: ReceivedMessage) -> dict[str, str]:
    """Of the reply to a message. Raises `EncodeError` when nobody waits for one."""
    if not all(message.properties.get(name) for name in _CARRIED):
        raise EncodeError(f"message {message.unique_id} does not ask for a reply")
    return {_KIND: "reply"} | {name: message.properties[name] for name in _CARRIED}
