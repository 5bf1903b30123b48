"""Goal: a capture runs as a principal with every right that it uses, and not without one.

Method: captures on a node on virtual time with rules in force; users, rules and the mode change
while they run. The process is a fake; what it may do is asked of the authorizer.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from captures.runner import FakeRunner, defined
from dragoman.broker.errors import NotAuthorized
from dragoman.captures.control import Stop
from dragoman.captures.definition import POSITIONS_TOPIC, TRANSACTIONAL_PREFIX
from dragoman.cluster.events import (
    CaptureChanged,
    Event,
    RulesChanged,
    SecurityModeChanged,
    UserChanged,
    UserRemoved,
)
from dragoman.outcome import attempt, start
from dragoman.security.access import ANONYMOUS, CLUSTER_NAME, Caller, Operation, Principal, Resource
from dragoman.security.rules import Pattern, Permission, Rule
from dragoman.security.users import User
from worlds.broker import World

ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")
PROCESS = Caller(Principal("Capture", "shop"), "127.0.0.1")
TOPIC = "pgcdc.orders"


def rule(
    principal: Principal, operation: Operation, resource: Resource, name: str, *, deny: bool = False
) -> Rule:
    permission = Permission.DENY if deny else Permission.ALLOW
    return Rule(str(principal), "*", operation, permission, resource, Pattern.LITERAL, name)


WRITE = rule(ALICE, Operation.WRITE, Resource.TOPIC, TOPIC)
MARKS = tuple(
    rule(ALICE, Operation.WRITE, Resource.TOPIC, f"pgcdc.{each}")
    for each in ("_snapshot", "_heartbeat")
)
CREATE = rule(ALICE, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)


def result(world: World, work: Coroutine[object, None, Any]) -> Any:
    found: list[Any] = []
    start(attempt(work)).then(found.append)
    world.settle()
    assert found, "it has no result"
    return found[0]


def propose(world: World, *events: Event) -> None:
    async def made() -> None:
        await world.broker.changes.make(lambda: list(events))

    assert result(world, made()) is None


@pytest.fixture
def world() -> World:
    """A node that enforces rules, with the users alice and bob."""
    world = World()
    world.captures.runner = FakeRunner()
    propose(
        world,
        UserChanged(user=User(name="alice", incarnation="1")),
        UserChanged(user=User(name="bob", incarnation="1")),
        RulesChanged(added=MARKS),
        SecurityModeChanged(mode="enforce"),
    )
    return world


def runner(world: World) -> FakeRunner:
    found = world.captures.runner
    assert isinstance(found, FakeRunner)
    return found


def add(world: World, principal: Principal = ALICE, tables: tuple[str, ...] = ("orders",)) -> Any:
    return result(world, world.captures.add(defined(tables=tables), principal))


def add_shop(world: World) -> None:
    propose(world, RulesChanged(added=(WRITE, CREATE)))
    assert add(world) is None
    assert runner(world).alive == ["shop"]


def problem(world: World) -> str:
    world.settle()
    [state] = result(world, world.captures.states(["shop"])).values()
    return state.status.problem


def may(world: World, operation: Operation, resource: Resource, name: str) -> bool:
    return world.broker.authorizer.is_allowed(PROCESS, operation, resource, name)


# ---- creation


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ((CREATE,), "User:alice, which may not write to the topic pgcdc.orders"),
        ((WRITE,), "User:alice, which may not create the topic pgcdc._heartbeat"),
        (
            (WRITE, CREATE, rule(ALICE, Operation.WRITE, Resource.TOPIC, TOPIC, deny=True)),
            "may not write to the topic",
        ),
    ],
)
def test_a_capture_that_lacks_a_right_is_refused(
    world: World, rules: tuple[Rule, ...], why: str
) -> None:
    propose(world, RulesChanged(added=rules))
    error = add(world)
    assert isinstance(error, NotAuthorized)
    assert why in str(error)
    assert world.broker.image.captures == {}


def test_a_capture_with_every_right_runs_as_its_creator(world: World) -> None:
    add_shop(world)
    event = world.broker.image.captures["shop"]
    assert isinstance(event, CaptureChanged)
    assert (event.principal, event.user) == ("User:alice", "1")
    assert world.captures.principal("shop") == "User:alice"


def test_the_right_to_create_a_topic_of_that_name_is_enough(world: World) -> None:
    creates = tuple(
        rule(ALICE, Operation.CREATE, Resource.TOPIC, name)
        for name in (TOPIC, "pgcdc._snapshot", "pgcdc._heartbeat")
    )
    propose(world, RulesChanged(added=(WRITE, *creates)))
    assert add(world) is None


def test_topics_that_tables_determine_are_asked_for_when_they_are_written_to(world: World) -> None:
    propose(world, RulesChanged(added=(CREATE,)))
    assert add(world, tables=("*",)) is None
    assert not may(world, Operation.WRITE, Resource.TOPIC, TOPIC)


def test_without_rules_in_force_anyone_may_capture(world: World) -> None:
    propose(world, SecurityModeChanged(mode="open"))
    assert add(world, ANONYMOUS) is None
    assert runner(world).alive == ["shop"]


# ---- what belongs to the nodes

REFERENCE = "host=db.example user=app password=file:/etc/shop.password"
ALTER = rule(ALICE, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)


def borrow(world: World, principal: Principal = ALICE) -> Any:
    definition = defined(tables=("orders",), dsn=REFERENCE)
    return result(world, world.captures.add(definition, principal))


def test_only_administrators_use_files_and_variables_of_the_nodes(world: World) -> None:
    propose(world, RulesChanged(added=(WRITE, CREATE)))
    error = borrow(world)
    assert isinstance(error, NotAuthorized)
    assert "User:alice, which may not alter the cluster, and the DSN's password" in str(error)
    assert world.broker.image.captures == {}
    propose(world, RulesChanged(added=(ALTER,)))
    assert borrow(world) is None
    assert runner(world).alive == ["shop"]


def test_a_capture_that_uses_the_nodes_stops_with_the_right_to_alter_them(world: World) -> None:
    propose(world, RulesChanged(added=(WRITE, CREATE, ALTER)))
    assert borrow(world) is None
    propose(world, RulesChanged(removed=(ALTER,)))
    world.settle()
    assert runner(world).alive == []
    assert "may not alter the cluster" in problem(world)
    again = world.reopened(kill=True)
    again.captures.runner = FakeRunner()
    again.captures.changed()
    again.settle()
    assert runner(again).alive == []
    assert "may not alter the cluster" in problem(again)
    propose(again, RulesChanged(added=(ALTER,)))
    again.settle()
    assert runner(again).alive == ["shop"]


def test_a_capture_that_uses_the_nodes_runs_only_as_an_administrator(world: World) -> None:
    propose(world, RulesChanged(added=(WRITE, CREATE, ALTER)))
    assert borrow(world) is None
    bobs = tuple(
        rule(BOB, operation, Resource.TOPIC, name)
        for operation in (Operation.WRITE, Operation.CREATE)
        for name in (TOPIC, "pgcdc._snapshot", "pgcdc._heartbeat")
    )
    propose(world, RulesChanged(added=bobs))
    assert isinstance(result(world, world.captures.run_as("shop", BOB)), NotAuthorized)


def test_files_of_the_nodes_are_open_to_all_until_rules_are_enforced(world: World) -> None:
    for mode in ("open", "audit"):
        propose(world, SecurityModeChanged(mode=mode))
        assert borrow(world, ANONYMOUS) is None
        world.settle()
        assert runner(world).alive == ["shop"]
        assert result(world, world.captures.remove("shop", keeps_slot=True)) is None
    assert borrow(world, ANONYMOUS) is None
    propose(world, SecurityModeChanged(mode="enforce"))
    world.settle()
    assert runner(world).alive == []


@pytest.mark.parametrize("event", [RulesChanged(removed=(ALTER,)), UserRemoved(name="alice")])
def test_nobody_makes_a_capture_use_what_its_user_has_lost_the_right_to(
    world: World, event: Event
) -> None:
    propose(world, RulesChanged(added=(WRITE, CREATE, ALTER)))
    assert borrow(world) is None
    assert result(world, world.captures.check_existing("shop")) == runner(world).findings
    propose(world, event)
    world.settle()
    [finding] = result(world, world.captures.check_existing("shop"))
    assert (finding.level, "it runs as User:alice" in finding.what) == ("problem", True)
    # Its slot is in a database that the node would log in to.
    error = result(world, world.captures.remove("shop"))
    assert "--keep-slot removes the capture" in str(error)
    assert runner(world).cleaned_up == []
    assert result(world, world.captures.remove("shop", keeps_slot=True)) is None
    assert world.broker.image.captures == {}


def test_process_of_an_administrator_does_not_administer(world: World) -> None:
    everything = tuple(
        rule(ALICE, Operation.ALL, kind, name)
        for kind, name in ((Resource.CLUSTER, CLUSTER_NAME), (Resource.TOPIC, "*"))
    )
    propose(world, RulesChanged(added=everything))
    assert borrow(world) is None
    assert may(world, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
    for operation in (Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION):
        assert not may(world, operation, Resource.CLUSTER, CLUSTER_NAME)


# ---- rights that are taken away


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([RulesChanged(removed=(WRITE,))], "may not write to the topic pgcdc.orders"),
        ([UserRemoved(name="alice")], "User:alice, and this user was deleted"),
        (
            [UserChanged(user=User(name="alice", incarnation="1", is_enabled=False))],
            "this user is disabled",
        ),
        (
            [UserRemoved(name="alice"), UserChanged(user=User(name="alice", incarnation="2"))],
            "this user was deleted",
        ),
    ],
)
def test_a_capture_stops_when_it_loses_a_right(world: World, events: list[Event], why: str) -> None:
    add_shop(world)
    [ran] = runner(world).ran
    propose(world, *events)
    world.settle()
    assert ran.told == [Stop()]
    assert runner(world).alive == []
    assert why in problem(world)
    world.advance(1_000)
    assert len(runner(world).ran) == 1


def test_a_capture_starts_again_with_its_right(world: World) -> None:
    add_shop(world)
    propose(world, RulesChanged(removed=(WRITE,)))
    world.settle()
    assert runner(world).alive == []
    propose(world, RulesChanged(added=(WRITE,)))
    world.settle()
    assert runner(world).alive == ["shop"]
    assert problem(world) == ""


def test_a_capture_may_run_as_another_user(world: World) -> None:
    add_shop(world)
    error = result(world, world.captures.run_as("shop", BOB))
    assert isinstance(error, NotAuthorized)
    bobs = tuple(
        rule(BOB, operation, Resource.TOPIC, name)
        for operation in (Operation.WRITE, Operation.CREATE)
        for name in (TOPIC, "pgcdc._snapshot", "pgcdc._heartbeat")
    )
    propose(world, RulesChanged(added=bobs))
    assert result(world, world.captures.run_as("shop", BOB)) is None
    propose(world, UserRemoved(name="alice"))
    world.settle()
    assert runner(world).alive == ["shop"]
    assert world.captures.principal("shop") == "User:bob"


def test_the_right_holds_after_a_restart(world: World) -> None:
    add_shop(world)
    propose(world, UserRemoved(name="alice"))
    again = world.reopened(kill=True)
    again.captures.runner = FakeRunner()
    again.captures.changed()
    again.settle()
    assert runner(again).alive == []
    assert "was deleted" in problem(again)


# ---- what the process may do


def test_the_process_may_what_its_principal_may(world: World) -> None:
    add_shop(world)
    assert may(world, Operation.WRITE, Resource.TOPIC, TOPIC)
    assert not may(world, Operation.READ, Resource.TOPIC, TOPIC)
    assert not may(world, Operation.WRITE, Resource.TOPIC, "other")
    assert may(world, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, TOPIC)
    assert not may(world, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, "other")
    assert not may(world, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)


def test_the_process_may_use_what_belongs_to_its_capture_only(world: World) -> None:
    add_shop(world)
    transactional_id = TRANSACTIONAL_PREFIX + "shop"
    assert may(world, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    assert not may(world, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id + "2")
    assert may(world, Operation.WRITE, Resource.TOPIC, POSITIONS_TOPIC)
    assert not may(world, Operation.DELETE, Resource.TOPIC, POSITIONS_TOPIC)
    alice = Caller(ALICE)
    allowed = world.broker.authorizer.is_allowed
    assert not allowed(alice, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    assert not allowed(alice, Operation.WRITE, Resource.TOPIC, POSITIONS_TOPIC)


def test_the_process_of_a_removed_capture_may_nothing(world: World) -> None:
    add_shop(world)
    propose(world, UserRemoved(name="alice"))
    assert not may(world, Operation.WRITE, Resource.TOPIC, TOPIC)
    assert not may(world, Operation.WRITE, Resource.TOPIC, POSITIONS_TOPIC)
    any_topic = world.broker.authorizer.is_allowed_on_any
    assert not any_topic(PROCESS, Operation.WRITE, Resource.TOPIC)
    stranger = Caller(Principal("Capture", "none"))
    assert not world.broker.authorizer.is_allowed(stranger, Operation.WRITE, Resource.TOPIC, TOPIC)
