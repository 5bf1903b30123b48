"""Pytest plugin: the fixtures `broker`, a fresh in-memory broker for each test that uses it, and
`broker_cluster`, three of them.

Registered by installing the package. Override `broker_settings` in a module or conftest to set
keys of `dragoman serve --set` for the brokers of that scope.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dragoman.testing.ephemeral import EphemeralBroker, EphemeralCluster


def pytest_configure(config: pytest.Config) -> None:
    """Keep pytest from rewriting the broker's own assertions, as it does for plugins' packages.

    They are not assertions of anybody's test, rewriting makes every import slower, and it parses
    source in whichever thread imports: Python 3.11's parser does not bear that in two at once.
    """
    hook = getattr(config.pluginmanager, "rewrite_hook", None)
    marked = getattr(hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("dragoman")


@pytest.fixture
def broker_settings() -> Mapping[str, str]:
    """Keys of `--set` for `broker` and `broker_cluster`; override it where a test needs some."""
    return {}


@pytest.fixture
def broker(broker_settings: Mapping[str, str]) -> Iterator[EphemeralBroker]:
    """A real broker on loopback, in memory, stopped when the test is over."""
    # Imported on use: a test run without a broker must not pay for it.
    from dragoman.testing.ephemeral import EphemeralBroker

    with EphemeralBroker(settings=broker_settings) as running:
        yield running


@pytest.fixture
def broker_cluster(broker_settings: Mapping[str, str]) -> Iterator[EphemeralCluster]:
    """Three real nodes on loopback, in memory, stopped when the test is over."""
    from dragoman.testing.ephemeral import EphemeralCluster

    with EphemeralCluster(settings=broker_settings) as running:
        yield running
