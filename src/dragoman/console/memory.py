"""A bound on the memory of a process, past which it fails rather than the machine."""

from __future__ import annotations

import resource


def bound_memory(bytes_max: int) -> None:
    """Bound data and anonymous mappings, on Linux; a lower bound that is there stays."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = bytes_max if hard == resource.RLIM_INFINITY else min(bytes_max, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
