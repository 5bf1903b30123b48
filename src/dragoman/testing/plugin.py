"""Pytest plugin: the fixture `broker`, a fresh in-memory broker for each test that asks for it.

Registered by installing the package. Override `broker_settings` in a module or conftest to set
keys of `dragoman serve --set` for the brokers of that scope.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dragoman.testing.ephemeral import EphemeralBroker


@pytest.fixture
def broker_settings() -> Mapping[str, str]:
    """Keys of `--set` for the fixture `broker`; override it where a test needs some."""
    return {}


@pytest.fixture
def broker(broker_settings: Mapping[str, str]) -> Iterator[EphemeralBroker]:
    """A real broker on loopback, in memory, stopped when the test is over."""
    # Imported on use: a test run that does not ask for a broker must not pay for it.
    from dragoman.testing.ephemeral import EphemeralBroker

    with EphemeralBroker(settings=broker_settings) as running:
        yield running
