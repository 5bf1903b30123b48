"""RocketMQ's users, policies and accounts as the users and rules of the cluster, and back.

    5.x   subject User:alice, resource Topic:orders, actions [Pub], decision Allow
    4.x   accessKey=alice, topicPerms=orders=PUB
    rule  allow User:alice write topic 'orders'

What rules cannot express is refused with a reason: policies of the type `Default`, actions that a
kind of resource does not have, networks, and addresses without a login. Rules that RocketMQ cannot
express, such as those for transactional ids, are not listed and not changed.

A user of the type `Super`, or an account with `admin=true`, is allowed everything on every kind of
resource.

An account's default permission counts only for topics without one of their own, whereas rules add
up: hence a topic that is granted less than the default gets a rule that denies the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final

import msgspec

from dragoman.protocols.rocketmq.bodies import AclEntry, AclInfo, AclPolicy
from dragoman.protocols.rocketmq.constants import DEFAULT_CLUSTER, Response
from dragoman.protocols.rocketmq.handlers.names import spelling, topic_name
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.security.access import CLUSTER_NAME, Operation, Resource
from dragoman.security.rules import Pattern, Permission, Rule

EVERY: Final = "*"
_USER: Final = "User:"
_CUSTOM: Final = "Custom"
#: The kinds of resources that RocketMQ has, by name.
_KINDS: Final = {"Topic": Resource.TOPIC, "Group": Resource.GROUP, "Cluster": Resource.CLUSTER}
_KIND_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
#: The operations that each action stands for.
_ACTIONS: Final[dict[str, tuple[Operation, ...]]] = {
    "All": (Operation.ALL,),
    "Pub": (Operation.WRITE,),
    "Sub": (Operation.READ,),
    "Create": (Operation.CREATE,),
    "Update": (Operation.ALTER, Operation.ALTER_CONFIGS),
    "Delete": (Operation.DELETE,),
    "Get": (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    "List": (Operation.DESCRIBE,),
}
#: Actions that the other kinds of resources do not have.
_OF_TOPICS: Final = frozenset(("Pub",))
_OF_TOPICS_AND_GROUPS: Final = frozenset(("Pub", "Sub"))
_DECISIONS: Final = {"Allow": Permission.ALLOW, "Deny": Permission.DENY}


def _refused(text: str) -> Refused:
    return Refused(Response.INVALID_PARAMETER, text)


def principal_of(subject: str) -> str:
    """The principal that a subject names. Raises `Refused`."""
    name = subject.removeprefix(_USER)
    if not name or not subject.startswith(_USER):
        raise _refused(f"subject {subject[:100]!r}: expected User:NAME")
    return subject


# ---- administrators


def superuser_rules(principal: str) -> frozenset[Rule]:
    """The rules of a user that is allowed everything."""
    return frozenset(_allow(principal, kind, Operation.ALL, _every(kind)) for kind in Resource)


def is_superuser(principal: str, rules: Iterable[Rule]) -> bool:
    return superuser_rules(principal) <= set(rules)


def _every(kind: Resource) -> str:
    return CLUSTER_NAME if kind is Resource.CLUSTER else EVERY


def _allow(principal: str, kind: Resource, operation: Operation, name: str) -> Rule:
    return _rule(principal, kind, operation, name, Permission.ALLOW)


def _rule(
    principal: str, kind: Resource, operation: Operation, name: str, permission: Permission
) -> Rule:
    return Rule(
        principal=principal,
        host=EVERY,
        operation=operation,
        permission=permission,
        resource=kind,
        pattern=Pattern.LITERAL,
        name=name,
    )


# ---- policies of 5.x


def rules_of(principal: str, policies: Iterable[AclPolicy]) -> list[Rule]:
    """Raises `Refused` for what rules cannot express."""
    found: dict[Rule, None] = {}
    for policy in policies:
        if policy.policy_type != _CUSTOM:
            text = (
                f"policies of the type {policy.policy_type[:20]} have no counterpart: what no rule"
                " allows is denied"
            )
            raise _refused(text)
        for entry in policy.entries:
            found |= dict.fromkeys(_rules_of_entry(principal, entry))
    return list(found)


def _rules_of_entry(principal: str, entry: AclEntry) -> list[Rule]:
    permission = _DECISIONS.get(entry.decision)
    if permission is None:
        raise _refused(f"decision {entry.decision[:20]!r}: expected Allow or Deny")
    hosts = [_host(each) for each in entry.source_ips] or [EVERY]
    return [
        Rule(
            principal=principal,
            host=host,
            operation=operation,
            permission=permission,
            resource=kind,
            pattern=pattern,
            name=name,
        )
        for kind, pattern, name in patterns_of(entry.resource)
        for operation in _operations(entry.actions, kind)
        for host in hosts
    ]


def _operations(actions: Iterable[str], kind: Resource) -> list[Operation]:
    found: dict[Operation, None] = {}
    for action in actions:
        operations = _ACTIONS.get(action)
        if operations is None:
            names = ", ".join(_ACTIONS)
            raise _refused(f"action {action[:20]!r}: expected one of {names}")
        is_foreign = (kind is not Resource.TOPIC and action in _OF_TOPICS) or (
            kind is Resource.CLUSTER and action in _OF_TOPICS_AND_GROUPS
        )
        if is_foreign:
            raise _refused(f"a resource of the kind {_KIND_NAMES[kind]} has no action {action}")
        found |= dict.fromkeys(operations)
    if not found:
        raise _refused("an entry without actions")
    return list(found)


def _host(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        if text == EVERY:
            return EVERY
        reason = "a rule has one address, and no networks or ranges"
        raise _refused(f"source {text[:60]!r}: {reason}") from None


def patterns_of(resource: str) -> list[tuple[Resource, Pattern, str]]:
    """The kinds and names that a resource such as `Topic:orders*` stands for. Raises `Refused`."""
    if resource == EVERY:
        return [(kind, Pattern.LITERAL, _every(kind)) for kind in _KINDS.values()]
    kind_name, _, name = resource.partition(":")
    kind = _KINDS.get(kind_name)
    if kind is None or not name:
        names = ", ".join(f"{each}:NAME" for each in _KINDS)
        raise _refused(f"resource {resource[:100]!r}: expected {names} or *")
    if kind is Resource.CLUSTER:
        if name not in (EVERY, DEFAULT_CLUSTER):
            raise _refused(f"cluster {name[:100]!r}: the only one is {DEFAULT_CLUSTER}")
        return [(kind, Pattern.LITERAL, CLUSTER_NAME)]
    if name == EVERY:
        return [(kind, Pattern.LITERAL, EVERY)]
    stem = name.removesuffix(EVERY)
    if EVERY in stem:
        raise _refused(f"resource {resource[:100]!r}: * is allowed at the end only")
    pattern = Pattern.LITERAL if stem == name else Pattern.PREFIXED
    return [(kind, pattern, topic_name(stem) if kind is Resource.TOPIC else stem)]


def policies_of(principal: str, rules: Iterable[Rule]) -> AclInfo | None:
    """The rules of a principal that RocketMQ can express; None if there are none."""
    operations: dict[tuple[str, str, Permission], set[Operation]] = {}
    for rule in rules:
        kind = _KIND_NAMES.get(rule.resource)
        if rule.principal == principal and kind is not None:
            place = (f"{kind}:{_shown_name(rule)}", rule.host, rule.permission)
            operations.setdefault(place, set()).add(rule.operation)
    # By resource, decision and actions, the addresses.
    entries: dict[tuple[str, Permission, tuple[str, ...]], list[str]] = {}
    for (resource, host, permission), found in sorted(operations.items(), key=_place):
        actions = tuple(name for name, needed in _ACTIONS.items() if found.issuperset(needed))
        if actions:
            entries.setdefault((resource, permission, actions), []).append(host)
    listed = [
        AclEntry(
            resource=resource,
            actions=list(actions),
            source_ips=[] if EVERY in hosts else hosts,
            decision="Allow" if permission is Permission.ALLOW else "Deny",
        )
        for (resource, permission, actions), hosts in entries.items()
    ]
    return AclInfo(subject=principal, policies=[AclPolicy(entries=listed)]) if listed else None


def _place(item: tuple[tuple[str, str, Permission], set[Operation]]) -> tuple[str, str, str]:
    resource, host, permission = item[0]
    return resource, host, permission.value


def _shown_name(rule: Rule) -> str:
    if rule.resource is Resource.CLUSTER:
        return DEFAULT_CLUSTER
    name = rule.name
    if rule.resource is Resource.TOPIC and name != EVERY:
        name = spelling(name)
    return name + EVERY if rule.pattern is Pattern.PREFIXED else name


# ---- accounts of 4.x

#: The permissions of an account, and the operations on a topic or a group that they allow.
_PERMS: Final[dict[str, frozenset[Operation]]] = {
    "DENY": frozenset(),
    "PUB": frozenset({Operation.WRITE}),
    "SUB": frozenset({Operation.READ}),
    "PUB|SUB": frozenset({Operation.READ, Operation.WRITE}),
    "SUB|PUB": frozenset({Operation.READ, Operation.WRITE}),
}
_BOTH: Final = _PERMS["PUB|SUB"]
_NONE: Final = _PERMS["DENY"]


class Perms(msgspec.Struct, frozen=True):
    """An account's permissions on one kind of resource."""

    default: frozenset[Operation] = _NONE
    by_name: Mapping[str, frozenset[Operation]] = {}


def perm(text: str) -> frozenset[Operation]:
    found = _PERMS.get(text.replace(" ", ""))
    if found is None:
        raise _refused(f"permission {text[:40]!r}: expected DENY, PUB, SUB or PUB|SUB")
    return found


def perms_by_name(text: str, kind: Resource) -> dict[str, frozenset[Operation]]:
    """From text as in `orders=PUB|SUB,bills=DENY`. Raises `Refused`."""
    found = {}
    for each in filter(None, map(str.strip, text.split(","))):
        name, equals, value = each.partition("=")
        if not name or not equals or EVERY in name:
            raise _refused(f"permission {each[:100]!r}: expected NAME=PUB|SUB")
        found[topic_name(name) if kind is Resource.TOPIC else name] = perm(value)
    return found


def perms_of(principal: str, kind: Resource, rules: Iterable[Rule]) -> Perms:
    """An account's permissions as its rules have them."""
    given = set(rules)

    def having(name: str, permission: Permission) -> frozenset[Operation]:
        return frozenset(
            each for each in _BOTH if _rule(principal, kind, each, name, permission) in given
        )

    default = having(EVERY, Permission.ALLOW)
    names = {each.name for each in given if each in _of_accounts(principal, kind, (each.name,))} - {
        EVERY
    }
    return Perms(
        default,
        {
            name: (default | having(name, Permission.ALLOW)) - having(name, Permission.DENY)
            for name in names
        },
    )


def _of_accounts(principal: str, kind: Resource, names: Iterable[str]) -> set[Rule]:
    """All rules that permissions of an account on these names can consist of."""
    return {
        _rule(principal, kind, operation, name, permission)
        for name in names
        for operation in _BOTH
        for permission in Permission
    }


def rules_of_perms(principal: str, kind: Resource, perms: Perms) -> set[Rule]:
    found = {_allow(principal, kind, each, EVERY) for each in perms.default}
    for name, granted in perms.by_name.items():
        found |= {_allow(principal, kind, each, name) for each in granted}
        for each in _BOTH - granted:
            if each in perms.default or not granted:
                found.add(_rule(principal, kind, each, name, Permission.DENY))
    return found


def account_rules(principal: str, kind: Resource, rules: Iterable[Rule]) -> set[Rule]:
    """The rules among these that permissions of an account consist of."""
    given = list(rules)
    return set(given) & _of_accounts(principal, kind, {each.name for each in given})
