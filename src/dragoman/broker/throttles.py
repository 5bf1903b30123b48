"""Enforcement of client quotas: for how long a client that exceeds its quota is not read.

The first of these entities with a limit decides, as in Kafka; those with a user and any client id
are counted for each user and client id:

    user and client id
    user and default client id
    user
    default user and client id
    default user and default client id
    default user
    client id
    default client id

Connections are counted by address. Rates are of this node. Without any quota in the cluster
`is_on` is False, and nothing is counted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from typing import Final, TypeAlias

from dragoman.broker.quotas import ADDRESS, CLIENT_ID, USER, entity_key
from dragoman.broker.rates import SampledRate, TokenBucket
from dragoman.cluster.metadata import MetadataImage, QuotaEntity
from dragoman.limits import (
    EVICTION_CANDIDATES_MAX,
    QUOTA_NAME_BYTES_MAX,
    QUOTA_RATES_MAX,
    REQUEST_THROTTLE_S_MAX,
)
from dragoman.log_limiter import LogLimiter
from dragoman.security.access import Caller
from dragoman.world import Clock, Scheduler

log = logging.getLogger("dragoman.broker")


class Limit(Enum):
    """What a quota limits, with Kafka's names."""

    PRODUCED = "producer_byte_rate"
    CONSUMED = "consumer_byte_rate"
    REQUESTS = "request_percentage"
    MUTATIONS = "controller_mutation_rate"
    CONNECTIONS = "connection_creation_rate"


#: The limit that applies, and the names by which its use is counted.
_Applied: TypeAlias = tuple[float, tuple[str | None, str | None]]
_Counted: TypeAlias = tuple[Limit, tuple[str | None, str | None]]
_NO_LIMIT: Final = (0.0, (None, None))


class Throttles:
    def __init__(self, image: MetadataImage, clock: Clock, scheduler: Scheduler) -> None:
        self._image = image
        self._clock = clock
        self._limiter = LogLimiter(log, scheduler)
        #: Whether there is any quota.
        self.is_on = False
        #: The limits of known clients, by limit, user and client id.
        self._applied: dict[tuple[Limit, str, str], _Applied] = {}
        #: The least recently used one first.
        self._rates: dict[_Counted, SampledRate] = {}
        self._buckets: dict[_Counted, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._rates) + len(self._buckets)

    def changed(self) -> None:
        """Quotas have changed. What was used so far still counts."""
        self.is_on = bool(self._image.client_quotas)
        self._applied.clear()
        if not self.is_on:
            self._rates.clear()
            self._buckets.clear()

    # ---- limits

    def limits(self, caller: Caller, client_id: str) -> bool:
        """Whether anything limits the requests or bytes of a client."""
        kinds = (Limit.PRODUCED, Limit.CONSUMED, Limit.REQUESTS)
        return any(self._limit(kind, caller, client_id)[0] for kind in kinds)

    def _limit(self, limit: Limit, caller: Caller, client_id: str) -> _Applied:
        # Clients may have long ids, before a login, too; no quota is for one of these.
        client_id = client_id[: QUOTA_NAME_BYTES_MAX + 1]
        key = (limit, caller.name, client_id)
        found = self._applied.get(key)
        if found is None:
            if len(self._applied) >= QUOTA_RATES_MAX:
                self._applied.clear()
            found = self._applied[key] = self._find(limit, caller.name, client_id)
        return found

    def _find(self, limit: Limit, user: str, client_id: str) -> _Applied:
        quotas = self._image.client_quotas
        for entity, counted in _entities(user, client_id):
            value = quotas.get(entity, {}).get(limit.value)
            if value is not None:
                return value, counted
        return _NO_LIMIT

    # ---- use

    def bytes_s(self, limit: Limit, caller: Caller, client_id: str, count: int) -> float:
        """Count bytes produced or consumed; returns for how many seconds to throttle the client."""
        value, counted = self._limit(limit, caller, client_id)
        if not value:
            return 0.0
        rate, now = self._rate(limit, counted), self._clock.monotonic()
        rate.record(now, count)
        return self._logged(limit, counted, rate.throttle_s(now, value))

    def _logged(self, limit: Limit, counted: tuple[str | None, str | None], wait_s: float) -> float:
        if wait_s and self._limiter.admits(logging.INFO):
            fields = {
                "quota": limit.value,
                "user": counted[0],
                "client": counted[1],
                "ms": round(wait_s * 1000),
            }
            log.info("client throttled by a quota", extra=fields)
        return wait_s

    def give_back(self, limit: Limit, caller: Caller, client_id: str, count: int) -> None:
        """Bytes that were counted and then not sent."""
        value, counted = self._limit(limit, caller, client_id)
        if value:
            self._rate(limit, counted).record(self._clock.monotonic(), -count)

    def request_s(self, caller: Caller, client_id: str, seconds: float) -> float:
        """Count time that a request took on the loop; a percentage of one loop is allowed."""
        value, counted = self._limit(Limit.REQUESTS, caller, client_id)
        if not value:
            return 0.0
        rate, now = self._rate(Limit.REQUESTS, counted), self._clock.monotonic()
        rate.record(now, seconds * 100)
        wait_s = min(rate.throttle_s(now, value), REQUEST_THROTTLE_S_MAX)
        return self._logged(Limit.REQUESTS, counted, wait_s)

    def mutations_s(
        self, caller: Caller, client_id: str, count: int, *, is_strict: bool
    ) -> tuple[bool, float]:
        """Count partitions to be created or deleted: whether they may be, and for how many seconds
        to throttle the client. Without `is_strict` they may be in any case.
        """
        value, counted = self._limit(Limit.MUTATIONS, caller, client_id)
        if not value:
            return True, 0.0
        now, key = self._clock.monotonic(), (Limit.MUTATIONS, counted)
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            if len(self._buckets) >= QUOTA_RATES_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = TokenBucket(now, value)
        self._buckets[key] = bucket
        wait_s = bucket.wait_s(now, value)
        if wait_s and is_strict:
            return False, wait_s
        bucket.take(count)
        return True, bucket.wait_s(now, value)

    def may_connect(self, host: str) -> bool:
        """Count a new connection from an address."""
        quotas = self._image.client_quotas
        for name in (host, None):
            value = quotas.get(((ADDRESS, name),), {}).get(Limit.CONNECTIONS.value)
            if value is not None:
                rate, now = self._rate(Limit.CONNECTIONS, (host, None)), self._clock.monotonic()
                if rate.per_second(now) >= value:
                    return False
                rate.record(now, 1)
                return True
        return True

    def _rate(self, limit: Limit, counted: tuple[str | None, str | None]) -> SampledRate:
        key = (limit, counted)
        rate = self._rates.pop(key, None)
        if rate is None:
            if len(self._rates) >= QUOTA_RATES_MAX:
                self._forget_one()
            rate = SampledRate()
        self._rates[key] = rate
        return rate

    def _forget_one(self) -> None:
        # An attacker who rotates addresses must not reset the rate of one that is in use.
        now = self._clock.monotonic()
        oldest = islice(self._rates, EVICTION_CANDIDATES_MAX)
        del self._rates[min(oldest, key=lambda each: self._rates[each].per_second(now))]


def _entities(
    user: str, client_id: str
) -> Iterator[tuple[QuotaEntity, tuple[str | None, str | None]]]:
    """The entities in their order, each with the names by which its use is counted."""
    pair = (user, client_id)
    for name in (user, None):
        yield entity_key({USER: name, CLIENT_ID: client_id}), pair
        yield entity_key({USER: name, CLIENT_ID: None}), pair
        yield entity_key({USER: name}), (user, None)
    yield entity_key({CLIENT_ID: client_id}), (None, client_id)
    yield entity_key({CLIENT_ID: None}), (None, client_id)
