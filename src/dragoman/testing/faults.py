"""Faults of a node in a test: a process that hangs, a disk that is slow, a network that is cut."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from time import sleep
from typing import Any

from dragoman.net.peer_connections import PeerConnections


class Pause:
    """Holds the loop of a node, as SIGSTOP holds a process: connections stay open, and nothing is
    answered.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._end = threading.Event()
        begun = threading.Event()

        def hold() -> None:
            begun.set()
            self._end.wait()

        loop.call_soon_threadsafe(hold)
        begun.wait()

    def end(self) -> None:
        self._end.set()


class WriteDelay:
    """Makes each write take a time, in which the node waits as for a real disk."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> None:
        if self.seconds:
            sleep(self.seconds)


class Cut:
    """Which other nodes a node of a cluster cannot reach, nor be reached by."""

    def __init__(self) -> None:
        self._ports: frozenset[int] = frozenset()

    def attach(self, connections: PeerConnections) -> None:
        """Let a node that is about to start open no connections across the cut."""
        connections.open_connection = self._opener(connections.open_connection)

    def change(self, connections: PeerConnections, unreachable: Mapping[int, int]) -> None:
        """Cut off these nodes, by their ports, and no others. Called in the node's loop."""
        self._ports = frozenset(unreachable.values())
        for node in unreachable:
            connections.disconnect(node)

    def _opener(self, opener: Callable[..., Any]) -> Callable[..., Any]:
        async def open_connection(made: Any, host: str, port: int, **options: Any) -> Any:
            if port in self._ports:
                raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
            return await opener(made, host, port, **options)

        return open_connection


def across(part: Iterable[int], ports: Mapping[int, int]) -> dict[int, dict[int, int]]:
    """For each node, the nodes that it cannot reach when `part` is cut off from the others."""
    inside = set(part)
    return {
        node: {
            other: port for other, port in ports.items() if (other in inside) != (node in inside)
        }
        for node in ports
    }
