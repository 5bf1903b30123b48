"""How one member gets from what it has to what the target assignment gives it (KIP-848).

    STABLE ------- new target takes partitions away ---> UNREVOKED   keeps its epoch
    UNREVOKED ---- says it has given them up ----------> next step, from the epoch after its own
    any ---------- nothing to give up, all is free ----> STABLE      target epoch
    any ---------- nothing to give up, some is taken --> UNRELEASED  target epoch, the rest later

A member is told to give up before it is given anything, and a partition is given only when nobody
has it: a member that was told to give one up has it until it says otherwise. So no partition is
ever owned twice. The epoch moves to that of the target as soon as nothing has to be given up, and
with it what was committed under the former epoch is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman.broker.groups.consumer.messages import (
    NOTHING,
    MemberState,
    PartitionOf,
    Partitions,
)


class Position(msgspec.Struct, frozen=True):
    """Where a member is on its way."""

    epoch: int
    state: MemberState
    #: What it may have.
    assigned: Partitions
    #: What it had and has not said to have given up.
    revoking: Partitions


class Target(msgspec.Struct, frozen=True):
    epoch: int
    partitions: Partitions


def reconcile(
    now: Position,
    owned: Partitions | None,
    target: Target,
    is_free: Callable[[PartitionOf], bool],
) -> Position:
    """The next position; `owned` is what the member says to have, None when it did not say."""
    if now.state is MemberState.STABLE and now.epoch == target.epoch:
        return now
    epoch = now.epoch
    if now.state is MemberState.UNREVOKED:
        if _still_has(owned, now.revoking):
            return now
        epoch = min(now.epoch + 1, target.epoch)
    kept = now.assigned & target.partitions
    revoking = now.assigned - kept
    if revoking and _still_has(owned, revoking):
        return Position(epoch, MemberState.UNREVOKED, kept, revoking)
    wanted = target.partitions - kept
    given = frozenset(filter(is_free, wanted))
    state = MemberState.STABLE if len(given) == len(wanted) else MemberState.UNRELEASED
    return Position(target.epoch, state, kept | given, NOTHING)


def _still_has(owned: Partitions | None, revoking: Partitions) -> bool:
    return owned is None or not owned.isdisjoint(revoking)
