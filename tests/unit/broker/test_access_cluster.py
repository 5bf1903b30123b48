"""Goal: several nodes change rules, users and the mode at once, and all of them agree.

Method: three whole nodes in simulated time; changes begin in one turn on different nodes.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial

import pytest

from dragoman.broker.administration import Actor
from dragoman.broker.broker import Broker
from dragoman.broker.errors import UserExists
from dragoman.errors import DragomanError
from dragoman.outcome import start
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Principal, Resource
from dragoman.security.authorizer import OPERATOR_KIND
from dragoman.security.rule_filter import RuleFilter
from dragoman.security.rules import EVERY, Pattern, Permission, Rule
from dragoman.security.users import ScramVerifier
from worlds.cluster import NODES, ThreeNodes

OPERATOR = Actor(Caller(Principal(OPERATOR_KIND, "local"), is_proven=True), "http")
ALICE = Caller(Principal("User", "alice"))
VERIFIER = ScramVerifier(b"salt", 4096, bytes(32), bytes(32))


@pytest.fixture(scope="module")
def cluster() -> ThreeNodes:
    nodes = ThreeNodes()
    brokers = [nodes.broker(each) for each in NODES]
    nodes.wait(lambda: all(each.image.feature_level >= 5 for each in brokers))
    return nodes


def rule(
    name: str, operation: Operation = Operation.READ, resource: Resource = Resource.TOPIC
) -> Rule:
    return Rule("User:alice", EVERY, operation, Permission.ALLOW, resource, Pattern.LITERAL, name)


def run(
    cluster: ThreeNodes, works: Sequence[Coroutine[object, None, object]]
) -> list[DragomanError | None]:
    """Begin all works in one turn; the error of each."""
    errors: dict[int, DragomanError | None] = {}

    def done(number: int, result: object) -> None:
        errors[number] = result if isinstance(result, DragomanError) else None

    for number, work in enumerate(works):
        start(work).then(partial(done, number))
    cluster.wait(lambda: len(errors) == len(works))
    return [errors[number] for number in range(len(works))]


def agree(cluster: ThreeNodes) -> Broker:
    """Wait until all nodes have the same users and rules; any of them."""
    images = [cluster.broker(each).image for each in NODES]
    first = images[0]
    cluster.wait(
        lambda: all(
            (list(each.rules), each.users, each.security_mode)
            == (list(first.rules), first.users, first.security_mode)
            for each in images
        )
    )
    return cluster.broker(1)


def test_rules_added_on_several_nodes_at_once_are_all_there(cluster: ThreeNodes) -> None:
    added = {node: [rule(f"{node}-{number}") for number in range(20)] for node in NODES}
    shared = rule("shared")
    works = [
        cluster.broker(node).access.rules.add([each, shared], OPERATOR)
        for number in range(20)
        for node in NODES
        for each in [added[node][number]]
    ]
    assert run(cluster, works) == [None] * len(works)
    found = set(agree(cluster).image.rules)
    assert found == {shared, *(each for rules in added.values() for each in rules)}
    for node in NODES:
        index = cluster.broker(node).rule_authorizer
        for each in found:
            decided = index.decide(ALICE, Operation.READ, Resource.TOPIC, each.name)
            assert decided.rule == each
    removals = [
        cluster.broker(node).access.rules.remove([RuleFilter()], OPERATOR) for node in NODES
    ]
    assert run(cluster, removals) == [None] * len(NODES)
    assert not agree(cluster).image.rules


def test_a_name_is_given_to_one_user_only(cluster: ThreeNodes) -> None:
    works = [
        cluster.broker(node).access.users.create("bob", {"SCRAM-SHA-256": VERIFIER}, OPERATOR)
        for node in NODES
    ]
    errors = run(cluster, works)
    assert sorted(isinstance(each, UserExists) for each in errors) == [False, True, True]
    works = [
        cluster.broker(node).access.users.create_token("bob", OPERATOR, label=str(node))
        for node in NODES
    ]
    assert run(cluster, works) == [None] * len(NODES)
    tokens = agree(cluster).image.users["bob"].tokens
    assert sorted(each.label for each in tokens) == ["1", "2", "3"]


def test_last_administrator_is_not_removed_while_rules_begin_to_be_enforced(
    cluster: ThreeNodes,
) -> None:
    first, second = cluster.broker(1), cluster.broker(2)
    administers = rule(CLUSTER_NAME, Operation.ALTER, Resource.CLUSTER)
    assert run(cluster, [first.access.rules.add([administers], OPERATOR)]) == [None]
    agree(cluster)
    wanted = RuleFilter(resources=frozenset([Resource.CLUSTER]))
    errors = run(
        cluster,
        [
            second.access.rules.remove([wanted], OPERATOR),
            first.access.change_mode("enforce", OPERATOR),
        ],
    )
    # Whatever came first: the mode was not changed without an administrator.
    image = agree(cluster).image
    assert errors[0] is None
    assert (image.security_mode == "enforce") == (errors[1] is None)
    if errors[1] is None:
        run(cluster, [first.access.change_mode("open", OPERATOR)])
