"""The question that the broker asks before it acts for a caller."""

from __future__ import annotations

from typing import Protocol

from dragoman.security.access import Caller, Operation, Resource


class Authorizer(Protocol):
    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool: ...

    def is_allowed_on_any(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Whether there is a resource of the kind, existing or not, on which the caller is allowed
        the operation.
        """
        ...


class AllowAll:
    """The authorizer of a node without rules."""

    def is_allowed(
        self,
        caller: Caller,  # noqa: ARG002
        operation: Operation,  # noqa: ARG002
        resource: Resource,  # noqa: ARG002
        name: str,  # noqa: ARG002
    ) -> bool:
        return True

    def is_allowed_on_any(
        self,
        caller: Caller,  # noqa: ARG002
        operation: Operation,  # noqa: ARG002
        resource: Resource,  # noqa: ARG002
    ) -> bool:
        return True
