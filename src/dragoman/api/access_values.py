"""Values of the JSON API about users, access rules and the security mode.

Secrets appear in requests and in the response that creates a token, and never in a representation.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dragoman import limits
from dragoman.security.access import CLUSTER_NAME as CLUSTER_NAME
from dragoman.security.access import Operation as Operation
from dragoman.security.access import Resource as Resource
from dragoman.security.authorizer import SecurityMode as SecurityMode
from dragoman.security.rule_filter import PatternFilter as PatternFilter
from dragoman.security.rules import Pattern as Pattern
from dragoman.security.rules import Permission as Permission
from dragoman.security.rules import Rule

#: At most what is stored; the service says what is too long.
_Text = Annotated[str, Meta(max_length=limits.ACCESS_RULE_TEXT_BYTES_MAX)]
_Name = Annotated[str, Meta(min_length=1, max_length=limits.USER_NAME_BYTES_MAX)]


class AccessRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Allows or denies a principal an operation on resources."""

    #: `User:NAME`, or `User:*` for every one.
    principal: _Text
    operation: Operation
    resource: Resource
    #: `*` with the pattern `literal`: every resource of the kind.
    name: _Text
    permission: Permission = Permission.ALLOW
    pattern: Pattern = Pattern.LITERAL
    #: An IP address, or `*`.
    host: _Text = "*"

    @classmethod
    def of(cls, rule: Rule) -> AccessRule:
        return cls(**msgspec.structs.asdict(rule))

    def rule(self) -> Rule:
        return Rule(**msgspec.structs.asdict(self))

    def __str__(self) -> str:
        return str(self.rule())


class AccessRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules to add."""

    rules: Annotated[tuple[AccessRule, ...], Meta(max_length=limits.ACCESS_RULES_PER_REQUEST_MAX)]


class AccessRuleFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules that have all of these values; null accepts every value."""

    principal: _Text | None = None
    operation: Operation | None = None
    resource: Resource | None = None
    name: _Text | None = None
    permission: Permission | None = None
    #: `match`: the rules that apply to a resource of the name, whatever their pattern.
    pattern: PatternFilter | None = None
    host: _Text | None = None


class RuleSearch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    filter: AccessRuleFilter = AccessRuleFilter()
    #: Rules to skip: the `next` of the page before.
    after: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=limits.HTTP_PAGE_ITEMS_MAX)] = limits.HTTP_PAGE_ITEMS_MAX


class RulePage(msgspec.Struct, frozen=True, kw_only=True):
    #: In the order in which the rules were added.
    items: tuple[AccessRule, ...]
    #: The `after` of the next page; null on the last page.
    next: int | None


class RemovedRules(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    #: The first of the removed rules.
    items: tuple[AccessRule, ...]


class AccessQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a principal is allowed an operation, in any mode."""

    principal: _Text
    operation: Operation
    resource: Resource
    name: _Text
    #: The address of the client; empty for one that only rules for every host match.
    host: _Text = ""


class AccessAnswer(msgspec.Struct, frozen=True, kw_only=True):
    allowed: bool
    #: Whether a refusal counts, or is only reported (`audit`), or nothing is asked (`open`).
    mode: str
    reason: str
    #: The deciding rule, if the reason is a rule.
    rule: AccessRule | None


class UserSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    enabled: bool
    #: The SCRAM mechanisms of the password; none: the user has no password.
    mechanisms: tuple[str, ...]
    signing_secret: bool
    tokens: int


class UserPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[UserSummary, ...]
    #: The `after` of the next page; null on the last page.
    next: str | None


class TokenDescription(msgspec.Struct, frozen=True, kw_only=True):
    token_id: str
    label: str
    read_only: bool
    #: Milliseconds since 1970.
    created_ms: int
    #: Null for a token that does not expire.
    expires_ms: int | None


class UserDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    enabled: bool
    mechanisms: tuple[str, ...]
    signing_secret: bool
    tokens: tuple[TokenDescription, ...]


class NewUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: _Name
    #: Null: the user cannot log in with a password.
    password: str | None = None

    def __repr__(self) -> str:
        return f"NewUser(name={self.name!r})"


class UserCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    command: Literal[
        "set_password",
        "remove_password",
        "set_signing_secret",
        "remove_signing_secret",
        "enable",
        "disable",
    ]
    #: The password or signing secret to set.
    secret: str | None = None

    def __repr__(self) -> str:
        return f"UserCommand(command={self.command!r})"


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    label: Annotated[str, Meta(max_length=limits.TOKEN_LABEL_BYTES_MAX)] = ""
    #: Milliseconds until the token expires; null: it does not.
    lifetime_ms: Annotated[int, Meta(ge=1, le=limits.TOKEN_LIFETIME_MS_MAX)] | None = None
    #: Whether the token is good for requests that change nothing only.
    read_only: bool = False


class CreatedToken(msgspec.Struct, frozen=True, kw_only=True):
    description: TokenDescription
    #: The token itself, which cannot be shown again.
    token: str

    def __repr__(self) -> str:
        return f"CreatedToken(description={self.description!r})"


class SecurityStatus(msgspec.Struct, frozen=True, kw_only=True):
    mode: str
    users: int
    rules: int
    #: Principals to which no rule applies, as the answering node is configured.
    super_users: tuple[str, ...]
    allow_everyone_if_no_acl_found: bool
    #: Whether a super user, or a rule, could change the mode back.
    has_administrator: bool
    #: Nodes whose release does not know users, rules and modes.
    older_nodes: tuple[int, ...]


class NewMode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: SecurityMode
