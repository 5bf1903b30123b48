"""Values of the JSON API about quotas of clients."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from dragoman import limits

#: Empty: no condition, or no part of the entity.
_Name: TypeAlias = Annotated[str, Meta(max_length=limits.QUOTA_NAME_BYTES_MAX)]
_Values: TypeAlias = dict[str, float]


class ClientEntity(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Whose quotas they are: a user's, a client id's, those of both together, or an address's.

    A default is for all that have no quota of their own.
    """

    user: _Name = ""
    client_id: _Name = ""
    address: _Name = ""
    default_user: bool = False
    default_client_id: bool = False
    default_address: bool = False


class ClientQuota(msgspec.Struct, frozen=True, kw_only=True):
    entity: ClientEntity
    #: By key, such as `producer_byte_rate`.
    quotas: _Values


class ClientQuotaPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[ClientQuota, ...]
    #: The `after` of the next page; null on the last page.
    next: str | None


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Quotas of an entity to set and to remove; its others stay."""

    entity: ClientEntity
    set: _Values = {}
    unset: tuple[str, ...] = ()


class ChangedQuota(msgspec.Struct, frozen=True, kw_only=True):
    entity: ClientEntity
    #: All quotas of the entity.
    before: _Values
    after: _Values


class QuotaQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which quotas apply to a client."""

    #: The name of its principal.
    user: _Name = "ANONYMOUS"
    #: Empty as over HTTP and other protocols than Kafka's, which have no client ids.
    client_id: _Name = ""
    #: Empty: an address without a quota of its own.
    address: _Name = ""


class DecidingQuota(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    #: Null: nothing limits it.
    value: float | None
    #: The first entity in Kafka's order that has the quota.
    entity: ClientEntity | None


class QuotaAnswer(msgspec.Struct, frozen=True, kw_only=True):
    #: Every key that there is.
    items: tuple[DecidingQuota, ...]


class QuotaUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the clients use of a quota that count together."""

    key: str
    #: The names that they share; null: whatever it is.
    user: str | None
    client_id: str | None
    address: str | None
    quota: float
    #: Over the last eleven seconds; null for `controller_mutation_rate`, which has no rate.
    rate: float | None
    #: Whether the quota is used up now.
    throttled: bool


class QuotaUses(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    #: The throttled ones first, then those with the most use of their quota.
    items: tuple[QuotaUse, ...]
    #: How many uses the node counts. The least recent ones of very many are not in `items`.
    counted: int
