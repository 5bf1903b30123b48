"""Requests of every protocol are counted once, under a name of a fixed table, with their errors."""

from __future__ import annotations

from dragoman.net.requests import Requests
from dragoman.protocols.kafka import messages as k
from dragoman.protocols.minibroker import messages as b
from dragoman.protocols.mlog import messages as g
from dragoman.protocols.rocketmq.constants import Request
from dragoman.protocols.rocketmq.handlers.session import RocketmqSession
from worlds.broker import Wire, World, batch_of, fetch_request, produce_request
from worlds.cursus import CursusPipe, service_of
from worlds.minibroker import Peer
from worlds.minibroker import service_of as minibroker_service
from worlds.mlog import MlogPipe
from worlds.rocketmq import RocketmqPipe


def counts(requests: Requests[object]) -> dict[str, int]:
    return {each.name: each.count for each in requests.counters()}


def errors(requests: Requests[object]) -> dict[tuple[str, str], int]:
    return {
        (each.name, requests.code_name(code)): count
        for each in requests.counters()
        for code, count in each.errors.items()
    }


# ---- Kafka


def test_kafka_requests_are_counted_on_both_ways() -> None:
    world = World()
    world.create("t")
    wire = Wire(world)
    for _ in range(3):
        for _ in range(4):
            wire.send(produce_request("t", batch_of(b"v")), 7)
        world.settle()
    requests = world.service.requests
    assert counts(requests) == {"Produce": 12}
    assert errors(requests) == {}
    assert requests[0].seconds.count == 12


def test_kafka_errors_are_counted_by_partition() -> None:
    world = World()
    world.create("t")
    wire = Wire(world)
    wire.send(produce_request("t", batch_of(b"v"), partition=7), 7)
    wire.send(produce_request("gone", batch_of(b"v")), 7)
    world.settle()
    assert errors(world.service.requests) == {("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 2}


def test_errors_in_a_reply_that_is_computed_in_slices_are_counted() -> None:
    world = World()
    wire = Wire(world)
    wire.send(
        k.MetadataRequest(
            topics=[k.MetadataRequestTopic(name="gone")], allow_auto_topic_creation=False
        ),
        9,
    )
    world.settle()
    assert errors(world.service.requests) == {("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"): 1}


def test_fetch_that_waits_for_records_does_not_count_as_slow() -> None:
    world = World()
    (replica,) = world.create("t")
    wire = Wire(world)
    wire.send(fetch_request("t", max_wait_ms=30_000), 4)
    world.advance(20)
    world.write(replica, b"v")
    counter = world.service.requests[1]
    assert counter.count == 1
    assert counter.seconds.count == 0
    assert counter.parked.seconds.total == 20


def test_requests_of_a_client_that_leaves_are_counted() -> None:
    world = World()
    world.create("t")
    wire = Wire(world)
    wire.send(produce_request("t", batch_of(b"v")), 7)
    wire.lose()
    world.settle()
    assert counts(world.service.requests) == {"Produce": 1}
    assert world.service.requests[0].dropped == 1


# ---- the others


def test_rocketmq_requests_are_counted() -> None:
    world = World()
    pipe = RocketmqPipe(world)
    pipe.ask(Request.GET_BROKER_RUNTIME_INFO)
    pipe.refused(Request.GET_MAX_OFFSET, {"topic": "gone", "queueId": 0})
    pipe.refused(9999)
    session = pipe.channel._session
    assert isinstance(session, RocketmqSession)
    requests = session.service.requests
    assert counts(requests) == {
        "GET_BROKER_RUNTIME_INFO": 1,
        "GET_MAX_OFFSET": 1,
        "unknown": 1,
    }
    assert errors(requests) == {
        ("GET_MAX_OFFSET", "TOPIC_NOT_EXIST"): 1,
        ("unknown", "REQUEST_CODE_NOT_SUPPORTED"): 1,
    }


def test_cursus_requests_are_counted() -> None:
    world = World()
    pipe = CursusPipe(world)
    pipe.ask("CREATE topic=t partitions=1")
    pipe.ask("DESCRIBE topic=gone")
    pipe.ask("NONSENSE")
    requests = service_of(world).requests
    assert counts(requests) == {"CREATE": 1, "DESCRIBE": 1, "unknown": 1}
    assert {name for name, _ in errors(requests)} == {"DESCRIBE", "unknown"}


def test_minibroker_requests_are_counted() -> None:
    world = World()
    service = minibroker_service(world)
    peer = Peer(world, service)
    world.create("t")
    peer.publish("t", b"v", b"w")
    peer.ask(b.SubscribeHead(topic="t", partition=7))
    assert counts(service.requests) == {"Publish": 2, "SubscribeHead": 1}
    assert {name for name, _ in errors(service.requests)} == {"SubscribeHead"}


def test_mlog_requests_are_counted() -> None:
    world = World()
    pipe = MlogPipe(world)
    pipe.ask(g.ListTopics(), g.ListTopicsResp)
    pipe.refused(g.Produce(topic="gone", value=b"v"))
    requests = pipe.channel._session.service.requests  # type: ignore[union-attr]
    assert counts(requests) == {"ListTopics": 1, "Produce": 1}
    assert errors(requests) == {("Produce", "TOPIC_NOT_FOUND"): 1}
