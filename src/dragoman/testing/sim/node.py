"""A whole node in a simulation: its loop, its disk and its processes, over many starts."""

from __future__ import annotations

import asyncio
from random import Random

from dragoman.config.settings import Settings
from dragoman.server import Node
from dragoman.testing.sim.background import SimBackground, SyncDelays
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import DiskFaults
from dragoman.testing.sim.loop import SimLoop, SimWorld
from dragoman.testing.sim.scheduler import SimClock

_START_SECONDS_MAX = 60.0


class SimNode:
    """Stopped until `start`; may be started again after `kill` or `cut_power`."""

    def __init__(
        self,
        world: SimWorld,
        host: str,
        settings: Settings,
        *,
        disk_faults: DiskFaults | None = None,
        sync_delays: SyncDelays | None = None,
        speed: float = 1.0,
    ) -> None:
        self.world = world
        self.host = host
        self.settings = settings
        # A random source of its own, so that one node's draws do not affect others.
        self.random = Random(world.random.getrandbits(64))
        self.disk = SimDisk(self.random, disk_faults)
        self._sync_delays = sync_delays
        self._speed = speed
        self.loop: SimLoop | None = None
        self.node: Node | None = None

    @property
    def is_running(self) -> bool:
        return self.node is not None

    def start(self) -> Node:
        """Recover and open the listeners."""
        starting = self.begin()
        self.world.run_until(starting.done, _START_SECONDS_MAX)
        starting.result()
        assert self.node is not None
        return self.node

    def begin(self) -> asyncio.Task[None]:
        """`start` without waiting: a node of a cluster needs the others to become ready."""
        assert self.node is None
        loop = self.loop = self.world.loop(self.host, speed=self._speed)
        self.clock = SimClock(loop)
        self.node = Node(
            self.settings,
            loop,
            disk=self.disk,
            background=SimBackground(self.disk, loop, self.random, self._sync_delays),
            clock=self.clock,
            random=self.random,
        )
        return self.world.start(self.node.start(), loop)

    def stop(self) -> None:
        """A clean stop."""
        assert self.node is not None
        assert self.loop is not None
        self.world.run(self.node.stop(), self.loop, _START_SECONDS_MAX)
        self._gone()
        self.world.crash(self._last, silently=False)

    def kill(self) -> None:
        """`kill -9`: the system closes its connections, and the files stay as they are."""
        self._gone()
        self.world.crash(self._last, silently=False)
        self.disk = self.disk.kill()

    def cut_power(self) -> None:
        """The power fails: peers are not notified, and the disk keeps what it promised."""
        self._gone()
        self.world.crash(self._last, silently=True)
        self.disk = self.disk.crash()

    def _gone(self) -> None:
        assert self.loop is not None
        self._last, self.loop, self.node = self.loop, None, None
