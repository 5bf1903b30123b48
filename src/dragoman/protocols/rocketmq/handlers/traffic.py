"""Statistics of pulls from this node: totals, and rates of the last ten minutes."""

from __future__ import annotations

from typing import Final

from dragoman.limits import ROCKETMQ_GROUP_RATES_MAX
from dragoman.world import Clock

_SLOT_S: Final = 10
_SLOTS: Final = 61
_DAY_MS: Final = 86_400_000
#: Time spans, in slots.
_SPANS: Final = (1, 6, 60)


class Rate:
    """A total, and counts by slots of ten seconds. Rates cover only complete slots."""

    def __init__(self) -> None:
        self.total = 0
        self._slots = [0] * _SLOTS
        self._current = 0

    def add(self, count: int, now_s: float) -> None:
        self._advance(int(now_s) // _SLOT_S)
        self._slots[self._current % _SLOTS] += count
        self.total += count

    def _advance(self, slot: int) -> None:
        for each in range(max(self._current + 1, slot - _SLOTS + 1), slot + 1):
            self._slots[each % _SLOTS] = 0
        self._current = max(self._current, slot)

    def per_second(self, now_s: float) -> tuple[float, ...]:
        """The rates of the last ten seconds, minute and ten minutes."""
        self._advance(int(now_s) // _SLOT_S)
        return tuple(
            sum(self._slots[(self._current - back) % _SLOTS] for back in range(1, span + 1))
            / (span * _SLOT_S)
            for span in _SPANS
        )


class Traffic:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.started_ms = clock.wall_ms()
        #: All pulls, pulls that found messages, pulls that found none, and messages.
        self.pulls = Rate()
        self.hits = Rate()
        self.misses = Rate()
        self.messages = Rate()
        #: The total of messages since the node's start, at the beginning of today and of yesterday.
        self.before_today = 0
        self.before_yesterday = 0
        self._day = self.started_ms // _DAY_MS
        #: Rates of messages by group and topic, the least recently used first.
        self._by_group: dict[tuple[str, str], Rate] = {}

    def pulled(self, group: str, topic: str, messages: int) -> None:
        self.begin_day()
        now_s = self._clock.monotonic()
        self.pulls.add(1, now_s)
        if not messages:
            self.misses.add(1, now_s)
            return
        self.hits.add(1, now_s)
        self.messages.add(messages, now_s)
        rate = self._by_group.pop((group, topic), None) or Rate()
        rate.add(messages, now_s)
        self._by_group[group, topic] = rate
        if len(self._by_group) > ROCKETMQ_GROUP_RATES_MAX:
            del self._by_group[next(iter(self._by_group))]

    def group_per_second(self, group: str, topic: str) -> float:
        """The rate at which a group got messages of a topic in the last minute."""
        rate = self._by_group.get((group, topic))
        return 0.0 if rate is None else self.per_second(rate)[1]

    def begin_day(self) -> None:
        """Save the totals when a new day has begun."""
        day = self._clock.wall_ms() // _DAY_MS
        if day != self._day:
            is_next = day == self._day + 1
            self.before_yesterday = self.before_today if is_next else self.messages.total
            self.before_today = self.messages.total
            self._day = day

    def per_second(self, rate: Rate) -> tuple[float, ...]:
        return rate.per_second(self._clock.monotonic())
