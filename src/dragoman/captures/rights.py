"""The rights of captures: a capture runs as a principal, which must hold every right it uses.

By default that is the principal that created the capture. Its rights are checked when the capture
is created or starts, and whenever users, rules or the mode change; the node that runs a capture
without a right stops it. Rights on topics that only tables and rows determine are checked when they
are written to.

A capture whose address names a file, a variable or a Kerberos ticket of the node uses the node's
own credentials, against a server that its definition names. That takes an administrator: a
principal that may alter the cluster.

The process of a capture logs in as `Capture:NAME`. That principal has the rights of the principal
of the capture, except those to administer the cluster, and alone may use the transactional id and
the positions of its capture.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol, TypeAlias

from dragoman.captures.addresses import borrowed
from dragoman.captures.definition import POSITIONS_TOPIC, TRANSACTIONAL_PREFIX, Definition
from dragoman.captures.stored import Owner, owner_of
from dragoman.captures.topics import certain_topics
from dragoman.cluster.events import Capture
from dragoman.cluster.metadata import SECURITY_MODE_FIRST, MetadataImage
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Principal, Resource
from dragoman.security.authorizer import Authorizer

#: The kind of principal of a process that captures.
CAPTURE_KIND: Final = "Capture"
_USER: Final = "User"
#: What a process may do to the cluster as its principal: create topics.
_ON_CLUSTER: Final = frozenset((Operation.CREATE, Operation.DESCRIBE, Operation.IDEMPOTENT_WRITE))
_ON_POSITIONS: Final = frozenset((Operation.READ, Operation.WRITE, Operation.DESCRIBE))


class Rights(Protocol):
    """What the broker has to say about rights."""

    @property
    def authorizer(self) -> Authorizer: ...


def principal_of(text: str) -> Principal:
    kind, _, name = text.partition(":")
    return Principal(kind, name)


def objection_to_owner(image: MetadataImage, owner: Owner) -> str:
    """Why nothing may run as this principal any more, or an empty text."""
    if not owner.user:
        return ""
    user = image.users.get(principal_of(owner.principal).name)
    if user is None or user.incarnation != owner.user:
        return f"it runs as {owner.principal}, and this user was deleted"
    return "" if user.is_enabled else f"it runs as {owner.principal}, and this user is disabled"


class CaptureRights:
    def __init__(self, image: MetadataImage, rights: Rights) -> None:
        self._image = image
        self._rights = rights

    def owner(self, principal: Principal) -> Owner:
        """The principal as the owner of a new capture."""
        user = self._image.users.get(principal.name) if principal.kind == _USER else None
        return Owner(str(principal), "" if user is None else user.incarnation)

    def objection_to_owner(self, owner: Owner) -> str:
        return objection_to_owner(self._image, owner)

    def objection_to_borrowing(self, definition: Definition, owner: Owner) -> str:
        """Why the capture may not use what belongs to the nodes, although it names something that
        does, or an empty text.
        """
        keyword = borrowed(definition.dsn)
        if not keyword or self._image.security_mode == SECURITY_MODE_FIRST:
            return ""
        problem = self.objection_to_owner(owner)
        caller = Caller(principal_of(owner.principal))
        may = self._rights.authorizer.is_allowed
        if problem or may(caller, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
            return problem
        return (
            f"it runs as {owner.principal}, which may not alter the cluster, and the DSN's"
            f" {keyword} names what belongs to the nodes: only administrators may use that"
        )

    def objection(self, definition: Definition, owner: Owner) -> str:
        """The first right that is missing for the capture, or an empty text."""
        problem = self.objection_to_owner(owner) or self.objection_to_borrowing(definition, owner)
        if problem or self._image.security_mode == SECURITY_MODE_FIRST:
            return problem
        caller = Caller(principal_of(owner.principal))
        allowed = self._rights.authorizer.is_allowed
        for topic in certain_topics(definition):
            if not allowed(caller, Operation.WRITE, Resource.TOPIC, topic):
                return _missing(owner, "write to", topic)
            if topic not in self._image.topics and not (
                allowed(caller, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
                or allowed(caller, Operation.CREATE, Resource.TOPIC, topic)
            ):
                return _missing(owner, "create", topic)
        return ""


def _missing(owner: Owner, what: str, topic: str) -> str:
    return f"it runs as {owner.principal}, which may not {what} the topic {topic}"


_Ask: TypeAlias = Callable[[Caller, Operation, Resource, str], bool]


class CaptureAuthorizer:
    """Decides for the processes of captures as for the principals that they run as, and for all
    others as before.
    """

    def __init__(self, image: MetadataImage, inner: Authorizer) -> None:
        self._image = image
        self._inner = inner
        self._rights = CaptureRights(image, self)

    @property
    def authorizer(self) -> Authorizer:
        return self._inner

    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        if caller.principal.kind != CAPTURE_KIND:
            return self._inner.is_allowed(caller, operation, resource, name)
        return self._decide(self._inner.is_allowed, caller, operation, resource, name)

    def may(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        if caller.principal.kind != CAPTURE_KIND:
            return self._inner.may(caller, operation, resource, name)
        return self._decide(self._inner.may, caller, operation, resource, name)

    def _decide(
        self, ask: _Ask, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        capture = self._live(caller)
        if capture is None:
            return False
        if resource is Resource.CLUSTER and operation not in _ON_CLUSTER:
            return False
        if resource is Resource.TRANSACTIONAL_ID:
            return name == TRANSACTIONAL_PREFIX + capture.name
        if resource is Resource.TOPIC and name == POSITIONS_TOPIC and operation in _ON_POSITIONS:
            return True
        if operation is Operation.DESCRIBE_CONFIGS and resource is Resource.TOPIC:
            # A writer has to know how large a record may be.
            operation = Operation.WRITE
        return ask(_acting(capture, caller), operation, resource, name)

    def allowed_among(
        self, caller: Caller, operation: Operation, resource: Resource, names: Collection[str]
    ) -> frozenset[str]:
        if caller.principal.kind != CAPTURE_KIND:
            return self._inner.allowed_among(caller, operation, resource, names)
        return frozenset(name for name in names if self.may(caller, operation, resource, name))

    def is_allowed_on_any(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        if caller.principal.kind != CAPTURE_KIND:
            return self._inner.is_allowed_on_any(caller, operation, resource)
        capture = self._live(caller)
        return capture is not None and self._inner.is_allowed_on_any(
            _acting(capture, caller), operation, resource
        )

    def generalized(self, caller: Caller) -> Caller:
        return self._inner.generalized(caller)

    def _live(self, caller: Caller) -> Capture | None:
        """The capture of the caller, unless it is gone, or what it runs as."""
        capture = self._image.captures.get(caller.principal.name)
        if capture is None or self._rights.objection_to_owner(owner_of(capture)):
            return None
        return capture


def _acting(capture: Capture, caller: Caller) -> Caller:
    return Caller(principal_of(owner_of(capture).principal), caller.host)
