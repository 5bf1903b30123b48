"""Makes `tests/broker_world.py` importable, and gives each test a broker on virtual time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from broker_world import World


@pytest.fixture
def world() -> World:
    return World()
