"""Client quotas: limits of users, client ids and addresses, stored and looked up.

An entity is a user, a client id, a user with a client id, or an address; a missing name (None) is
the default for all without a quota of their own. `throttles.py` enforces the limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto

import msgspec

from dragoman.broker.changes import Changes
from dragoman.broker.errors import InvalidQuota, Overloaded
from dragoman.broker.keyed_lock import KeyedLock
from dragoman.cluster.events import ClientQuotaChanged, Event
from dragoman.cluster.metadata import MetadataImage, QuotaEntity
from dragoman.limits import CLIENT_QUOTA_ENTITIES_MAX, QUOTA_NAME_BYTES_MAX

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


class ClientQuotas:
    def __init__(self, image: MetadataImage, changes: Changes) -> None:
        self._image = image
        self._changes = changes
        self._lock = KeyedLock()

    def find(
        self, components: Sequence[Component], *, strict: bool
    ) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        """Entities that pass every condition; `strict` excludes those with other kinds."""
        for entity, limits in sorted(self._image.client_quotas.items(), key=_order):
            names = dict(entity)
            if strict and len(names) != len(components):
                continue
            if all(component.accepts(names) for component in components):
                yield entity, limits

    def check(
        self, entity: Mapping[str, str | None], changes: Mapping[str, float | None]
    ) -> tuple[QuotaEntity, dict[str, float]]:
        """The resulting limits of an entity; None in `changes` removes one. Raises
        `BrokerError`.
        """
        _check_entity(entity)
        for name, value in changes.items():
            _check_limit(entity, name, value)
        key = entity_key(entity)
        known = self._image.client_quotas
        if key not in known and len(known) >= CLIENT_QUOTA_ENTITIES_MAX:
            raise Overloaded(f"there are quotas for {len(known)} entities already")
        limits = dict(known.get(key, {}))
        for name, value in changes.items():
            if value is None:
                limits.pop(name, None)
            else:
                limits[name] = value
        return key, limits

    async def change(
        self, entity: Mapping[str, str | None], changes: Mapping[str, float | None]
    ) -> None:
        """Returns when the limits are durable."""

        def decide() -> list[Event]:
            key, limits = self.check(entity, changes)
            return [ClientQuotaChanged(entity=key, quotas=limits)]

        async with self._lock.take(entity_key(entity)):
            await self._changes.make(decide)


def entity_key(entity: Mapping[str, str | None]) -> QuotaEntity:
    return tuple(sorted(entity.items(), key=lambda item: item[0]))


def _order(item: tuple[QuotaEntity, object]) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in item[0]]


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
