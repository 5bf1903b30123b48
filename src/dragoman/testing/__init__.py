"""Test kit: an in-process broker and cluster, a pytest plugin, and the simulated world.

It is public and typed, and no other package imports it. The broker keeps its data on a disk in
memory.

- `ephemeral` has the broker and the cluster; `plugin` the fixtures of pytest.
- `assertions` has topics and groups under test, which create, write and assert; `records` reads
  what is committed.
- `faults` hold a node, delay its disk and cut the network between nodes.
- `memory` is the disk in memory, on a `file_tree`.
- `sim` has a disk that loses power, virtual time and a simulated network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.testing.ephemeral import EphemeralBroker, EphemeralCluster

__all__ = ["EphemeralBroker", "EphemeralCluster"]


def __getattr__(name: str) -> object:
    """Import the module of these classes on first use: it imports the whole broker."""
    if name in __all__:
        from dragoman.testing import ephemeral

        return getattr(ephemeral, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
