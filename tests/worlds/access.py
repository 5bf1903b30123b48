"""Authorizers of tests: what is denied may change, and the questions are recorded."""

from __future__ import annotations

from typing import TypeAlias

from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import NODE_KIND, AllowAll

#: An operation on a resource of a kind with a name.
Right: TypeAlias = tuple[Operation, Resource, str]


class Denies(AllowAll):
    """Allows everything except the denied rights, and nodes everything."""

    def __init__(self, *denied: Right) -> None:
        self.denied: set[Right] = set(denied)
        #: All questions in order, with the name `*` for any resource of a kind.
        self.asked: list[Right] = []
        self.callers: set[Caller] = set()

    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        if caller.principal.kind == NODE_KIND:
            return True
        self.callers.add(caller)
        self.asked.append((operation, resource, name))
        return (operation, resource, name) not in self.denied

    def is_allowed_on_any(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return self.is_allowed(caller, operation, resource, "*")
