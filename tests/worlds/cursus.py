"""One Cursus connection to a world, in commands and replies."""

from __future__ import annotations

import struct
from functools import partial

from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.handlers.service import CursusService
from dragoman.protocols.cursus.handlers.session import CursusSession
from dragoman.protocols.cursus.messages import Ack, Batch, Message
from worlds.broker import Pipe, World

ADDRESS = ("localhost", 9000)


def service_of(world: World) -> CursusService:
    """One for each world, as a node has one."""
    found = getattr(world, "cursus", None)
    if found is None:
        found = CursusService(world.broker, world.budget, lambda _: ADDRESS)
        world.cursus = found  # type: ignore[attr-defined]
    assert isinstance(found, CursusService)
    return found


def framed(payload: bytes | str) -> bytes:
    data = payload.encode() if isinstance(payload, str) else payload
    return struct.pack(">I", len(data)) + data


class CursusPipe(Pipe):
    def __init__(self, world: World) -> None:
        super().__init__(
            world, partial(CursusSession, service=service_of(world)), ("127.0.0.1", 9000)
        )
        self._left = b""

    def frames(self) -> list[bytes]:
        """Payloads of the frames that have come back since the last call."""
        data = self._left + self.received()
        found = []
        while len(data) >= 4:
            (size,) = struct.unpack_from(">I", data)
            if len(data) < 4 + size:
                break
            found.append(data[4 : 4 + size])
            data = data[4 + size :]
        self._left = data
        return found

    def ask_raw(self, payload: bytes | str) -> bytes:
        """Send one frame and expect exactly one back."""
        self.feed(framed(payload))
        self.world.settle()
        (reply,) = self.frames()
        return reply

    def ask(self, text: str) -> str:
        return self.ask_raw(text).decode()

    def ask_batch(self, text: str) -> Batch:
        return codec.decode_batch(self.ask_raw(text))

    def publish(self, batch: Batch) -> Ack:
        return codec.decode_ack(self.ask_raw(codec.encode_batch(batch)).decode())


def messages(
    *payloads: str, producer: str = "p1", epoch: int = 0, first: int = 1, key: bytes = b""
) -> list[Message]:
    """Messages with rising sequence numbers."""
    return [
        Message(
            producer_id=producer, epoch=epoch, seq_num=first + index, payload=each.encode(), key=key
        )
        for index, each in enumerate(payloads)
    ]


def batch(
    *payloads: str,
    topic: str = "orders",
    partition: int = 0,
    acks: str = "1",
    idempotent: bool = False,
    producer: str = "p1",
    epoch: int = 0,
    first: int = 1,
) -> Batch:
    sent = messages(*payloads, producer=producer, epoch=epoch, first=first)
    return Batch(
        topic=topic,
        partition=partition,
        messages=sent,
        acks=acks,
        idempotent=idempotent,
        seq_start=first,
        seq_end=max(first, first + len(sent) - 1),
    )


def payloads(found: Batch) -> list[str]:
    return [each.payload.decode() for each in found.messages]
