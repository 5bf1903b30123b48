"""Goal: nodes do for each other what their clients want, and refusals come back as what they were.

Method: two nodes on one virtual time; connections between them are cut, delayed and reordered.
"""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    ForeignGroup,
    InvalidRecord,
    NotCoordinator,
    NotLeader,
    Overtaken,
    ProducerFenced,
    TransactionAbortable,
    UnknownTopic,
)
from dragoman.broker.groups import OFFSETS_TOPIC
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.broker.leader_queues import Append, Appended
from dragoman.broker.readers import Batches, ReadBatches
from dragoman.broker.refusal_names import ERROR_BY_NAME
from dragoman.broker.transactions import ProducerIdentity, TransactionState
from dragoman.broker.transactions.participants import EndTransaction
from dragoman.broker.transactions.service import TRANSACTIONS_TOPIC
from dragoman.errors import (
    BrokerError,
    ClusterError,
    DecodeError,
    DragomanError,
    NotSentError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
)
from dragoman.log.batch import TRANSACTIONAL
from dragoman.log.producer import InvalidProducerEpochError
from dragoman.outcome import start
from dragoman.rpc import Done, Node, NoTransport, Refusals, Refused, Reply, Request
from dragoman.types import GroupId, Offset, Partition, ProducerId, TopicName
from worlds.broker import Outcome, World, batch_of, values_in
from worlds.two_nodes import Pair

T = TopicName("t")
HERE, THERE = (T, Partition(0)), (T, Partition(1))
REFUSALS = Refusals(ERROR_BY_NAME)


def received(data: bytes) -> Refused:
    return msgspec.msgpack.decode(data, type=Refused)


@pytest.fixture
def pair() -> Pair:
    """Topic `t` has a partition led by each node."""
    pair = Pair()
    pair.create(T, 1, 2)
    pair.create_internal(OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
    return pair


def name_of(pair: Pair, kind: CoordinatorKind, node: int) -> str:
    """A group or transactional id that a node coordinates."""
    coordination = pair.one.broker.coordination
    names = (f"name-{number}" for number in range(1000))
    return next(each for each in names if coordination.coordinator_of(kind, each) == node)


# ---- messages


@pytest.mark.parametrize(
    "error",
    [
        NotLeader("node 7 leads", 7),
        NotCoordinator("moved", 3),
        ForeignGroup("g", "cursus"),
        InvalidRecord("no key", (1, 4)),
        InvalidProducerEpochError(5, 2, 1),
        OffsetOutOfRangeError("gone"),
        ProducerFenced("fenced"),
    ],
)
def test_a_refusal_comes_out_as_the_same_exception(error: DragomanError) -> None:
    found = REFUSALS.decode(received(msgspec.msgpack.encode(REFUSALS.encode(error))))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_a_refusal_of_another_release_is_an_error_with_its_text() -> None:
    class OfTomorrow(BrokerError): ...

    assert REFUSALS.encode(OfTomorrow("x")).name == "BrokerError"
    data = msgspec.msgpack.encode(REFUSALS.encode(NotLeader("x")))
    found = REFUSALS.decode(received(data.replace(b"NotLeader", b"NotLeadex")))
    assert type(found) is ClusterError
    assert "x" in str(found)


def test_bytes_that_are_no_message_are_refused(pair: Pair) -> None:
    registry = pair.one.broker.registry
    with pytest.raises(DecodeError):
        registry.decode_request(b"\xc1")
    with pytest.raises(OutcomeUnknownError):
        registry.decode_answer(Append(topic=T, partition=0, caller=NODE_ITSELF), b"\xc1")


def test_alone_no_other_node_can_be_asked() -> None:
    results: list[object] = []
    NoTransport().exchange(2, b"", ()).then(results.append)
    assert isinstance(results[0], NotSentError)


# ---- records


def call(pair: Pair, request: Request, body: bytes | bytearray = b"") -> Reply | DragomanError:
    results: list[Reply | DragomanError] = []
    pair.one.broker.rpc.begin(request, Node(2), (body,)).then(results.append)
    pair.settle()
    (result,) = results
    return result


def test_a_batch_is_appended_where_its_partition_is_led(pair: Pair) -> None:
    first = call(pair, Append(topic=T, partition=1, caller=NODE_ITSELF), batch_of(b"a", b"b"))
    second = call(pair, Append(topic=T, partition=1, caller=NODE_ITSELF), batch_of(b"c"))
    assert isinstance(first, Reply)
    assert isinstance(second, Reply)
    assert first.answer == Appended(base_offset=0)
    assert second.answer == Appended(base_offset=2)
    refused = call(pair, Append(topic=T, partition=0, caller=NODE_ITSELF), batch_of(b"d"))
    assert isinstance(refused, NotLeader)
    assert refused.leader == 1
    assert isinstance(
        call(pair, Append(topic="u", partition=0, caller=NODE_ITSELF), batch_of(b"d")), UnknownTopic
    )
    assert isinstance(
        call(pair, Append(topic=T, partition=1, caller=NODE_ITSELF), b"rubbish"), BrokerError
    )


def test_batches_are_read_where_their_partition_is_led(pair: Pair) -> None:
    call(pair, Append(topic=T, partition=1, caller=NODE_ITSELF), batch_of(b"a", b"b"))
    answer = call(pair, ReadBatches(topic=T, partition=1, offset=0, bytes_max=1000))
    assert isinstance(answer, Reply)
    assert isinstance(answer.answer, Batches)
    assert answer.answer.high_watermark == answer.answer.last_stable_offset == 2
    assert values_in(answer.body) == [b"a", b"b"]
    beyond = call(pair, ReadBatches(topic=T, partition=1, offset=9, bytes_max=1000))
    assert isinstance(beyond, OffsetOutOfRangeError)


def test_a_read_waits_for_records(pair: Pair) -> None:
    told: list[Reply | DragomanError] = []
    request = ReadBatches(topic=T, partition=1, offset=0, bytes_max=1000, wait_ms=500)
    pair.one.broker.rpc.begin(request, Node(2)).then(told.append)
    pair.settle()
    assert told == []
    pair.two.write(pair.two.broker.partitions.find(T, 1), b"late")
    assert isinstance(told[0], Reply)
    assert values_in(told[0].body) == [b"late"]


# ---- committed offsets


def commit_request(group: str, offset: int = 5) -> CommitRequest:
    each = OffsetCommit(topic=T, partition=Partition(0), offset=Offset(offset))
    return CommitRequest(group_id=GroupId(group), offsets=(each,), owner="mlog")


def looked_up(pair: Pair, world: World, group: str) -> dict[int, int] | DragomanError:
    told: list[dict[int, int] | DragomanError] = []
    start(world.broker.coordination.groups.committed(GroupId(group), T)).then(told.append)
    pair.settle()
    (found,) = told
    return found


@pytest.mark.parametrize("node", [1, 2])
def test_offsets_are_committed_and_looked_up_from_any_node(pair: Pair, node: int) -> None:
    group = name_of(pair, CoordinatorKind.GROUP, node)
    outcome = Outcome()
    pair.one.broker.coordination.groups.commit_anywhere(
        commit_request(group), outcome, caller=NODE_ITSELF
    )
    pair.settle()
    assert outcome.error is None
    for world in pair.worlds.values():
        assert looked_up(pair, world, group) == {0: 5}
    assert GroupId(group) not in [
        each.group_id for each in pair.worlds[3 - node].broker.coordination.groups.table
    ]


def test_refused_commit_is_reported(pair: Pair) -> None:
    group = name_of(pair, CoordinatorKind.GROUP, 2)
    outcome = Outcome()
    pair.one.broker.coordination.groups.commit_anywhere(
        commit_request(group, -1), outcome, caller=NODE_ITSELF
    )
    pair.settle()
    assert type(outcome.error).__name__ == "InvalidCommitOffset"
    pair.lines[1].is_cut = True
    cut = Outcome()
    pair.one.broker.coordination.groups.commit_anywhere(
        commit_request(group), cut, caller=NODE_ITSELF
    )
    pair.settle()
    assert isinstance(cut.error, NotSentError)


def test_before_anything_is_committed_a_look_up_makes_no_topic() -> None:
    pair = Pair()
    assert looked_up(pair, pair.one, "g") == {}
    assert OFFSETS_TOPIC not in pair.one.broker.image.topics
    outcome = Outcome()
    pair.one.broker.coordination.groups.commit_anywhere(
        commit_request("g"), outcome, caller=NODE_ITSELF
    )
    pair.settle()
    assert outcome.error is None
    assert looked_up(pair, pair.two, "g") == {0: 5}


def test_a_request_that_was_relayed_is_not_relayed_again(pair: Pair) -> None:
    """Two nodes that each take the other for the coordinator must not send it back and forth."""
    group = name_of(pair, CoordinatorKind.GROUP, 2)
    index = pair.two.broker.coordination.groups.home_of(group)[1]
    pair.two.broker.image.topics[OFFSETS_TOPIC].partitions[index].leader = 1
    pair.two.broker.coordination.groups.log.resign(index)
    outcome = Outcome()
    pair.one.broker.coordination.groups.commit_anywhere(
        commit_request(group), outcome, caller=NODE_ITSELF
    )
    pair.settle()
    assert isinstance(outcome.error, NotCoordinator)
    assert pair.lines[2].asked == []


# ---- transactions


class Transaction:
    """A transactional id that node 1 coordinates, whose producer writes on both nodes."""

    def __init__(self, pair: Pair, name: str | None = None) -> None:
        self.pair = pair
        self.name = name if name is not None else name_of(pair, CoordinatorKind.TRANSACTION, 1)
        told: list[object] = []
        self.transactions = pair.one.broker.coordination.transactions.coordinator
        start(self.transactions.init_producer_id(self.name, 60_000, None)).then(told.append)
        pair.settle()
        (identity,) = told
        assert isinstance(identity, ProducerIdentity)
        self.identity = identity
        self.written = {1: 0, 2: 0}

    def enrol(self, node: int, *, is_check: bool = False) -> Outcome:
        """The leader of partition `node` - 1 asks whether it may write."""
        outcome = Outcome()
        start(
            self.pair.worlds[node].broker.coordination.transactions.participants.enrol(
                self.name, self.identity, (T, Partition(node - 1)), is_check=is_check
            )
        ).then(outcome)
        self.pair.settle()
        return outcome

    def write(self, node: int) -> None:
        assert self.enrol(node).error is None
        batch = batch_of(
            b"v",
            timestamp=self.pair.one.clock.wall_ms(),
            attributes=TRANSACTIONAL,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.written[node],
        )
        self.written[node] += 1
        world = self.pair.worlds[node]
        world.append(world.broker.partitions.find(T, node - 1), batch)

    def end(self, commit: bool = True) -> list[object]:
        told: list[object] = []
        start(self.transactions.end(self.name, self.identity, commit, False)).then(told.append)
        self.pair.settle()
        return told

    @property
    def state(self) -> TransactionState:
        return self.transactions.describe(self.name).state

    def open_offsets(self) -> list[int]:
        """How much is open on each partition."""
        logs = [self.pair.worlds[node].broker.partitions.find(T, node - 1).log for node in (1, 2)]
        return [log.high_watermark - log.last_stable_offset for log in logs]


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_on_partitions_of_all_nodes(pair: Pair, commit: bool) -> None:
    transaction = Transaction(pair)
    transaction.write(1)
    transaction.write(2)
    assert transaction.open_offsets() == [1, 1]
    assert transaction.end(commit) == [transaction.identity]
    assert transaction.open_offsets() == [0, 0]
    done = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    assert transaction.state is done


def test_markers_to_a_node_that_is_away_come_later(pair: Pair) -> None:
    transaction = Transaction(pair)
    transaction.write(2)
    pair.lines[1].is_cut = True
    assert transaction.end() == [transaction.identity]
    pair.advance(5)
    assert transaction.open_offsets() == [0, 1]
    assert transaction.state is TransactionState.PREPARE_COMMIT
    pair.lines[1].is_cut = False
    pair.advance(2)
    assert transaction.open_offsets() == [0, 0]
    assert transaction.state is TransactionState.COMPLETE_COMMIT


def test_markers_follow_the_leader_of_a_partition(pair: Pair) -> None:
    transaction = Transaction(pair)
    transaction.write(2)
    pair.lines[1].is_cut = True
    transaction.end()
    pair.move(T, 1, 1)
    pair.advance(2)
    log = pair.one.broker.partitions.find(T, 1).log
    assert log.last_stable_offset == log.high_watermark == 2
    assert transaction.state is TransactionState.COMPLETE_COMMIT


def test_a_successor_on_another_node_finishes_what_was_decided(pair: Pair) -> None:
    transaction = Transaction(pair)
    transaction.write(1)
    transaction.write(2)
    pair.lines[1].is_cut = True
    transaction.end()
    assert transaction.open_offsets() == [0, 1]
    index = pair.one.broker.coordination.transactions.log.partition_of(transaction.name)
    pair.move(TRANSACTIONS_TOPIC, index, 2)
    pair.advance(2)
    assert transaction.open_offsets() == [0, 0]
    described = pair.two.broker.coordination.transactions.coordinator.describe(transaction.name)
    assert described.state is TransactionState.COMPLETE_COMMIT
    producers = pair.two.broker.partitions.find(T, 1).log.producers
    assert producers is not None
    assert producers.producers()[transaction.identity.producer_id].coordinator_epoch == 1


def test_a_write_asks_the_coordinator_wherever_it_is(pair: Pair) -> None:
    transaction = Transaction(pair)
    unknown = transaction.enrol(2, is_check=True)
    assert isinstance(unknown.error, TransactionAbortable)
    assert transaction.enrol(2).error is None
    assert transaction.enrol(2, is_check=True).error is None
    transaction.identity = ProducerIdentity(transaction.identity.producer_id, -1)
    assert isinstance(transaction.enrol(2).error, ProducerFenced)


def test_a_coordinator_that_cannot_be_asked_is_one_to_wait_for(pair: Pair) -> None:
    transaction = Transaction(pair)
    pair.lines[2].is_cut = True
    assert isinstance(transaction.enrol(2).error, CoordinatorLoading)
    pair.lines[2].is_cut = False
    pair.lines[2].loses_answers = True
    assert isinstance(transaction.enrol(2).error, CoordinatorLoading)
    pair.lines[2].loses_answers = False
    assert transaction.enrol(2, is_check=True).error is None


def test_an_end_that_overtakes_the_permission_to_write_takes_it_back(pair: Pair) -> None:
    """Else the write would open a transaction that never ends."""
    transaction = Transaction(pair)
    transaction.write(2)
    transaction.written[2] = 0
    outcome = Outcome()
    line = pair.lines[2]
    line.held = []
    start(
        pair.two.broker.coordination.transactions.participants.enrol(
            transaction.name, transaction.identity, THERE, is_check=True
        )
    ).then(outcome)
    # The answer is under way when the end comes by.
    (arrive,) = line.held
    line.held = None
    arrive()
    request = EndTransaction(
        producer_id=transaction.identity.producer_id,
        epoch=transaction.identity.epoch,
        is_commit=False,
        coordinator_epoch=0,
        partitions=(THERE,),
        order=(9, 9),
    )
    registry = pair.two.broker.registry
    registry.answer(
        1, memoryview(msgspec.msgpack.encode(request)), memoryview(b""), lambda *_: None
    )
    pair.settle()
    assert isinstance(outcome.error, TransactionAbortable)


@pytest.mark.parametrize("is_group", [False, True])
def test_the_end_of_the_transaction_before_takes_no_permission_back(
    pair: Pair, is_group: bool
) -> None:
    """Producers begin the next one when the end is decided, before all participants know it."""
    transaction = Transaction(pair)
    group = name_of(pair, CoordinatorKind.GROUP, 2)
    place = group if is_group else THERE
    enrolled = Outcome()
    transacting = pair.two.broker.coordination.transactions.participants
    start(transacting.enrol(transaction.name, transaction.identity, place)).then(enrolled)
    pair.settle()
    assert enrolled.error is None
    line = pair.lines[1]
    line.held = []
    told: list[object] = []
    start(transaction.transactions.end(transaction.name, transaction.identity, True, True)).then(
        told.append
    )
    pair.settle()
    (following,) = told
    assert isinstance(following, ProducerIdentity)
    assert following.epoch == transaction.identity.epoch + 1
    late, early = Outcome(), Outcome()
    start(transacting.enrol(transaction.name, transaction.identity, place)).then(late)
    start(transacting.enrol(transaction.name, following, place)).then(early)
    pair.settle()
    assert not early.is_known
    line.release()
    pair.settle()
    assert early.error is None
    assert isinstance(late.error, ProducerFenced)
    assert transaction.state is TransactionState.ONGOING


def test_a_late_permission_of_the_transaction_before_is_taken_back(pair: Pair) -> None:
    """The coordinator has said yes, and the end under the next epoch comes by before its word."""
    transaction = Transaction(pair)
    group = name_of(pair, CoordinatorKind.GROUP, 2)
    outcome = Outcome()
    line = pair.lines[2]
    line.held = []
    transacting = pair.two.broker.coordination.transactions.participants
    start(transacting.enrol(transaction.name, transaction.identity, group)).then(outcome)
    (arrive,) = line.held
    line.held = None
    arrive()
    # Until the enrolment is durable its answer waits; the end is made up here.
    request = EndTransaction(
        producer_id=transaction.identity.producer_id,
        epoch=transaction.identity.epoch + 1,
        is_commit=False,
        coordinator_epoch=0,
        groups=(group,),
        order=(9, 9),
    )
    registry = pair.two.broker.registry
    registry.answer(
        1, memoryview(msgspec.msgpack.encode(request)), memoryview(b""), lambda *_: None
    )
    pair.settle()
    assert isinstance(outcome.error, TransactionAbortable)


def test_a_request_left_over_from_a_lost_connection_is_refused(pair: Pair) -> None:
    end = partial(
        EndTransaction, producer_id=7, epoch=0, is_commit=True, coordinator_epoch=0, groups=()
    )
    first = call(pair, end(partitions=(THERE,), order=(1, 5)))
    assert isinstance(first, Reply)
    assert first.answer == Done()
    end_before = pair.two.broker.partitions.find(T, 1).log.log_end_offset
    late = call(pair, end(partitions=(THERE,), order=(1, 4)))
    assert isinstance(late, Overtaken)
    assert pair.two.broker.partitions.find(T, 1).log.log_end_offset == end_before
    restarted = call(pair, end(partitions=(THERE,), order=(2, 1)))
    assert isinstance(restarted, Reply)


# ---- offsets of transactions


def staged(pair: Pair, transaction: Transaction, group: str) -> World:
    """Offsets staged for a group on the node that coordinates it."""
    node = pair.one.broker.coordination.coordinator_of(CoordinatorKind.GROUP, group)
    world = pair.worlds[node]
    enrolled = Outcome()
    start(
        world.broker.coordination.transactions.participants.enrol(
            transaction.name, transaction.identity, group
        )
    ).then(enrolled)
    pair.settle()
    assert enrolled.error is None
    each = OffsetCommit(topic=T, partition=Partition(0), offset=Offset(3))
    request = CommitRequest(
        group_id=GroupId(group),
        offsets=(each,),
        producer_id=ProducerId(transaction.identity.producer_id),
    )
    outcome = Outcome()
    world.broker.coordination.groups.commit_anywhere(request, outcome, caller=NODE_ITSELF)
    pair.settle()
    assert outcome.error is None
    return world


@pytest.mark.parametrize("node", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_groups_on_any_node_come_with_their_transaction(
    pair: Pair, node: int, commit: bool
) -> None:
    transaction = Transaction(pair)
    group = name_of(pair, CoordinatorKind.GROUP, node)
    world = staged(pair, transaction, group)
    assert looked_up(pair, world, group) == {}
    assert world.broker.coordination.groups.offsets.has_unstable(GroupId(group), *HERE)
    transaction.end(commit)
    assert looked_up(pair, world, group) == ({0: 3} if commit else {})
    assert not world.broker.coordination.groups.offsets.has_unstable(GroupId(group), *HERE)


def test_a_group_that_moves_before_the_end_hears_of_it_where_it_is_then(pair: Pair) -> None:
    transaction = Transaction(pair)
    group = name_of(pair, CoordinatorKind.GROUP, 2)
    staged(pair, transaction, group)
    pair.move(OFFSETS_TOPIC, pair.one.broker.coordination.groups.home_of(group)[1], 1)
    transaction.end()
    assert looked_up(pair, pair.two, group) == {0: 3}
    assert transaction.state is TransactionState.COMPLETE_COMMIT


def test_transaction_waits_while_its_partition_has_no_leader(pair: Pair) -> None:
    transaction = Transaction(pair)
    transaction.write(2)
    for world in pair.worlds.values():
        world.broker.image.topics[T].partitions[1].leader = -1
    told = Outcome()
    participants = pair.one.broker.coordination.transactions.participants
    end = EndTransaction(producer_id=1, epoch=0, is_commit=True, coordinator_epoch=0)
    start(participants._end_at(-1, end)).then(told)
    assert isinstance(told.error, CoordinatorNotAvailable)
    transaction.end()
    assert transaction.state is TransactionState.PREPARE_COMMIT
    for world in pair.worlds.values():
        world.broker.image.topics[T].partitions[1].leader = 2
    pair.advance(2)
    assert transaction.state is TransactionState.COMPLETE_COMMIT
