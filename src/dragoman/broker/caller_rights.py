"""Rights of the callers for whom nodes send each other requests.

The node that executes a request decides about it, with the rules that it knows, also when another
node has decided before: the request carries its caller. What a node does for itself says so, too:
its caller is `NODE_ITSELF`. A request without a caller comes from a node of a release that knows no
rules; once no such node is left, it is refused.
"""

from __future__ import annotations

from typing import Final

from dragoman.broker.errors import (
    ClusterNotAuthorized,
    GroupNotAuthorized,
    NotAuthorized,
    TransactionalIdNotAuthorized,
)
from dragoman.cluster.metadata import MetadataImage
from dragoman.log.node import SECURITY_LEVEL
from dragoman.security.access import Caller, Operation, Principal, Resource
from dragoman.security.authorizer import NODE_KIND, Authorizer

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
#: The caller of a node's own work, to which no rules apply. No client has a principal of this kind.
NODE_ITSELF: Final = Caller(Principal(NODE_KIND, ""))


def caller_of(image: MetadataImage, caller: Caller | None) -> Caller:
    """The caller of a request that may be another node's. Raises `ClusterNotAuthorized` for a
    request without a caller, unless a node of an earlier release may have sent it.
    """
    if caller is not None:
        return caller
    if image.feature_level >= SECURITY_LEVEL:
        raise ClusterNotAuthorized("the request does not say for whom it is")
    return NODE_ITSELF


def authorize(
    authorizer: Authorizer, caller: Caller, operation: Operation, resource: Resource, name: str
) -> None:
    """Raises `NotAuthorized`, in the class of the resource."""
    if authorizer.is_allowed(caller, operation, resource, name):
        return
    what = f"{operation.phrase} {resource.value.replace('_', ' ')}"
    raise REFUSALS[resource](f"{caller.name} may not {what} {name!r}")
