"""State shared by the connections of one protocol: the nodes' addresses, and authorization.

A service provides the address at which a client reaches each node of the cluster, and queries the
node's authorizer for a caller's permissions. `handlers_by_name` builds the table of a protocol's
request handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar

from dragoman.broker.caller_rights import REFUSALS
from dragoman.broker.errors import NotAuthorized
from dragoman.broker.grants import StandingRights
from dragoman.broker.throttles import Throttles
from dragoman.broker.topic_traffic import TopicTraffic
from dragoman.cluster.metadata import MetadataImage
from dragoman.config.settings import Settings
from dragoman.framing import Scratch
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.net.requests import Requests
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Resource
from dragoman.security.audit import AuditLog
from dragoman.security.authorizer import Authorizer
from dragoman.security.logins import Logins
from dragoman.world import Clock, Scheduler

Key = TypeVar("Key")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
#: Host and port.
Address = tuple[str, int]


class Core(Protocol):
    """What a service of any protocol uses of its node."""

    node_id: int
    image: MetadataImage

    @property
    def settings(self) -> Settings: ...

    scheduler: Scheduler
    clock: Clock
    authorizer: Authorizer
    logins: Logins
    #: Rights of work that outlives its request.
    grants: StandingRights
    #: Quotas of clients.
    throttles: Throttles
    #: Logins, denials and acts of administration.
    audit: AuditLog
    #: What goes into topics and comes out of them.
    traffic: TopicTraffic


CoreT_co = TypeVar("CoreT_co", bound=Core, covariant=True)


class Service(Generic[CoreT_co]):
    """State shared by the connections of a protocol on one listener, or on any."""

    #: The listener whose addresses appear in replies, for this node and for the others.
    advertised_listener: str
    #: The counts of requests on these connections, by what their sessions know a request by.
    requests: Requests[Any]
    #: Separates the words of operations and kinds of resources in the texts of refusals.
    word_separator: ClassVar[str] = "_"

    def __init__(
        self,
        broker: CoreT_co,
        budget: MemoryBudget,
        advertised: Callable[[Channel], Address],
    ) -> None:
        self.broker = broker
        self.budget = budget
        #: Host and port at which a client on this channel reaches this node.
        self.advertised = advertised
        self.scratch = Scratch()
        self.requests = self.counted_requests()
        #: What clients of this protocol write to topics, and what they read from them.
        self.received = broker.traffic.received(self.requests.protocol)
        self.sent = broker.traffic.sent(self.requests.protocol)
        #: Read once for all requests of a read, and once for all replies of a flush.
        self.monotonic = broker.clock.monotonic

    @property
    def subscriber_count(self) -> int:
        """Subscriptions to which the node pushes records."""
        return 0

    @classmethod
    def counted_requests(cls) -> Requests[Any]:
        """Counters for the requests that the protocol has."""
        return Requests("", lambda _: None)

    def address_of(self, channel: Channel, node: int) -> Address | None:
        """Host and port at which a client on this channel reaches a node of the cluster; None if
        the node has not registered them.
        """
        return self.advertised(channel) if node == self.broker.node_id else self.registered(node)

    def registered(self, node: int) -> Address | None:
        """The address that the node has registered for this service's listener."""
        known = self.broker.image.registrations.get(node)
        address = "" if known is None else known.addresses.get(self.advertised_listener, "")
        host, _, port = address.rpartition(":")
        return (host.strip("[]"), int(port)) if host and port.isdecimal() else None

    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        return self.broker.authorizer.is_allowed(caller, operation, resource, name)

    def may(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        """`is_allowed` for filters and alternatives, where a negative answer refuses nothing."""
        return self.broker.authorizer.may(caller, operation, resource, name)

    def describable(
        self, caller: Caller, resource: Resource, names: Collection[str]
    ) -> frozenset[str]:
        """The names of resources that the caller may describe."""
        return self.broker.authorizer.allowed_among(caller, Operation.DESCRIBE, resource, names)

    def authorize(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> None:
        """Raises `NotAuthorized`, in the class of the resource."""
        if not self.broker.authorizer.is_allowed(caller, operation, resource, name):
            raise self.refused(caller, operation, resource, name)

    def refused(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> NotAuthorized:
        """The error of a caller without a right, in the class of the resource."""
        what = f"{operation.value} {resource.value}".replace("_", self.word_separator)
        return REFUSALS[resource](f"{caller.name} may not {what} {name!r}")

    def authorize_new_topic(self, caller: Caller, name: str) -> None:
        """Raises `NotAuthorized` if the caller may create neither any topic nor this one."""
        if not self.may(caller, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME):
            self.authorize(caller, Operation.CREATE, Resource.TOPIC, name)


def handlers_by_name(
    package: str, names: Mapping[Key, str]
) -> dict[Key, Callable[Arguments, Result]]:
    """The handler of each request, from names such as `module.function` within a package.

    A module is imported with the first request that it handles: most clients send few kinds of
    requests, so a node starts faster without the other handlers.
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
