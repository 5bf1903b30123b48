"""What programs that use Dragoman, and Dragoman itself, are tested with.

Public and typed; nothing outside this package imports it. `memory` is a disk in memory, `sim` the
simulated world: a disk that loses power, virtual time, and the runner that cuts the power.
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
