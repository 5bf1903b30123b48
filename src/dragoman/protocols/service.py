"""What the connections of one protocol share, as every protocol has it.

A service answers for its node: under which address a client finds each node of the cluster, and
what a client may do. `handlers_by_name` is the table of the requests that it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import ClassVar, Final, Generic, ParamSpec, Protocol, TypeVar

from dragoman.broker.errors import (
    ClusterNotAuthorized,
    GroupNotAuthorized,
    NotAuthorized,
    TransactionalIdNotAuthorized,
)
from dragoman.cluster.metadata import MetadataImage
from dragoman.framing import Scratch
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.security.authorizer import Authorizer, Operation, Principal, Resource

Key = TypeVar("Key")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
#: Host and port.
Address = tuple[str, int]

_REFUSALS: Final[dict[Resource, type[NotAuthorized]]] = {
    Resource.TOPIC: NotAuthorized,
    Resource.GROUP: GroupNotAuthorized,
    Resource.TRANSACTIONAL_ID: TransactionalIdNotAuthorized,
    Resource.CLUSTER: ClusterNotAuthorized,
}


class Core(Protocol):
    """What a service of any protocol needs of its node."""

    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> MetadataImage: ...

    @property
    def authorizer(self) -> Authorizer: ...


CoreT_co = TypeVar("CoreT_co", bound=Core, covariant=True)


class Service(Generic[CoreT_co]):
    """What all connections of one protocol share that come in on one listener, or on `any`."""

    #: The listener whose addresses replies name, for this node and for the others.
    advertised_listener: str
    #: Between the words of an operation or a kind of resource where a refusal names it.
    word_separator: ClassVar[str] = "_"

    def __init__(
        self,
        broker: CoreT_co,
        budget: MemoryBudget,
        advertised: Callable[[Channel], Address],
    ) -> None:
        self.broker = broker
        self.budget = budget
        #: Host and port under which a client on this channel finds this node.
        self.advertised = advertised
        self.scratch = Scratch()

    def address_of(self, channel: Channel, node: int) -> Address | None:
        """Host and port under which a client on this channel finds a node of the cluster; None
        when they are not known.
        """
        return self.advertised(channel) if node == self.broker.node_id else self.registered(node)

    def registered(self, node: int) -> Address | None:
        """The address of this service's listener as the node registered it."""
        known = self.broker.image.registrations.get(node)
        address = "" if known is None else known.addresses.get(self.advertised_listener, "")
        host, _, port = address.rpartition(":")
        return (host.strip("[]"), int(port)) if host and port.isdecimal() else None

    def is_allowed(
        self, principal: Principal, operation: Operation, resource: Resource, name: str
    ) -> bool:
        return self.broker.authorizer.is_allowed(principal, operation, resource, name)

    def authorize(
        self, principal: Principal, operation: Operation, resource: Resource, name: str
    ) -> None:
        """Raises `NotAuthorized`, in the class of the resource."""
        if not self.broker.authorizer.is_allowed(principal, operation, resource, name):
            what = f"{operation.value} {resource.value}".replace("_", self.word_separator)
            raise _REFUSALS[resource](f"{principal.name} may not {what} {name!r}")


def handlers_by_name(
    package: str, names: Mapping[Key, str]
) -> dict[Key, Callable[Arguments, Result]]:
    """The handler of each request, given as `module.function` of a package.

    A module is loaded with the first request that it handles: most clients send few kinds of
    requests, and a node starts without loading what handles the others.
    """
    handlers: dict[Key, Callable[Arguments, Result]] = {}

    def loader(key: Key, name: str) -> Callable[Arguments, Result]:
        def load_and_handle(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            module, _, function = name.partition(".")
            handler: Callable[Arguments, Result] = getattr(
                import_module(f"{package}.{module}"), function
            )
            handlers[key] = handler
            return handler(*args, **kwargs)

        return load_and_handle

    for key, name in names.items():
        handlers[key] = loader(key, name)
    return handlers
