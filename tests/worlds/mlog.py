"""An mlog connection to a world: messages in, messages out, over the real channel and session."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.connection import Connection, Role
from dragoman.protocols.mlog.constants import Encoding
from dragoman.protocols.mlog.handlers.service import MlogService
from dragoman.protocols.mlog.handlers.session import MlogSession
from worlds.broker import Pipe, World

Answer = TypeVar("Answer", bound=m.Message)


class MlogPipe(Pipe):
    def __init__(
        self,
        world: World,
        encoding: Encoding = Encoding.JSON,
        service: MlogService | None = None,
    ) -> None:
        if service is None:
            service = MlogService(world.broker, world.budget, lambda _: ("127.0.0.1", 9094))
        super().__init__(world, partial(MlogSession, service=service), ("127.0.0.1", 9094))
        self.connection = Connection(Role.CLIENT, encoding=encoding)

    def send(self, *requests: m.Message) -> None:
        """Without letting the broker's turn end."""
        for each in requests:
            self.feed(self.connection.send(each))

    def replies(self) -> list[m.Message]:
        """What has come back since the last call."""
        return self.connection.receive_data(self.received())

    def ask_all(self, *requests: m.Message) -> list[m.Message]:
        self.send(*requests)
        self.world.settle()
        return self.replies()

    def ask(self, request: m.Message, kind: type[Answer]) -> Answer:
        (reply,) = self.ask_all(request)
        assert isinstance(reply, kind), reply
        return reply

    def refused(self, request: m.Message) -> tuple[int, str]:
        error = self.ask(request, m.RPCError)
        return error.code, error.message
