"""Goal: Kafka's clients make users, change their SCRAM credentials and list them, as with Kafka."""

from __future__ import annotations

import hashlib

import pytest

from dragoman.broker.administration import Actor
from dragoman.errors import AuthenticationFailedError, DragomanError
from dragoman.outcome import start
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Caller, Operation, Resource
from worlds.broker import Wire
from worlds.kafka_admin import forbidden

SHA_256, SHA_512 = 1, 2
OK = ErrorCode.NONE
UNKNOWN = ErrorCode.RESOURCE_NOT_FOUND
DUPLICATE = ErrorCode.DUPLICATE_RESOURCE
UNACCEPTABLE = ErrorCode.UNACCEPTABLE_CREDENTIAL
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

Deletion = m.AlterUserScramCredentialsRequestDeletion
Upsertion = m.AlterUserScramCredentialsRequestUpsertion


def upsertion(
    name: str = "ann", mechanism: int = SHA_256, iterations: int = 4096, password: str = "secret"
) -> Upsertion:
    digest = {SHA_256: "sha256", SHA_512: "sha512"}.get(mechanism, "sha1")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), b"salt", max(iterations, 1))
    return Upsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=salted,
    )


def deletion(name: str = "ann", mechanism: int = SHA_256) -> Deletion:
    return Deletion(name=name, mechanism=mechanism)


def alter(wire: Wire, *changes: Deletion | Upsertion) -> dict[str, int]:
    request = m.AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, Deletion)],
        upsertions=[each for each in changes if isinstance(each, Upsertion)],
    )
    found = wire.ask(request, 0, m.AlterUserScramCredentialsResponse)
    assert all(bool(each.error_message) == bool(each.error_code) for each in found.results)
    codes = {each.user: each.error_code for each in found.results}
    assert len(codes) == len(found.results)
    return codes


def describe(wire: Wire, *names: str) -> dict[str, int | list[tuple[int, int]]]:
    """By user, the error or the mechanisms with their iterations."""
    asked = [m.DescribeUserScramCredentialsRequestUser(name=name) for name in names]
    request = m.DescribeUserScramCredentialsRequest(users=asked or None)
    found = wire.ask(request, 0, m.DescribeUserScramCredentialsResponse)
    assert found.error_code == 0
    return {
        each.user: each.error_code
        or [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in found.results
    }


def can_log_in(wire: Wire, name: str, password: str) -> bool:
    results: list[Caller | DragomanError] = []
    start(wire.world.broker.logins.password(name, password, "10.0.0.1", protocol="kafka")).then(
        results.append
    )
    wire.world.advance(60.0)
    (result,) = results
    assert isinstance(result, Caller | AuthenticationFailedError)
    return isinstance(result, Caller)


def test_user_is_made_and_logs_in(wire: Wire) -> None:
    assert alter(wire, upsertion()) == {"ann": OK}
    assert describe(wire) == {"ann": [(SHA_256, 4096)]}
    assert can_log_in(wire, "ann", "secret")
    assert not can_log_in(wire, "ann", "other")
    assert alter(wire, upsertion(password="other")) == {"ann": OK}
    assert can_log_in(wire, "ann", "other")
    assert not can_log_in(wire, "ann", "secret")


def test_both_mechanisms_are_altered_in_one_request(wire: Wire) -> None:
    assert alter(wire, upsertion(), upsertion(mechanism=SHA_512, iterations=8192)) == {"ann": OK}
    assert describe(wire, "ann") == {"ann": [(SHA_256, 4096), (SHA_512, 8192)]}
    # One is replaced by the other.
    assert alter(wire, deletion(), upsertion(mechanism=SHA_512)) == {"ann": OK}
    assert describe(wire, "ann") == {"ann": [(SHA_512, 4096)]}
    assert alter(wire, deletion(mechanism=SHA_512)) == {"ann": OK}
    assert describe(wire) == {}
    assert not wire.world.broker.image.users


def test_users_without_a_verifier_are_unknown_to_kafka(wire: Wire) -> None:
    start(wire.world.broker.access.users.create("bob", {}, Actor(Caller(), "http")))
    wire.world.settle()
    assert describe(wire) == {}
    assert describe(wire, "bob") == {"bob": UNKNOWN}
    assert alter(wire, deletion("bob")) == {"bob": UNKNOWN}
    assert "bob" in wire.world.broker.image.users


def test_describing_unknown_and_repeated_users(wire: Wire) -> None:
    alter(wire, upsertion())
    assert describe(wire, "ann", "bob", "cid", "cid") == {
        "ann": [(SHA_256, 4096)],
        "bob": UNKNOWN,
        "cid": DUPLICATE,
    }


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([upsertion("")], UNACCEPTABLE),
        ([deletion("")], UNACCEPTABLE),
        ([upsertion("*")], UNACCEPTABLE),
        ([upsertion(mechanism=0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([upsertion(mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([deletion(mechanism=0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([upsertion(iterations=4095)], UNACCEPTABLE),
        ([upsertion(iterations=16385)], UNACCEPTABLE),
        ([upsertion(iterations=-1)], UNACCEPTABLE),
        ([deletion()], UNKNOWN),
        ([upsertion(), upsertion()], DUPLICATE),
        ([deletion(), deletion()], DUPLICATE),
        ([deletion(), upsertion()], DUPLICATE),
        ([upsertion(), deletion(mechanism=SHA_512)], UNKNOWN),
        (
            [Upsertion(name="ann", mechanism=1, iterations=4096, salt=b"", salted_password=b"x")],
            UNACCEPTABLE,
        ),
    ],
)
def test_wrong_change_of_one_user_is_refused_and_others_are_made(
    wire: Wire, changes: list[Deletion | Upsertion], code: int
) -> None:
    found = alter(wire, *changes, upsertion("bob"))
    (refused,) = {each.name for each in changes}
    assert found == {refused: code, "bob": OK}
    assert list(wire.world.broker.image.users) == ["bob"]


def test_rights_on_the_cluster_are_needed() -> None:
    wire = forbidden(Resource.CLUSTER, Operation.DESCRIBE, Operation.ALTER)
    assert alter(wire, upsertion(), deletion("bob"), upsertion("")) == dict.fromkeys(
        ("ann", "bob", ""), REFUSED
    )
    request = m.DescribeUserScramCredentialsRequest(users=None)
    found = wire.ask(request, 0, m.DescribeUserScramCredentialsResponse)
    assert (found.error_code, found.results) == (REFUSED, [])
    assert found.error_message
    assert not wire.world.broker.image.users


def test_two_thousand_users_are_made_and_removed_in_one_request(wire: Wire) -> None:
    salted = bytes(32)
    made = [
        Upsertion(name=f"u{n}", mechanism=1, iterations=4096, salt=b"s", salted_password=salted)
        for n in range(2000)
    ]
    assert set(alter(wire, *made).values()) == {OK}
    assert len(describe(wire)) == 2000
    assert set(alter(wire, *(deletion(each.name) for each in made)).values()) == {OK}
    assert not wire.world.broker.image.users


@pytest.mark.parametrize("excess", [b"", b"\0"])
def test_byte_too_many_of_librdkafka_is_ignored(wire: Wire, excess: bytes) -> None:
    request = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion()])
    frame = codec.join(codec.encode_request(request, 0, 1, "raw"))
    size = len(frame) - 4 + len(excess)
    wire.feed(size.to_bytes(4, "big") + frame[4:] + excess)
    wire.world.settle()
    reply = bytes(wire.transport.sent[4:])
    found = codec.decode_response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, reply, 5)
    assert isinstance(found, m.AlterUserScramCredentialsResponse)
    assert [(each.user, each.error_code) for each in found.results] == [("ann", OK)]
