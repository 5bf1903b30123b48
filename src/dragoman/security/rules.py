"""Access rules, with Kafka's meaning."""

from __future__ import annotations

from enum import Enum

import msgspec

from dragoman.security.access import Operation, Resource


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
