"""Quotas of clients in the HTTP API, which count for callers over HTTP, too (`quotas.py`).

Reading needs the right to describe the cluster's configuration, and changes that to alter it, as
for the same requests of Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import msgspec

from dragoman.api.access import Access, Rights
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.quota_values import (
    ChangedQuota,
    ClientEntity,
    ClientQuota,
    ClientQuotaPage,
    DecidingQuota,
    QuotaAnswer,
    QuotaChange,
    QuotaQuestion,
    QuotaUse,
    QuotaUses,
)
from dragoman.broker.administration import Actor
from dragoman.broker.quotas import ADDRESS, CLIENT_ID, USER, ClientQuotas, Component, Match
from dragoman.broker.throttles import Limit, Throttles, Use
from dragoman.cluster.metadata import QuotaEntity
from dragoman.errors import MALFORMED
from dragoman.net.future import future_of
from dragoman.security.access import Caller, Operation, Principal

#: The field of an entity, by the kind of name.
_FIELDS: Final = {USER: "user", CLIENT_ID: "client_id", ADDRESS: "address"}


class QuotaBroker(Rights, Protocol):
    """What the service uses of the broker."""

    @property
    def node_id(self) -> int: ...

    @property
    def quotas(self) -> ClientQuotas: ...

    @property
    def throttles(self) -> Throttles: ...


class ClientQuotaService:
    def __init__(self, broker: QuotaBroker) -> None:
        self._broker = broker
        self._access = Access(broker)

    def list_quotas(
        self,
        caller: Caller,
        user: str,
        client_id: str,
        address: str,
        default_user: bool,
        default_client_id: bool,
        default_address: bool,
        after: str,
        limit: PageLimit,
    ) -> ClientQuotaPage:
        self._access.require_cluster(caller, Operation.DESCRIBE_CONFIGS)
        wanted = ClientEntity(
            user=user,
            client_id=client_id,
            address=address,
            default_user=default_user,
            default_client_id=default_client_id,
            default_address=default_address,
        )
        components = [
            Component(kind, Match.DEFAULT if name is None else Match.EXACT, name)
            for kind, name in _names(wanted).items()
        ]
        page = self._broker.quotas.find(
            components, strict=False, after=_cursor(after), most=limit + 1
        )
        last = page[limit - 1][0] if len(page) > limit else None
        return ClientQuotaPage(
            items=tuple(
                ClientQuota(entity=_shown(entity), quotas=dict(sorted(quotas.items())))
                for entity, quotas in page[:limit]
            ),
            next=None if last is None else msgspec.json.encode(last).decode(),
        )

    async def change_quotas(
        self, caller: Caller, wanted: QuotaChange, validate_only: bool
    ) -> ChangedQuota:
        self._access.require_cluster(caller, Operation.ALTER_CONFIGS)
        entity, quotas = _names(wanted.entity), self._broker.quotas
        changes: dict[str, float | None] = {**wanted.set, **dict.fromkeys(wanted.unset)}
        if len(changes) < len(wanted.set) + len(wanted.unset):
            raise _invalid("a quota is in `set` and `unset` more than once")
        if not changes:
            raise _invalid("`set` or `unset` has to name a quota")
        if validate_only:
            made = quotas.check(entity, changes)
        else:
            made = await future_of(quotas.change(entity, changes, Actor(caller, "http")))
        return ChangedQuota(
            entity=wanted.entity,
            before=dict(sorted(made.before.items())),
            after=dict(sorted(made.after.items())),
        )

    def test_quotas(self, caller: Caller, question: QuotaQuestion) -> QuotaAnswer:
        self._access.require_cluster(caller, Operation.DESCRIBE_CONFIGS)
        asked = Caller(Principal("User", question.user), question.address)
        decided = self._broker.throttles.deciding(asked, question.client_id)
        return QuotaAnswer(
            items=tuple(
                DecidingQuota(
                    key=limit.value,
                    value=None if found is None else found.value,
                    entity=None if found is None else _shown(found.entity),
                )
                for limit, found in decided.items()
            )
        )

    def quota_uses(self, caller: Caller) -> QuotaUses:
        self._access.require_cluster(caller, Operation.DESCRIBE_CONFIGS)
        throttles = self._broker.throttles
        uses = sorted(throttles.uses(), key=_nearest)
        return QuotaUses(
            node_id=self._broker.node_id, items=tuple(map(_use, uses)), counted=len(throttles)
        )


def _names(entity: ClientEntity) -> dict[str, str | None]:
    """The kinds and names of an entity, or of a filter; None is the default."""
    return dict(_components(entity))


def _components(entity: ClientEntity) -> Iterator[tuple[str, str | None]]:
    for kind, field in _FIELDS.items():
        name: str = getattr(entity, field)
        is_default: bool = getattr(entity, f"default_{field}")
        if name and is_default:
            raise _invalid(f"{field} and default_{field} exclude each other")
        if name or is_default:
            yield kind, name or None


def _shown(entity: QuotaEntity) -> ClientEntity:
    fields: dict[str, object] = {}
    for kind, name in entity:
        field = _FIELDS[kind]
        fields[field if name is not None else f"default_{field}"] = name or True
    return msgspec.convert(fields, ClientEntity)


def _cursor(after: str) -> QuotaEntity:
    if not after:
        return ()
    try:
        return msgspec.json.decode(after, type=tuple[tuple[str, str | None], ...])
    except MALFORMED:
        raise _invalid("after: expected the `next` of a page") from None


def _use(use: Use) -> QuotaUse:
    first, second = use.counted
    is_address = use.limit is Limit.CONNECTIONS
    return QuotaUse(
        key=use.limit.value,
        user=None if is_address else first,
        client_id=second,
        address=first if is_address else None,
        quota=use.value,
        rate=use.rate,
        throttled=use.is_throttled,
    )


def _nearest(use: Use) -> tuple[bool, float]:
    return not use.is_throttled, -(use.rate or 0.0) / use.value


def _invalid(text: str) -> ApiError:
    return ApiError(400, "invalid_request", text)
