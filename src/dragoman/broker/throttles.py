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
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from dragoman.broker.quotas import ADDRESS, CLIENT_ID, USER, entity_key
from dragoman.broker.rates import SampledRate, TokenBucket
from dragoman.cluster.metadata import MetadataImage, QuotaEntity
from dragoman.limits import (
    EVICTION_CANDIDATES_MAX,
    QUOTA_NAME_BYTES_MAX,
    QUOTA_RATES_MAX,
    QUOTA_USES_MAX,
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


#: The names by which use is counted: a user, a client id, or both; of connections, an address.
_Names: TypeAlias = tuple[str | None, str | None]
#: The limit that applies, and the names by which its use is counted.
_Applied: TypeAlias = tuple[float, _Names]
_Counted: TypeAlias = tuple[Limit, _Names]
_NO_LIMIT: Final = (0.0, (None, None))


class Decision(NamedTuple):
    """The limit that applies to a client, and the entity that it comes from."""

    entity: QuotaEntity
    value: float
    counted: _Names


class Use(NamedTuple):
    """What is used of a quota."""

    limit: Limit
    counted: _Names
    value: float
    #: Of bytes, time or connections per second; None of partitions, which are counted otherwise.
    rate: float | None
    #: Whether the next request is throttled, or the next connection refused.
    is_throttled: bool


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
        decided = self._decide(limit, _entities(user, client_id))
        return _NO_LIMIT if decided is None else (decided.value, decided.counted)

    def _decide(
        self, limit: Limit, entities: Iterable[tuple[QuotaEntity, _Names]]
    ) -> Decision | None:
        quotas = self._image.client_quotas
        for entity, counted in entities:
            value = quotas.get(entity, {}).get(limit.value)
            if value is not None:
                return Decision(entity, value, counted)
        return None

    def deciding(self, caller: Caller, client_id: str) -> dict[Limit, Decision | None]:
        """What applies to a client, of each limit."""
        return {
            limit: self._decide(
                limit,
                _addresses(caller.host)
                if limit is Limit.CONNECTIONS
                else _entities(caller.name, client_id),
            )
            for limit in Limit
        }

    # ---- use

    def bytes_s(self, limit: Limit, caller: Caller, client_id: str, count: int) -> float:
        """Count bytes produced or consumed; returns for how many seconds to throttle the client."""
        value, counted = self._limit(limit, caller, client_id)
        if not value:
            return 0.0
        rate, now = self._rate(limit, counted), self._clock.monotonic()
        rate.record(now, count)
        return self._logged(limit, counted, rate.throttle_s(now, value))

    def _logged(self, limit: Limit, counted: _Names, wait_s: float) -> float:
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
        decided = self._decide(Limit.CONNECTIONS, _addresses(host))
        if decided is None:
            return True
        rate, now = self._rate(Limit.CONNECTIONS, decided.counted), self._clock.monotonic()
        if rate.per_second(now) >= decided.value:
            return False
        rate.record(now, 1)
        return True

    def uses(self) -> list[Use]:
        """What clients use of their quotas, of those that were counted last."""
        now = self._clock.monotonic()
        found = []
        for (limit, counted), rate in islice(reversed(self._rates.items()), QUOTA_USES_MAX):
            value, per_second = self._value_of(limit, counted), rate.per_second(now)
            if value and per_second > 0:
                # A connection is refused before it is counted.
                is_at_limit = limit is Limit.CONNECTIONS and per_second >= value
                is_throttled = is_at_limit or per_second > value
                found.append(Use(limit, counted, value, per_second, is_throttled))
        for (limit, counted), bucket in islice(reversed(self._buckets.items()), QUOTA_USES_MAX):
            value = self._value_of(limit, counted)
            if value:
                found.append(Use(limit, counted, value, None, bucket.wait_s(now, value) > 0))
        return found

    def _value_of(self, limit: Limit, counted: _Names) -> float:
        """The limit of what is counted by these names; 0 without one."""
        first, second = counted
        if limit is Limit.CONNECTIONS:
            decided = self._decide(limit, _addresses(first or ""))
        else:
            entities = _entities(first or "", second or "")
            # Where a user or a client id is counted alone, the other name of its clients is not
            # known: only entities that are counted by the same names can apply.
            if None in counted:
                entities = (each for each in entities if each[1] == counted)
            decided = self._decide(limit, entities)
        return 0.0 if decided is None or decided.counted != counted else decided.value

    def _rate(self, limit: Limit, counted: _Names) -> SampledRate:
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


def _addresses(host: str) -> Iterator[tuple[QuotaEntity, _Names]]:
    for name in (host, None):
        yield ((ADDRESS, name),), (host, None)


def _entities(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, _Names]]:
    """The entities in their order, each with the names by which its use is counted."""
    pair = (user, client_id)
    for name in (user, None):
        yield entity_key({USER: name, CLIENT_ID: client_id}), pair
        yield entity_key({USER: name, CLIENT_ID: None}), pair
        yield entity_key({USER: name}), (user, None)
    yield entity_key({CLIENT_ID: client_id}), (None, client_id)
    yield entity_key({CLIENT_ID: None}), (None, client_id)
