"""Goal: operators find a transaction that hangs, and can end it where its coordinator does not."""

from __future__ import annotations

import pytest

from dragoman.limits import ID_PATTERN_BYTES_MAX
from dragoman.log.batch import TRANSACTIONAL
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Operation, Resource
from worlds.broker import Wire, World, batch_of, fetch_request, only, values_in
from worlds.kafka_admin import ends, forbidden

LIST = range(3)
MARKERS = ends(ApiKey.WRITE_TXN_MARKERS)


def begin(wire: Wire, transactional_id: str = "x", topic: str = "t") -> m.InitProducerIdResponse:
    """An open transaction on partition 0 of a topic."""
    request = m.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    begun = wire.ask(request, 4, m.InitProducerIdResponse)
    enrol = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=[m.AddPartitionsToTxnRequestTopic(name=topic, partitions=[0])],
    )
    wire.ask(enrol, 3, m.AddPartitionsToTxnResponse)
    return begun


def write(world: World, producer_id: int, epoch: int = 0, sequence: int = 0) -> None:
    """A batch of an open transaction, appended as the produce path does."""
    batch = batch_of(
        b"open",
        timestamp=world.clock.wall_ms(),
        attributes=TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    world.append(world.broker.partitions.find("t", 0), batch)


# ---- producers of a partition


def producers(wire: Wire, topic: str, index: int) -> m.DescribeProducersResponsePartition:
    asked = m.DescribeProducersRequestTopic(name=topic, partition_indexes=[index])
    request = m.DescribeProducersRequest(topics=[asked])
    ((result,),) = [
        each.partitions for each in wire.ask(request, 0, m.DescribeProducersResponse).topics
    ]
    assert result.partition_index == index
    return result


def test_producers_are_shown_with_what_is_open(world: World, wire: Wire) -> None:
    world.create("t")
    assert producers(wire, "t", 0).active_producers == []
    write(world, 7, epoch=3)
    (producer,) = producers(wire, "t", 0).active_producers
    assert (producer.producer_id, producer.producer_epoch) == (7, 3)
    assert (producer.last_sequence, producer.last_timestamp) == (0, world.clock.wall_ms())
    assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (0, -1)


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_is_the_last_sign_of_its_producer(
    world: World, wire: Wire, commit: bool
) -> None:
    (replica,) = world.create("t")
    write(world, 7)
    world.advance(60)
    world.end_transaction(replica, 7, commit=commit)
    ended_ms = world.clock.wall_ms()
    world.advance(60)
    (producer,) = producers(wire, "t", 0).active_producers
    assert (producer.last_sequence, producer.last_timestamp) == (0, ended_ms)
    assert producer.current_txn_start_offset == -1


def test_producers_of_what_is_not_there(world: World, wire: Wire) -> None:
    world.create("t")
    for topic, index in (("none", 0), ("t", 1), ("t", -1)):
        result = producers(wire, topic, index)
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert result.error_message


def test_producers_ask_the_authorizer() -> None:
    wire = forbidden(Resource.TOPIC, Operation.READ)
    wire.world.create("t")
    assert producers(wire, "t", 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# ---- transactions


def described(wire: Wire, *ids: str) -> list[m.DescribeTransactionsResponseTransaction]:
    request = m.DescribeTransactionsRequest(transactional_ids=list(ids))
    return wire.ask(request, 0, m.DescribeTransactionsResponse).transaction_states


def test_transaction_is_shown_with_its_partitions_and_groups(world: World, wire: Wire) -> None:
    world.create("t")
    begun = begin(wire)
    offsets = m.AddOffsetsToTxnRequest(
        transactional_id="x",
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        group_id="g",
    )
    assert wire.ask(offsets, 3, m.AddOffsetsToTxnResponse).error_code == 0
    (found,) = described(wire, "x")
    assert (found.error_code, found.transactional_id) == (0, "x")
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert found.transaction_start_time_ms == world.clock.wall_ms()
    assert (found.producer_id, found.producer_epoch) == (begun.producer_id, 0)
    # abs("g".hashCode()) % 50, where Kafka keeps the group.
    expected = [("__consumer_offsets", [ord("g") % 50]), ("t", [0])]
    assert [(each.topic, each.partitions) for each in found.topics] == expected


def test_a_completed_transaction_still_tells_when_it_began(world: World, wire: Wire) -> None:
    world.create("t")
    begun = begin(wire)
    began_ms = world.clock.wall_ms()
    world.advance(5)
    end = m.EndTxnRequest(
        transactional_id="x", producer_id=begun.producer_id, producer_epoch=0, committed=True
    )
    assert wire.ask(end, 3, m.EndTxnResponse).error_code == 0
    world.settle()
    (found,) = described(wire, "x")
    assert found.transaction_state == "CompleteCommit"
    assert found.transaction_start_time_ms == began_ms


def test_transaction_at_rest(wire: Wire) -> None:
    request = m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    wire.ask(request, 4, m.InitProducerIdResponse)
    (found,) = described(wire, "x")
    assert (found.transaction_state, found.transaction_start_time_ms) == ("Empty", -1)
    assert found.topics == []


def test_id_that_is_not_known(wire: Wire) -> None:
    codes = [(each.transactional_id, each.error_code) for each in described(wire, "no", "")]
    assert codes == [("no", 105), ("", 105)]


def test_describing_asks_the_authorizer() -> None:
    wire = forbidden(Resource.TRANSACTIONAL_ID, Operation.DESCRIBE)
    (found,) = described(wire, "x")
    assert found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert wire.ask(m.ListTransactionsRequest(), 2, m.ListTransactionsResponse).error_code == 0


def listed(wire: Wire, version: int = 2, **filters: object) -> list[str]:
    request = m.ListTransactionsRequest(**filters)  # type: ignore[arg-type]
    response = wire.ask(request, version, m.ListTransactionsResponse)
    assert response.error_code == 0
    return sorted(each.transactional_id for each in response.transaction_states)


@pytest.mark.parametrize("version", LIST)
def test_transactions_are_listed(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    begun = begin(wire, "open")
    request = m.InitProducerIdRequest(transactional_id="idle", transaction_timeout_ms=1000)
    idle = wire.ask(request, 4, m.InitProducerIdResponse)
    response = wire.ask(m.ListTransactionsRequest(), version, m.ListTransactionsResponse)
    found = {each.transactional_id: each for each in response.transaction_states}
    assert (found["open"].transaction_state, found["idle"].transaction_state) == (
        "Ongoing",
        "Empty",
    )
    assert found["open"].producer_id == begun.producer_id
    assert listed(wire, version, state_filters=["Ongoing"]) == ["open"]
    assert listed(wire, version, producer_id_filters=[idle.producer_id]) == ["idle"]
    assert listed(wire, version, state_filters=["Ongoing", "Empty"]) == ["idle", "open"]


@pytest.mark.parametrize("version", LIST)
def test_states_that_there_are_not_are_named(wire: Wire, version: int) -> None:
    begin(wire, "x")
    request = m.ListTransactionsRequest(state_filters=["Nonsense", "Empty"])
    response = wire.ask(request, version, m.ListTransactionsResponse)
    assert response.unknown_state_filters == ["Nonsense"]
    only_unknown = m.ListTransactionsRequest(state_filters=["Nonsense"])
    response = wire.ask(only_unknown, version, m.ListTransactionsResponse)
    assert (response.unknown_state_filters, response.transaction_states) == (["Nonsense"], [])


@pytest.mark.parametrize("version", [1, 2])
def test_transactions_open_for_longer(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    begin(wire, "old")
    world.advance(5)
    begin(wire, "new")
    assert listed(wire, version, duration_filter=4000) == ["old"]
    assert listed(wire, version, duration_filter=6000) == []
    assert listed(wire, version, duration_filter=-1) == ["new", "old"]


def test_ids_by_pattern(world: World, wire: Wire) -> None:
    world.create("t")
    for name in ("pay-1", "pay-2", "ship-1"):
        begin(wire, name)
    assert listed(wire, transactional_id_pattern="pay-.*") == ["pay-1", "pay-2"]
    assert listed(wire, transactional_id_pattern="pay") == []
    assert listed(wire, transactional_id_pattern="") == ["pay-1", "pay-2", "ship-1"]
    assert listed(wire, transactional_id_pattern=None) == ["pay-1", "pay-2", "ship-1"]


@pytest.mark.parametrize("pattern", ["(", "a{99999}", r"(a)\1", "x" * (ID_PATTERN_BYTES_MAX + 1)])
def test_patterns_that_are_none(wire: Wire, pattern: str) -> None:
    request = m.ListTransactionsRequest(transactional_id_pattern=pattern)
    response = wire.ask(request, 2, m.ListTransactionsResponse)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_would_take_for_ever_does_not(world: World, wire: Wire) -> None:
    """Python's own engine needs 2^60 steps for this; the test's time-out would tell."""
    world.create("t")
    begin(wire, "a" * 60 + "b")
    assert listed(wire, transactional_id_pattern="(a|aa)*c|(a*)*c") == []


# ---- markers


def mark(
    wire: Wire,
    producer_id: int,
    epoch: int,
    *,
    commit: bool = False,
    coordinator_epoch: int = 0,
    topic: str = "t",
    partition: int = 0,
    version: int = 2,
    transaction_version: int = 0,
) -> int:
    asked = m.WriteTxnMarkersRequestTopic(name=topic, partition_indexes=[partition])
    marker = m.WriteTxnMarkersRequestMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[asked],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    request = m.WriteTxnMarkersRequest(markers=[marker])
    response = wire.ask(request, version, m.WriteTxnMarkersResponse)
    (answer,) = response.markers
    assert answer.producer_id == producer_id
    ((result,),) = [each.partitions for each in answer.topics]
    assert result.partition_index == partition
    return result.error_code


def committed_values(wire: Wire) -> list[bytes | None]:
    """What a reader of committed records keeps: the list names aborted batches."""
    found = only(wire.ask(fetch_request("t", isolation_level=1), 11, m.FetchResponse))
    aborted = {each.producer_id for each in found.aborted_transactions or ()}
    return [] if aborted else values_in(found.records)


@pytest.mark.parametrize("version", MARKERS)
@pytest.mark.parametrize("coordinator_epoch", [0, -1])
def test_hanging_transaction_is_aborted(
    world: World, wire: Wire, version: int, coordinator_epoch: int
) -> None:
    world.create("t")
    write(world, 7)
    log = world.broker.partitions.find("t", 0).log
    assert log.last_stable_offset == 0
    code = mark(wire, 7, 0, coordinator_epoch=coordinator_epoch, version=version)
    assert code == 0
    assert (log.last_stable_offset, log.high_watermark) == (2, 2)
    assert committed_values(wire) == []
    assert producers(wire, "t", 0).active_producers[0].current_txn_start_offset == -1


@pytest.mark.parametrize("version", MARKERS)
def test_hanging_transaction_may_be_committed(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    write(world, 7)
    assert mark(wire, 7, 0, commit=True, version=version) == 0
    assert committed_values(wire) == [b"open"]


def test_markers_of_the_past_are_refused(world: World, wire: Wire) -> None:
    world.create("t")
    write(world, 7, epoch=3)
    assert mark(wire, 7, 2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert mark(wire, 7, 3, coordinator_epoch=5) == 0
    write(world, 7, epoch=3, sequence=1)
    assert mark(wire, 7, 3, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert world.broker.partitions.find("t", 0).log.last_stable_offset == 2
    # Who does not know the coordinator's epoch does not have to.
    assert mark(wire, 7, 3, coordinator_epoch=-1) == 0


def test_marker_of_the_second_generation_needs_a_newer_epoch(world: World, wire: Wire) -> None:
    world.create("t")
    write(world, 7, epoch=3)
    assert mark(wire, 7, 3, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert mark(wire, 7, 4, transaction_version=2) == 0


@pytest.mark.parametrize("version", MARKERS)
def test_markers_for_what_is_not_there(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert mark(wire, 7, 0, topic="none", version=version) == unknown
    assert mark(wire, 7, 0, partition=1, version=version) == unknown
    assert mark(wire, 7, 0, topic="__consumer_offsets", version=version) == unknown


def stage(wire: Wire, begun: m.InitProducerIdResponse, offset: int = 5) -> None:
    """Offsets of group g, committed in an open transaction."""
    offsets = m.AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=begun.producer_id, producer_epoch=0, group_id="g"
    )
    assert wire.ask(offsets, 3, m.AddOffsetsToTxnResponse).error_code == 0
    part = m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    commit = m.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=begun.producer_id,
        producer_epoch=0,
        topics=[m.TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
    )
    response = wire.ask(commit, 3, m.TxnOffsetCommitResponse)
    assert response.topics[0].partitions[0].error_code == 0


def test_a_transaction_may_commit_a_negative_offset(world: World, wire: Wire) -> None:
    world.create("t")
    begun = begin(wire)
    stage(wire, begun, offset=-2)
    end = m.EndTxnRequest(
        transactional_id="x", producer_id=begun.producer_id, producer_epoch=0, committed=True
    )
    assert wire.ask(end, 3, m.EndTxnResponse).error_code == 0
    world.settle()
    offsets = world.broker.coordination.groups.offsets
    assert [each.offset for each in offsets.all_stored("g").values()] == [-2]  # type: ignore[arg-type]
    assert offsets.all_committed("g") == {}  # type: ignore[arg-type]


@pytest.mark.parametrize("commit", [False, True])
def test_staged_offsets_end_with_a_marker_on_their_partition(
    world: World, wire: Wire, commit: bool
) -> None:
    world.create("t")
    begun = begin(wire)
    stage(wire, begun)
    offsets = world.broker.coordination.groups.offsets
    assert offsets.has_unstable("g", "t", 0)  # type: ignore[arg-type]
    index = world.broker.coordination.groups.home_of("g")[1]
    elsewhere = mark(
        wire, begun.producer_id, 0, topic="__consumer_offsets", partition=(index + 1) % 50
    )
    assert elsewhere == 0
    assert offsets.has_unstable("g", "t", 0)  # type: ignore[arg-type]
    code = mark(
        wire, begun.producer_id, 0, commit=commit, topic="__consumer_offsets", partition=index
    )
    assert code == 0
    assert not offsets.has_unstable("g", "t", 0)  # type: ignore[arg-type]
    found = offsets.committed("g", "t", 0)  # type: ignore[arg-type]
    assert (found.offset if found else None) == (5 if commit else None)


def test_markers_ask_the_authorizer() -> None:
    wire = forbidden(Resource.CLUSTER, Operation.CLUSTER_ACTION, Operation.ALTER)
    wire.world.create("t")
    assert mark(wire, 7, 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_operators_may_write_markers() -> None:
    wire = forbidden(Resource.CLUSTER, Operation.CLUSTER_ACTION)
    wire.world.create("t")
    assert mark(wire, 7, 0) == 0


def test_no_markers_no_answers(wire: Wire) -> None:
    response = wire.ask(m.WriteTxnMarkersRequest(), 2, m.WriteTxnMarkersResponse)
    assert response.markers == []
