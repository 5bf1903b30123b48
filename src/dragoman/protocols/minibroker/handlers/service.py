"""What all minibroker connections of a node share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dragoman.broker.broker import Broker
from dragoman.broker.groups.direct import DirectRules
from dragoman.framing import Scratch
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.protocols.minibroker.handlers.groups import OWNER
from dragoman.protocols.minibroker.handlers.session import MinibrokerSession
from dragoman.types import MemberId

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
        self.scratch = Scratch()
        timeout_s = broker.settings.minibroker_heartbeat_timeout_ms / 1000
        self.rules = DirectRules(
            by_turns, timeout_s, timeout_s / 3, broker.coordination.partition_count
        )
        self._members = 0
        #: By topic: how many records without a key were published since the start.
        self._turns: dict[str, int] = {}

    def session(self, channel: Channel) -> MinibrokerSession:
        return MinibrokerSession(channel, self)

    def new_member_id(self) -> MemberId:
        """Never seen on the wire; people see it in lists of members."""
        self._members += 1
        return MemberId(f"{OWNER}-{self._members}")

    def next_turn(self, topic: str) -> int:
        """For records without a key: 0, 1, 2 …"""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        if not turn and len(self._turns) > len(self.broker.image.topics) + _SPARE_TURNS:
            known = self.broker.image.topics
            self._turns = {name: count for name, count in self._turns.items() if name in known}
        return turn


def by_turns(members: Sequence[MemberId], count: int) -> Mapping[MemberId, tuple[int, ...]]:
    """Partition p goes to member p mod n, in order of joining (spec, section 6)."""
    step = len(members)
    return {member: tuple(range(index, count, step)) for index, member in enumerate(members)}
