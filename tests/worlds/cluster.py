"""Three whole nodes on simulated loops, disks and network, and clients of any protocol.

What happens takes simulated time only: `timed` says how long a client has waited for something.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from dragoman.broker.broker import Broker
from dragoman.broker.topics import NewTopic
from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.outcome import start
from dragoman.testing.sim.loop import SimLoop, SimWorld
from dragoman.testing.sim.node import SimNode

Result = TypeVar("Result")
PORTS = {
    "kafka": 9092,
    "rocketmq": 9876,
    "cursus": 9000,
    "minibroker": 4222,
    "mlog": 9094,
    "peer": 9190,
}
NODES = (1, 2, 3)


def host(number: int) -> str:
    return f"n{number}"


class ThreeNodes:
    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.world = SimWorld(seed)
        self.nodes = {
            number: SimNode(self.world, host(number), self._settings(number, settings))
            for number in NODES
        }
        self._clients = 0
        for node in self.nodes.values():
            node.begin()
        self.wait(lambda: all(self.broker(each).is_ready for each in NODES))

    def _settings(self, number: int, more: dict[str, Any]) -> Settings:
        listeners = tuple(
            Listener(name=name, bind=Address(host(number), port)) for name, port in PORTS.items()
        )
        peers = tuple(f"{each}@{host(each)}:{PORTS['peer']}" for each in NODES)
        return Settings(node_id=number, listeners=listeners, cluster=peers, **more)

    def broker(self, number: int) -> Broker:
        node = self.nodes[number].node
        assert node is not None
        return node.broker

    def address(self, number: int, protocol: str) -> str:
        return f"{host(number)}:{PORTS[protocol]}"

    # ---- time

    def wait(self, is_done: Callable[[], bool], seconds: float = 60) -> None:
        assert self.world.run_until(is_done, seconds)

    def advance(self, seconds: float) -> None:
        self.world.run_until(lambda: False, seconds)

    def client(self) -> SimLoop:
        """The loop of a process on a host of its own."""
        self._clients += 1
        return self.world.loop(f"client{self._clients}")

    def run(self, work: Coroutine[Any, Any, Result], seconds: float = 60) -> Result:
        return self.world.run(work, self.client(), seconds)

    def timed(self, work: Coroutine[Any, Any, Result], seconds: float = 60) -> tuple[Result, float]:
        """What the work ends with, and how many seconds it took."""
        before = self.world.now
        return self.run(work, seconds), self.world.now - before

    # ---- topics

    def create(self, name: str, *replicas: tuple[int, ...], **config: str) -> None:
        """A topic whose partitions have these replicas, the leader first."""
        given = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name=name, assignment=replicas, config=given)
        broker = self.broker(1)

        def attempt(_error: DragomanError | None = None) -> None:
            # A node that has just come may not know the others, or who leads, yet.
            if name not in broker.image.topics:
                broker.scheduler.call_later(
                    0.2, lambda: start(broker.topics.create(new)).then(attempt)
                )

        attempt()
        self.wait(lambda: all(self._is_led(each, name, replicas) for each in NODES))

    def _is_led(self, number: int, name: str, replicas: tuple[tuple[int, ...], ...]) -> bool:
        broker = self.broker(number)
        topic = broker.image.topics.get(name)
        if topic is None:
            return False
        for partition, nodes in zip(topic.partitions, replicas, strict=True):
            if partition.leader != nodes[0] or len(partition.in_sync) != len(nodes):
                return False
            if number == nodes[0]:
                with suppress(DragomanError):
                    broker.partitions.replica(partition)
                    continue
                return False
        return True

    # ---- faults

    def isolate(self, *numbers: int) -> None:
        """Nothing gets through between these nodes and any other; clients reach all of them."""
        for number in numbers:
            others = [host(each) for each in NODES if each != number]
            self.world.network.isolate(host(number), others)
