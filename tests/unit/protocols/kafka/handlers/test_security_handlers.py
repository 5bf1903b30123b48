"""Goal: a node without security says so, in the form each request has for it."""

from __future__ import annotations

import pytest

from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from worlds.broker import Wire
from worlds.kafka_admin import ends

DISABLED = ErrorCode.SECURITY_DISABLED


@pytest.mark.parametrize("version", ends(ApiKey.DESCRIBE_ACLS))
def test_there_are_no_rules_to_describe(wire: Wire, version: int) -> None:
    request = m.DescribeAclsRequest(resource_name_filter=None, principal_filter=None)
    found = wire.ask(request, version, m.DescribeAclsResponse)
    assert (found.error_code, found.resources) == (DISABLED, [])
    assert found.error_message


@pytest.mark.parametrize("version", ends(ApiKey.CREATE_ACLS))
@pytest.mark.parametrize("count", [0, 3])
def test_no_rule_can_be_created(wire: Wire, version: int, count: int) -> None:
    request = m.CreateAclsRequest(creations=[m.CreateAclsRequestCreation()] * count)
    found = wire.ask(request, version, m.CreateAclsResponse)
    assert [each.error_code for each in found.results] == [DISABLED] * count


@pytest.mark.parametrize("version", ends(ApiKey.DELETE_ACLS))
@pytest.mark.parametrize("count", [0, 3])
def test_no_rule_can_be_deleted(wire: Wire, version: int, count: int) -> None:
    request = m.DeleteAclsRequest(filters=[m.DeleteAclsRequestFilter()] * count)
    found = wire.ask(request, version, m.DeleteAclsResponse)
    assert [(r.error_code, r.matching_acls) for r in found.filter_results] == [
        (DISABLED, [])
    ] * count


def users(wire: Wire, *names: str) -> list[tuple[str, int]]:
    asked = [m.DescribeUserScramCredentialsRequestUser(name=name) for name in names]
    request = m.DescribeUserScramCredentialsRequest(users=asked or None)
    found = wire.ask(request, 0, m.DescribeUserScramCredentialsResponse)
    assert found.error_code == 0
    return [(each.user, each.error_code) for each in found.results]


def test_there_are_no_users(wire: Wire) -> None:
    assert users(wire) == []
    assert users(wire, "a", "b", "b") == [
        ("a", ErrorCode.RESOURCE_NOT_FOUND),
        ("b", ErrorCode.DUPLICATE_RESOURCE),
    ]


ALTERATION = m.AlterUserScramCredentialsRequest(
    deletions=[m.AlterUserScramCredentialsRequestDeletion(name="gone", mechanism=1)],
    upsertions=[m.AlterUserScramCredentialsRequestUpsertion(name="new", mechanism=1)],
)


@pytest.mark.parametrize("excess", [b"", b"\0"])
def test_no_user_can_be_made(wire: Wire, excess: bytes) -> None:
    """With the byte too many that librdkafka sends, too."""
    frame = codec.join(codec.encode_request(ALTERATION, 0, 1, "raw"))
    size = len(frame) - 4 + len(excess)
    wire.feed(size.to_bytes(4, "big") + frame[4:] + excess)
    wire.world.settle()
    reply = bytes(wire.transport.sent[4:])
    found = codec.decode_response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, reply, 5)
    assert isinstance(found, m.AlterUserScramCredentialsResponse)
    assert [(each.user, each.error_code) for each in found.results] == [
        ("gone", ErrorCode.RESOURCE_NOT_FOUND),
        ("new", DISABLED),
    ]
