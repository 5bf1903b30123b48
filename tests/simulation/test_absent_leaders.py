"""Goal: while leaders are away, clients hear that they may ask again, and are not sent to the dead.

Method: three whole nodes in simulation, of which one or two are killed, lose their power or freeze;
requests of mlog, Cursus and minibroker clients arrive in the same moment.
"""

from __future__ import annotations

import asyncio

import pytest

from dragoman.client.cursus import CursusClient, CursusError, CursusSettings
from dragoman.client.minibroker import ClientSettings, MinibrokerClient, RefusedError
from dragoman.limits import MLOG_LEADER_WAIT_S
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.connection import Connection, Role
from dragoman.protocols.mlog.constants import Encoding
from dragoman.protocols.mlog.errors import ErrorCode
from worlds.cluster import NODES, PORTS, ThreeNodes, host

TOPIC = "t"


class Answers(asyncio.Protocol):
    """One mlog connection without the client's rules: no search for leaders, nothing repeated."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._connection = Connection(Role.CLIENT, encoding=Encoding.JSON)
        self.found: list[m.Message] = []
        self.all: asyncio.Future[list[m.Message]] = asyncio.get_running_loop().create_future()

    def encoded(self, *requests: m.Message) -> bytes:
        return b"".join(map(self._connection.send, requests))

    def data_received(self, data: bytes) -> None:
        self.found += self._connection.receive_data(data)
        if len(self.found) == self._left:
            self.all.set_result(self.found)


async def ask_all(node: int, *requests: m.Message) -> list[m.Message]:
    loop = asyncio.get_running_loop()
    transport, answers = await loop.create_connection(
        lambda: Answers(len(requests)), host(node), PORTS["mlog"]
    )
    transport.write(answers.encoded(*requests))
    found = await answers.all
    transport.close()
    return found


async def ask(node: int, request: m.Message) -> m.Message:
    (answer,) = await ask_all(node, request)
    return answer


def code(answer: m.Message) -> int:
    assert isinstance(answer, m.RPCError), answer
    return answer.code


def raft_leader(cluster: ThreeNodes) -> int:
    cluster.wait(lambda: cluster.broker(1).quorum.leader in NODES)
    return cluster.broker(1).quorum.leader


def end(cluster: ThreeNodes, number: int, how: str) -> None:
    node = cluster.nodes[number]
    match how:
        case "killed":
            node.kill()
        case "without power":
            node.cut_power()
        case _:
            assert node.loop is not None
            node.loop.is_paused = True


@pytest.mark.parametrize("how", ["killed", "without power", "frozen"])
def test_a_leader_that_is_gone_is_not_named(how: str) -> None:
    cluster = ThreeNodes()
    gone = raft_leader(cluster)
    others = [each for each in NODES if each != gone]
    cluster.create(TOPIC, (gone, *others))
    named = {f"{host(each)}:{PORTS['mlog']}" for each in others}
    end(cluster, gone, how)
    requests = [m.FindTopicLeader(topic=TOPIC), m.FindRaftLeader()]
    asked = [
        cluster.world.start(ask(node, request), cluster.client())
        for node in others
        for request in requests
    ]
    cluster.wait(lambda: all(each.done() for each in asked), 2 * MLOG_LEADER_WAIT_S)
    for each in asked:
        answer = each.result()
        if isinstance(answer, m.FindTopicLeaderResp):
            assert answer.leader_addr in named
        elif isinstance(answer, m.FindRaftLeaderResp):
            assert answer.raft_leader_addr in named
        else:
            assert code(answer) in (ErrorCode.NOT_TOPIC_LEADER, ErrorCode.RAFT_LEADER_UNAVAILABLE)
    # By then the next one is known, and answers.
    found = [cluster.run(ask(others[0], each)) for each in requests]
    assert [type(each) for each in found] == [m.FindTopicLeaderResp, m.FindRaftLeaderResp]


def test_a_topic_that_no_other_node_can_lead_has_a_retryable_answer_in_time() -> None:
    cluster = ThreeNodes()
    cluster.create(TOPIC, (3,))
    cluster.nodes[3].kill()
    request = m.FindTopicLeader(topic=TOPIC)
    for _ in range(2):
        answer, seconds = cluster.timed(ask(1, request))
        assert code(answer) == ErrorCode.NOT_TOPIC_LEADER
        assert seconds == pytest.approx(MLOG_LEADER_WAIT_S, abs=0.1)
    # Replies keep the order of the requests although the first has to wait.
    found = cluster.run(ask_all(1, request, m.FindTopicLeader(topic="none"), m.FindTopicLeader()))
    assert [code(each) for each in found] == [
        ErrorCode.NOT_TOPIC_LEADER,
        ErrorCode.TOPIC_NOT_FOUND,
        ErrorCode.TOPIC_REQUIRED,
    ]


def test_a_topic_that_is_deleted_meanwhile_is_not_waited_for() -> None:
    cluster = ThreeNodes()
    cluster.create(TOPIC, (3,))
    cluster.nodes[3].kill()
    asked = cluster.world.start(ask(1, m.FindTopicLeader(topic=TOPIC)), cluster.client())
    cluster.advance(1)
    assert isinstance(cluster.run(ask(2, m.DeleteTopic(topic=TOPIC))), m.DeleteTopicResp)
    cluster.wait(asked.done, 0.5)
    assert code(asked.result()) == ErrorCode.TOPIC_NOT_FOUND


@pytest.mark.parametrize("how", ["killed", "without power"])
def test_without_a_quorum_mlog_clients_are_asked_to_come_again(how: str) -> None:
    cluster = ThreeNodes()
    cluster.create(TOPIC, (1, 2, 3))
    for number in (2, 3):
        end(cluster, number, how)
    for request in (
        m.CreateTopic(topic="new"),
        m.DeleteTopic(topic=TOPIC),
        m.CommitOffset(topic=TOPIC, id="g", offset=1),
        m.FindRaftLeader(),
    ):
        assert code(cluster.run(ask(1, request))) == ErrorCode.RAFT_LEADER_UNAVAILABLE
    # What was not agreed on is not there.
    assert "new" not in cluster.broker(1).image.topics


def test_without_a_quorum_clients_of_others_are_asked_to_come_again() -> None:
    cluster = ThreeNodes()
    cluster.nodes[2].kill()
    cluster.nodes[3].kill()

    async def create() -> None:
        settings = CursusSettings(operation_timeout_s=0.1)
        async with CursusClient(cluster.address(1, "cursus"), settings) as client:
            await client.command("CREATE", {"topic": "new", "partitions": 1})

    async def publish() -> None:
        settings = ClientSettings(retry_for_s=0.1)
        async with MinibrokerClient(cluster.address(1, "minibroker"), settings) as client:
            await client.publish("new", b"v")

    with pytest.raises(CursusError, match="no_raft_leader") as refused:
        cluster.run(create())
    assert refused.value.retriable
    assert not refused.value.is_ambiguous
    with pytest.raises(RefusedError, match="not leader"):
        cluster.run(publish())
