"""Peers that hold memory without progress are disconnected when others wait for memory.

Half a frame, replies that the peer does not read, requests behind one that waits: each takes its
part of the node's budget, and a few hundred peers can take all of it for ever. While there is room,
that does no harm. Once the budget is used up, no connection is read. Then connections that moved
next to nothing between two searches are cut off, the largest first, until there is enough memory
for the rest. Requests that the node itself is slow to answer do not count. Connections in the
middle of a request that is not read for lack of memory come last, and among them those first that
have never been answered.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from dragoman.limits import STALL_LOOK_INTERVAL_S, STALL_MOVED_BYTES_MIN
from dragoman.log_limiter import LogLimiter
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
        #: Bytes that holders of memory had moved at the last search, if memory was short then.
        self._moved: dict[Channel, int] = {}
        #: When a search found memory short for the first time; None while there is enough.
        self.short_since: float | None = None
        self._limiter = LogLimiter(log, scheduler)

    def watch(self) -> None:
        self._timer = self._scheduler.call_later(STALL_LOOK_INTERVAL_S, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self.watch()
        before, self._moved = self._moved, {}
        missing = self._budget.missing
        self._note(missing)
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

    def _note(self, missing: int) -> None:
        """Log when memory gets short, and when there is enough again."""
        since, now = self.short_since, self._scheduler.time()
        if missing and since is None:
            self.short_since = now
            if self._limiter.admits(logging.WARNING):
                fields = {"bytes": self._budget.used, "missing_bytes": missing}
                log.warning("memory budget exhausted: sockets are not read", extra=fields)
        elif not missing and since is not None:
            self.short_since = None
            if self._limiter.admits(logging.INFO):
                log.info("memory budget has room again", extra={"ms": round((now - since) * 1000)})

    def _open(self) -> list[Channel]:
        """All channels that share the budget; those between nodes have their own."""
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
