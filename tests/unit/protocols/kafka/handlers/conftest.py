"""Gives each test a broker on virtual time and a connection to it."""

from __future__ import annotations

import pytest

from dragoman.log.store import Durability
from worlds.broker import Wire, World


@pytest.fixture
def world() -> World:
    return World(durability=Durability.OS)


@pytest.fixture
def wire(world: World) -> Wire:
    return Wire(world)
