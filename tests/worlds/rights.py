"""The matrix of rights: what a request needs, and worlds in which exactly one right is denied.

A `Need` is one right, or several of which any suffices. `Guard` puts rules of the real authorizer
into a world's metadata: everything is allowed except the rights that a test denies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

from dragoman.cluster.events import RulesChanged, SecurityModeChanged
from dragoman.security.access import CLUSTER_NAME, Operation, Resource
from dragoman.security.authorizer import ENFORCE
from dragoman.security.rules import Pattern, Permission, Rule
from worlds.broker import World

#: An operation on a resource of a kind with a name.
Right: TypeAlias = tuple[Operation, Resource, str]
#: Rights of which any one suffices.
Need: TypeAlias = tuple[Right, ...]

OPERATIONS: Final = tuple(each for each in Operation if each is not Operation.ALL)


def right(words: str) -> Right:
    """`write topic t`; the cluster has no name."""
    operation, resource, *name = words.split()
    return Operation(operation), Resource(resource), name[0] if name else CLUSTER_NAME


def need(words: str) -> Need:
    """`create topic t | create cluster`: either of them."""
    return tuple(map(right, words.split("|")))


def denial(denied: Right) -> Rule:
    operation, resource, name = denied
    return Rule(
        principal="User:ANONYMOUS",
        host="*",
        operation=operation,
        permission=Permission.DENY,
        resource=resource,
        pattern=Pattern.LITERAL,
        name=name,
    )


class Guard:
    """The rules of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        allowed = tuple(
            Rule(
                principal="User:*",
                host="*",
                operation=Operation.ALL,
                permission=Permission.ALLOW,
                resource=resource,
                pattern=Pattern.LITERAL,
                name="*",
            )
            for resource in Resource
        )
        world.apply(RulesChanged(added=allowed), SecurityModeChanged(mode=ENFORCE))

    @contextmanager
    def without(self, denied: Sequence[Right]) -> Iterator[None]:
        rules = tuple(map(denial, denied))
        self._world.apply(RulesChanged(added=rules))
        try:
            yield
        finally:
            self._world.apply(RulesChanged(removed=rules))


def others(resources: Sequence[tuple[Resource, str]], needs: Sequence[Need]) -> list[Right]:
    """Every operation on every resource, without those that a request cannot do without."""
    indispensable = {each[0] for each in needs if len(each) == 1}
    return [
        (operation, *resource)
        for resource in resources
        for operation in OPERATIONS
        if (operation, *resource) not in indispensable
    ]
