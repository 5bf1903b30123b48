"""Makes `tests/broker_world.py` importable; a broker on virtual time and a connection to it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[4]))

from broker_world import Wire, World
from dragoman.log.store import Durability


@pytest.fixture
def world() -> World:
    return World(durability=Durability.OS)


@pytest.fixture
def wire(world: World) -> Wire:
    return Wire(world)
