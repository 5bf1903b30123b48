"""Goal: clients get what they want although it takes more than the node they are connected to.

Method: two nodes on one virtual time, and connections of each protocol to one of them.
"""

from __future__ import annotations

import msgspec
import pytest

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.groups import OFFSETS_TOPIC
from dragoman.broker.transactions.service import TRANSACTIONS_TOPIC
from dragoman.log.batch import TRANSACTIONAL
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.mlog import messages as mlog
from worlds.broker import Wire, batch_of, only_produced, produce_request
from worlds.cursus import CursusPipe
from worlds.mlog import MlogPipe
from worlds.two_nodes import Pair

TOPIC = "t"


@pytest.fixture
def pair() -> Pair:
    """Node 1 leads partition 0 and coordinates nothing that is named `far`."""
    pair = Pair()
    pair.create(TOPIC, 1, 2)
    pair.create_internal(OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
    return pair


def far(pair: Pair, kind: CoordinatorKind, node: int = 2) -> str:
    coordination = pair.one.broker.coordination
    names = (f"name-{number}" for number in range(1000))
    return next(each for each in names if coordination.coordinator_of(kind, each) == node)


# ---- mlog


def test_an_mlog_client_commits_and_reads_on_from_any_node(pair: Pair) -> None:
    group = far(pair, CoordinatorKind.GROUP)
    pipe = MlogPipe(pair.one)
    for value in (b"a", b"b", b"c"):
        pipe.ask(mlog.Produce(topic=TOPIC, value=value, acks=1), mlog.ProduceResp)
    assert pipe.ask(mlog.FetchOffset(topic=TOPIC, id=group), mlog.FetchOffsetResp).offset == 0
    committed = mlog.CommitOffset(topic=TOPIC, id=group, offset=2)
    assert pipe.ask(committed, mlog.CommitOffsetResp).success
    assert pipe.ask(mlog.FetchOffset(topic=TOPIC, id=group), mlog.FetchOffsetResp).offset == 2
    assert pipe.ask(mlog.Fetch(topic=TOPIC, id=group), mlog.FetchResp).entry.value == b"c"
    batch = pipe.ask(mlog.FetchBatch(topic=TOPIC, id=group, max_count=9), mlog.FetchBatchResp)
    assert [each.value for each in batch.entries or ()] == [b"c"]
    stream = mlog.FetchStream(topic=TOPIC, id=group, max_count=9)
    answers = pipe.ask_all(stream, stream, mlog.Fetch(topic=TOPIC, id=group))
    assert len(answers) == 3
    # Another group has its own offset, and the same node returns it.
    other = far(pair, CoordinatorKind.GROUP, 1)
    assert pipe.ask(mlog.Fetch(topic=TOPIC, id=other), mlog.FetchResp).entry.value == b"a"


def test_an_mlog_client_hears_that_a_coordinator_is_away_and_its_connection_goes_on(
    pair: Pair,
) -> None:
    group = far(pair, CoordinatorKind.GROUP)
    pipe = MlogPipe(pair.one)
    pipe.ask(mlog.Produce(topic=TOPIC, value=b"a", acks=1), mlog.ProduceResp)
    pair.lines[1].is_cut = True
    requests = [
        mlog.FetchStream(topic=TOPIC, id=group, max_count=9),
        mlog.CommitOffset(topic=TOPIC, id=group, offset=1),
        mlog.Fetch(topic=TOPIC, id=group),
    ]
    assert [type(each) for each in pipe.ask_all(*requests)] == [mlog.RPCError] * 3
    pair.lines[1].is_cut = False
    assert pipe.ask(mlog.Fetch(topic=TOPIC, id=group), mlog.FetchResp).entry.value == b"a"


# ---- Cursus


def test_cursus_reads_on_where_a_group_of_another_node_has_committed(pair: Pair) -> None:
    group = far(pair, CoordinatorKind.GROUP)
    pipe = CursusPipe(pair.one)
    for value in ("a", "b", "c"):
        text = f"PUBLISH topic={TOPIC} partition=0 producerId=p message={value}"
        assert '"status":"OK"' in pipe.ask(text)
    commit = f"COMMIT topic={TOPIC} partition=0 group={group} offset=2"
    assert pipe.ask(commit).startswith("ERROR: NOT_COORDINATOR host=node-2.example")
    # What another protocol has committed for the group counts.
    mlog_commit = mlog.CommitOffset(topic=TOPIC, id=group, offset=2)
    assert MlogPipe(pair.one).ask(mlog_commit, mlog.CommitOffsetResp).success
    consume = f"CONSUME topic={TOPIC} partition=0 offset=0 member=m group={group}"
    assert [each.payload for each in pipe.ask_batch(consume).messages] == [b"c"]
    stream = CursusPipe(pair.one)
    batch = stream.ask_batch(f"STREAM topic={TOPIC} partition=0 group={group}")
    assert [each.payload for each in batch.messages] == [b"c"]
    pair.lines[1].is_cut = True
    assert CursusPipe(pair.one).ask(consume).startswith("ERROR: ")


# ---- Kafka's transactions


def identity(pair: Pair, name: str) -> m.InitProducerIdResponse:
    request = m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)
    answer = Wire(pair.two).ask(request, 4, m.InitProducerIdResponse)
    assert answer.error_code == 0
    return answer


def produced(
    pair: Pair, name: str, producer: m.InitProducerIdResponse, version: int, sequence: int = 0
) -> int:
    batch = batch_of(
        b"v",
        timestamp=pair.one.clock.wall_ms(),
        attributes=TRANSACTIONAL,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
    )
    request = msgspec.structs.replace(produce_request(TOPIC, batch), transactional_id=name)
    return only_produced(Wire(pair.one).ask(request, version, m.ProduceResponse)).error_code


def test_a_transactional_write_is_checked_with_a_coordinator_elsewhere(pair: Pair) -> None:
    name = far(pair, CoordinatorKind.TRANSACTION)
    producer = identity(pair, name)
    # Old clients announce partitions first.
    assert produced(pair, name, producer, 11) == ErrorCode.TRANSACTION_ABORTABLE
    pair.lines[1].is_cut = True
    assert produced(pair, name, producer, 12) == ErrorCode.NOT_ENOUGH_REPLICAS
    pair.lines[1].is_cut = False
    assert produced(pair, name, producer, 12) == 0
    log = pair.one.broker.partitions.find(TOPIC, 0).log
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    end = m.EndTxnRequest(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    assert Wire(pair.one).ask(end, 4, m.EndTxnResponse).error_code == ErrorCode.NOT_COORDINATOR
    assert Wire(pair.two).ask(end, 4, m.EndTxnResponse).error_code == 0
    assert log.last_stable_offset == log.high_watermark == 2


@pytest.mark.parametrize("version", [3, 5])
def test_offsets_in_a_transaction_go_to_the_groups_coordinator(pair: Pair, version: int) -> None:
    name, group = far(pair, CoordinatorKind.TRANSACTION), far(pair, CoordinatorKind.GROUP, 1)
    producer = identity(pair, name)
    who = {
        "transactional_id": name,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }
    part = m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=4)
    topic = m.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])
    commit = m.TxnOffsetCommitRequest(group_id=group, topics=[topic], **who)
    if version < 5:
        add = m.AddOffsetsToTxnRequest(group_id=group, **who)
        assert Wire(pair.two).ask(add, 3, m.AddOffsetsToTxnResponse).error_code == 0
    elsewhere = Wire(pair.two).ask(commit, version, m.TxnOffsetCommitResponse)
    assert elsewhere.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    answer = Wire(pair.one).ask(commit, version, m.TxnOffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == 0
    end = m.EndTxnRequest(committed=True, **who)
    assert Wire(pair.two).ask(end, 4, m.EndTxnResponse).error_code == 0
    pipe = MlogPipe(pair.two)
    assert pipe.ask(mlog.FetchOffset(topic=TOPIC, id=group), mlog.FetchOffsetResp).offset == 4


class Offsets:
    """A transaction that node 2 coordinates, with offsets of a group that node 1 coordinates."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        name, self.group = (
            far(pair, CoordinatorKind.TRANSACTION),
            far(pair, CoordinatorKind.GROUP, 1),
        )
        producer = identity(pair, name)
        self._who = {
            "transactional_id": name,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }
        add = m.AddOffsetsToTxnRequest(group_id=self.group, **self._who)
        assert Wire(pair.two).ask(add, 3, m.AddOffsetsToTxnResponse).error_code == 0
        self.wire = Wire(pair.one)

    def send(self, wire: Wire) -> None:
        part = m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=4)
        topic = m.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])
        wire.send(m.TxnOffsetCommitRequest(group_id=self.group, topics=[topic], **self._who), 3)
        self._pair.settle()

    def answers(self, wire: Wire) -> list[int]:
        self._pair.settle()
        messages = [each.message for each in wire.replies()]
        assert all(isinstance(each, m.TxnOffsetCommitResponse) for each in messages)
        return [each.topics[0].partitions[0].error_code for each in messages]

    def move_group(self) -> None:
        index = self._pair.one.broker.coordination.groups.home_of(self.group)[1]
        self._pair.move(OFFSETS_TOPIC, index, 2)
        self._pair.settle()


def test_offsets_are_answered_when_the_group_moves_while_they_are_verified(pair: Pair) -> None:
    offsets = Offsets(pair)
    pair.lines[1].held = []
    offsets.send(offsets.wire)
    assert offsets.answers(offsets.wire) == []
    offsets.move_group()
    pair.lines[1].release()
    assert offsets.answers(offsets.wire) == [ErrorCode.NOT_COORDINATOR]
    # The client looks for the coordinator and tries there.
    there = Wire(pair.two)
    offsets.send(there)
    assert offsets.answers(there) == [0]


@pytest.mark.parametrize("fault", ["is_cut", "loses_answers"])
def test_offsets_are_answered_when_they_cannot_be_verified(pair: Pair, fault: str) -> None:
    offsets = Offsets(pair)
    setattr(pair.lines[1], fault, True)
    offsets.send(offsets.wire)
    assert offsets.answers(offsets.wire) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    setattr(pair.lines[1], fault, False)
    offsets.send(offsets.wire)
    assert offsets.answers(offsets.wire) == [0]
