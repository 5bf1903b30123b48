from __future__ import annotations

from collections.abc import Callable

import pytest

from worlds.broker import World
from worlds.minibroker import Peer, service_of


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def connect(world: World) -> Callable[[], Peer]:
    service = service_of(world)
    return lambda: Peer(world, service)


@pytest.fixture
def peer(connect: Callable[[], Peer]) -> Peer:
    return connect()
