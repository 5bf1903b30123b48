"""Rights of the callers for whom nodes send each other requests.

The node that executes a request decides about it, with the rules that it knows, also when another
node has decided before: the request carries its caller. What a node does for itself has none, and
so has a request of a node of an earlier release, which knows no rules.
"""

from __future__ import annotations

from typing import Final

from dragoman.broker.errors import (
    ClusterNotAuthorized,
    GroupNotAuthorized,
    NotAuthorized,
    TransactionalIdNotAuthorized,
)
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import Authorizer

REFUSALS: Final[dict[Resource, type[NotAuthorized]]] = {
    Resource.TOPIC: NotAuthorized,
    Resource.GROUP: GroupNotAuthorized,
    Resource.TRANSACTIONAL_ID: TransactionalIdNotAuthorized,
    Resource.CLUSTER: ClusterNotAuthorized,
    # Administration of these is administration of the cluster to every protocol.
    Resource.USER: ClusterNotAuthorized,
    Resource.CAPTURE: ClusterNotAuthorized,
    Resource.PIPELINE: ClusterNotAuthorized,
}


def authorize(
    authorizer: Authorizer,
    caller: Caller | None,
    operation: Operation,
    resource: Resource,
    name: str,
) -> None:
    """Raises `NotAuthorized`, in the class of the resource."""
    if caller is None or authorizer.is_allowed(caller, operation, resource, name):
        return
    what = f"{operation.value} {resource.value}".replace("_", " ")
    raise REFUSALS[resource](f"{caller.name} may not {what} {name!r}")
