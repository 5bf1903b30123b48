"""What programs that use Dragoman, and Dragoman itself, are tested with.

Public and typed; nothing outside this package imports it. `memory` is a disk in memory, `sim` the
simulated world: a disk that loses power, virtual time, and the runner that cuts the power.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.testing.ephemeral import EphemeralBroker

__all__ = ["EphemeralBroker"]


def __getattr__(name: str) -> object:
    """`EphemeralBroker` brings the whole broker along, so it is imported when it is asked for."""
    if name == "EphemeralBroker":
        from dragoman.testing.ephemeral import EphemeralBroker

        return EphemeralBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
