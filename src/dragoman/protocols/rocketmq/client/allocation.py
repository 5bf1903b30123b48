"""Who of a group reads which queues: every member computes it, and all come to the same."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.protocols.rocketmq.bodies import MessageQueue


def averages(
    queues: Sequence[MessageQueue], members: Sequence[str], member: str
) -> tuple[MessageQueue, ...]:
    """Contiguous shares of about the same size, as all clients make them by default."""
    ids, ordered = sorted(set(members)), sorted(queues)
    if member not in ids:
        return ()
    index = ids.index(member)
    size, rest = divmod(len(ordered), len(ids))
    # The first `rest` members have one more.
    start = index * size + min(index, rest)
    return tuple(ordered[start : start + size + (index < rest)])
