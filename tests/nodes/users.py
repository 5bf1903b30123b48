"""Users and rules of brokers in this process, made without a login."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from dragoman.broker.administration import Actor
from dragoman.broker.broker import Broker
from dragoman.cluster.events import SecurityModeChanged
from dragoman.net.future import future_of
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.passwords import verifiers_of
from dragoman.security.rules import Pattern, Permission, Rule
from dragoman.testing import EphemeralBroker

ACTOR = Actor(Caller(), "test")


def add_user(broker: EphemeralBroker, name: str, *, password: str = "", secret: str = "") -> None:
    async def work(core: Broker) -> None:
        made = {}
        if password:
            made = await verifiers_of(password, core.random, core.logins.hasher)
        await core.access.users.create(name, made, ACTOR)
        if secret:
            await core.cluster_key.ready()
            await core.access.users.set_signing_secret(name, secret, ACTOR)

    _run(broker, work)


def allow(principal: str, operation: Operation, kind: Resource, name: str = "*") -> Rule:
    """A rule for all hosts and one name, or every name."""
    return Rule(
        principal=principal,
        host="*",
        operation=operation,
        permission=Permission.ALLOW,
        resource=kind,
        pattern=Pattern.LITERAL,
        name=name,
    )


def enforce(broker: EphemeralBroker, *rules: Rule) -> None:
    """Only what these rules allow is allowed from now on."""

    async def work(core: Broker) -> None:
        await core.access.rules.add(rules, ACTOR)
        await core.changes.make(lambda: [SecurityModeChanged(mode="enforce")])

    _run(broker, work)


def _run(broker: EphemeralBroker, work: Any) -> None:
    async def begin() -> None:
        node = broker._node
        assert node is not None
        made: Coroutine[object, None, None] = work(node.broker)
        await future_of(made)

    broker._call(begin())
