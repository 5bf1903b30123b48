"""Goal: clients of every protocol find the coordinator of what they name, in its own form.

Method: a node that has led the internal topics hands them over to another one.
"""

from __future__ import annotations

import pytest

from dragoman.broker.groups import OFFSETS_TOPIC
from dragoman.broker.transactions.service import TRANSACTIONS_TOPIC
from dragoman.config.settings import Settings
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from worlds.broker import Wire, World
from worlds.cursus import CursusPipe
from worlds.remote_leaders import HOST, OTHER, hand_over, register_another

SETTINGS = Settings(transaction_state_log_num_partitions=2, offsets_topic_num_partitions=2)
NO_NODE = -1


@pytest.fixture
def world() -> World:
    world = World(SETTINGS)
    world.create("t")
    wire = Wire(world)
    assert committed(wire) == 0
    assert initialised(wire).error_code == 0
    register_another(world)
    return world


def committed(wire: Wire) -> int:
    part = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = m.OffsetCommitRequestTopic(name="t", partitions=[part])
    request = m.OffsetCommitRequest(group_id="g", topics=[topic])
    (found,) = wire.ask(request, 8, m.OffsetCommitResponse).topics
    return found.partitions[0].error_code


def fetched(wire: Wire) -> m.OffsetFetchResponseGroup:
    group = m.OffsetFetchRequestGroup(group_id="g", topics=None)
    (found,) = wire.ask(m.OffsetFetchRequest(groups=[group]), 8, m.OffsetFetchResponse).groups
    return found


def initialised(wire: Wire, name: str | None = "x") -> m.InitProducerIdResponse:
    request = m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)
    return wire.ask(request, 4, m.InitProducerIdResponse)


def found(wire: Wire, key_type: int) -> m.FindCoordinatorResponseCoordinator:
    request = m.FindCoordinatorRequest(coordinator_keys=["g"], key_type=key_type)
    (answer,) = wire.ask(request, 4, m.FindCoordinatorResponse).coordinators
    return answer


def test_kafka_clients_are_sent_to_the_node_that_coordinates(world: World) -> None:
    wire = Wire(world)
    hand_over(world, OFFSETS_TOPIC)
    hand_over(world, TRANSACTIONS_TOPIC)
    for key_type in (0, 1):
        answer = found(wire, key_type)
        assert (answer.error_code, answer.node_id) == (0, OTHER)
        assert (answer.host, answer.port) == (HOST, 9192)
    single = wire.ask(m.FindCoordinatorRequest(key="g"), 3, m.FindCoordinatorResponse)
    assert (single.node_id, single.host, single.port) == (OTHER, HOST, 9192)
    assert committed(wire) == ErrorCode.NOT_COORDINATOR
    assert fetched(wire).error_code == ErrorCode.NOT_COORDINATOR
    assert initialised(wire).error_code == ErrorCode.NOT_COORDINATOR
    # One without a transactional id needs no coordinator.
    assert initialised(wire, None).error_code == 0


def test_kafka_lists_what_this_node_coordinates(world: World) -> None:
    wire = Wire(world)
    groups = m.ListGroupsRequest()
    assert len(wire.ask(groups, 4, m.ListGroupsResponse).groups) == 1
    hand_over(world, OFFSETS_TOPIC)
    answer = wire.ask(groups, 4, m.ListGroupsResponse)
    assert (answer.error_code, answer.groups) == (0, [])
    described = wire.ask(m.DescribeGroupsRequest(groups=["g"]), 5, m.DescribeGroupsResponse)
    assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    transactions = m.ListTransactionsRequest()
    listed = wire.ask(transactions, 0, m.ListTransactionsResponse)
    assert len(listed.transaction_states) == 1
    hand_over(world, TRANSACTIONS_TOPIC)
    listed = wire.ask(transactions, 0, m.ListTransactionsResponse)
    assert (listed.error_code, listed.transaction_states) == (0, [])


def test_kafka_gets_coordinator_not_available_without_a_coordinator(world: World) -> None:
    wire = Wire(world)
    hand_over(world, OFFSETS_TOPIC, NO_NODE)
    answer = found(wire, 0)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer.node_id == -1
    assert committed(wire) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_cursus_clients_are_sent_to_the_node_that_coordinates(world: World) -> None:
    pipe = CursusPipe(world)
    hand_over(world, OFFSETS_TOPIC)
    hand_over(world, TRANSACTIONS_TOPIC)
    where = f"host={HOST} port=9100"
    expected = f"OK coordinator_id={OTHER} coordinator_type=group {where}"
    assert pipe.ask("FIND_COORDINATOR group=g") == expected
    moved = f"ERROR: NOT_COORDINATOR {where}"
    assert pipe.ask("JOIN_GROUP topic=t group=g member=m") == moved
    assert pipe.ask("INIT_PRODUCER_ID transactional_id=x") == moved
    hand_over(world, OFFSETS_TOPIC, NO_NODE)
    answer = pipe.ask("FIND_COORDINATOR group=g")
    assert answer.startswith("ERROR: coordinator_not_available")
