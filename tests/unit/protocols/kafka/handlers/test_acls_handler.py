"""Goal: Kafka's clients create, find and delete access rules as with Kafka."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dragoman.broker import access_rules
from dragoman.broker.administration import Actor
from dragoman.outcome import start
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Resource
from dragoman.security.rules import Pattern, Permission, Rule
from worlds.broker import Wire, World
from worlds.kafka_admin import ends, forbidden

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = 2, 3, 4, 5, 6, 7
ALL, READ, WRITE, CREATE_TOKENS = 2, 3, 4, 13
DENY, ALLOW = 2, 3
OK = ErrorCode.NONE
INVALID = ErrorCode.INVALID_REQUEST
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def creation(
    name: str = "t",
    *,
    kind: int = TOPIC,
    pattern: int = LITERAL,
    principal: str = "User:a",
    host: str = "*",
    operation: int = READ,
    permission: int = ALLOW,
) -> m.CreateAclsRequestCreation:
    return m.CreateAclsRequestCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def create(wire: Wire, *creations: m.CreateAclsRequestCreation, version: int = 3) -> list[int]:
    request = m.CreateAclsRequest(creations=list(creations))
    found = wire.ask(request, version, m.CreateAclsResponse)
    assert all(bool(each.error_message) == bool(each.error_code) for each in found.results)
    return [each.error_code for each in found.results]


def describe(
    wire: Wire,
    *,
    kind: int = ANY,
    name: str | None = None,
    pattern: int = ANY,
    principal: str | None = None,
    host: str | None = None,
    operation: int = ANY,
    permission: int = ANY,
    version: int = 3,
) -> m.DescribeAclsResponse:
    request = m.DescribeAclsRequest(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter=host,
        operation=operation,
        permission_type=permission,
    )
    return wire.ask(request, version, m.DescribeAclsResponse)


def names(found: m.DescribeAclsResponse) -> list[tuple[str, int]]:
    assert found.error_code == 0
    return [(each.resource_name, each.pattern_type) for each in found.resources]


def delete(
    wire: Wire, *filters: m.DeleteAclsRequestFilter, version: int = 3
) -> list[tuple[int, list[str]]]:
    request = m.DeleteAclsRequest(filters=list(filters))
    found = wire.ask(request, version, m.DeleteAclsResponse)
    return [
        (each.error_code, [acl.resource_name for acl in each.matching_acls])
        for each in found.filter_results
    ]


def deletion(
    name: str | None = None, pattern: int = ANY, *, kind: int = ANY, operation: int = ANY
) -> m.DeleteAclsRequestFilter:
    return m.DeleteAclsRequestFilter(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=operation,
        permission_type=ANY,
    )


def known(wire: Wire) -> list[Rule]:
    return list(wire.world.broker.image.rules)


@pytest.mark.parametrize("version", ends(ApiKey.CREATE_ACLS))
def test_rule_is_created_and_described(wire: Wire, version: int) -> None:
    given = creation(pattern=PREFIXED, host="10.0.0.1", operation=WRITE, permission=DENY)
    assert create(wire, given, version=version) == [OK]
    assert known(wire) == [
        Rule(
            "User:a",
            "10.0.0.1",
            Operation.WRITE,
            Permission.DENY,
            Resource.TOPIC,
            Pattern.PREFIXED,
            "t",
        )
    ]
    found = describe(wire, version=version)
    (resource,) = found.resources
    assert found.error_message is None
    assert (resource.resource_type, resource.resource_name) == (TOPIC, "t")
    assert resource.pattern_type == PREFIXED
    (acl,) = resource.acls
    assert (acl.principal, acl.host, acl.operation, acl.permission_type) == (
        "User:a",
        "10.0.0.1",
        WRITE,
        DENY,
    )


def test_rule_that_exists_is_created_without_effect(wire: Wire) -> None:
    assert create(wire, creation(), creation()) == [OK, OK]
    assert create(wire, creation(), creation("u")) == [OK, OK]
    assert [each.name for each in known(wire)] == ["t", "u"]


def test_rules_are_described_by_resource(wire: Wire) -> None:
    create(
        wire,
        creation(),
        creation(pattern=PREFIXED),
        creation(kind=GROUP),
        creation(principal="User:b"),
        creation("*", operation=ALL),
        creation(CLUSTER_NAME, kind=CLUSTER),
        creation(kind=TRANSACTIONAL_ID),
        creation("User:c", kind=USER),
    )
    found = describe(wire)
    assert [(r.resource_type, r.resource_name, r.pattern_type) for r in found.resources] == [
        (TOPIC, "t", LITERAL),
        (TOPIC, "t", PREFIXED),
        (GROUP, "t", LITERAL),
        (TOPIC, "*", LITERAL),
        (CLUSTER, CLUSTER_NAME, LITERAL),
        (TRANSACTIONAL_ID, "t", LITERAL),
        (USER, "User:c", LITERAL),
    ]
    assert [acl.principal for acl in found.resources[0].acls] == ["User:a", "User:b"]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (creation(kind=ANY), INVALID),
        (creation(kind=0), INVALID),
        (creation(kind=TOKEN), INVALID),
        (creation(kind=99), INVALID),
        (creation(pattern=ANY), INVALID),
        (creation(pattern=MATCH), INVALID),
        (creation(pattern=0), INVALID),
        (creation(operation=ANY), INVALID),
        (creation(operation=0), INVALID),
        (creation(operation=CREATE_TOKENS), INVALID),
        (creation(permission=ANY), INVALID),
        (creation(permission=0), INVALID),
        (creation(""), INVALID),
        (creation(principal="a"), INVALID),
        (creation(principal=""), INVALID),
        (creation("other", kind=CLUSTER), INVALID),
        (creation("x" * 1025), INVALID),
    ],
)
def test_wrong_creation_is_refused_and_others_are_made(
    wire: Wire, wrong: m.CreateAclsRequestCreation, code: int
) -> None:
    assert create(wire, creation("1"), wrong, creation("2")) == [OK, code, OK]
    assert [each.name for each in known(wire)] == ["1", "2"]


def test_rules_of_other_protocols_resources_are_hidden_and_kept(wire: Wire) -> None:
    capture = Rule(
        "User:a",
        "*",
        Operation.ALTER,
        Permission.ALLOW,
        Resource.CAPTURE,
        Pattern.LITERAL,
        "orders",
    )
    start(wire.world.broker.access.rules.add([capture], Actor(Caller(), "http")))
    wire.world.settle()
    create(wire, creation())
    assert names(describe(wire)) == [("t", LITERAL)]
    assert delete(wire, deletion()) == [(OK, ["t"])]
    assert known(wire) == [capture]


FOUND: Sequence[tuple[dict[str, object], list[tuple[str, int]]]] = [
    ({}, [("ab", LITERAL), ("a", PREFIXED), ("*", LITERAL), ("abc", PREFIXED)]),
    ({"kind": GROUP}, []),
    ({"kind": TOKEN}, []),
    ({"operation": CREATE_TOKENS}, []),
    ({"name": "ab"}, [("ab", LITERAL)]),
    ({"name": "ab", "pattern": PREFIXED}, []),
    ({"name": "ab", "pattern": MATCH}, [("ab", LITERAL), ("a", PREFIXED), ("*", LITERAL)]),
    ({"pattern": MATCH, "name": "abcd"}, [("a", PREFIXED), ("*", LITERAL), ("abc", PREFIXED)]),
    ({"pattern": PREFIXED}, [("a", PREFIXED), ("abc", PREFIXED)]),
    ({"name": "*", "pattern": LITERAL}, [("*", LITERAL)]),
    ({"principal": "User:b"}, [("*", LITERAL)]),
    ({"principal": "b"}, []),
    ({"host": "10.0.0.1"}, [("abc", PREFIXED)]),
    ({"permission": DENY}, [("a", PREFIXED)]),
    ({"operation": WRITE}, [("ab", LITERAL)]),
    ({"operation": ALL}, []),
]


@pytest.mark.parametrize(("wanted", "found"), FOUND)
def test_filters_find_as_in_kafka(
    wire: Wire, wanted: dict[str, object], found: list[tuple[str, int]]
) -> None:
    create(
        wire,
        creation("ab", operation=WRITE),
        creation("a", pattern=PREFIXED, permission=DENY),
        creation("*", principal="User:b"),
        creation("abc", pattern=PREFIXED, host="10.0.0.1"),
    )
    assert names(describe(wire, **wanted)) == found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "unknown", [{"kind": 0}, {"kind": 8}, {"pattern": 0}, {"operation": 16}, {"permission": 0}]
)
def test_number_without_a_meaning_in_a_filter_is_refused(
    wire: Wire, unknown: dict[str, int]
) -> None:
    create(wire, creation())
    found = describe(wire, **unknown)  # type: ignore[arg-type]
    assert (found.error_code, found.resources) == (INVALID, [])
    assert found.error_message


@pytest.mark.parametrize("version", ends(ApiKey.DELETE_ACLS))
def test_rules_are_deleted_by_filters(wire: Wire, version: int) -> None:
    create(wire, creation("ab"), creation("a", pattern=PREFIXED), creation("c"))
    assert delete(
        wire,
        deletion("ab", MATCH),
        deletion("ab", LITERAL),
        deletion(kind=0),
        deletion("none"),
        version=version,
    ) == [(OK, ["ab", "a"]), (OK, ["ab"]), (INVALID, []), (OK, [])]
    assert [each.name for each in known(wire)] == ["c"]
    assert delete(wire, deletion(), version=version) == [(OK, ["c"])]
    assert delete(wire, deletion(), version=version) == [(OK, [])]
    assert delete(wire, version=version) == []


def test_rights_on_the_cluster_are_needed() -> None:
    wire = forbidden(Resource.CLUSTER, Operation.DESCRIBE, Operation.ALTER)
    found = describe(wire)
    assert (found.error_code, found.resources) == (REFUSED, [])
    assert create(wire, creation(), creation("")) == [REFUSED, REFUSED]
    assert delete(wire, deletion(), deletion(kind=0)) == [(REFUSED, []), (REFUSED, [])]
    assert not known(wire)


def test_too_many_rules_are_refused(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_rules, "ACCESS_RULES_MAX", 1)
    assert create(wire, creation("1")) == [OK]
    violation = ErrorCode.POLICY_VIOLATION
    assert create(wire, creation("2"), creation(""), creation("3")) == [
        violation,
        INVALID,
        violation,
    ]
    assert [each.name for each in known(wire)] == ["1"]


def test_ten_thousand_rules_are_created_described_and_deleted(world: World) -> None:
    wire = Wire(world)
    many = [creation(f"topic-{number}") for number in range(10_000)]
    assert set(create(wire, *many)) == {OK}
    assert len(describe(wire).resources) == 10_000
    ((code, gone),) = delete(wire, deletion(kind=TOPIC))
    assert (code, len(gone)) == (OK, 10_000)
    assert not known(wire)
