"""What all minibroker connections of a node share."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.broker.addresses import address_of
from dragoman.broker.broker import Broker
from dragoman.framing import Scratch
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.protocols.minibroker.handlers.session import MinibrokerSession

#: Counters of topics that are gone are dropped once there are so many more than topics.
_SPARE_TURNS = 1000


class MinibrokerService:
    def __init__(
        self,
        broker: Broker,
        budget: MemoryBudget,
        advertised: Callable[[Channel], tuple[str, int]],  # noqa: ARG002
    ) -> None:
        """Nothing is `advertised`: no reply of this protocol names an address."""
        self.broker = broker
        self.budget = budget
        #: What other nodes call the listener that this service is for.
        self.listener = "minibroker"
        self.scratch = Scratch()
        #: What other nodes call the listener that this service is for.
        self.listener = "minibroker"
        self.heartbeat_timeout_s = broker.settings.minibroker_heartbeat_timeout_ms / 1000
        #: By topic: how many records without a key were published since the start.
        self._turns: dict[str, int] = {}

    def session(self, channel: Channel) -> MinibrokerSession:
        return MinibrokerSession(channel, self)

    def address_of(self, node: int) -> tuple[str, int] | None:
        """Host and port of another node, if they are known."""
        return address_of(self.broker.image, node, self.listener)

    def next_turn(self, topic: str) -> int:
        """For records without a key: 0, 1, 2 …"""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        if not turn and len(self._turns) > len(self.broker.image.topics) + _SPARE_TURNS:
            known = self.broker.image.topics
            self._turns = {name: count for name, count in self._turns.items() if name in known}
        return turn
