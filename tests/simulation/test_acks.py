"""Goal: a producer waits for as many replicas as its `acks` asks for, and for no more.

Method: three whole nodes in simulation and clients of each protocol. A follower is cut off, or both
are, and the simulated time until the answer is measured: `acks` 0 and 1 are answered within a few
round trips, `all` when the in-sync set has shrunk to those that have the records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Literal

import pytest

from dragoman.client.cursus import CursusClient, CursusError, CursusSettings
from dragoman.client.kafka import KafkaClient
from dragoman.client.mlog import AckMode, ClientSettings, MlogClient
from dragoman.client.rocketmq import Message, RocketmqClient
from dragoman.errors import DragomanError
from dragoman.protocols.cursus import codec
from dragoman.testing.sim.loop import SimLoop
from dragoman.testing.sim.scheduler import SimClock
from worlds.broker import batch_of
from worlds.cluster import ThreeNodes
from worlds.cursus import batch

TOPIC = "t"
#: A few syncs and round trips, and far less than it takes to shrink the in-sync set.
SOON_S = 0.3


@pytest.fixture
def cluster() -> ThreeNodes:
    """Node 1 leads the topic, whose writes for all need two replicas."""
    cluster = ThreeNodes()
    cluster.create(TOPIC, (1, 2, 3), min_insync_replicas="2")
    # Connections between nodes, and what the cluster keeps of producers, are there before.
    for node in (1, 2):
        cluster.run(publish(cluster, "all", node))
        cluster.run(publish_batch(cluster, "all", node, is_idempotent=True))
    return cluster


async def produce(cluster: ThreeNodes, acks: int, *values: bytes) -> None:
    settings = ClientSettings(operation_timeout_s=0.1)
    async with MlogClient(cluster.address(1, "mlog"), settings=settings) as client:
        if len(values) > 1:
            await client.produce_batch(TOPIC, values, acks=acks)
        else:
            await client.produce(TOPIC, *values, acks=acks)


async def publish(cluster: ThreeNodes, acks: str, node: int, *, topic: str = TOPIC) -> None:
    settings = CursusSettings(operation_timeout_s=0.1)
    async with CursusClient(cluster.address(node, "cursus"), settings) as client:
        arguments = {"topic": topic, "partition": 0, "producerId": f"p{node}", "acks": acks}
        await client.command("PUBLISH", arguments, message=b"v", repeat=False)


async def publish_batch(
    cluster: ThreeNodes, acks: str, node: int, *, is_idempotent: bool, first: int = 1
) -> None:
    settings = CursusSettings(operation_timeout_s=0.1)
    async with CursusClient(cluster.address(node, "cursus"), settings) as client:
        sent = batch(
            "v",
            topic=TOPIC,
            acks=acks,
            idempotent=is_idempotent,
            producer=f"q{node}",
            first=first if is_idempotent else 0,
        )
        reply = await client.ask(codec.encode_batch(sent))
        assert '"status":"OK"' in str(reply)


async def send(cluster: ThreeNodes, loop: SimLoop, *, waits: bool) -> None:
    message = Message(topic=TOPIC, body=b"v", properties={"WAIT": "true" if waits else "false"})
    address, clock = cluster.address(1, "rocketmq"), SimClock(loop)
    async with (
        RocketmqClient(address, clock=clock, random=Random(1)) as client,
        client.producer("g") as producer,
    ):
        await producer.send(message)


async def produce_kafka(cluster: ThreeNodes, loop: SimLoop, acks: Literal[-1, 0, 1]) -> None:
    address, clock = cluster.address(1, "kafka"), SimClock(loop)
    async with KafkaClient(address, clock=clock, random=Random(1)) as client:
        await client.produce(TOPIC, 0, batch_of(b"v", timestamp=clock.wall_ms()), acks=acks)


FEWER = ("0", "1", "")


@pytest.mark.parametrize("acks", [AckMode.NONE, AckMode.LEADER])
@pytest.mark.parametrize("away", [(3,), (2, 3)])
def test_mlog_waits_for_no_follower(cluster: ThreeNodes, acks: int, away: tuple[int, ...]) -> None:
    cluster.isolate(*away)
    for values in ((b"a",), (b"b", b"c")):
        assert cluster.timed(produce(cluster, acks, *values))[1] < SOON_S


@pytest.mark.parametrize("acks", FEWER)
@pytest.mark.parametrize("away", [(3,), (2, 3)])
def test_cursus_waits_for_no_follower(
    cluster: ThreeNodes, acks: str, away: tuple[int, ...]
) -> None:
    cluster.isolate(*away)
    if acks:
        assert cluster.timed(publish(cluster, acks, 1))[1] < SOON_S
    for is_idempotent in (False, True):
        sent = publish_batch(cluster, acks, 1, is_idempotent=is_idempotent, first=2)
        assert cluster.timed(sent)[1] < SOON_S


@pytest.mark.parametrize("acks", FEWER)
def test_what_another_node_relays_waits_for_no_follower(cluster: ThreeNodes, acks: str) -> None:
    cluster.isolate(3)
    if acks:
        assert cluster.timed(publish(cluster, acks, 2))[1] < SOON_S
    for is_idempotent in (False, True):
        sent = publish_batch(cluster, acks, 2, is_idempotent=is_idempotent, first=2)
        assert cluster.timed(sent)[1] < SOON_S


def test_those_who_ask_for_all_wait_until_the_follower_is_out_of_sync(cluster: ThreeNodes) -> None:
    """The method shows the difference: a producer that does not wait overtakes those that do."""
    cluster.isolate(3)
    waits: list[Callable[[], Coroutine[Any, Any, None]]] = [
        lambda: produce(cluster, AckMode.ALL, b"a"),
        lambda: publish(cluster, "all", 1),
        lambda: publish(cluster, "-1", 2),
        lambda: publish_batch(cluster, "all", 2, is_idempotent=True, first=2),
    ]
    before = cluster.world.now
    tasks = [cluster.world.start(each(), cluster.client()) for each in waits]
    # In one batch with them, and in a line beside theirs.
    fewer = [
        produce(cluster, AckMode.LEADER, b"b"),
        publish(cluster, "1", 1),
        publish(cluster, "1", 2),
        publish_batch(cluster, "1", 2, is_idempotent=False),
    ]
    others = [cluster.world.start(each, cluster.client()) for each in fewer]
    cluster.wait(lambda: all(each.done() for each in others))
    assert cluster.world.now - before < SOON_S
    assert not any(each.done() for each in tasks)
    cluster.wait(lambda: all(each.done() for each in tasks))
    for each in (*others, *tasks):
        each.result()


def test_without_the_other_two_only_those_who_ask_for_all_fail(cluster: ThreeNodes) -> None:
    cluster.nodes[2].kill()
    cluster.nodes[3].kill()
    with pytest.raises(DragomanError):
        cluster.run(produce(cluster, AckMode.ALL, b"a"))
    assert cluster.timed(produce(cluster, AckMode.LEADER, b"b"))[1] < SOON_S
    assert cluster.timed(publish(cluster, "1", 1))[1] < SOON_S


def test_too_few_replicas_in_sync_refuse_only_those_who_ask_for_all(cluster: ThreeNodes) -> None:
    cluster.create("u", (1, 3), min_insync_replicas="2")
    cluster.nodes[3].kill()
    for node in (1, 2):
        image = cluster.broker(node).image
        cluster.wait(lambda image=image: len(image.topics["u"].partitions[0].in_sync) == 1)
        assert cluster.timed(publish(cluster, "1", node, topic="u"))[1] < SOON_S
        with pytest.raises(CursusError, match=r"min\.insync\.replicas"):
            cluster.run(publish(cluster, "all", node, topic="u"))


def test_a_rocketmq_message_that_is_not_waited_for_waits_for_no_follower(
    cluster: ThreeNodes,
) -> None:
    cluster.isolate(3)
    seconds = []
    for waits in (False, True):
        loop, before = cluster.client(), cluster.world.now
        cluster.world.run(send(cluster, loop, waits=waits), loop, 60)
        seconds.append(cluster.world.now - before)
    assert seconds[0] < SOON_S < seconds[1]


@pytest.mark.parametrize("acks", [0, 1])
def test_kafka_waits_for_no_follower(cluster: ThreeNodes, acks: Literal[0, 1]) -> None:
    cluster.isolate(2, 3)
    loop = cluster.client()
    before = cluster.world.now
    cluster.world.run(produce_kafka(cluster, loop, acks), loop, 60)
    assert cluster.world.now - before < SOON_S


def test_one_connection_keeps_its_order_whatever_its_messages_ask_for(cluster: ThreeNodes) -> None:
    """On a node that does not lead, where messages of both kinds go by lines of their own."""

    async def publish_all() -> None:
        async with CursusClient(cluster.address(2, "cursus")) as client:
            await asyncio.gather(
                *(
                    client.command(
                        "PUBLISH",
                        {"topic": TOPIC, "partition": 0, "producerId": "p", "acks": acks},
                        message=b"%d" % number,
                        repeat=False,
                    )
                    for number, acks in enumerate(("all", "1", "1", "all", "0", "all", "1"))
                )
            )

    log = cluster.broker(1).partitions.find(TOPIC, 0).log
    first = log.log_end_offset
    cluster.run(publish_all())
    found = [each.value for each in log.iterate(first, log.log_end_offset)]
    assert found == [b"%d" % number for number in range(7)]
