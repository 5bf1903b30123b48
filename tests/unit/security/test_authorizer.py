"""Goal: without rules everything is allowed, to everybody, and the question has a fixed form."""

from __future__ import annotations

import itertools

from dragoman.security.access import ANONYMOUS, Caller, Operation, Principal, Resource
from dragoman.security.authorizer import AllowAll


def test_node_without_rules_allows_everything() -> None:
    principals = (ANONYMOUS, Principal("User", "alice"))
    for who, what, kind in itertools.product(map(Caller, principals), Operation, Resource):
        assert AllowAll().is_allowed(who, what, kind, "name")


def test_principals_are_values() -> None:
    assert Principal("User", "ANONYMOUS") == ANONYMOUS
    assert hash(Principal("User", "a")) == hash(Principal("User", "a"))
    assert Principal("User", "a") != Principal("Group", "a")
