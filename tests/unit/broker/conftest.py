"""Gives each test a broker on virtual time."""

from __future__ import annotations

import pytest

from worlds.broker import World


@pytest.fixture
def world() -> World:
    return World()
