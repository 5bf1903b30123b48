"""Goal: quotas are stored, found by every kind of filter, and refused when they make no sense."""

from __future__ import annotations

import math

import pytest

from dragoman import limits
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Operation, Resource
from worlds.broker import Wire, World
from worlds.kafka_admin import ends, forbidden

ALTER = ends(ApiKey.ALTER_CLIENT_QUOTAS)
DESCRIBE = ends(ApiKey.DESCRIBE_CLIENT_QUOTAS)
EXACT, DEFAULT, ANY = 0, 1, 2
Entity = dict[str, str | None]


def entry(entity: Entity, **changes: float | None) -> m.AlterClientQuotasRequestEntry:
    return m.AlterClientQuotasRequestEntry(
        entity=[
            m.AlterClientQuotasRequestEntity(entity_type=kind, entity_name=name)
            for kind, name in entity.items()
        ],
        ops=[
            m.AlterClientQuotasRequestOp(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )


def alter(
    wire: Wire,
    *entries: m.AlterClientQuotasRequestEntry,
    version: int = 1,
    validate_only: bool = False,
) -> list[int]:
    request = m.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = wire.ask(request, version, m.AlterClientQuotasResponse)
    for asked, answered in zip(entries, response.entries, strict=True):
        assert [(e.entity_type, e.entity_name) for e in asked.entity] == [
            (e.entity_type, e.entity_name) for e in answered.entity
        ]
        assert bool(answered.error_code) == bool(answered.error_message)
    return [each.error_code for each in response.entries]


def find(
    wire: Wire, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> list[tuple[Entity, dict[str, float]]]:
    response = asked(wire, *components, strict=strict, version=version)
    assert response.error_code == 0
    assert response.entries is not None
    return [
        (
            {each.entity_type: each.entity_name for each in found.entity},
            {each.key: each.value for each in found.values},
        )
        for found in response.entries
    ]


def asked(
    wire: Wire, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> m.DescribeClientQuotasResponse:
    request = m.DescribeClientQuotasRequest(
        components=[
            m.DescribeClientQuotasRequestComponent(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ],
        strict=strict,
    )
    return wire.ask(request, version, m.DescribeClientQuotasResponse)


@pytest.mark.parametrize("version", ALTER)
def test_quotas_are_set_changed_and_removed(world: World, wire: Wire, version: int) -> None:
    user: Entity = {"user": "ann"}

    def change(**changes: float | None) -> None:
        assert alter(wire, entry(user, **changes), version=version) == [0]

    change(producer_byte_rate=1000.0, request_percentage=12.5)
    assert find(wire, version=version) == [
        (user, {"producer_byte_rate": 1000.0, "request_percentage": 12.5})
    ]
    change(producer_byte_rate=2000.0, request_percentage=None)
    assert find(wire, version=version) == [(user, {"producer_byte_rate": 2000.0})]
    wire.lose()
    again = Wire(world.reopened())
    assert find(again, version=version) == [(user, {"producer_byte_rate": 2000.0})]
    assert alter(again, entry(user, producer_byte_rate=None), version=version) == [0]
    assert find(again, version=version) == []
    assert again.world.broker.image.client_quotas == {}


@pytest.fixture
def filled(wire: Wire) -> Wire:
    entities: list[Entity] = [
        {"user": "ann"},
        {"user": None},
        {"user": "ann", "client-id": "app"},
        {"client-id": "app"},
        {"client-id": None},
    ]
    assert alter(wire, *(entry(each, consumer_byte_rate=1.0) for each in entities)) == [0] * 5
    address = entry({"ip": "10.0.0.1"}, connection_creation_rate=3.0)
    assert alter(wire, address) == [0]
    return wire


@pytest.mark.parametrize("version", DESCRIBE)
@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, 6),
        ([], True, 0),
        ([("user", EXACT, "ann")], False, 2),
        ([("user", EXACT, "ann")], True, 1),
        ([("user", DEFAULT, None)], False, 1),
        ([("user", ANY, None)], False, 3),
        ([("user", ANY, None)], True, 2),
        ([("client-id", ANY, None)], False, 3),
        ([("user", EXACT, "ann"), ("client-id", EXACT, "app")], True, 1),
        ([("user", EXACT, "ann"), ("client-id", DEFAULT, None)], True, 0),
        ([("user", EXACT, "bob")], False, 0),
        ([("ip", EXACT, "10.0.0.1")], True, 1),
        ([("ip", ANY, None)], False, 1),
    ],
)
def test_filters(
    filled: Wire,
    components: list[tuple[str, int, str | None]],
    strict: bool,
    expected: int,
    version: int,
) -> None:
    found = find(filled, *components, strict=strict, version=version)
    assert len(found) == expected
    for kind, how, name in components:
        for entity, _ in found:
            assert kind in entity
            assert how == ANY or entity[kind] == name


@pytest.mark.parametrize("version", DESCRIBE)
@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", EXACT, "a"), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("planet", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "a")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_filters(
    wire: Wire, components: list[tuple[str, int, str | None]], code: int, version: int
) -> None:
    response = asked(wire, *components, version=version)
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("version", ALTER)
@pytest.mark.parametrize(
    "bad",
    [
        entry({}, producer_byte_rate=1.0),
        entry({"planet": "x"}, producer_byte_rate=1.0),
        entry({"user": ""}, producer_byte_rate=1.0),
        entry({"user": "x" * (limits.QUOTA_NAME_BYTES_MAX + 1)}, producer_byte_rate=1.0),
        entry({"user": "x"}, nothing=1.0),
        entry({"user": "x"}, nothing=None),
        entry({"user": "x"}, connection_creation_rate=1.0),
        entry({"ip": "10.0.0.1"}, producer_byte_rate=1.0),
        entry({"ip": "ten"}, connection_creation_rate=1.0),
        entry({"ip": "10.0.0.1", "user": "x"}, connection_creation_rate=1.0),
        entry({"user": "x"}, producer_byte_rate=-1.0),
        entry({"user": "x"}, producer_byte_rate=1.5),
        entry({"user": "x"}, request_percentage=math.inf),
        entry({"user": "x"}, request_percentage=math.nan),
        m.AlterClientQuotasRequestEntry(
            entity=[
                m.AlterClientQuotasRequestEntity(entity_type="user", entity_name=n) for n in "ab"
            ]
        ),
        m.AlterClientQuotasRequestEntry(
            entity=[m.AlterClientQuotasRequestEntity(entity_type="user", entity_name="a")],
            ops=[m.AlterClientQuotasRequestOp(key="request_percentage", value=1.0)] * 2,
        ),
    ],
)
def test_quotas_that_make_no_sense(
    wire: Wire, bad: m.AlterClientQuotasRequestEntry, validate_only: bool, version: int
) -> None:
    good = entry({"user": "good"}, producer_byte_rate=1.0)
    found = alter(wire, bad, good, version=version, validate_only=validate_only)
    assert found == [ErrorCode.INVALID_REQUEST, 0]
    assert len(find(wire)) == (0 if validate_only else 1)


@pytest.mark.parametrize("version", ALTER)
def test_only_to_validate(wire: Wire, version: int) -> None:
    quota = entry({"user": "ann"}, producer_byte_rate=1.0)
    assert alter(wire, quota, version=version, validate_only=True) == [0]
    assert find(wire) == []


def test_changes_of_one_entity_in_one_request_all_count(wire: Wire) -> None:
    changes = (
        entry({"user": "a"}, producer_byte_rate=1.0),
        entry({"user": "a"}, consumer_byte_rate=2.0),
        entry({"user": "a"}, producer_byte_rate=None),
    )
    assert alter(wire, *changes) == [0, 0, 0]
    assert find(wire) == [({"user": "a"}, {"consumer_byte_rate": 2.0})]


def test_there_is_a_bound_on_entities(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.broker.quotas.CLIENT_QUOTA_ENTITIES_MAX", 2)
    for name in ("a", "b"):
        assert alter(wire, entry({"user": name}, producer_byte_rate=1.0)) == [0]
    assert alter(wire, entry({"user": "c"}, producer_byte_rate=1.0)) == [7]
    assert alter(wire, entry({"user": "a"}, producer_byte_rate=2.0)) == [0]


def test_authorizer_is_asked() -> None:
    wire = forbidden(Resource.CLUSTER, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert alter(wire, entry({"user": "a"}, producer_byte_rate=1.0)) == [code]
    assert asked(wire).error_code == code
