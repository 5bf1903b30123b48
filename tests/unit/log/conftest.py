"""Fixtures of the log's tests: `worlds.log.World` with small bounds, so that little fills them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from power_cuts.scenario import small_bounds
from worlds.log import World


@pytest.fixture
def world():
    with small_bounds():
        yield World()


@pytest.fixture
def new_world():
    """Makes worlds, for tests that need a special disk or mode."""
    with small_bounds():
        make: Callable[..., World] = World
        yield make
