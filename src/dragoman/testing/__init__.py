"""Test kit: an in-process broker and cluster, a pytest plugin, and the simulated world.

It is public and typed, and no other package imports it. The broker keeps its data on a disk in
memory; `sim` has a disk that loses power, virtual time and a simulated network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.testing.ephemeral import EphemeralBroker
    from dragoman.testing.ephemeral_cluster import EphemeralCluster

__all__ = ["EphemeralBroker", "EphemeralCluster"]


def __getattr__(name: str) -> object:
    """These bring the whole broker along, so they are imported when they are asked for."""
    if name == "EphemeralBroker":
        from dragoman.testing.ephemeral import EphemeralBroker

        return EphemeralBroker
    if name == "EphemeralCluster":
        from dragoman.testing.ephemeral_cluster import EphemeralCluster

        return EphemeralCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
