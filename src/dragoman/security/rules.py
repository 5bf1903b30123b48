"""Access rules, with Kafka's meaning, and the index that decides by them.

A rule that denies takes precedence over every rule that allows. A rule matches names exactly, by a
prefix, or all names of its kind (`*`); hosts exactly or all; principals exactly or all (`User:*`).
Allowing one of some operations allows another, too (`_IMPLIED`); denying implies nothing. A
resource that no rule matches is open to all or to none, as a setting says; as soon as one matches
it, for any principal, only what a rule allows is allowed.

The index finds the rules for a name by its prefixes, one look-up for each length that a prefixed
rule has, and within a pattern by principal. So the cost of a decision hardly depends on the number
of rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from functools import lru_cache, partial
from typing import Final, TypeAlias

import msgspec

from dragoman.security.access import Caller, Operation, Resource

#: As the name of a literal rule, or as a host: all of them.
EVERY: Final = "*"
EVERY_PRINCIPAL: Final = "User:*"


class Permission(Enum):
    ALLOW = "allow"
    DENY = "deny"


class Pattern(Enum):
    """How the name of a rule matches the names of resources."""

    #: Exactly; the name `*` matches every resource of the kind.
    LITERAL = "literal"
    PREFIXED = "prefixed"


class Rule(msgspec.Struct, frozen=True):
    """Allows or denies a principal an operation on resources. Rules are values without an id."""

    #: `KIND:NAME`, as in `User:alice`; `User:*` matches every principal.
    principal: str
    #: An address, or `*` for every one.
    host: str
    operation: Operation
    permission: Permission
    resource: Resource
    pattern: Pattern
    name: str

    def __str__(self) -> str:
        prefix = "prefix " if self.pattern is Pattern.PREFIXED else ""
        host = "" if self.host == EVERY else f" from {self.host}"
        return (
            f"{self.permission.value} {self.principal}{host} {self.operation.value} "
            f"{self.resource.value} {prefix}{self.name!r}"
        )


class Reason(Enum):
    """What a decision is based on."""

    RULE = "a rule"
    SUPER_USER = "the caller is a super user"
    NODE = "the caller is a node of the cluster"
    #: Rules match the resource, and none of them allows this caller the operation.
    NOT_ALLOWED = "no rule for the resource allows it"
    #: `allow.everyone.if.no.acl.found` decides.
    NO_RULE = "no rule matches the resource"


class Decision(msgspec.Struct, frozen=True):
    is_allowed: bool
    reason: Reason
    #: The deciding rule, if the reason is a rule.
    rule: Rule | None = None


#: The operations that allowing one of these allows, too.
_IMPLIED: Final = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}
#: The rules of one pattern, by principal, each with its host in the usual form.
_Bucket: TypeAlias = dict[str, dict[Rule, str]]


def covers(rule: Rule, operation: Operation) -> bool:
    """Whether the rule decides on the operation."""
    if rule.operation in (operation, Operation.ALL):
        return True
    return rule.permission is Permission.ALLOW and _IMPLIED.get(rule.operation) is operation


class RuleIndex:
    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._literal: dict[tuple[Resource, str], _Bucket] = {}
        self._prefixed: dict[tuple[Resource, str], _Bucket] = {}
        #: By kind, the number of prefixed patterns of each length.
        self._lengths: dict[Resource, Counter[int]] = {kind: Counter() for kind in Resource}
        #: By kind and principal, the rules with their hosts in the usual form.
        self._by_principal: dict[tuple[Resource, str], dict[Rule, str]] = {}
        #: By host in the usual form, the number of rules for it.
        self._hosts: Counter[str] = Counter()
        for rule in rules:
            self.add(rule)

    # ---- changes

    def add(self, rule: Rule) -> None:
        host = _usual_address(rule.host)
        patterns = self._patterns(rule)
        bucket = patterns.get((rule.resource, rule.name))
        if bucket is None:
            bucket = patterns[rule.resource, rule.name] = {}
            if rule.pattern is Pattern.PREFIXED:
                self._lengths[rule.resource][len(rule.name)] += 1
        if rule not in bucket.setdefault(rule.principal, {}):
            self._hosts[host] += 1
        bucket[rule.principal][rule] = host
        self._by_principal.setdefault((rule.resource, rule.principal), {})[rule] = host

    def remove(self, rule: Rule) -> None:
        """Remove a rule that may not be there."""
        patterns = self._patterns(rule)
        bucket = patterns.get((rule.resource, rule.name), {})
        found = bucket.get(rule.principal, {})
        if rule not in found:
            return
        host = found.pop(rule)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        del self._by_principal[rule.resource, rule.principal][rule]
        if not found:
            del bucket[rule.principal]
        if not bucket:
            del patterns[rule.resource, rule.name]
            if rule.pattern is Pattern.PREFIXED:
                lengths = self._lengths[rule.resource]
                lengths[len(rule.name)] -= 1
                if not lengths[len(rule.name)]:
                    del lengths[len(rule.name)]
        if not self._by_principal[rule.resource, rule.principal]:
            del self._by_principal[rule.resource, rule.principal]

    def _patterns(self, rule: Rule) -> dict[tuple[Resource, str], _Bucket]:
        return self._literal if rule.pattern is Pattern.LITERAL else self._prefixed

    # ---- decisions

    def names_host(self, host: str) -> bool:
        """Whether there is a rule for this host, other than those for every host."""
        return host != "" and _usual_address(host) in self._hosts

    def decide(
        self,
        caller: Caller,
        operation: Operation,
        resource: Resource,
        name: str,
        *,
        allow_unmatched: bool = False,
    ) -> Decision:
        """`allow_unmatched` says whether a resource that no rule matches is open to all."""
        principals = (str(caller.principal), EVERY_PRINCIPAL)
        is_matched = False
        allowing: Rule | None = None
        for bucket in self._matching(resource, name):
            is_matched = True
            for principal in principals:
                for rule, host in bucket.get(principal, {}).items():
                    if not (_is_at(caller, host) and covers(rule, operation)):
                        continue
                    if rule.permission is Permission.DENY:
                        return Decision(False, Reason.RULE, rule)
                    allowing = allowing or rule
        if allowing is not None:
            return Decision(True, Reason.RULE, allowing)
        if is_matched:
            return Decision(False, Reason.NOT_ALLOWED)
        return Decision(allow_unmatched, Reason.NO_RULE)

    def allowed_among(
        self,
        caller: Caller,
        operation: Operation,
        resource: Resource,
        names: Collection[str],
        *,
        allow_unmatched: bool = False,
    ) -> frozenset[str]:
        """The names for which the operation is allowed. Asks each name the same as `decide`, but
        looks for the rules of the caller once.
        """
        if allow_unmatched:
            decide = partial(self.decide, caller, operation, resource, allow_unmatched=True)
            return frozenset(name for name in names if decide(name).is_allowed)
        allowed, denied = _Names(), _Names()
        for principal in (str(caller.principal), EVERY_PRINCIPAL):
            for rule, host in self._by_principal.get((resource, principal), {}).items():
                if _is_at(caller, host) and covers(rule, operation):
                    (allowed if rule.permission is Permission.ALLOW else denied).add(rule)
        return allowed.among(names) - denied.among(names)

    def _matching(self, resource: Resource, name: str) -> Iterator[_Bucket]:
        """The patterns that match a name, the most specific first."""
        literal, prefixed = self._literal, self._prefixed
        if (resource, name) in literal:
            yield literal[resource, name]
        for length in sorted(self._lengths[resource], reverse=True):
            # A prefix that is longer than the name is another name's.
            if length <= len(name) and (resource, name[:length]) in prefixed:
                yield prefixed[resource, name[:length]]
        if (resource, EVERY) in literal:
            yield literal[resource, EVERY]

    def is_allowed_on_any(
        self,
        caller: Caller,
        operation: Operation,
        resource: Resource,
        *,
        allow_unmatched: bool = False,
    ) -> bool:
        """Whether some name exists for which the operation is allowed.

        As in Kafka, a rule that denies takes away a rule that allows if it matches every name that
        the other one matches, and a rule that allows all names counts unless another one denies all
        of them.
        """
        if allow_unmatched and (resource, EVERY) not in self._literal:
            return True
        allowed: list[Rule] = []
        denied: set[tuple[Pattern, str]] = set()
        for principal in (str(caller.principal), EVERY_PRINCIPAL):
            for rule, host in self._by_principal.get((resource, principal), {}).items():
                if not (_is_at(caller, host) and covers(rule, operation)):
                    continue
                if rule.permission is Permission.ALLOW:
                    allowed.append(rule)
                else:
                    denied.add((rule.pattern, rule.name))
        if (Pattern.LITERAL, EVERY) in denied:
            return False
        return any(_is_left(rule, denied) for rule in allowed)


class _Names:
    """The names that some rules match."""

    __slots__ = ("_exact", "_is_every", "_lengths", "_prefixes")

    def __init__(self) -> None:
        self._exact: set[str] = set()
        self._prefixes: set[str] = set()
        #: The lengths of the prefixes.
        self._lengths: set[int] = set()
        self._is_every = False

    def add(self, rule: Rule) -> None:
        if rule.pattern is Pattern.PREFIXED:
            self._prefixes.add(rule.name)
            self._lengths.add(len(rule.name))
        elif rule.name == EVERY:
            self._is_every = True
        else:
            self._exact.add(rule.name)

    def among(self, names: Collection[str]) -> frozenset[str]:
        if self._is_every:
            return frozenset(names)
        found = self._exact.intersection(names)
        for length in self._lengths:
            found.update(name for name in names if name[:length] in self._prefixes)
        return frozenset(found)


def _is_left(rule: Rule, denied: set[tuple[Pattern, str]]) -> bool:
    """Whether no pattern of `denied` matches all that the rule, which allows, matches."""
    if rule.pattern is Pattern.LITERAL:
        if rule.name == EVERY:
            return True
        if (Pattern.LITERAL, rule.name) in denied:
            return False
    prefixes = (rule.name[: length + 1] for length in range(len(rule.name)))
    return not any((Pattern.PREFIXED, prefix) in denied for prefix in prefixes)


def is_address(host: str) -> bool:
    """Whether a text is an IP address. Only such hosts, and `*`, are those of a client."""
    import ipaddress

    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_at(caller: Caller, host: str) -> bool:
    return host == EVERY or (caller.host != "" and host == _usual_address(caller.host))


@lru_cache(maxsize=4096)
def _usual_address(host: str) -> str:
    """An address in one of its forms, and an IPv4 address in place of IPv6 that maps it; any other
    text as it is.
    """
    if host == EVERY:
        return host
    # Imported here: nodes without rules for addresses start without it.
    import ipaddress

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)
