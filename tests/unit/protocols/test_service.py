"""Goal: every protocol finds nodes, asks for permission and loads handlers in the same way.

Method: a service of an invented protocol for a node that is made of the few things it needs.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import pytest

from dragoman.broker.errors import (
    ClusterNotAuthorized,
    GroupNotAuthorized,
    NotAuthorized,
    TransactionalIdNotAuthorized,
)
from dragoman.broker.topic_traffic import TopicTraffic
from dragoman.cluster.events import NodeAdded, NodeRegistered
from dragoman.cluster.metadata import MetadataImage
from dragoman.net.admission import MemoryBudget
from dragoman.operating_system import SystemClock
from dragoman.protocols.kafka.handlers.session import KafkaSession
from dragoman.protocols.service import Core, Service, handlers_by_name
from dragoman.security.access import Caller, Operation, Principal, Resource
from dragoman.security.authorizer import AllowAll, Authorizer
from dragoman.world import Clock
from worlds.broker import Pipe, World
from worlds.remote_leaders import propose

ALICE = Caller(Principal("User", "alice"))


class ReadOnly(AllowAll):
    def is_allowed(
        self,
        caller: Caller,
        operation: Operation,
        resource: Resource,
        name: str,
    ) -> bool:
        return operation is Operation.READ


class Node(NamedTuple):
    image: MetadataImage
    authorizer: Authorizer = ReadOnly()
    node_id: int = 1
    clock: Clock = SystemClock()
    traffic: TopicTraffic = TopicTraffic()


class Example(Service[Core]):
    advertised_listener = "example"


class Spaced(Example):
    word_separator = " "


def service(image: MetadataImage | None = None) -> Example:
    node = Node(World().broker.image if image is None else image)
    return Example(node, MemoryBudget(1 << 20), lambda _: ("own.example", 1))


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        (Resource.TOPIC, NotAuthorized),
        (Resource.GROUP, GroupNotAuthorized),
        (Resource.TRANSACTIONAL_ID, TransactionalIdNotAuthorized),
        (Resource.CLUSTER, ClusterNotAuthorized),
    ],
)
def test_refusal_has_the_class_of_its_resource(
    resource: Resource, kind: type[NotAuthorized]
) -> None:
    example = service()
    example.authorize(ALICE, Operation.READ, resource, "x")
    with pytest.raises(NotAuthorized) as refused:
        example.authorize(ALICE, Operation.WRITE, resource, "x")
    assert type(refused.value) is kind
    assert str(refused.value) == f"alice may not write {resource.value} 'x'"


def test_words_of_a_refusal_are_separated_as_the_protocol_has_it() -> None:
    spaced = Spaced(Node(World().broker.image), MemoryBudget(1 << 20), lambda _: ("", 0))
    with pytest.raises(NotAuthorized, match=r"^alice may not alter configs transactional id 'x'$"):
        spaced.authorize(ALICE, Operation.ALTER_CONFIGS, Resource.TRANSACTIONAL_ID, "x")


def test_permission_is_what_the_authorizer_says() -> None:
    example = service()
    assert example.is_allowed(ALICE, Operation.READ, Resource.TOPIC, "x")
    assert not example.is_allowed(ALICE, Operation.WRITE, Resource.TOPIC, "x")


def test_nodes_are_found_where_they_registered_and_this_one_where_it_is_advertised() -> None:
    world = World()
    addresses = {"example": "[::1]:7", "other": "other.example:8"}
    propose(world, NodeAdded(node_id=2, address="peer:9"))
    propose(world, NodeRegistered(node_id=2, incarnation=1, addresses=addresses))
    example = service(world.broker.image)
    channel = Pipe(world, partial(KafkaSession, service=world.service)).channel
    assert example.address_of(channel, 1) == ("own.example", 1)
    assert example.address_of(channel, 2) == example.registered(2) == ("::1", 7)
    assert example.address_of(channel, 3) is None
    example.advertised_listener = "other"
    assert example.registered(2) == ("other.example", 8)


@pytest.mark.parametrize("address", ["", "no port", "host:", ":7", "host:x"])
def test_address_that_cannot_be_read_is_not_known(address: str) -> None:
    world = World()
    propose(world, NodeAdded(node_id=2, address="peer:9"))
    propose(world, NodeRegistered(node_id=2, incarnation=1, addresses={"example": address}))
    assert service(world.broker.image).registered(2) is None


def test_handler_takes_the_place_of_its_loader() -> None:
    table = handlers_by_name("dragoman.protocols", {1: "service.Service", 2: "service.missing"})
    loader = table[1]
    loader(Node(World().broker.image), MemoryBudget(1), lambda _: ("", 0))
    assert table[1] is Service
    with pytest.raises(AttributeError, match="missing"):
        table[2]()
