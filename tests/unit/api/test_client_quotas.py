"""Goal: quotas are listed, changed and explained over HTTP as over Kafka, and what is said to apply
is what throttles.

Method: the service on a broker in virtual time, some of it behind the HTTP application.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from dragoman import limits
from dragoman.api.client_quotas import ClientQuotaService
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.problems import status_of
from dragoman.api.quota_values import (
    ChangedQuota,
    ClientEntity,
    ClientQuotaPage,
    QuotaChange,
    QuotaQuestion,
    QuotaUse,
)
from dragoman.broker.errors import ClusterNotAuthorized, Overloaded
from dragoman.broker.quotas import entity_key
from dragoman.broker.throttles import Limit
from dragoman.cluster.events import ClientQuotaChanged
from dragoman.errors import DragomanError
from dragoman.security.access import Caller, Principal
from worlds.broker import World
from worlds.http import ask
from worlds.rights import Guard, right

QUOTAS = "/api/v1/security/quotas"
CALLER = Caller()
ALICE = ClientEntity(user="alice")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def service(world: World) -> ClientQuotaService:
    return ClientQuotaService(world.broker)


@pytest.fixture
def http(node: Any, client: httpx.AsyncClient, service: ClientQuotaService) -> httpx.AsyncClient:
    node.quotas = service
    return client


def limit(world: World, entity: Mapping[str, str | None], **values: float) -> None:
    world.apply(ClientQuotaChanged(entity=entity_key(entity), quotas=values))


def change(
    world: World, entity: ClientEntity, *unset: str, check: bool = False, **values: float
) -> ChangedQuota:
    service = ClientQuotaService(world.broker)
    wanted = QuotaChange(entity=entity, set=values, unset=unset)
    return ask(world, service.change_quotas(CALLER, wanted, check))


def listed(
    service: ClientQuotaService, after: str = "", count: int = 10, **names: Any
) -> ClientQuotaPage:
    filters: dict[str, Any] = {
        "user": "",
        "client_id": "",
        "address": "",
        "default_user": False,
        "default_client_id": False,
        "default_address": False,
    }
    return service.list_quotas(CALLER, **{**filters, **names}, after=after, limit=PageLimit(count))


# ---- changes and lists


def test_quotas_are_set_changed_and_removed(world: World, service: ClientQuotaService) -> None:
    made = change(world, ALICE, producer_byte_rate=5, request_percentage=2.5)
    assert made == ChangedQuota(
        entity=ALICE, before={}, after={"producer_byte_rate": 5, "request_percentage": 2.5}
    )
    made = change(world, ALICE, "request_percentage", "consumer_byte_rate", producer_byte_rate=7)
    assert made.before == {"producer_byte_rate": 5, "request_percentage": 2.5}
    assert made.after == {"producer_byte_rate": 7}
    (item,) = listed(service).items
    assert (item.entity, item.quotas) == (ALICE, {"producer_byte_rate": 7})
    assert change(world, ALICE, "producer_byte_rate").after == {}
    assert listed(service).items == ()


def test_checked_change_changes_nothing(world: World, service: ClientQuotaService) -> None:
    change(world, ALICE, producer_byte_rate=5)
    made = change(world, ALICE, "producer_byte_rate", check=True, consumer_byte_rate=1)
    assert (made.before, made.after) == ({"producer_byte_rate": 5}, {"consumer_byte_rate": 1})
    assert listed(service).items[0].quotas == {"producer_byte_rate": 5}


ENTITIES: list[dict[str, str | None]] = [
    {"user": "alice"},
    {"user": "alice", "client-id": "c"},
    {"user": "alice", "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
    {"ip": "10.0.0.7"},
    {"ip": None},
]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({}, 8),
        ({"user": "alice"}, 3),
        ({"user": "alice", "client_id": "c"}, 1),
        ({"user": "alice", "default_client_id": True}, 1),
        ({"default_user": True}, 1),
        ({"client_id": "c"}, 2),
        ({"default_client_id": True}, 2),
        ({"address": "10.0.0.7"}, 1),
        ({"default_address": True}, 1),
        ({"user": "bob"}, 0),
        ({"address": "10.0.0.7", "user": "alice"}, 0),
    ],
)
def test_list_is_filtered(
    world: World, service: ClientQuotaService, names: dict[str, Any], found: int
) -> None:
    for entity in ENTITIES:
        limit(world, entity, x=1.0)
    page = listed(service, **names)
    assert len(page.items) == found
    assert page.next is None
    for item in page.items:
        for name, value in names.items():
            assert getattr(item.entity, name) == value


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8])
def test_pages_have_every_entity_once(
    world: World, service: ClientQuotaService, count: int
) -> None:
    for entity in ENTITIES:
        limit(world, entity, x=1.0)
    found, after = [], ""
    for _ in ENTITIES:
        page = listed(service, after, count)
        found += [each.entity for each in page.items]
        after = page.next or ""
        if not after:
            break
    assert found == [each.entity for each in listed(service).items]
    assert len(found) == len(ENTITIES)


@pytest.mark.parametrize("after", ["x", "{}", "[[1,2]]", '[["user"]]', "[" * 5000])
def test_place_of_no_page_is_refused(service: ClientQuotaService, after: str) -> None:
    with pytest.raises(ApiError, match="the `next` of a page"):
        listed(service, after)


@pytest.mark.parametrize(
    ("entity", "unset", "values", "text"),
    [
        (ClientEntity(), (), {"producer_byte_rate": 1}, "needs an entity"),
        (ALICE, (), {}, "has to name a quota"),
        (ALICE, ("producer_byte_rate",), {"producer_byte_rate": 1}, "more than once"),
        (ALICE, ("producer_byte_rate",) * 2, {}, "more than once"),
        (ALICE, (), {"speed": 1}, "'speed' is not one of producer_byte_rate"),
        (ALICE, ("speed",), {}, "'speed' is not one of producer_byte_rate"),
        (ALICE, (), {"connection_creation_rate": 1}, "is not one of"),
        (ALICE, (), {"producer_byte_rate": 0}, "positive number"),
        (ALICE, (), {"producer_byte_rate": -1}, "positive number"),
        (ALICE, (), {"producer_byte_rate": 1.5}, "whole number"),
        (ClientEntity(user="a", default_user=True), (), {"x": 1}, "exclude each other"),
        (ClientEntity(user="a", address="::1"), (), {"x": 1}, "cannot be combined"),
        (ClientEntity(address="host"), (), {"connection_creation_rate": 1}, "not an IP address"),
        (ClientEntity(default_address=True), (), {"producer_byte_rate": 1}, "is not one of"),
        (ClientEntity(user="ü" * 600), (), {"producer_byte_rate": 1}, "1 to 1024 bytes"),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_change_that_makes_no_sense_is_refused(
    world: World,
    entity: ClientEntity,
    unset: tuple[str, ...],
    values: dict[str, float],
    text: str,
    check: bool,
) -> None:
    with pytest.raises(DragomanError, match=text) as refused:
        change(world, entity, *unset, check=check, **values)
    assert refused.value.code in ("invalid_request", "invalid_quota")
    assert status_of(refused.value) == 400
    assert world.broker.image.client_quotas == {}


def test_entities_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.broker.quotas.CLIENT_QUOTA_ENTITIES_MAX", 1)
    change(world, ALICE, producer_byte_rate=5)
    with pytest.raises(Overloaded) as refused:
        change(world, ClientEntity(user="bob"), producer_byte_rate=5)
    assert status_of(refused.value) == 503
    change(world, ALICE, producer_byte_rate=6)


# ---- over HTTP


async def test_requests_of_http(world: World, http: httpx.AsyncClient) -> None:
    limit(world, {"user": "alice", "client-id": None}, producer_byte_rate=5)
    limit(world, {"ip": "10.0.0.7"}, connection_creation_rate=1)
    answer = await http.get(QUOTAS, params={"user": "alice", "default_client_id": "true"})
    assert answer.json() == {
        "items": [
            {
                "entity": {"user": "alice", "default_client_id": True},
                "quotas": {"producer_byte_rate": 5.0},
            }
        ],
        "next": None,
    }
    body = {"entity": {"user": "alice"}, "set": {"producer_byte_rate": 1048576}}
    checked = await http.post(QUOTAS, params={"validate_only": "true"}, json=body)
    assert checked.json() == {
        "entity": {"user": "alice"},
        "before": {},
        "after": {"producer_byte_rate": 1048576.0},
    }
    asked = {"user": "alice", "client_id": "c", "address": "10.0.0.7"}
    found = (await http.post(f"{QUOTAS}/tests", json=asked)).json()["items"]
    assert [each["key"] for each in found] == [each.value for each in Limit]
    assert [each["entity"] for each in found if each["entity"]] == [
        {"user": "alice", "default_client_id": True},
        {"address": "10.0.0.7"},
    ]
    uses = (await http.get(f"{QUOTAS}/uses")).json()
    assert uses == {"node_id": 1, "items": [], "counted": 0}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"set": {"producer_byte_rate": 1}}, "invalid_request"),
        ({"entity": {"user": None}, "set": {"producer_byte_rate": 1}}, "invalid_request"),
        ({"entity": {"group": "g"}, "set": {"producer_byte_rate": 1}}, "invalid_request"),
        ({"entity": {"user": "a" * 1025}, "set": {"x": 1}}, "invalid_request"),
        ({"entity": {"user": "a"}, "set": {"producer_byte_rate": "1"}}, "invalid_request"),
        ({"entity": {"user": "a"}, "set": {"producer_byte_rate": 1}, "mode": 1}, "invalid_request"),
        ({"entity": {"user": "a"}, "set": {"producer_byte_rate": 0}}, "invalid_quota"),
    ],
)
async def test_malformed_body_is_a_problem(
    http: httpx.AsyncClient, body: dict[str, Any], code: str
) -> None:
    answer = await http.post(
        QUOTAS,
        params={"validate_only": "true"},
        content=json.dumps(body),
        headers={"content-type": "application/json"},
    )
    assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_name_and_default_of_a_filter_exclude_each_other(http: httpx.AsyncClient) -> None:
    answer = await http.get(QUOTAS, params={"user": "a", "default_user": "true"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("denied", ["describe_configs cluster", "alter_configs cluster"])
def test_missing_right_is_refused(world: World, service: ClientQuotaService, denied: str) -> None:
    reads = [
        lambda: listed(service),
        lambda: service.test_quotas(CALLER, QuotaQuestion()),
        lambda: service.quota_uses(CALLER),
    ]
    writes = [
        lambda: change(world, ALICE, producer_byte_rate=1, check=True),
        lambda: change(world, ALICE, producer_byte_rate=1),
        # Whether the change makes sense is not for everyone to learn.
        lambda: change(world, ALICE, speed=1),
    ]
    with Guard(world).without([right(denied)]):
        for each in writes if denied.startswith("alter") else reads:
            with pytest.raises(ClusterNotAuthorized) as refused:
                each()
            assert status_of(refused.value) == 403
    assert world.broker.image.client_quotas == {}


# ---- what applies

#: In Kafka's order, for the user `u` and the client id `c`.
ORDER: list[dict[str, str | None]] = [
    {"user": "u", "client-id": "c"},
    {"user": "u", "client-id": None},
    {"user": "u"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
]
KINDS = {"user": "user", "client-id": "client_id", "ip": "address"}


def shown(entity: Mapping[str, str | None]) -> ClientEntity:
    fields: dict[str, Any] = {
        KINDS[kind] if name else f"default_{KINDS[kind]}": name or True
        for kind, name in entity.items()
    }
    return ClientEntity(**fields)


@pytest.mark.parametrize("seed", range(100))
def test_quota_that_is_said_to_apply_throttles(seed: int) -> None:
    """The limit that throttles follows from for how long it does."""
    world, chance = World(), random.Random(seed)
    service, throttles = ClientQuotaService(world.broker), world.broker.throttles
    present = [each for each in ORDER if chance.random() < 0.3]
    other: list[dict[str, str | None]] = [
        {"user": "v"},
        {"client-id": "d"},
        {"user": "v", "client-id": "c"},
    ]
    for place, entity in enumerate((*present, *other), 1):
        # Some entities have other quotas only.
        key = chance.choice(("producer_byte_rate", "producer_byte_rate", "consumer_byte_rate"))
        limit(world, entity, **{key: 1000.0 * place})
    answer = service.test_quotas(CALLER, QuotaQuestion(user="u", client_id="c"))
    found = {each.key: each for each in answer.items}
    caller = Caller(Principal("User", "u"), "10.0.0.7")
    for kind in (Limit.PRODUCED, Limit.CONSUMED):
        first = next(
            (
                each
                for each in ORDER
                if kind.value in world.broker.image.client_quotas.get(entity_key(each), {})
            ),
            None,
        )
        said = found[kind.value]
        assert said.entity == (None if first is None else shown(first))
        wait_s = throttles.bytes_s(kind, caller, "c", 1_000_000)
        if said.value is None:
            assert wait_s == 0
        else:
            rate = 1_000_000 / 10
            assert wait_s == pytest.approx((rate - said.value) / said.value * 11)


@pytest.mark.parametrize(
    ("address", "entity", "most"),
    [
        ("10.0.0.7", ClientEntity(address="10.0.0.7"), 10),
        ("10.0.0.8", ClientEntity(default_address=True), 20),
        ("", ClientEntity(default_address=True), 20),
    ],
)
def test_connections_are_counted_by_the_quota_of_their_address(
    world: World, service: ClientQuotaService, address: str, entity: ClientEntity, most: int
) -> None:
    limit(world, {"ip": None}, connection_creation_rate=2)
    limit(world, {"ip": "10.0.0.7"}, connection_creation_rate=1)
    *_, found = service.test_quotas(CALLER, QuotaQuestion(address=address)).items
    assert (found.key, found.entity) == ("connection_creation_rate", entity)
    made = [world.broker.throttles.may_connect(address) for _ in range(30)]
    assert made.count(True) == most


# ---- what is used


def uses(service: ClientQuotaService) -> list[QuotaUse]:
    return list(service.quota_uses(CALLER).items)


def test_throttled_clients_come_first(world: World, service: ClientQuotaService) -> None:
    limit(world, {"user": "alice"}, producer_byte_rate=100)
    limit(world, {"client-id": None}, producer_byte_rate=100, controller_mutation_rate=1)
    limit(world, {"user": None, "client-id": "c"}, request_percentage=50)
    limit(world, {"ip": None}, connection_creation_rate=1)
    throttles = world.broker.throttles
    alice, bob = (Caller(Principal("User", name), "10.0.0.7") for name in ("alice", "bob"))
    throttles.bytes_s(Limit.PRODUCED, alice, "c", 100)
    throttles.bytes_s(Limit.PRODUCED, bob, "d", 2000)
    throttles.mutations_s(bob, "d", 20, is_strict=True)
    throttles.request_s(bob, "c", 1.0)
    while throttles.may_connect("10.0.0.7"):
        pass

    def named(each: QuotaUse) -> tuple[str, tuple[str | None, ...], float | None, bool]:
        return each.key, (each.user, each.client_id, each.address), each.rate, each.throttled

    assert [named(each) for each in uses(service)] == [
        ("producer_byte_rate", (None, "d", None), 200.0, True),
        ("connection_creation_rate", (None, None, "10.0.0.7"), 1.0, True),
        ("controller_mutation_rate", (None, "d", None), None, True),
        ("request_percentage", ("bob", "c", None), 10.0, False),
        ("producer_byte_rate", ("alice", None, None), 10.0, False),
    ]
    assert throttles.bytes_s(Limit.PRODUCED, bob, "d", 0) > 0
    world.advance(20)
    assert [named(each) for each in uses(service)] == [
        ("controller_mutation_rate", (None, "d", None), None, False)
    ]


def test_use_of_a_quota_that_no_longer_applies_is_not_shown(
    world: World, service: ClientQuotaService
) -> None:
    limit(world, {"user": None, "client-id": "c"}, producer_byte_rate=1)
    alice = Caller(Principal("User", "alice"))
    world.broker.throttles.bytes_s(Limit.PRODUCED, alice, "c", 100)
    assert len(uses(service)) == 1
    # The user's own quota comes first, and is counted for all of the user's client ids.
    limit(world, {"user": "alice"}, producer_byte_rate=1)
    assert uses(service) == []
    limit(world, {"user": "alice"})
    limit(world, {"user": None, "client-id": "c"}, consumer_byte_rate=1)
    assert uses(service) == []


def test_shown_uses_are_bounded(
    world: World, service: ClientQuotaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limits.QUOTA_USES_MAX < limits.QUOTA_RATES_MAX
    monkeypatch.setattr("dragoman.broker.throttles.QUOTA_USES_MAX", 10)
    limit(world, {"client-id": None}, producer_byte_rate=1, controller_mutation_rate=1)
    throttles = world.broker.throttles
    for number in range(30):
        throttles.bytes_s(Limit.PRODUCED, CALLER, str(number), 1)
        throttles.mutations_s(CALLER, str(number), 1, is_strict=True)
    found = service.quota_uses(CALLER)
    assert len(found.items) == 20
    assert found.counted == 60
    assert {each.client_id for each in found.items} == {str(each) for each in range(20, 30)}
