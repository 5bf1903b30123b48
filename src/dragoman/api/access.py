"""Rights of the callers of the HTTP API: the authorizer's answer, as a refusal or a filter."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from dragoman.broker.errors import ClusterNotAuthorized, GroupNotAuthorized, NotAuthorized
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Resource
from dragoman.security.authorizer import Authorizer


class Rights(Protocol):
    """What the services use of the broker."""

    @property
    def authorizer(self) -> Authorizer: ...


class Access:
    def __init__(self, rights: Rights) -> None:
        self._rights = rights

    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        """For filters and alternatives, where a negative answer refuses nothing."""
        return self._rights.authorizer.may(caller, operation, resource, name)

    def require(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> None:
        """Raises `NotAuthorized`, whether or not there is such a resource."""
        if not self._rights.authorizer.is_allowed(caller, operation, resource, name):
            kind = GroupNotAuthorized if resource is Resource.GROUP else NotAuthorized
            what = resource.value.replace("_", " ")
            raise kind(f"{caller.name} may not {operation.phrase} {what} {name!r}")

    def require_cluster(self, caller: Caller, operation: Operation) -> None:
        """Raises `ClusterNotAuthorized`."""
        if not self._rights.authorizer.is_allowed(
            caller, operation, Resource.CLUSTER, CLUSTER_NAME
        ):
            raise ClusterNotAuthorized(f"{caller.name} may not {operation.phrase} the cluster")

    def require_new_topic(self, caller: Caller, name: str) -> None:
        """Raises `NotAuthorized` if the caller may create neither any topic nor this one."""
        if not self.is_allowed(caller, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME):
            self.require(caller, Operation.CREATE, Resource.TOPIC, name)

    def shown(self, caller: Caller, resource: Resource, names: Collection[str]) -> frozenset[str]:
        """The names that the caller may describe."""
        allowed_among = self._rights.authorizer.allowed_among
        return allowed_among(caller, Operation.DESCRIBE, resource, names)

    def sees(self, caller: Caller, resource: Resource) -> Callable[[str], bool]:
        """Whether the caller may describe a resource of the kind."""
        return partial(self.is_allowed, caller, Operation.DESCRIBE, resource)
