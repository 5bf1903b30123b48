"""Users of a world, and listeners that demand a login.

Signing secrets are stored in clear: a world has no key of a cluster.
"""

from __future__ import annotations

import random

from dragoman.cluster.events import Event, UserChanged, UserRemoved
from dragoman.config.listeners import ListenerSecurity, Requirement
from dragoman.outcome import start
from dragoman.security.passwords import InlineHasher, verifiers_of
from dragoman.security.users import SealedSecret, User
from worlds.broker import Outcome, World


def demand(
    world: World,
    authentication: Requirement = "required",
    *,
    principals: tuple[tuple[str, str], ...] = (),
) -> None:
    """The world's listeners demand this from now on."""
    security = ListenerSecurity(authentication=authentication, principals=principals)
    world.channels.security = security


def add_user(
    world: World,
    name: str = "alice",
    *,
    password: str = "",
    secret: str = "",
    incarnation: str = "1",
    is_enabled: bool = True,
) -> None:
    """Create a user, or replace it."""
    world.broker.logins.unseal = lambda sealed, _context: sealed.sealed
    scram = {}
    if password:
        hasher = InlineHasher()
        made = verifiers_of(password, random.Random(1), hasher, iterations=4096)
        scram = start(made).result()
    user = User(
        name=name,
        incarnation=incarnation,
        is_enabled=is_enabled,
        scram=scram,
        signing_secret=SealedSecret("none", secret.encode()) if secret else None,
    )
    _change(world, UserChanged(user=user))


def remove_user(world: World, name: str = "alice") -> None:
    _change(world, UserRemoved(name=name))


def _change(world: World, event: Event) -> None:
    async def work() -> None:
        await world.broker.changes.make(lambda: [event])

    outcome = Outcome()
    start(work()).then(outcome)
    world.settle()
    assert outcome.error is None, outcome.error
