"""Goal: the authorizer answers by the rules, in the mode of the cluster."""

from __future__ import annotations

import itertools

import pytest

from dragoman.cluster.codec import encode_image, restore_image
from dragoman.cluster.events import RulesChanged, SecurityModeChanged
from dragoman.cluster.metadata import MetadataImage
from dragoman.limits import ACCESS_DECISIONS_KEPT_MAX
from dragoman.security.access import ANONYMOUS, Caller, Operation, Principal, Resource
from dragoman.security.authorizer import AllowAll, RuleAuthorizer
from dragoman.security.rules import EVERY, Pattern, Permission, Reason, Rule

ALICE = Caller(Principal("User", "alice"), "10.0.0.1")
BOB = Caller(Principal("User", "bob"), "10.0.0.2")
READ_T = (Operation.READ, Resource.TOPIC, "t")


def rule(
    principal: str = "User:alice",
    operation: Operation = Operation.READ,
    name: str = "t",
    *,
    host: str = EVERY,
    permission: Permission = Permission.ALLOW,
    pattern: Pattern = Pattern.LITERAL,
) -> Rule:
    return Rule(principal, host, operation, permission, Resource.TOPIC, pattern, name)


class World:
    def __init__(self, *rules: Rule, mode: str = "enforce", allow_everyone: bool = False) -> None:
        self.image = MetadataImage()
        self.image.apply(SecurityModeChanged(mode=mode))
        self.authorizer = RuleAuthorizer(self.image, ["User:root"], allow_everyone=allow_everyone)
        self.refused: list[tuple[Caller, Operation, Resource, str | None]] = []
        self.authorizer.on_refused = lambda *refused: self.refused.append(refused)
        if rules:
            self.change(*rules)

    def change(self, *added: Rule, removed: tuple[Rule, ...] = ()) -> None:
        self.image.apply(RulesChanged(added=added, removed=removed))
        self.authorizer.rules_changed(added, removed)

    def may(self, caller: Caller, *question: object) -> bool:
        return self.authorizer.is_allowed(caller, *(question or READ_T))  # type: ignore[arg-type]


def test_node_without_rules_allows_everything() -> None:
    for who, what, kind in itertools.product((Caller(ANONYMOUS), ALICE), Operation, Resource):
        assert AllowAll().is_allowed(who, what, kind, "name")


def test_principals_are_values() -> None:
    assert Principal("User", "ANONYMOUS") == ANONYMOUS
    assert hash(Principal("User", "a")) == hash(Principal("User", "a"))
    assert Principal("User", "a") != Principal("Group", "a")


def test_open_mode_allows_what_rules_deny_and_reports_nothing() -> None:
    world = World(rule(permission=Permission.DENY), mode="open")
    assert world.may(ALICE)
    assert world.authorizer.is_allowed_on_any(ALICE, Operation.WRITE, Resource.TOPIC)
    assert not world.refused


def test_audit_mode_allows_and_reports_what_would_be_refused() -> None:
    world = World(rule(), mode="audit")
    assert world.may(ALICE)
    assert not world.refused
    assert world.may(BOB)
    assert world.authorizer.is_allowed_on_any(BOB, Operation.WRITE, Resource.TOPIC)
    assert world.refused == [(BOB, *READ_T), (BOB, Operation.WRITE, Resource.TOPIC, None)]


def test_enforce_mode_refuses_and_reports() -> None:
    world = World(rule())
    assert world.may(ALICE)
    assert not world.may(BOB)
    assert world.refused == [(BOB, *READ_T)]


def test_unknown_mode_of_a_newer_release_enforces() -> None:
    assert not World(rule(), mode="locked").may(BOB)


def test_change_of_the_mode_holds_for_decisions_that_are_kept() -> None:
    world = World(rule())
    assert not world.may(BOB)
    world.image.apply(SecurityModeChanged(mode="open"))
    assert world.may(BOB)
    world.image.apply(SecurityModeChanged(mode="enforce"))
    assert not world.may(BOB)


def test_super_users_nodes_and_the_operator_need_no_rule() -> None:
    world = World(rule("User:*", Operation.ALL, EVERY, permission=Permission.DENY))
    for kind, name in (("User", "root"), ("Node", "1"), ("Operator", "local")):
        caller = Caller(Principal(kind, name))
        assert world.may(caller)
        assert world.authorizer.is_allowed_on_any(caller, Operation.WRITE, Resource.TOPIC)
    assert not world.may(Caller(Principal("Group", "root")))
    assert not world.may(Caller(Principal("User", "Root")))
    decided = world.authorizer.decide(Caller(Principal("User", "root")), *READ_T)
    assert decided.reason is Reason.SUPER_USER


def test_new_and_removed_rules_hold_at_once() -> None:
    world = World()
    assert not world.may(ALICE)
    world.change(rule())
    assert world.may(ALICE)
    world.change(rule(permission=Permission.DENY))
    assert not world.may(ALICE)
    world.change(removed=(rule(permission=Permission.DENY),))
    assert world.may(ALICE)
    world.change(removed=(rule(),))
    assert not world.may(ALICE)


def test_removing_and_adding_a_rule_in_one_change_leaves_it() -> None:
    world = World(rule())
    assert world.may(ALICE)
    world.change(rule(), removed=(rule(),))
    assert world.may(ALICE)


def test_repeated_events_change_nothing() -> None:
    world = World(rule(), rule())
    world.change(rule())
    world.change(removed=(rule(name="other"), rule(), rule()))
    assert not world.may(ALICE)
    world.change(removed=(rule(),))
    assert not world.may(ALICE)


def test_rules_of_a_snapshot_replace_those_before() -> None:
    world = World(rule())
    assert world.may(ALICE)
    other = MetadataImage()
    other.apply(SecurityModeChanged(mode="enforce"))
    other.apply(RulesChanged(added=(rule("User:bob"),)))
    restore_image(world.image, encode_image(other, 1))
    assert not world.may(ALICE)
    assert world.may(BOB)
    world.change(rule())
    assert world.may(ALICE)
    assert world.may(BOB)


def test_change_that_was_not_announced_is_noticed() -> None:
    world = World(rule())
    assert not world.may(BOB)
    world.image.apply(RulesChanged(added=(rule("User:bob"),)))
    world.change(rule(name="x"))
    assert world.may(BOB)


def test_unmatched_resources_are_open_by_setting_until_a_rule_matches() -> None:
    world = World(rule("User:alice", name="t"), allow_everyone=True)
    assert not world.may(BOB)
    assert world.may(BOB, Operation.READ, Resource.TOPIC, "u")
    assert world.may(BOB, Operation.READ, Resource.GROUP, "t")
    assert world.authorizer.is_allowed_on_any(BOB, Operation.WRITE, Resource.TOPIC)
    world.change(rule("User:alice", name=EVERY))
    assert not world.may(BOB, Operation.READ, Resource.TOPIC, "u")
    assert not world.authorizer.is_allowed_on_any(BOB, Operation.WRITE, Resource.TOPIC)


@pytest.mark.parametrize(
    ("host", "peer", "is_allowed"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.11", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("::1", "", False),
        ("", "", False),
        ("*", "", True),
        ("db.example", "10.0.0.1", False),
        ("2001:DB8::1", "2001:db8:0::1", True),
    ],
)
def test_hosts_are_addresses_in_any_form(host: str, peer: str, is_allowed: bool) -> None:
    world = World(rule(host=host))
    assert world.may(Caller(ALICE.principal, peer)) is is_allowed


def test_host_of_a_caller_counts_only_if_a_rule_names_it() -> None:
    world = World(rule(host="10.0.0.1"))
    mapped = Caller(ALICE.principal, "::ffff:10.0.0.1")
    elsewhere = Caller(ALICE.principal, "10.0.0.9", is_proven=True)
    assert world.authorizer.generalized(mapped) == mapped
    assert world.authorizer.generalized(elsewhere) == Caller(ALICE.principal)
    again = rule(host="10.0.0.1", name="u")
    world.change(rule(host="10.0.0.1"), again)
    world.change(removed=(rule(host="10.0.0.1"),))
    assert world.authorizer.generalized(mapped) == mapped
    world.change(removed=(again, again))
    assert world.authorizer.generalized(mapped) == Caller(ALICE.principal)


@pytest.mark.parametrize("operation", Operation)
def test_denying_all_operations_denies_each(operation: Operation) -> None:
    denied = rule(operation=Operation.ALL, permission=Permission.DENY)
    world = World(rule(operation=operation), denied)
    assert not world.may(ALICE, operation, Resource.TOPIC, "t")
    assert world.authorizer.decide(ALICE, operation, Resource.TOPIC, "t").rule == denied


def test_denying_read_leaves_describe() -> None:
    world = World(rule(operation=Operation.ALL), rule(permission=Permission.DENY))
    assert not world.may(ALICE)
    assert world.may(ALICE, Operation.DESCRIBE, Resource.TOPIC, "t")


def test_prefix_ends_at_a_character_not_at_a_byte() -> None:
    world = World(rule(name="é", pattern=Pattern.PREFIXED))
    assert world.may(ALICE, Operation.READ, Resource.TOPIC, "é")
    assert world.may(ALICE, Operation.READ, Resource.TOPIC, "éa")
    # U+00EA has the first byte of U+00E9.
    assert not world.may(ALICE, Operation.READ, Resource.TOPIC, "êa")
    # The same letter as two characters is another name.
    assert not world.may(ALICE, Operation.READ, Resource.TOPIC, "e\u0301")


def test_a_prefixed_rule_with_a_star_is_no_wildcard() -> None:
    world = World(rule(name=EVERY, pattern=Pattern.PREFIXED))
    assert not world.may(ALICE)
    assert world.may(ALICE, Operation.READ, Resource.TOPIC, "*t")


def test_a_user_named_star_is_not_every_user() -> None:
    star = Caller(Principal("User", EVERY))
    assert not World(rule("User:alice")).may(star)
    assert World(rule("User:*")).may(ALICE)


def test_decision_is_kept_once_for_a_caller_with_a_credential_and_without() -> None:
    world = World(rule())
    assert world.may(ALICE)
    assert world.may(Caller(ALICE.principal, ALICE.host, is_proven=True))
    assert len(world.authorizer._kept) == 1


def test_decisions_that_are_kept_are_bounded() -> None:
    world = World(rule())
    for number in range(ACCESS_DECISIONS_KEPT_MAX + 100):
        world.may(ALICE, Operation.READ, Resource.TOPIC, str(number))
    assert len(world.authorizer._kept) <= ACCESS_DECISIONS_KEPT_MAX
    before = len(world.authorizer._kept)
    assert not world.may(ALICE, Operation.READ, Resource.TOPIC, "x" * 100_000)
    assert len(world.authorizer._kept) == before
    assert world.may(ALICE)
