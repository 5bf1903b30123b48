"""Peers that hold memory and do not move are cut off when others wait for it.

Half a frame, replies that nobody takes, requests behind one that waits: each takes its part of the
node's budget, and a few hundred peers can take all of it for as long as they like. Nobody minds
until the budget is used up, and no connection is read. Then those that moved next to nothing from
one look to the next go, the largest first, until there is enough for the rest. Requests that the
node itself is slow to answer are no reason. Those in the middle of a request that is not read for
lack of memory go last, and of them those first that have never been answered.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from dragoman.limits import STALL_LOOK_INTERVAL_S, STALL_MOVED_BYTES_MIN
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel, Channels
from dragoman.world import Handle, Scheduler

log = logging.getLogger("dragoman.net")


class StalledPeers:
    def __init__(
        self, budget: MemoryBudget, channels: Mapping[str, Channels], scheduler: Scheduler
    ) -> None:
        self._budget = budget
        self._channels = channels
        self._scheduler = scheduler
        self._timer: Handle | None = None
        #: What those that hold memory had moved at the last look, if there was too little then.
        self._moved: dict[Channel, int] = {}

    def watch(self) -> None:
        self._timer = self._scheduler.call_later(STALL_LOOK_INTERVAL_S, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self.watch()
        before, self._moved = self._moved, {}
        missing = self._budget.missing
        if not missing:
            return
        stalled = []
        for channel in self._open():
            channel.look_again()
            held = channel.held_bytes
            if held:
                moved = self._moved[channel] = channel.moved_bytes
                if channel in before and moved - before[channel] < STALL_MOVED_BYTES_MIN:
                    stalled.append((held, channel))
        self._cut_off(stalled, missing)

    def _open(self) -> list[Channel]:
        """All that share the budget: nodes among themselves have their own."""
        sharing = (each for each in self._channels.values() if each.budget is self._budget)
        return [channel for channels in sharing for channel in channels.open]

    def _cut_off(self, stalled: list[tuple[int, Channel]], missing: int) -> None:
        stalled.sort(key=lambda each: (_patience(each[1]), -each[0]))
        count = freed = 0
        for held, channel in stalled:
            if freed >= missing:
                break
            channel.abort()
            count += 1
            freed += held
        if count:
            log.warning("cut off %d peers that held %d bytes and did not move", count, freed)


def _patience(channel: Channel) -> int:
    return 1 + channel.is_working if channel.waits_for_memory else 0
