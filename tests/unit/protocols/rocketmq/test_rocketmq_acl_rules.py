"""RocketMQ's policies and accounts as rules, and rules as policies and accounts.

Generated policies come back as they were; what rules cannot express is refused.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.protocols.rocketmq.bodies import AclEntry, AclPolicy
from dragoman.protocols.rocketmq.handlers.acl_rules import (
    Perms,
    account_rules,
    is_superuser,
    perms_by_name,
    perms_of,
    policies_of,
    rules_of,
    rules_of_perms,
    superuser_rules,
)
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.security.access import Caller, Operation, Principal, Resource
from dragoman.security.rules import Pattern, Permission, Rule, RuleIndex

ALICE = "User:alice"
READ, WRITE = Operation.READ, Operation.WRITE
TOPIC, GROUP = Resource.TOPIC, Resource.GROUP


def policy(*entries: AclEntry) -> list[AclPolicy]:
    return [AclPolicy(entries=list(entries))]


def entry(
    resource: str, *actions: str, decision: str = "Allow", ips: tuple[str, ...] = ()
) -> AclEntry:
    return AclEntry(
        resource=resource, actions=list(actions), source_ips=list(ips), decision=decision
    )


def allow(operation: Operation, kind: Resource, name: str, **more: str) -> Rule:
    return Rule(
        principal=ALICE,
        host=more.get("host", "*"),
        operation=operation,
        permission=Permission.ALLOW,
        resource=kind,
        pattern=Pattern.LITERAL,
        name=name,
    )


# ---- policies


@pytest.mark.parametrize(
    ("resource", "kind", "pattern", "name"),
    [
        ("Topic:orders", TOPIC, Pattern.LITERAL, "orders"),
        ("Topic:orders%2Eeu", TOPIC, Pattern.LITERAL, "orders.eu"),
        ("Topic:ord*", TOPIC, Pattern.PREFIXED, "ord"),
        ("Topic:*", TOPIC, Pattern.LITERAL, "*"),
        ("Group:g", GROUP, Pattern.LITERAL, "g"),
        ("Cluster:DefaultCluster", Resource.CLUSTER, Pattern.LITERAL, "kafka-cluster"),
    ],
)
def test_a_resource_is_a_pattern_of_names(
    resource: str, kind: Resource, pattern: Pattern, name: str
) -> None:
    (rule,) = rules_of(ALICE, policy(entry(resource, "All")))
    assert (rule.resource, rule.pattern, rule.name) == (kind, pattern, name)
    assert (rule.principal, rule.operation, rule.permission) == (
        ALICE,
        Operation.ALL,
        Permission.ALLOW,
    )


def test_every_kind_of_resource() -> None:
    rules = rules_of(ALICE, policy(entry("*", "All")))
    assert {each.resource for each in rules} == {TOPIC, GROUP, Resource.CLUSTER}


def test_an_entry_is_a_rule_for_each_operation_and_address() -> None:
    rules = rules_of(ALICE, policy(entry("Topic:t", "Pub", "Sub", ips=("10.0.0.1", "::1"))))
    assert {(each.operation, each.host) for each in rules} == {
        (operation, host) for operation in (READ, WRITE) for host in ("10.0.0.1", "::1")
    }


@pytest.mark.parametrize(
    "refused",
    [
        entry("Topic:t"),
        entry("Topic:", "Pub"),
        entry("Topic", "Pub"),
        entry("Queue:t", "Pub"),
        entry("Topic:a*b", "Pub"),
        entry("Topic:t", "Fly"),
        entry("Topic:t", "Any"),
        entry("Group:g", "Pub"),
        entry("Cluster:DefaultCluster", "Sub"),
        entry("Cluster:other", "Get"),
        entry("Topic:t", "Pub", ips=("10.0.0.0/8",)),
        entry("Topic:t", "Pub", ips=("10.0.0.1-9",)),
        entry("Topic:t", "Pub", ips=("somewhere",)),
        entry("Topic:t", "Pub", decision="Maybe"),
        entry("*", "Pub"),
    ],
    ids=str,
)
def test_what_rules_cannot_express_is_refused(refused: AclEntry) -> None:
    with pytest.raises(Refused):
        rules_of(ALICE, policy(refused))


def test_default_policies_are_refused() -> None:
    with pytest.raises(Refused, match="no counterpart"):
        rules_of(ALICE, [AclPolicy(policy_type="Default", entries=[entry("Topic:t", "Pub")])])


_names = st.from_regex(r"[a-zA-Z0-9_-]{1,8}", fullmatch=True)
_entries = st.builds(
    lambda name, star, actions, decision, ips: entry(
        f"Topic:{name}{star}", *sorted(actions), decision=decision, ips=tuple(sorted(ips))
    ),
    _names,
    st.sampled_from(["", "*"]),
    st.sets(st.sampled_from(["Pub", "Sub", "Create", "Update", "Delete"]), min_size=1),
    st.sampled_from(["Allow", "Deny"]),
    st.sets(st.sampled_from(["10.0.0.1", "10.0.0.2", "fe80::1"])),
)


@given(st.lists(_entries, max_size=5, unique_by=lambda each: (each.resource, each.decision)))
def test_policies_come_back_as_they_were(entries: list[AclEntry]) -> None:
    found = policies_of(ALICE, rules_of(ALICE, policy(*entries)))
    listed = [] if found is None else found.policies[0].entries
    assert sorted(
        (each.resource, sorted(each.actions), each.source_ips, each.decision) for each in listed
    ) == sorted(
        (each.resource, sorted(each.actions), each.source_ips, each.decision) for each in entries
    )


def test_rules_that_rocketmq_cannot_express_are_not_listed() -> None:
    rules = [
        allow(WRITE, Resource.TRANSACTIONAL_ID, "x"),
        allow(Operation.ALTER, TOPIC, "t"),
        allow(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, "kafka-cluster"),
    ]
    assert policies_of(ALICE, rules) is None


# ---- administrators


def test_a_superuser_is_allowed_everything() -> None:
    rules = superuser_rules(ALICE)
    assert is_superuser(ALICE, rules)
    for missing in rules:
        assert not is_superuser(ALICE, rules - {missing})
    index, caller = RuleIndex(rules), Caller(Principal("User", "alice"), "10.0.0.1")
    for kind in Resource:
        name = "kafka-cluster" if kind is Resource.CLUSTER else "any"
        assert index.decide(caller, Operation.DELETE, kind, name).is_allowed


# ---- accounts

_perms = st.sets(st.sampled_from([READ, WRITE])).map(frozenset)
_accounts = st.builds(Perms, _perms, st.dictionaries(_names, _perms, max_size=4))


@given(_accounts, st.sampled_from([TOPIC, GROUP]), _names)
def test_accounts_are_decided_as_in_the_original(
    account: Perms, kind: Resource, other: str
) -> None:
    rules = rules_of_perms(ALICE, kind, account)
    index, caller = RuleIndex(rules), Caller(Principal("User", "alice"), "10.0.0.1")
    for name in {*account.by_name, other}:
        granted = account.by_name.get(name, account.default)
        for operation in (READ, WRITE):
            decision = index.decide(caller, operation, kind, name)
            assert decision.is_allowed == (operation in granted), (name, operation)


@given(_accounts, st.sampled_from([TOPIC, GROUP]))
def test_accounts_come_back_as_they_were(account: Perms, kind: Resource) -> None:
    rules = rules_of_perms(ALICE, kind, account)
    foreign = [allow(Operation.ALTER, kind, "t"), allow(READ, Resource.CLUSTER, "*")]
    found = perms_of(ALICE, kind, [*rules, *foreign])
    assert found.default == account.default
    assert dict(found.by_name) == dict(account.by_name)
    assert account_rules(ALICE, kind, [*rules, *foreign]) == rules


def test_permissions_by_name() -> None:
    found = perms_by_name("a=PUB|SUB, b.c=DENY,d=SUB", TOPIC)
    assert found == {"a": {READ, WRITE}, "b.c": set(), "d": {READ}}
    assert perms_by_name("a%2Eb=PUB", TOPIC) == {"a.b": {WRITE}}


@pytest.mark.parametrize("text", ["a", "=PUB", "a=READ", "*=PUB", "a=PUB|PUB|SUB"])
def test_malformed_permissions_are_refused(text: str) -> None:
    with pytest.raises(Refused):
        perms_by_name(text, TOPIC)
