"""Goal: whichever node a Cursus client publishes to, its messages are in the log once and in order,
and a transaction spans partitions and groups of all nodes.

Method: two nodes on one virtual time; topics whose leaders are given, a line between the nodes that
holds requests back, loses answers, or is cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.groups import OFFSETS_TOPIC
from dragoman.broker.leader_queues import Append, Relay
from dragoman.broker.topics import NewTopic
from dragoman.broker.transactions.participants import Enrol
from dragoman.cluster.events import NodeFenced
from dragoman.errors import ClusterError
from dragoman.limits import CURSUS_COORDINATOR_WAIT_S, RELAY_PATIENCE_S
from dragoman.outcome import start
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.handlers.state import STATE_TOPIC
from dragoman.protocols.cursus.messages import Batch
from worlds.cursus import CursusPipe, batch, payloads
from worlds.two_nodes import Pair

TOPIC = "orders"
_TRANSACTIONS = "__transaction_state"


class Client(CursusPipe):
    """Its questions are answered when both nodes have come to rest."""

    def __init__(self, pair: Pair, node: int) -> None:
        super().__init__(pair.worlds[node])
        self._pair = pair

    def publish_text(self, number: int = 0, payload: str = "m", more: str = "") -> str:
        where = f"topic={TOPIC} partition={number} producerId=p {more}"
        return self.ask(f"PUBLISH {where} message={payload}")


@pytest.fixture
def pair() -> Pair:
    """Node 1 leads partition 0 and node 2 partition 1."""
    made = Pair()
    made.create(TOPIC, 1, 2)
    made.create_internal(OFFSETS_TOPIC, _TRANSACTIONS)
    state = NewTopic(name=STATE_TOPIC, assignment=((2,),), is_internal=True)
    start(made.one.broker.topics.create(state)).then(lambda _: None)
    made.settle()
    # Both serve Cursus to any client.
    for node in made.worlds:
        Client(made, node)
    return made


def stored(pair: Pair, partition: int) -> list[str]:
    """What the leader shows."""
    leader = pair.one.broker.image.topics[TOPIC].partitions[partition].leader
    client = Client(pair, leader)
    command = f"CONSUME topic={TOPIC} partition={partition} offset=0 member=m"
    return payloads(client.ask_batch(command))


# ---- publishing


def test_messages_go_to_the_leader_and_come_back_with_its_offsets(pair: Pair) -> None:
    client = Client(pair, 1)
    expected = '{"status":"OK","last_offset":%d,"producer_epoch":0,"producer_id":"p",'
    assert client.publish_text(1, "a").startswith(expected % 0)
    assert client.publish_text(1, "b", "acks=-1").startswith(expected % 1)
    assert client.publish_text(1, "c", "acks=0") == "OK"
    assert client.publish(batch("d", "e", partition=1)).last_offset == 4
    assert client.publish_text(0, "f").startswith(expected % 0)
    assert stored(pair, 1) == ["a", "b", "c", "d", "e"]
    assert stored(pair, 0) == ["f"]


def test_readers_are_still_sent_to_the_leader(pair: Pair) -> None:
    """As in the original: they stay for longer."""
    told = Client(pair, 1).ask(f"CONSUME topic={TOPIC} partition=1 offset=0 member=m")
    assert told == "ERROR: NOT_LEADER LEADER_IS node-2.example:9000"


def test_a_producer_that_goes_from_node_to_node_is_one(pair: Pair) -> None:
    one, two = Client(pair, 1), Client(pair, 2)
    sent = batch("a", "b", partition=1, idempotent=True)
    assert one.publish(sent).last_offset == 1
    for client in (two, one):
        again = client.publish(sent)
        assert (again.status, again.last_offset) == ("OK", 1)
    assert two.publish(batch("c", partition=1, idempotent=True, first=3)).last_offset == 2
    gap = one.publish(batch("x", partition=1, idempotent=True, first=5))
    assert (gap.status, gap.error) == ("ERROR", "sequence_gap producer=p1 got=5")
    overlap = one.publish(batch("c", "d", partition=1, idempotent=True, first=3))
    assert (overlap.status, overlap.last_offset) == ("OK", 3)
    more = "isIdempotent=true seqNum=1 acks=0"
    assert one.publish_text(1, "e", more) == one.publish_text(1, "e", more) == "OK"
    assert stored(pair, 1) == ["a", "b", "c", "d", "e"]


def test_an_older_instance_of_a_producer_is_refused_everywhere(pair: Pair) -> None:
    one, two = Client(pair, 1), Client(pair, 2)
    assert two.publish(batch("a", partition=1, idempotent=True, epoch=2)).status == "OK"
    for client in (one, two):
        refused = client.publish(batch("x", partition=1, idempotent=True, epoch=1))
        assert refused.error == "stale_producer_epoch producer=p1 current=2 got=1"


def test_a_batch_whose_answer_is_lost_is_not_there_twice(pair: Pair) -> None:
    client = Client(pair, 1)
    sent = batch("a", partition=1, idempotent=True)
    client.publish(batch("0", partition=0, idempotent=True))
    pair.lines[1].loses_answers = True
    assert b"outcome is unknown" in client.ask_raw(codec.encode_batch(sent))
    pair.lines[1].loses_answers = False
    assert client.publish(sent).last_offset == 0
    assert stored(pair, 1) == ["a"]


def test_what_the_leader_refuses_is_said_in_the_form_that_the_client_asked_for(pair: Pair) -> None:
    client = Client(pair, 1)
    client.ask("NEGOTIATE version=1 features=structured_errors_v1")
    messages = [*batch("a").messages, *batch("b", producer="p2").messages]
    both = Batch(topic=TOPIC, partition=1, messages=messages, idempotent=True)
    assert client.ask_raw(codec.encode_batch(both)) == (
        b"ERROR: broker_error class=internal retryable=false "
        b'reason="a batch with sequence numbers has one producer"'
    )


def test_messages_keep_their_order_while_the_lead_moves_here(pair: Pair) -> None:
    client = Client(pair, 1)
    line = pair.lines[1]
    line.held = []
    client.feed(
        b"".join(codec.frame(codec.encode_batch(batch(each, partition=1))) for each in "ab")
    )
    pair.settle()
    publish = f"PUBLISH topic={TOPIC} partition=1 producerId=p message=c"
    client.feed(codec.frame(publish.encode()))
    pair.move(TOPIC, 1, 1)
    line.release()
    pair.advance(1)
    acks = [codec.decode_ack(each.decode()) for each in client.frames()]
    assert [each.last_offset for each in acks] == [0, 1, 2]
    assert stored(pair, 1) == ["a", "b", "c"]


def test_a_leader_that_cannot_be_reached_is_named(pair: Pair) -> None:
    pair.lines[1].is_cut = True
    client = Client(pair, 1)
    client.feed(codec.frame(codec.encode_batch(batch("a", partition=1))))
    pair.advance(RELAY_PATIENCE_S + 1)
    (told,) = client.frames()
    assert told.startswith(b"ERROR: NOT_LEADER")
    assert pair.two.broker.partitions.find(TOPIC, 1).log.log_end_offset == 0


def test_a_leader_that_serves_no_cursus_says_so(pair: Pair) -> None:
    del pair.two.broker.leader_queues.protocols["cursus"]
    told = Client(pair, 1).ask_raw(codec.encode_batch(batch("a", partition=1)))
    assert told == b'ERROR: command_failed reason="no listener of this node serves cursus"'


def test_messages_by_text_share_a_request(pair: Pair) -> None:
    client = Client(pair, 1)
    publish = f"PUBLISH topic={TOPIC} partition=1 producerId=p message=".encode()
    client.feed(b"".join(codec.frame(publish + b"%d" % number) for number in range(10)))
    pair.settle()
    assert len(client.frames()) == 10
    assert [type(each) for each in pair.lines[1].asked] == [Append]
    assert stored(pair, 1) == [str(number) for number in range(10)]


def test_any_node_returns_offsets_of_all_partitions(pair: Pair) -> None:
    """No node leads them all: a redirected client would be redirected for ever."""
    one = Client(pair, 1)
    one.publish(batch("a", "b", partition=1))
    asked = f"LIST_OFFSETS topic={TOPIC}"
    shown = "P0:earliest=0:latest=0:leo=0:hwm=0,P1:earliest=0:latest=2:leo=2:hwm=2"
    expected = f"OK topic={TOPIC} partitions=2 offsets={shown}"
    assert one.ask(asked) == Client(pair, 2).ask(asked) == expected
    for client in (one, Client(pair, 2)):
        assert '"leo": 2' in client.ask(f"DESCRIBE topic={TOPIC}")
    pair.lines[1].is_cut = True
    assert one.ask(asked).startswith("ERROR: ")
    assert one.ask(f"{asked} partition=0").endswith("P0:earliest=0:latest=0:leo=0:hwm=0")


# ---- transactions


class Transactional(Client):
    """At the coordinator of its transactional id, which is node 1."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair, 1)
        coordinator = pair.one.broker.coordination.coordinator_of
        self.name = named(lambda name: coordinator(CoordinatorKind.TRANSACTION, name) == 1)
        reply = self.ask(f"INIT_PRODUCER_ID transactional_id={self.name}")
        found = re.search(r"producerId=txn-[0-9a-f]{16} epoch=\d+", reply)
        assert found, reply
        self.who = f"transactional_id={self.name} {found[0]}"
        assert self.ask(f"BEGIN_TXN {self.who}").startswith("OK ")

    def stage(self, seq_num: int, payload: str, partition: int) -> str:
        where = f"topic={TOPIC} partition={partition} seqNum={seq_num}"
        return self.ask(f"TXN_PUBLISH {self.who} {where} message={payload}")

    def end(self, result: str) -> str:
        return self.ask(f"END_TXN {self.who} result={result}")


def named(is_it: Callable[[str], bool]) -> str:
    return next(name for name in map("name-{}".format, range(1000)) if is_it(name))


def join(pair: Pair) -> tuple[str, str]:
    """A group that node 2 coordinates, and its only member."""
    coordinator = pair.one.broker.coordination.coordinator_of
    group = named(lambda name: coordinator(CoordinatorKind.GROUP, name) == 2)
    joined = Client(pair, 2).ask(f"JOIN_GROUP topic={TOPIC} group={group} member=m")
    found = re.match(r"OK generation=1 member=(\S+) ", joined)
    assert found, joined
    return group, found[1]


def committed(pair: Pair, group: str) -> str:
    return Client(pair, 2).ask(f"FETCH_OFFSET topic={TOPIC} partition=1 group={group}")


@pytest.mark.parametrize("result", ["commit", "abort"])
def test_a_transaction_takes_in_partitions_and_groups_of_all_nodes(pair: Pair, result: str) -> None:
    group, member = join(pair)
    client = Transactional(pair)
    staged = f"OK transactional_id={client.name} staged_messages=1 topic={TOPIC} partition={{}}"
    assert client.stage(1, "a", 0) == staged.format(0)
    assert client.stage(2, "b", 1) == staged.format(1)
    assert client.stage(2, "b", 1) == staged.format(1), "a repeat is not staged twice"
    assert client.stage(3, "c", 1) == staged.format(1)
    offsets = f"topic={TOPIC} group={group} member={member} generation=1 P1:5"
    told = client.ask(f"SEND_OFFSETS_TO_TXN {client.who} {offsets}")
    assert told == f"OK transactional_id={client.name} staged_offsets=1"
    assert (stored(pair, 0), stored(pair, 1), committed(pair, group)) == ([], [], "OK offset=0")
    assert client.end(result).startswith(f"OK transactional_id={client.name} state=")
    pair.settle()
    found = (stored(pair, 0), stored(pair, 1), committed(pair, group))
    kept, dropped = (["a"], ["b", "c"], "OK offset=5"), ([], [], "OK offset=0")
    assert found == (kept if result == "commit" else dropped)


def test_commands_of_a_transaction_are_sent_to_its_coordinator(pair: Pair) -> None:
    client = Transactional(pair)
    other = Client(pair, 2)
    where = "ERROR: NOT_COORDINATOR host=node-1.example port=9000"
    publish = f"topic={TOPIC} partition=1 seqNum=1 message=m"
    for command in (
        f"INIT_PRODUCER_ID transactional_id={client.name}",
        f"BEGIN_TXN {client.who}",
        f"TXN_PUBLISH {client.who} {publish}",
        f"SEND_OFFSETS_TO_TXN {client.who} topic={TOPIC} group=g member=m generation=1 P0:1",
        f"END_TXN {client.who} result=commit",
        f"TXN_STATUS transactional_id={client.name}",
    ):
        assert other.ask(command) == where


def test_what_a_group_of_another_node_refuses_reaches_the_client(pair: Pair) -> None:
    group, member = join(pair)
    client = Transactional(pair)
    send = f"SEND_OFFSETS_TO_TXN {client.who} topic={TOPIC} group={group}"
    told = client.ask(f"{send} member={member} generation=7 P1:5")
    assert told == f"ERROR: GEN_MISMATCH current=1 requested=7 group={group} member={member}"
    told = client.ask(f"{send} member=stranger generation=1 P1:5")
    assert told == f"ERROR: member_not_found member=stranger group={group}"
    pair.lines[1].is_cut = True
    told = client.ask(f"{send} member={member} generation=1 P1:5")
    assert told.startswith("ERROR: coordinator_not_available ")


def test_a_message_that_may_be_staged_or_not_leaves_only_the_abort(pair: Pair) -> None:
    client = Transactional(pair)
    pair.lines[1].loses_answers = True
    assert "outcome is unknown" in client.stage(1, "a", 1)
    pair.lines[1].loses_answers = False
    aborted = f"ERROR: transaction_aborted transactional_id={client.name}"
    assert client.stage(1, "a", 1) == aborted
    assert client.end("commit") == aborted
    assert client.end("abort") == f"OK transactional_id={client.name} state=aborted"
    Client(pair, 2).publish(batch("later", partition=1))
    assert stored(pair, 1) == ["later"]


def test_a_leader_that_is_away_is_tried_again_by_the_client(pair: Pair) -> None:
    client = Transactional(pair)
    pair.lines[1].is_cut = True
    publish = f"TXN_PUBLISH {client.who} topic={TOPIC} partition=1 seqNum=1 message=a"
    client.feed(codec.frame(publish.encode()))
    pair.advance(RELAY_PATIENCE_S + 1)
    (told,) = client.frames()
    assert told.startswith(b"ERROR: coordinator_not_available ")
    pair.lines[1].is_cut = False
    assert client.stage(1, "a", 1).startswith("OK ")
    assert client.end("commit").startswith("OK ")
    pair.settle()
    assert stored(pair, 1) == ["a"]


def test_a_message_that_comes_after_the_end_does_not_leave_an_open_transaction(pair: Pair) -> None:
    """The leader asks whether it may; the end comes by before the answer."""
    client = Transactional(pair)
    assert client.stage(1, "a", 0).startswith("OK ")
    back = pair.lines[2]
    back.held = []
    publish = f"TXN_PUBLISH {client.who} topic={TOPIC} partition=1 seqNum=2 message=b"
    client.feed(codec.frame(publish.encode()))
    pair.settle()
    assert [type(each) for each in back.asked] == [Enrol]
    assert any(isinstance(each, Relay) for each in pair.lines[1].asked)
    other = Client(pair, 1)
    assert other.ask(f"END_TXN {client.who} result=abort").startswith("OK ")
    back.release()
    pair.advance(1)
    (told,) = client.frames()
    assert told.startswith(b"ERROR: ")
    Client(pair, 2).publish(batch("later", partition=1))
    assert stored(pair, 1) == ["later"]


# ---- a cluster without any group or transaction yet


@pytest.fixture
def fresh() -> Pair:
    made = Pair()
    made.create(TOPIC, 1, 2)
    for node in made.worlds:
        Client(made, node)
    return made


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("INIT_PRODUCER_ID transactional_id={}", b"OK transactional_id="),
        ("JOIN_GROUP topic=orders group={} member=m", b"OK generation=1 "),
        ("REGISTER_GROUP topic=orders group={}", b"OK group="),
    ],
)
def test_the_first_command_of_a_cluster_waits_for_its_topic(
    fresh: Pair, command: str, answer: bytes
) -> None:
    """Of several names each node coordinates some, and sends clients to the other for the rest."""
    clients = [Client(fresh, node) for node in (1, 2)]
    for number in range(4):
        for client in clients:
            client.feed(codec.frame(command.format(f"name-{number}").encode()))
    fresh.advance(CURSUS_COORDINATOR_WAIT_S / 2)
    replies = list(zip(*(each.frames() for each in clients), strict=True))
    assert len(replies) == 4
    for pair_of in replies:
        served = [each for each in pair_of if each.startswith(answer)]
        sent_on = [each for each in pair_of if each.startswith(b"ERROR: NOT_COORDINATOR host=")]
        assert (len(served), len(sent_on)) == (1, 1), pair_of


def test_a_lost_connection_does_not_cancel_a_command_that_waits(fresh: Pair) -> None:
    coordinator = fresh.one.broker.coordination.coordinator_of
    lost = [Client(fresh, node) for node in (1, 2)]
    for each in lost:
        each.feed(codec.frame(b"JOIN_GROUP topic=orders group=g member=m"))
        each.lose()
    fresh.advance(CURSUS_COORDINATOR_WAIT_S / 2)
    assert [each.frames() for each in lost] == [[], []]
    status = Client(fresh, coordinator(CoordinatorKind.GROUP, "g")).ask("GROUP_STATUS group=g")
    assert json.loads(status)["member_count"] == 1


def test_a_topic_that_cannot_be_made_is_waited_for_no_longer_than_agreed(
    fresh: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_new: NewTopic) -> None:
        raise ClusterError("no quorum")

    monkeypatch.setattr(fresh.one.broker.topics, "ensure", refuse)
    client, gone = Client(fresh, 1), Client(fresh, 1)
    for each in (client, gone):
        each.feed(codec.frame(b"INIT_PRODUCER_ID transactional_id=t"))
    fresh.advance(CURSUS_COORDINATOR_WAIT_S - 1)
    assert client.frames() == []
    gone.lose()
    fresh.advance(2)
    (reply,) = client.frames()
    assert reply.startswith(b"ERROR: coordinator_not_available ")
    assert gone.frames() == []


# ---- what is asked about the cluster


def test_the_cluster_is_described_in_the_words_of_the_original(pair: Pair) -> None:
    client = Client(pair, 1)
    client.publish_text(0, "a")
    brokers = [
        {
            "id": str(node),
            "addr": f"node-{node}.example:7071",
            "client_addr": "localhost:9000" if node == 1 else "node-2.example:9000",
            "status": "active",
        }
        for node in (1, 2)
    ]
    listed = client.ask("LIST_CLUSTER")
    assert listed.startswith("OK brokers=")
    found = json.loads(listed.removeprefix("OK brokers="))
    seen = [each.pop("last_seen") for each in found]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", each) for each in seen)
    assert found == brokers
    assert list(found[0]) == ["id", "addr", "client_addr", "status"]
    status = client.ask("CLUSTER_STATUS")
    assert status.startswith("OK cluster=")
    cluster = json.loads(status.removeprefix("OK cluster="))
    assert list(cluster) == [
        "raft_leader",
        "broker_count",
        "active_brokers",
        "inactive_brokers",
        "partition_count",
        "leaderless_partitions",
        "under_replicated_partitions",
        "brokers",
        "partitions",
    ]
    assert [cluster[each] for each in ("broker_count", "active_brokers")] == [2, 2]
    assert cluster["brokers"] == brokers
    assert cluster["partition_count"] == len(cluster["partitions"])
    first, second = (each for each in cluster["partitions"] if each["topic"] == TOPIC)
    assert json.dumps(first, separators=(",", ":")) == (
        '{"key":"orders-0","topic":"orders","partition":0,"leader":"1","leader_epoch":0,'
        '"replicas":["1"],"isr":["1"],"committed_hwm":1,"leader_available":true,'
        '"under_replicated":false}'
    )
    assert (second["leader"], second["committed_hwm"]) == ("2", 0)


def test_a_node_that_is_away_is_inactive_and_its_partitions_are_without_a_leader(
    pair: Pair,
) -> None:
    image = pair.one.broker.image
    image.apply(NodeFenced(node_id=2, incarnation=image.nodes[2]))
    client = Client(pair, 1)
    cluster = json.loads(client.ask("CLUSTER_STATUS").removeprefix("OK cluster="))
    assert [each["status"] for each in cluster["brokers"]] == ["active", "inactive"]
    assert (cluster["active_brokers"], cluster["inactive_brokers"]) == (1, 1)
    away = [each["key"] for each in cluster["partitions"] if not each["leader_available"]]
    assert "orders-1" in away
    assert len(away) == cluster["leaderless_partitions"]
    brokers = json.loads(client.ask("LIST_CLUSTER").removeprefix("OK brokers="))
    assert brokers[1]["last_seen"] == "0001-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("ELECT_LEADER x=1", "missing_topic command=ELECT_LEADER"),
        (
            "ELECT_LEADER topic=orders partition=x broker=1",
            "invalid_partition command=ELECT_LEADER",
        ),
        ("ELECT_LEADER topic=orders partition=0", "missing_broker command=ELECT_LEADER"),
        (
            "ELECT_LEADER topic=orders partition=9 broker=1",
            "partition_not_found topic=orders partition=9",
        ),
        (
            "ELECT_LEADER topic=orders partition=0 broker=2",
            "leader_election_rejected topic=orders partition=0 broker=2 "
            'reason="the cluster elects leaders itself; see dragoman cluster elect"',
        ),
    ],
)
def test_elections_are_left_to_the_cluster(pair: Pair, command: str, reply: str) -> None:
    assert Client(pair, 1).ask(command) == f"ERROR: {reply}"
