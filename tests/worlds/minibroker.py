"""A minibroker connection to a `World`: messages in, messages out, and the bytes when they matter.

`Peer` is a client without behaviour of its own: it sends what a test passes to it and keeps the
replies.
"""

from __future__ import annotations

from functools import partial

from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.connection import Connection, Event, Role
from dragoman.protocols.minibroker.handlers.service import MinibrokerService
from dragoman.protocols.minibroker.handlers.session import MinibrokerSession
from worlds.broker import Pipe, World


def service_of(world: World) -> MinibrokerService:
    return MinibrokerService(world.broker, world.budget, lambda _: ("broker.example", 4222))


class Peer(Pipe):
    def __init__(self, world: World, service: MinibrokerService) -> None:
        super().__init__(world, partial(MinibrokerSession, service=service), ("127.0.0.1", 4222))
        self.connection = Connection(Role.CLIENT)

    def send(self, *requests: m.Request) -> None:
        """Without letting the broker's turn end."""
        self.feed(b"".join(map(self.connection.send, requests)))

    def events(self) -> list[Event]:
        """What has come since the last call."""
        self.world.settle()
        return self.connection.receive_data(self.received())

    def ask(self, request: m.Request) -> m.Message:
        """Send and expect exactly one event."""
        self.send(request)
        (event,) = self.events()
        return event

    def ask_or_none(self, request: m.Request) -> m.Message | None:
        """Send and expect one answer among what was pushed meanwhile; None when there is none."""
        self.send(request)
        pushed = (m.Rebalanced, m.Delivered)
        answers = [each for each in self.events() if not isinstance(each, pushed)]
        return answers[0] if answers else None

    def publish(self, topic: str, *payloads: bytes, key: bytes = b"") -> list[tuple[int, int]]:
        self.send(*(m.Publish(topic=topic, payload=each, key=key) for each in payloads))
        placed = []
        for event in self.events():
            assert isinstance(event, m.Published), event
            placed.append((event.partition, event.offset))
        return placed

    def deliveries(self) -> list[m.Delivered]:
        return [each for each in self.events() if isinstance(each, m.Delivered)]
