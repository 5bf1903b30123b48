"""Goal: rules, users and the mode change as their administrators ask, within bounds.

Method: a broker on virtual time; its audit log is read back.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Coroutine
from typing import TypeVar

import msgspec
import pytest

from dragoman import limits
from dragoman.broker import access_rules, users
from dragoman.broker.access import AccessControl
from dragoman.broker.administration import Actor
from dragoman.broker.errors import (
    ClusterNotAuthorized,
    InvalidRule,
    InvalidUser,
    Overloaded,
    SecurityModeRefused,
    TooManyRules,
    UnknownUser,
    UserExists,
)
from dragoman.cluster.codec import encode_image, restore_image
from dragoman.cluster.events import LEVEL_IN_FORCE, LoginSecretSet
from dragoman.cluster.metadata import MetadataImage
from dragoman.config.settings import Settings
from dragoman.errors import ClusterError, DragomanError
from dragoman.outcome import start
from dragoman.security.access import (
    ANONYMOUS,
    CLUSTER_NAME,
    Caller,
    Operation,
    Principal,
    Resource,
)
from dragoman.security.audit import AuditEvent, denial
from dragoman.security.authorizer import ENFORCE, OPEN, OPERATOR_KIND
from dragoman.security.passwords import Mechanism, unknown_users_verifier
from dragoman.security.rule_filter import PatternFilter, RuleFilter
from dragoman.security.rules import EVERY, Pattern, Permission, Rule
from dragoman.security.users import ScramVerifier
from worlds.broker import World

Result = TypeVar("Result")
OPERATOR = Actor(Caller(Principal(OPERATOR_KIND, "local"), is_proven=True), "http")
ALICE = Actor(Caller(Principal("User", "alice"), "10.0.0.1", is_proven=True), "kafka")
VERIFIERS = {
    "SCRAM-SHA-256": ScramVerifier(b"salt", 4096, bytes(32), bytes(32)),
    "SCRAM-SHA-512": ScramVerifier(b"salt", 4096, bytes(64), bytes(64)),
}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def access(world: World) -> AccessControl:
    return world.broker.access


def run(world: World, work: Coroutine[object, None, Result]) -> Result:
    """The result, or the error that is raised."""
    results: list[Result | DragomanError] = []
    start(work).then(results.append)
    world.settle()
    assert len(results) == 1
    if isinstance(results[0], DragomanError):
        raise results[0]
    return results[0]


def rule(
    name: str = "t",
    *,
    principal: str = "User:alice",
    host: str = EVERY,
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
    resource: Resource = Resource.TOPIC,
    pattern: Pattern = Pattern.LITERAL,
) -> Rule:
    return Rule(principal, host, operation, permission, resource, pattern, name)


def administers(principal: str = "User:alice", permission: Permission = Permission.ALLOW) -> Rule:
    return rule(
        CLUSTER_NAME,
        principal=principal,
        operation=Operation.ALTER,
        permission=permission,
        resource=Resource.CLUSTER,
    )


@pytest.fixture
def audited(world: World, monkeypatch: pytest.MonkeyPatch) -> list[AuditEvent]:
    events: list[AuditEvent] = []
    monkeypatch.setattr(world.broker.audit, "record", events.append)
    return events


def alter(
    world: World, name: str, altered: dict[str, ScramVerifier | None] | dict[str, ScramVerifier]
) -> None:
    """Alter the verifiers of one user; the error is raised."""
    errors = run(world, world.broker.access.users.alter_verifiers({name: altered}, OPERATOR))
    if errors:
        raise errors[name]


# ---- rules


def test_rules_are_added_once_and_removed(world: World, access: AccessControl) -> None:
    run(world, access.rules.add([rule(), rule("u"), rule()], OPERATOR))
    run(world, access.rules.add([rule("u")], OPERATOR))
    assert list(world.broker.image.rules) == [rule(), rule("u")]
    removed = run(world, access.rules.remove([RuleFilter(name="t"), RuleFilter()], OPERATOR))
    assert removed == [[rule()], [rule(), rule("u")]]
    assert not world.broker.image.rules
    assert run(world, access.rules.remove([RuleFilter()], OPERATOR)) == [[]]


def test_rules_change_no_mode(world: World, access: AccessControl) -> None:
    run(world, access.rules.add([administers()], OPERATOR))
    run(world, access.users.create("alice", VERIFIERS, OPERATOR))
    assert access.mode == OPEN


RULES = [
    rule("ab"),
    rule("a", pattern=Pattern.PREFIXED),
    rule("abc", pattern=Pattern.PREFIXED),
    rule(EVERY),
    rule("ab", resource=Resource.GROUP),
    rule("ab", principal="User:bob", permission=Permission.DENY),
]


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (None, None, RULES),
        (None, "ab", [RULES[0], RULES[4], RULES[5]]),
        ("literal", None, [RULES[0], *RULES[3:]]),
        ("literal", EVERY, [RULES[3]]),
        ("prefixed", None, RULES[1:3]),
        ("prefixed", "abc", [RULES[2]]),
        ("match", "ab", [RULES[0], RULES[1], *RULES[3:]]),
        ("match", "abcd", [*RULES[1:4]]),
        ("match", None, RULES),
        ("match", "", [RULES[3]]),
    ],
)
def test_filters_accept_by_pattern(
    world: World,
    access: AccessControl,
    pattern: PatternFilter | None,
    name: str | None,
    found: list[Rule],
) -> None:
    run(world, access.rules.add(RULES, OPERATOR))
    wanted = RuleFilter(pattern=pattern, name=name)
    assert run(world, access.rules.find(wanted)) == found


def test_filters_accept_by_every_field(world: World, access: AccessControl) -> None:
    run(world, access.rules.add(RULES, OPERATOR))
    groups = RuleFilter(resources=frozenset([Resource.GROUP]))
    assert run(world, access.rules.find(groups)) == [RULES[4]]
    for wanted in (
        RuleFilter(principal="User:bob"),
        RuleFilter(permission=Permission.DENY),
    ):
        assert run(world, access.rules.find(wanted)) == [RULES[5]]
    for wanted in (RuleFilter(host="10.0.0.1"), RuleFilter(operation=Operation.WRITE)):
        assert run(world, access.rules.find(wanted)) == []


def test_filter_with_all_values_finds_its_rule(world: World, access: AccessControl) -> None:
    run(world, access.rules.add(RULES, OPERATOR))
    for each in RULES:
        exact = RuleFilter(
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission=each.permission,
            resources=frozenset([each.resource]),
            pattern=each.pattern.value,
            name=each.name,
        )
        assert run(world, access.rules.find(exact)) == [each]
    assert run(world, access.rules.find(msgspec.structs.replace(exact, host="10.0.0.1"))) == []


@pytest.mark.parametrize(
    "wrong",
    [
        rule(""),
        rule(principal="alice"),
        rule(principal="User:"),
        rule(principal=":alice"),
        rule(host=""),
        rule("other", resource=Resource.CLUSTER),
        rule("é" * (limits.ACCESS_RULE_TEXT_BYTES_MAX // 2 + 1)),
        rule("\ud800"),
        rule(principal="User:\udfff"),
    ],
)
def test_rule_that_cannot_be_is_refused_with_all_others(
    world: World, access: AccessControl, wrong: Rule
) -> None:
    with pytest.raises(InvalidRule):
        run(world, access.rules.add([rule(), wrong], OPERATOR))
    assert not world.broker.image.rules


def test_number_of_rules_is_bounded(
    world: World, access: AccessControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_rules, "ACCESS_RULES_MAX", 3)
    monkeypatch.setattr(access_rules, "ACCESS_RULES_PER_REQUEST_MAX", 4)
    monkeypatch.setattr(access_rules, "ACCESS_RULES_PER_CHANGE", 2)
    run(world, access.rules.add([rule("1"), rule("2"), rule("3")], OPERATOR))
    run(world, access.rules.add([rule("1")], OPERATOR))
    with pytest.raises(TooManyRules):
        run(world, access.rules.add([rule("4")], OPERATOR))
    with pytest.raises(TooManyRules, match="at most 4"):
        run(world, access.rules.add([rule("1")] * 5, OPERATOR))
    with pytest.raises(TooManyRules, match="overlap"):
        run(world, access.rules.remove([RuleFilter(), RuleFilter()], OPERATOR))
    assert len(world.broker.image.rules) == 3
    assert run(world, access.rules.remove([RuleFilter()], OPERATOR)) == [
        [rule("1"), rule("2"), rule("3")]
    ]
    assert not world.broker.image.rules


def test_ten_thousand_rules_come_and_go(
    world: World, access: AccessControl, audited: list[AuditEvent]
) -> None:
    many = [rule(f"topic-{number}") for number in range(limits.ACCESS_RULES_PER_REQUEST_MAX)]
    run(world, access.rules.add(many, OPERATOR))
    assert list(world.broker.image.rules) == many
    (found,) = run(world, access.rules.remove([RuleFilter(pattern="literal")], OPERATOR))
    assert found == many
    assert not world.broker.image.rules
    # Each of the first ones, and the number of the others.
    assert audited[-1].detail == "9900 further ones"
    assert len(audited) == 2 * (limits.ADMINISTRATION_DETAILS_MAX + 1)


def test_long_rules_take_several_changes(world: World, access: AccessControl) -> None:
    long = "x" * (limits.ACCESS_RULE_TEXT_BYTES_MAX - 4)
    many = [rule(f"{number:04}{long}") for number in range(500)]
    before = world.broker.image.rules_revision
    run(world, access.rules.add(many, OPERATOR))
    assert list(world.broker.image.rules) == many
    changes = world.broker.image.rules_revision - before
    assert changes == -(-500 // (limits.ACCESS_RULES_CHARS_PER_CHANGE // (len(long) + 15)))


# ---- users


def test_user_is_created_changed_and_deleted(world: World, access: AccessControl) -> None:
    run(world, access.users.create("alice", VERIFIERS, OPERATOR))
    first = access.users.find("alice")
    assert first.is_enabled
    assert first.scram == VERIFIERS
    run(world, access.users.enable("alice", OPERATOR, is_enabled=False))
    assert not access.users.find("alice").is_enabled
    run(world, access.users.enable("alice", OPERATOR, is_enabled=True))
    run(world, access.users.set_password("alice", {}, OPERATOR))
    assert access.users.find("alice") == msgspec.structs.replace(first, scram={})
    run(world, access.users.delete("alice", OPERATOR))
    run(world, access.users.create("alice", VERIFIERS, OPERATOR))
    assert access.users.find("alice").incarnation != first.incarnation


def test_names_of_users_are_unique(world: World, access: AccessControl) -> None:
    run(world, access.users.create("alice", VERIFIERS, OPERATOR))
    with pytest.raises(UserExists):
        run(world, access.users.create("alice", VERIFIERS, OPERATOR))


@pytest.mark.parametrize("name", ["alice", "Ärger", "CN=a,OU=b", "a:b", "a b", "日本"])
def test_name_of_a_user_may_be(name: str) -> None:
    users.check_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "*",
        "ANONYMOUS",
        " a",
        "a\n",
        "a\0b",
        "\u200b",
        "e\u0301",
        "ﬁ",
        "\ud800",
        "é" * 128,
        "a\u202eb",
        "😀",
    ],
)
def test_name_of_a_user_is_refused(world: World, access: AccessControl, name: str) -> None:
    with pytest.raises(InvalidUser):
        run(world, access.users.create(name, VERIFIERS, OPERATOR))
    with pytest.raises(InvalidUser):
        alter(world, name, VERIFIERS)


@pytest.mark.parametrize(
    "verifier",
    [
        ScramVerifier(b"salt", 4095, bytes(32), bytes(32)),
        ScramVerifier(b"salt", 16385, bytes(32), bytes(32)),
        ScramVerifier(b"", 4096, bytes(32), bytes(32)),
        ScramVerifier(bytes(1025), 4096, bytes(32), bytes(32)),
        ScramVerifier(b"salt", 4096, bytes(64), bytes(32)),
        ScramVerifier(b"salt", 4096, bytes(32), b""),
    ],
)
def test_verifier_that_cannot_be_is_refused(
    world: World, access: AccessControl, verifier: ScramVerifier
) -> None:
    with pytest.raises(InvalidUser):
        run(world, access.users.create("alice", {"SCRAM-SHA-256": verifier}, OPERATOR))


def test_change_of_an_unknown_user_is_refused(world: World, access: AccessControl) -> None:
    for work in (
        access.users.delete("bob", OPERATOR),
        access.users.enable("bob", OPERATOR, is_enabled=True),
        access.users.set_password("bob", VERIFIERS, OPERATOR),
        access.users.create_token("bob", OPERATOR),
        access.users.revoke_token("bob", "1", OPERATOR),
        access.users.set_signing_secret("bob", "secret", OPERATOR),
    ):
        with pytest.raises(UnknownUser):
            run(world, work)


def test_verifiers_make_and_remove_a_user(world: World, access: AccessControl) -> None:
    sha_256, sha_512 = VERIFIERS
    alter(world, "bob", {sha_256: VERIFIERS[sha_256]})
    assert list(access.users.find("bob").scram) == [sha_256]
    with pytest.raises(UnknownUser):
        alter(world, "bob", {sha_512: None})
    change = {sha_512: VERIFIERS[sha_512], sha_256: None}
    alter(world, "bob", change)
    assert list(access.users.find("bob").scram) == [sha_512]
    alter(world, "bob", {sha_512: None})
    assert not access.users.known


def test_verifiers_of_many_users_are_altered_together(
    world: World,
    access: AccessControl,
    audited: list[AuditEvent],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(users, "USERS_PER_CHANGE", 3)
    monkeypatch.setattr(users, "USERS_MAX", 6)
    wanted: dict[str, users.AlteredVerifiers] = {f"u{number}": VERIFIERS for number in range(8)}
    wanted["*"] = VERIFIERS
    wanted["u9"] = dict.fromkeys(VERIFIERS)
    errors = run(world, access.users.alter_verifiers(wanted, OPERATOR))
    assert {name: type(error) for name, error in errors.items()} == {
        "u6": Overloaded,
        "u7": Overloaded,
        "*": InvalidUser,
        "u9": UnknownUser,
    }
    assert sorted(access.users.known) == [f"u{number}" for number in range(6)]
    assert [each.result for each in audited].count("failed") == 4
    assert len(audited) == 10


def test_user_with_a_token_outlives_its_verifiers(world: World, access: AccessControl) -> None:
    run(world, access.users.create("bob", VERIFIERS, OPERATOR))
    run(world, access.users.create_token("bob", OPERATOR))
    alter(world, "bob", dict.fromkeys(VERIFIERS))
    assert access.users.find("bob").scram == {}


def test_number_of_users_is_bounded(
    world: World, access: AccessControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "USERS_MAX", 1)
    run(world, access.users.create("a", VERIFIERS, OPERATOR))
    with pytest.raises(Overloaded):
        run(world, access.users.create("b", VERIFIERS, OPERATOR))
    alter(world, "a", VERIFIERS)
    with pytest.raises(Overloaded):
        alter(world, "b", VERIFIERS)


def test_token_logs_in_until_it_is_revoked(world: World, access: AccessControl) -> None:
    run(world, access.users.create("bob", {}, OPERATOR))
    token, text = run(world, access.users.create_token("bob", OPERATOR, label="ci"))
    assert token.digest == hashlib.sha256(text.encode()).digest()
    assert world.broker.logins.token(text, "").caller.name == "bob"
    assert text not in str(access.users.find("bob"))
    other, _ = run(world, access.users.create_token("bob", OPERATOR, is_read_only=True))
    run(world, access.users.revoke_token("bob", token.token_id, OPERATOR))
    assert access.users.find("bob").tokens == (other,)
    with pytest.raises(DragomanError):
        world.broker.logins.token(text, "")
    with pytest.raises(UnknownUser):
        run(world, access.users.revoke_token("bob", token.token_id, OPERATOR))


def test_expired_tokens_make_room(
    world: World, access: AccessControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "TOKENS_PER_USER_MAX", 1)
    run(world, access.users.create("bob", {}, OPERATOR))
    token, _ = run(world, access.users.create_token("bob", OPERATOR, lifetime_ms=1000))
    assert token.expires_ms == token.created_ms + 1000
    with pytest.raises(Overloaded):
        run(world, access.users.create_token("bob", OPERATOR))
    world.advance(2.0)
    run(world, access.users.create_token("bob", OPERATOR))
    with pytest.raises(InvalidUser):
        run(world, access.users.create_token("bob", OPERATOR, label="x" * 256))


def test_signing_secret_is_sealed_with_the_cluster_key(world: World, access: AccessControl) -> None:
    run(world, access.users.create("bob", {}, OPERATOR))
    with pytest.raises(InvalidUser):
        run(world, access.users.set_signing_secret("bob", "", OPERATOR))
    run(world, access.users.set_signing_secret("bob", "s3cret", OPERATOR))
    assert world.broker.logins.signing_secret("bob") == b"s3cret"
    run(world, access.users.set_signing_secret("bob", None, OPERATOR))
    assert world.broker.logins.signing_secret("bob") is None


# ---- the mode


def test_mode_is_changed_by_an_administrator_by_the_rules(
    world: World, access: AccessControl
) -> None:
    run(world, access.rules.add([administers()], OPERATOR))
    run(world, access.change_mode("audit", ALICE))
    run(world, access.change_mode("enforce", ALICE))
    assert access.mode == ENFORCE
    run(world, access.change_mode("enforce", ALICE))
    run(world, access.change_mode("open", ALICE))
    assert access.mode == OPEN


@pytest.mark.parametrize("mode", ["open", "audit", "enforce"])
def test_mode_is_not_changed_by_others(world: World, access: AccessControl, mode: str) -> None:
    run(world, access.rules.add([administers("User:bob")], OPERATOR))
    for caller in (ALICE, Actor(Caller(ANONYMOUS), "http")):
        with pytest.raises(ClusterNotAuthorized):
            run(world, access.change_mode(mode, caller))  # type: ignore[arg-type]
    assert access.mode == OPEN


@pytest.mark.parametrize("principal", [ANONYMOUS, ALICE.caller.principal])
def test_caller_without_a_credential_never_changes_the_mode(principal: Principal) -> None:
    # A network may have named the caller; being a super user changes nothing.
    world = World(Settings(super_users="User:alice"))
    access = world.broker.access
    run(world, access.rules.add([administers("User:*")], OPERATOR))
    with pytest.raises(ClusterNotAuthorized, match="log in"):
        run(world, access.change_mode("audit", Actor(Caller(principal, "10.0.0.1"), "http")))
    run(world, access.change_mode("audit", ALICE))


def test_enforcing_needs_an_administrator(world: World, access: AccessControl) -> None:
    run(world, access.change_mode("audit", OPERATOR))
    with pytest.raises(SecurityModeRefused):
        run(world, access.change_mode("enforce", OPERATOR))
    denied = administers("User:alice", Permission.DENY)
    other = administers("Group:alice")
    run(world, access.rules.add([administers(), denied, other], OPERATOR))
    with pytest.raises(SecurityModeRefused):
        run(world, access.change_mode("enforce", OPERATOR))
    run(world, access.rules.add([administers("User:bob")], OPERATOR))
    run(world, access.change_mode("enforce", OPERATOR))


def test_super_user_is_administrator_without_a_rule() -> None:
    world = World(Settings(super_users="User:alice"))
    run(world, world.broker.access.change_mode("enforce", ALICE))
    assert world.broker.access.mode == ENFORCE
    assert world.broker.authorizer.is_allowed(ALICE.caller, Operation.DELETE, Resource.TOPIC, "any")


# ---- the audit log


def test_every_act_is_audited_with_its_result(
    world: World, access: AccessControl, audited: list[AuditEvent]
) -> None:
    run(world, access.rules.add([rule()], ALICE))
    run(world, access.rules.remove([RuleFilter()], ALICE))
    run(world, access.users.create("bob", VERIFIERS, ALICE))
    run(world, access.users.create_token("bob", ALICE))
    run(world, access.users.delete("bob", ALICE))
    with pytest.raises(UnknownUser):
        run(world, access.users.delete("bob", ALICE))
    with pytest.raises(ClusterNotAuthorized):
        run(world, access.change_mode("enforce", ALICE))
    assert {each.caller for each in audited} == {ALICE.caller}
    assert [(each.action, each.result, each.resource) for each in audited] == [
        ("acl.add", "succeeded", ""),
        ("acl.remove", "succeeded", ""),
        ("user.create", "succeeded", "user:bob"),
        ("token.create", "succeeded", "user:bob"),
        ("user.delete", "succeeded", "user:bob"),
        ("user.delete", "failed", "user:bob"),
        ("security.mode", "failed", ""),
    ]


def test_denial_is_audited(world: World, access: AccessControl, audited: list[AuditEvent]) -> None:
    run(world, access.rules.add([administers("User:root")], OPERATOR))
    run(world, access.change_mode("enforce", OPERATOR))
    assert not world.broker.authorizer.is_allowed(ALICE.caller, Operation.READ, Resource.TOPIC, "t")
    assert audited[-1] == denial(
        ALICE.caller, Operation.READ, Resource.TOPIC, "t", is_enforced=True
    )


def test_nothing_is_changed_before_all_nodes_know_rules(
    world: World, access: AccessControl
) -> None:
    world.broker.image.features[LEVEL_IN_FORCE] = 4
    for work in (
        access.rules.add([rule()], OPERATOR),
        access.users.create("bob", VERIFIERS, OPERATOR),
        access.change_mode("audit", OPERATOR),
    ):
        with pytest.raises(ClusterError, match="feature level 5"):
            run(world, work)


# ---- restarts


def test_rules_and_users_survive_a_restart(world: World, access: AccessControl) -> None:
    run(world, access.rules.add(RULES, OPERATOR))
    run(world, access.users.create("bob", VERIFIERS, OPERATOR))
    run(world, access.rules.add([administers("User:root")], OPERATOR))
    run(world, access.change_mode("enforce", OPERATOR))
    again = world.reopened(kill=True)
    assert list(again.broker.image.rules) == [*RULES, administers("User:root")]
    assert again.broker.access.users.find("bob").scram == VERIFIERS
    assert again.broker.access.mode == ENFORCE
    alice = Caller(Principal("User", "alice"))
    assert again.broker.authorizer.is_allowed(alice, Operation.READ, Resource.TOPIC, "ab")
    assert not again.broker.authorizer.is_allowed(alice, Operation.WRITE, Resource.TOPIC, "ab")


# ---- unknown users


def test_first_user_brings_a_login_secret_that_stays(world: World, access: AccessControl) -> None:
    assert not world.broker.image.login_secret
    run(world, access.users.create("alice", VERIFIERS, OPERATOR))
    secret = world.broker.image.login_secret
    assert len(secret) == limits.LOGIN_SECRET_BYTES
    run(world, access.users.create("bob", VERIFIERS, OPERATOR))
    run(world, access.users.delete("alice", OPERATOR))
    alter(world, "carol", {"SCRAM-SHA-256": VERIFIERS["SCRAM-SHA-256"]})
    assert world.broker.image.login_secret == secret
    restored = MetadataImage()
    restore_image(restored, encode_image(world.broker.image, 1))
    assert restored.login_secret == secret


def test_first_user_of_a_kafka_client_brings_a_login_secret(world: World) -> None:
    alter(world, "alice", {"SCRAM-SHA-256": VERIFIERS["SCRAM-SHA-256"]})
    assert world.broker.image.login_secret


def test_clients_cannot_compute_the_salts_of_unknown_users(
    world: World, access: AccessControl
) -> None:
    run(world, access.users.create("alice", VERIFIERS, OPERATOR))
    server = world.broker.logins.scram_server(Mechanism.SHA_256, "10.0.0.1")
    answer = run(world, server.receive(b"n,,n=bob,r=nonce")).decode()
    image = world.broker.image
    for public in (b"", image.cluster_id.encode()):
        guess = unknown_users_verifier(Mechanism.SHA_256, "bob", public).salt
        assert base64.b64encode(guess).decode() not in answer
    made = unknown_users_verifier(Mechanism.SHA_256, "bob", image.login_secret).salt
    assert base64.b64encode(made).decode() in answer


def test_login_secret_is_in_no_text() -> None:
    event = LoginSecretSet(secret=b"not to be shown")
    assert "shown" not in f"{event} {event!r}"
