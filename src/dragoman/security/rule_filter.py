"""Filters of access rules, with Kafka's meaning."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from dragoman.security.access import Operation, Resource
from dragoman.security.rules import EVERY, Pattern, Permission, Rule

#: `match`: the rules that apply to a resource of the name, whatever their pattern.
PatternFilter: TypeAlias = Literal["match", "literal", "prefixed"]


class RuleFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that have all of these values; None accepts every value."""

    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None
    #: The kinds of resources.
    resources: frozenset[Resource] = frozenset(Resource)
    pattern: PatternFilter | None = None
    name: str | None = None

    def accepts(self, rule: Rule) -> bool:
        return (
            rule.resource in self.resources
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (None, rule.operation)
            and self.permission in (None, rule.permission)
            and self._accepts_pattern(rule)
        )

    def _accepts_pattern(self, rule: Rule) -> bool:
        if self.pattern == "match":
            if self.name is None:
                return True
            if rule.pattern is Pattern.PREFIXED:
                return self.name.startswith(rule.name)
            return rule.name in (self.name, EVERY)
        return self.pattern in (None, rule.pattern.value) and self.name in (None, rule.name)

    def only_rule(self) -> Rule | None:
        """The only rule that the filter can accept, if all of its values are given."""
        if (
            self.principal is None
            or self.host is None
            or self.operation is None
            or self.permission is None
            or len(self.resources) != 1
            or self.pattern in (None, "match")
            or self.name is None
        ):
            return None
        return Rule(
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission=self.permission,
            resource=next(iter(self.resources)),
            pattern=Pattern(self.pattern),
            name=self.name,
        )
