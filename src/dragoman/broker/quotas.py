"""Client quotas: limits of users, client ids and addresses, stored and looked up.

An entity is a user, a client id, a user with a client id, or an address; a missing name (None) is
the default for all without a quota of their own. `throttles.py` enforces the limits. Changes reach
the audit log.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from heapq import nsmallest
from typing import NamedTuple

import msgspec

from dragoman.broker.administration import Actor, recorded
from dragoman.broker.changes import Changes
from dragoman.broker.errors import InvalidQuota, Overloaded
from dragoman.broker.keyed_lock import KeyedLock
from dragoman.cluster.events import ClientQuotaChanged, Event
from dragoman.cluster.metadata import MetadataImage, QuotaEntity
from dragoman.limits import CLIENT_QUOTA_ENTITIES_MAX, QUOTA_NAME_BYTES_MAX
from dragoman.security.audit import AuditLog

USER, CLIENT_ID, ADDRESS = "user", "client-id", "ip"
ENTITY_KINDS = (USER, CLIENT_ID, ADDRESS)
#: Limits of users and client ids; True marks whole numbers.
_CLIENT_LIMITS = {
    "producer_byte_rate": True,
    "consumer_byte_rate": True,
    "request_percentage": False,
    "controller_mutation_rate": False,
}
_ADDRESS_LIMITS = {"connection_creation_rate": True}


class Match(Enum):
    """The names of a kind that pass a filter."""

    EXACT = auto()
    DEFAULT = auto()
    ANY = auto()


class Component(msgspec.Struct, frozen=True):
    """One condition: the entity has a name of this kind, and it matches."""

    kind: str
    match: Match
    name: str | None = None

    def accepts(self, entity: Mapping[str, str | None]) -> bool:
        if self.kind not in entity:
            return False
        match self.match:
            case Match.ANY:
                return True
            case Match.DEFAULT:
                return entity[self.kind] is None
            case Match.EXACT:
                return entity[self.kind] == self.name


class QuotaChange(NamedTuple):
    """The limits of an entity before and after a change."""

    entity: QuotaEntity
    before: Mapping[str, float]
    after: Mapping[str, float]


class ClientQuotas:
    def __init__(self, image: MetadataImage, changes: Changes, audit: AuditLog) -> None:
        self._image = image
        self._changes = changes
        self._audit = audit
        self._lock = KeyedLock()

    def find(
        self,
        components: Sequence[Component],
        *,
        strict: bool,
        after: QuotaEntity = (),
        most: int | None = None,
    ) -> Sequence[tuple[QuotaEntity, Mapping[str, float]]]:
        """Entities that pass every condition, in order, from the one behind `after` on; `strict`
        excludes those with other kinds.
        """
        known, first = self._image.client_quotas, _order(after)

        def is_wanted(entity: QuotaEntity) -> bool:
            names = dict(entity)
            if strict and len(names) != len(components):
                return False
            accepted = all(component.accepts(names) for component in components)
            return accepted and (not after or _order(entity) > first)

        found = filter(is_wanted, known)
        # A page of very many costs less than sorting them.
        page = sorted(found, key=_order) if most is None else nsmallest(most, found, key=_order)
        return [(entity, known[entity]) for entity in page]

    def check(
        self, entity: Mapping[str, str | None], changes: Mapping[str, float | None]
    ) -> QuotaChange:
        """What a change would do; None in `changes` removes a limit. Raises `BrokerError`."""
        _check_entity(entity)
        for name, value in changes.items():
            _check_limit(entity, name, value)
        key = entity_key(entity)
        known = self._image.client_quotas
        if key not in known and len(known) >= CLIENT_QUOTA_ENTITIES_MAX:
            raise Overloaded(f"there are quotas for {len(known)} entities already")
        before = known.get(key, {})
        after = {**before, **changes}
        kept = {name: value for name, value in after.items() if value is not None}
        return QuotaChange(key, before, kept)

    async def change(
        self, entity: Mapping[str, str | None], changes: Mapping[str, float | None], actor: Actor
    ) -> QuotaChange:
        """Returns when the limits are durable."""
        made: list[QuotaChange] = []

        def decide() -> list[Event]:
            # After a refused proposal it is asked again.
            made[:] = [self.check(entity, changes)]
            return [ClientQuotaChanged(entity=made[0].entity, quotas=dict(made[0].after))]

        details = [
            f"{name} unset" if value is None else f"{name}={value}"
            for name, value in changes.items()
        ]
        # Without a name, it is the default of the kind.
        names = ",".join(f"{kind}={name or ''}" for kind, name in sorted(entity.items()))
        with recorded(self._audit, "quota.change", actor, f"quota:{names}", details):
            async with self._lock.take(entity_key(entity)):
                await self._changes.make(decide)
        return made[0]


def entity_key(entity: Mapping[str, str | None]) -> QuotaEntity:
    return tuple(sorted(entity.items(), key=lambda item: item[0]))


def _order(entity: QuotaEntity) -> list[tuple[str, str]]:
    # No name is empty.
    return [(kind, name or "") for kind, name in entity]


def _check_entity(entity: Mapping[str, str | None]) -> None:
    if not entity:
        raise InvalidQuota("a quota needs an entity")
    for kind, name in entity.items():
        if kind not in ENTITY_KINDS:
            raise InvalidQuota(f"{kind!r} is not one of {', '.join(ENTITY_KINDS)}")
        if name is not None and not 0 < len(name.encode()) <= QUOTA_NAME_BYTES_MAX:
            raise InvalidQuota(f"a {kind} has a name of 1 to {QUOTA_NAME_BYTES_MAX} bytes")
    if ADDRESS in entity:
        if len(entity) > 1:
            raise InvalidQuota("an ip cannot be combined with a user or client-id")
        _check_address(entity[ADDRESS])


def _check_address(name: str | None) -> None:
    if name is None:
        return
    # Imported here: few nodes have quotas of addresses.
    import ipaddress

    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise InvalidQuota(f"{name!r} is not an IP address") from None


def _check_limit(entity: Mapping[str, str | None], name: str, value: float | None) -> None:
    limits = _ADDRESS_LIMITS if ADDRESS in entity else _CLIENT_LIMITS
    if name not in limits:
        raise InvalidQuota(f"{name!r} is not one of {', '.join(limits)}")
    if value is None:
        return
    if not math.isfinite(value) or value <= 0:
        raise InvalidQuota(f"{name} is a positive number, not {value}")
    if limits[name] and value != int(value):
        raise InvalidQuota(f"{name} is a whole number, not {value}")
