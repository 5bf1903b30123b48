"""Goal: the quota of a client is the first in Kafka's order, and is counted as in Kafka."""

from __future__ import annotations

import logging

import pytest

from dragoman import limits
from dragoman.broker.quotas import entity_key
from dragoman.broker.throttles import Limit
from dragoman.cluster.events import ClientQuotaChanged
from dragoman.security.access import Caller, Principal
from worlds.broker import World

ALICE, BOB = (Caller(Principal("User", name), "10.0.0.9") for name in ("alice", "bob"))
#: In Kafka's order.
ENTITIES: list[dict[str, str | None]] = [
    {"user": "alice", "client-id": "c"},
    {"user": "alice", "client-id": None},
    {"user": "alice"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
]


def limit(world: World, entity: dict[str, str | None], **values: float) -> None:
    world.apply(ClientQuotaChanged(entity=entity_key(entity), quotas=values))


def test_without_quotas_nothing_is_counted(world: World) -> None:
    throttles = world.broker.throttles
    assert not throttles.is_on
    limit(world, {"user": "alice"}, producer_byte_rate=1)
    assert throttles.is_on
    assert throttles.bytes_s(Limit.PRODUCED, ALICE, "c", 1000) > 0
    assert len(throttles) == 1
    limit(world, {"user": "alice"})
    assert not throttles.is_on
    assert len(throttles) == 0


@pytest.mark.parametrize("first", range(len(ENTITIES)))
def test_first_entity_with_a_limit_decides(world: World, first: int) -> None:
    for place, entity in enumerate(ENTITIES[first:], first):
        limit(world, entity, producer_byte_rate=place + 1)
    throttles = world.broker.throttles
    assert throttles._limit(Limit.PRODUCED, ALICE, "c")[0] == first + 1
    assert throttles._limit(Limit.CONSUMED, ALICE, "c")[0] == 0
    assert throttles.limits(ALICE, "c")
    assert throttles.limits(BOB, "other") == any(
        entity in ENTITIES[first:]
        for entity in ({"user": None, "client-id": None}, {"user": None}, {"client-id": None})
    )


def test_entity_without_this_limit_is_passed_over(world: World) -> None:
    limit(world, {"user": "alice"}, consumer_byte_rate=5)
    limit(world, {"client-id": "c"}, producer_byte_rate=7)
    assert world.broker.throttles._limit(Limit.PRODUCED, ALICE, "c")[0] == 7


@pytest.mark.parametrize(
    ("entity", "shared"),
    [
        ({"user": None}, [(ALICE, "c"), (ALICE, "d")]),
        ({"client-id": None}, [(ALICE, "c"), (BOB, "c")]),
        ({"user": None, "client-id": None}, [(ALICE, "c"), (ALICE, "c")]),
    ],
)
def test_clients_of_an_entity_share_its_use(
    world: World, entity: dict[str, str | None], shared: list[tuple[Caller, str]]
) -> None:
    limit(world, entity, producer_byte_rate=100)
    throttles = world.broker.throttles
    (first, first_id), (second, second_id) = shared
    assert throttles.bytes_s(Limit.PRODUCED, first, first_id, 900) == 0
    assert throttles.bytes_s(Limit.PRODUCED, second, second_id, 900) > 0
    # Others have a use of their own.
    assert throttles.bytes_s(Limit.PRODUCED, BOB, "other", 900) == 0


def test_changed_limit_applies_to_the_next_request(world: World) -> None:
    limit(world, {"user": "alice"}, producer_byte_rate=1)
    throttles = world.broker.throttles
    assert throttles.bytes_s(Limit.PRODUCED, ALICE, "c", 1000) > 0
    limit(world, {"user": "alice"}, producer_byte_rate=1_000_000)
    assert throttles.bytes_s(Limit.PRODUCED, ALICE, "c", 1000) == 0


def test_use_of_clients_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.broker.throttles.QUOTA_RATES_MAX", 10)
    assert limits.QUOTA_RATES_MAX > 10
    limit(world, {"client-id": None}, producer_byte_rate=1, controller_mutation_rate=1)
    throttles = world.broker.throttles
    for number in range(100):
        throttles.bytes_s(Limit.PRODUCED, ALICE, str(number), 1)
        throttles.mutations_s(ALICE, str(number), 1, is_strict=True)
    assert len(throttles) == 20
    assert len(throttles._applied) <= 20


def test_rotated_addresses_do_not_reset_the_rate_of_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.broker.throttles.QUOTA_RATES_MAX", 10)
    limit(world, {"ip": None}, connection_creation_rate=5)
    throttles = world.broker.throttles
    while throttles.may_connect("10.0.0.1"):
        pass
    for number in range(100):
        assert throttles.may_connect(f"10.0.1.{number}")
    assert not throttles.may_connect("10.0.0.1")
    assert len(throttles) == 10


def test_throttling_for_time_on_the_loop_is_bounded(world: World) -> None:
    limit(world, {"user": "alice"}, request_percentage=1)
    throttles = world.broker.throttles
    assert throttles.request_s(ALICE, "", 0.05) == 0
    assert throttles.request_s(ALICE, "", 60.0) == limits.REQUEST_THROTTLE_S_MAX


def test_mutations_are_refused_or_throttled(world: World) -> None:
    limit(world, {"user": "alice"}, controller_mutation_rate=1)
    throttles = world.broker.throttles
    assert throttles.mutations_s(ALICE, "", 15, is_strict=True) == (True, 4.0)
    assert throttles.mutations_s(ALICE, "", 1, is_strict=True) == (False, 4.0)
    assert throttles.mutations_s(ALICE, "", 1, is_strict=False) == (True, 5.0)
    world.advance(5)
    assert throttles.mutations_s(ALICE, "", 1, is_strict=True) == (True, 1.0)


def test_connections_of_an_address_are_bounded(world: World) -> None:
    limit(world, {"ip": None}, connection_creation_rate=2)
    limit(world, {"ip": "10.0.0.7"}, connection_creation_rate=1)
    throttles = world.broker.throttles
    made = [throttles.may_connect("10.0.0.7") for _ in range(20)]
    assert made == [True] * 10 + [False] * 10
    assert [throttles.may_connect("10.0.0.8") for _ in range(30)].count(True) == 20
    world.advance(12)
    assert throttles.may_connect("10.0.0.7")


def test_quotas_hold_after_a_restart(world: World) -> None:
    limit(world, {"user": "alice"}, producer_byte_rate=1)
    again = world.reopened().broker.throttles
    assert again.is_on
    assert again.bytes_s(Limit.PRODUCED, ALICE, "c", 1000) > 0


def test_long_client_ids_are_cut(world: World) -> None:
    limit(world, {"client-id": None}, producer_byte_rate=1)
    throttles = world.broker.throttles
    for number in range(3):
        long = "c" * limits.QUOTA_NAME_BYTES_MAX + f"{number}" * 10_000
        throttles.bytes_s(Limit.PRODUCED, ALICE, long, 1)
    kept = [key[2] for key in throttles._applied] + [key[1][1] for key in throttles._rates]
    assert {len(each) for each in kept if each} == {limits.QUOTA_NAME_BYTES_MAX + 1}


def test_throttled_clients_leave_few_lines(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.broker")
    limit(world, {"user": "alice"}, producer_byte_rate=1)
    for _ in range(1000):
        assert world.broker.throttles.bytes_s(Limit.PRODUCED, ALICE, "c", 1000) > 0
    lines = [each for each in caplog.records if each.message == "client throttled by a quota"]
    assert len(lines) == limits.LIMITED_LOG_LINES_MAX
    assert vars(lines[0])["user"] == "alice"
    assert vars(lines[0])["quota"] == "producer_byte_rate"
