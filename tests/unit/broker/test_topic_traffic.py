"""Traffic of topics: counted once, whatever way a record takes, in a bounded number of series."""

from __future__ import annotations

import pytest

from dragoman import limits
from dragoman.broker.topic_traffic import TopicTraffic
from dragoman.protocols.cursus.messages import Batch
from dragoman.protocols.minibroker import messages as b
from dragoman.protocols.mlog import messages as g
from dragoman.protocols.rocketmq.constants import Request
from worlds.broker import Wire, World, batch_of, fetch_request, produce_request
from worlds.cursus import CursusPipe, messages
from worlds.minibroker import Peer
from worlds.minibroker import service_of as minibroker_service
from worlds.mlog import MlogPipe
from worlds.rocketmq import RocketmqPipe


def shown(world: World) -> dict[tuple[str, str, str], tuple[int, int]]:
    flows = world.broker.traffic.flows()
    return {key: (flow.size, flow.records) for key, flow in flows.items()}


def test_records_of_kafka_are_counted_on_both_ways() -> None:
    world = World()
    world.create("t", 2)
    wire = Wire(world)
    batch = batch_of(b"v", b"w")
    # The first request of a partition takes the ordinary way, the others the express.
    for partition in (0, 1, 0, 1, 1, 0):
        wire.send(produce_request("t", bytearray(batch), partition=partition), 7)
    world.settle()
    for _ in range(4):
        wire.send(produce_request("t", bytearray(batch)), 7)
        world.settle()
    assert shown(world) == {("t", "in", "kafka"): (10 * len(batch), 20)}


def test_repeated_batch_is_counted_once() -> None:
    world = World()
    world.create("t")
    wire = Wire(world)
    first = batch_of(b"v", producer_id=5, producer_epoch=0, base_sequence=0)
    second = batch_of(b"w", producer_id=5, producer_epoch=0, base_sequence=1)
    for batch in (first, first, second, second, first):
        wire.send(produce_request("t", bytearray(batch)), 7)
        world.settle()
    assert shown(world) == {("t", "in", "kafka"): (2 * len(first), 2)}


def test_refused_batch_is_not_counted() -> None:
    world = World()
    world.create("t")
    wire = Wire(world)
    wire.send(produce_request("t", batch_of(b"v")[:-1]), 7)
    world.settle()
    assert shown(world) == {}


def test_records_that_a_fetch_returns_are_counted_from_its_offset() -> None:
    world = World()
    (replica,) = world.create("t")
    batch = batch_of(b"v", b"w", b"x")
    world.append(replica, batch)
    wire = Wire(world)
    wire.send(fetch_request("t", 1), 11)
    world.settle()
    assert shown(world) == {("t", "out", "kafka"): (len(batch), 2)}


def test_messages_of_rocketmq_are_counted() -> None:
    world = World()
    pipe = RocketmqPipe(world)
    world.create("t")
    pipe.ok(
        Request.SEND_MESSAGE_V2,
        {"a": "g", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0, "i": ""},
        b"body",
    )
    assert shown(world) == {("t", "in", "rocketmq"): (4, 1)}


def test_messages_of_cursus_are_counted() -> None:
    world = World()
    pipe = CursusPipe(world)
    pipe.ask("CREATE topic=t partitions=1")
    pipe.ask("PUBLISH topic=t acks=1 producerId=p message=hello")
    pipe.publish(Batch(topic="t", partition=0, messages=messages("a", "bc")))
    pipe.ask_batch("CONSUME topic=t partition=0 offset=0 member=m group=g batch=10")
    found = shown(world)
    assert found["t", "in", "cursus"] == (8, 3)
    assert found["t", "out", "cursus"] == (8, 3)


def test_messages_of_minibroker_are_counted() -> None:
    world = World()
    peer = Peer(world, minibroker_service(world))
    world.create("t")
    peer.publish("t", b"one", b"two", key=b"k")
    peer.send(b.SubscribeOffset(topic="t", partition=0, offset=0))
    peer.events()
    assert shown(world) == {
        ("t", "in", "minibroker"): (8, 2),
        ("t", "out", "minibroker"): (8, 2),
    }


def test_messages_of_mlog_are_counted() -> None:
    world = World()
    pipe = MlogPipe(world)
    world.create("t")
    pipe.ask(g.Produce(topic="t", value=b"one", acks=1), g.ProduceResp)
    pipe.ask(g.ProduceBatch(topic="t", values=[b"two", b"three"], acks=1), g.ProduceBatchResp)
    pipe.ask(g.FetchBatch(topic="t", id="c", offset=1, max_count=10), g.FetchBatchResp)
    assert shown(world) == {("t", "in", "mlog"): (11, 3), ("t", "out", "mlog"): (8, 2)}


# ---- the bound


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.broker.topic_traffic.TOPIC_FLOWS_MAX", 2)


@pytest.mark.usefixtures("few")
def test_topics_beyond_the_bound_are_counted_together() -> None:
    traffic = TopicTraffic()
    for topic in "abcd":
        traffic.received("kafka")[topic].add(1, 1)
        traffic.sent("mlog")[topic].add(1, 1)
    flows = {key: flow.records for key, flow in traffic.flows().items()}
    assert flows == {
        ("a", "in", "kafka"): 1,
        ("a", "out", "mlog"): 1,
        ("other", "in", "kafka"): 3,
        ("other", "out", "mlog"): 3,
    }


@pytest.mark.usefixtures("few")
def test_common_count_does_not_fall_when_a_topic_is_deleted() -> None:
    traffic = TopicTraffic()
    for topic in "abc":
        traffic.received("kafka")[topic].add(1, 1)
    traffic.keep({"b", "c"})
    traffic.received("kafka")["c"].add(1, 1)
    flows = {key: flow.records for key, flow in traffic.flows().items()}
    named = {("b", "in", "kafka"): 1, ("c", "in", "kafka"): 1}
    assert flows == {**named, ("other", "in", "kafka"): 1}


def test_all_flows_are_shown_as_series_of_their_own() -> None:
    assert limits.TOPIC_FLOWS_MAX + 100 <= limits.METRIC_SERIES_MAX
