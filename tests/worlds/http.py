"""The services of the HTTP API on brokers in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Protocol, TypeVar

from dragoman.api.groups import GroupService
from dragoman.api.node_service import serve_other_nodes
from dragoman.api.records import RecordService
from dragoman.api.topics import TopicService
from dragoman.net.admission import MemoryBudget
from worlds.broker import World

Result = TypeVar("Result")
_TURNS_MAX = 1000


class Settling(Protocol):
    def settle(self) -> None: ...


class Services:
    """The services of one node."""

    def __init__(self, world: World) -> None:
        broker = world.broker
        serve_other_nodes(broker, broker.leader_queues)
        self.topics = TopicService(broker, lambda _: ())
        self.groups = GroupService(broker)
        self.budget = MemoryBudget(64 << 20)
        self.records = RecordService(broker, self.budget)


def ask(worlds: Settling, work: Coroutine[object, None, Result]) -> Result:
    """The result of an operation, which needs no time to pass."""
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(work)
        for _ in range(_TURNS_MAX):
            loop.run_until_complete(asyncio.sleep(0))
            if task.done():
                return task.result()
            worlds.settle()
        task.cancel()
        raise AssertionError("the operation waits for something that does not happen")
    finally:
        loop.close()
