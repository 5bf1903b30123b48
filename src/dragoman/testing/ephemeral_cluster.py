"""A real cluster inside the test process: nodes to be killed and started again.

    with EphemeralCluster() as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(cluster.leader("orders"))

Every node runs on a loop and a thread of its own, as `EphemeralBroker` does; they talk to each
other and to clients over loopback TCP. Their disks are in memory and outlive them: a node that was
killed comes back with what it had acknowledged.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Self

from dragoman.broker.broker import Broker
from dragoman.testing.ephemeral import EphemeralBroker
from dragoman.testing.memory import MemoryDisk


class EphemeralCluster:
    """Nodes are numbered from 1. `settings` are the keys of `dragoman serve --set`, for all."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        listeners: tuple[str, ...] = ("kafka", "http"),
    ) -> None:
        ports = _free_ports(nodes)
        cluster = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(ports, 1))
        self.nodes: dict[int, EphemeralBroker] = {}
        for number in range(1, nodes + 1):
            given = {**(settings or {}), "node.id": str(number), "cluster": cluster}
            node = EphemeralBroker(settings=given, listeners=listeners)
            node._memory = MemoryDisk()
            self.nodes[number] = node
        self._running: set[int] = set()

    # ---- addresses

    def addresses(self, listener: str) -> str:
        """`HOST:PORT,HOST:PORT` of a listener on all nodes, running or not."""
        return ",".join(each.address(listener) for each in self.nodes.values())

    @property
    def bootstrap_servers(self) -> str:
        return self.addresses("kafka")

    # ---- who is what

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition, as a node that runs knows it; -1: none does."""
        image = self._anyone().image
        return image.topics[topic].partitions[partition].leader

    def controller(self) -> int:
        """The node that leads the metadata; -1: none does."""
        return self._anyone().quorum.leader

    def _anyone(self) -> Broker:
        node = self.nodes[min(self._running)]._node
        assert node is not None
        return node.broker

    # ---- life

    def start(self, *numbers: int) -> Self:
        """Start these nodes, or all. The first time, all are needed to found the cluster."""
        self._all(EphemeralBroker.start, numbers or self.nodes)
        self._running.update(numbers or self.nodes)
        return self

    def stop(self, *numbers: int) -> None:
        """Clean stops, one after the other: each hands over what it leads."""
        for number in numbers or sorted(self._running):
            self._running.discard(number)
            self.nodes[number].stop()

    def kill(self, *numbers: int) -> None:
        """As `kill -9` would."""
        self._running.difference_update(numbers)
        self._all(EphemeralBroker.kill, numbers)

    def _all(self, act: Callable[[EphemeralBroker], object], numbers: Iterable[int]) -> None:
        chosen = [self.nodes[number] for number in numbers]
        if chosen:
            with ThreadPoolExecutor(len(chosen)) as pool:
                list(pool.map(act, chosen))

    # ---- context managers

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        # All at once: nobody is left to hand over to.
        self.kill(*self._running)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.__exit__)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [each.getsockname()[1] for each in sockets]
