"""Goal: Fetch returns stored batches as they are, in every version, with right marks and errors."""

from __future__ import annotations

import pytest

from dragoman.config.settings import Settings
from dragoman.log.batch import TRANSACTIONAL
from dragoman.log.compression import Codec
from dragoman.outcome import start
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import AllowAll
from worlds.access import Denies
from worlds.broker import Wire, World, batch_of, fetch_request, only, values_in

NAMED_VERSIONS = range(4, 13)
ID_VERSIONS = range(13, 18)


@pytest.mark.parametrize("version", NAMED_VERSIONS)
def test_every_version_that_names_topics(world: World, wire: Wire, version: int) -> None:
    (replica,) = world.create("t")
    sent = batch_of(b"a", b"b")
    world.append(replica, sent)
    part = only(wire.ask(fetch_request("t"), version, m.FetchResponse))
    assert part.records == sent
    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 2, 2)
    assert part.preferred_read_replica == -1
    if version >= 5:
        assert part.log_start_offset == 0


@pytest.mark.parametrize("version", ID_VERSIONS)
def test_every_version_that_names_topics_by_id(world: World, wire: Wire, version: int) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"a")
    topic_id = replica.metadata.topic.topic_id
    response = wire.ask(fetch_request("", topic_id=topic_id), version, m.FetchResponse)
    assert response.responses[0].topic_id == topic_id
    assert values_in(only(response).records) == [b"a"]
    for unknown in (m.NO_ID, b"\1" * 16):
        part = only(wire.ask(fetch_request("", topic_id=unknown), version, m.FetchResponse))
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [4, 11, 12])
def test_nothing_new_is_zero_bytes_and_not_null(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    part = only(wire.ask(fetch_request("t"), version, m.FetchResponse))
    assert part.records == b""
    assert part.aborted_transactions is None


@pytest.mark.parametrize("version", [4, 9, 12])
@pytest.mark.parametrize("offset", [-1, 2, 1 << 60])
def test_offset_out_of_range_comes_with_the_marks(
    world: World, wire: Wire, version: int, offset: int
) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"a")
    part = only(wire.ask(fetch_request("t", offset), version, m.FetchResponse))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert part.high_watermark == 1
    assert part.records == b""
    if version >= 5:
        assert part.log_start_offset == 0


def test_unknown_topic_and_partition(world: World, wire: Wire) -> None:
    world.create("t")
    for request in (fetch_request("nowhere"), fetch_request("t", partition=1)):
        part = only(wire.ask(request, 11, m.FetchResponse))
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert part.high_watermark == -1
    assert set(world.broker.image.topics) == {"t"}


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_leader_epoch_is_checked(world: World, wire: Wire, epoch: int, code: int) -> None:
    world.create("t")
    part = only(wire.ask(fetch_request("t", epoch=epoch), 11, m.FetchResponse))
    assert part.error_code == code


def test_epoch_in_batches_is_the_leaders(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"a")
    records = only(wire.ask(fetch_request("t"), 11, m.FetchResponse)).records
    assert isinstance(records, memoryview | bytes | bytearray)
    assert int.from_bytes(bytes(records)[12:16], "big", signed=True) == replica.leader_epoch == 0


# ---- sizes


def test_first_batch_is_whole_whatever_the_limits(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"x" * 5000)
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"partition_max_bytes": 0}):
        part = only(wire.ask(fetch_request("t", **limits), 11, m.FetchResponse))
        assert values_in(part.records) == [b"x" * 5000]


def test_node_limits_the_whole_reply() -> None:
    world = World(Settings(fetch_max_bytes=2500))
    (replica,) = world.create("t")
    for _ in range(5):
        world.write(replica, b"x" * 1000)
    part = only(Wire(world).ask(fetch_request("t"), 11, m.FetchResponse))
    assert len(values_in(part.records)) == 2


def test_partitions_answer_in_the_order_of_the_request(world: World, wire: Wire) -> None:
    for name in ("a", "b"):
        for index, replica in enumerate(world.create(name, 2)):
            world.write(replica, f"{name}{index}".encode())
    request = m.FetchRequest(
        min_bytes=1,
        topics=[
            m.FetchRequestTopic(
                topic=name,
                partitions=[
                    m.FetchRequestPartition(partition=index, partition_max_bytes=1000)
                    for index in (1, 0)
                ],
            )
            for name in ("b", "a")
        ],
    )
    response = wire.ask(request, 11, m.FetchResponse)
    found = [values_in(part.records) for topic in response.responses for part in topic.partitions]
    assert found == [[b"b1"], [b"b0"], [b"a1"], [b"a0"]]


def test_fetch_of_no_partitions_is_answered_at_once(wire: Wire) -> None:
    request = m.FetchRequest(max_wait_ms=60_000, min_bytes=1)
    assert wire.ask(request, 11, m.FetchResponse).responses == []


# ---- waiting


def test_long_poll_is_answered_by_data_and_by_time(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    wire.send(fetch_request("t", max_wait_ms=500), 11)
    world.advance(0.499)
    assert not wire.replies()
    world.advance(0.001)
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.FetchResponse)
    wire.send(fetch_request("t", max_wait_ms=500), 11)
    world.write(replica, b"a")
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.FetchResponse)
    assert values_in(only(reply.message).records) == [b"a"]


def test_deletion_answers_a_parked_fetch(world: World, wire: Wire) -> None:
    world.create("t")
    wire.send(fetch_request("t", max_wait_ms=60_000), 11)
    start(world.broker.topics.delete("t")).then(lambda _: None)
    world.settle()
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.FetchResponse)
    assert only(reply.message).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- sessions


def test_full_requests_without_a_session_get_none(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"a")
    for session_id in (0, 77):
        request = fetch_request("t", session_id=session_id, session_epoch=-1)
        response = wire.ask(request, 12, m.FetchResponse)
        assert (response.session_id, response.error_code) == (0, 0)
        assert values_in(only(response).records) == [b"a"]


def test_incremental_request_is_sent_back_to_the_start(world: World, wire: Wire) -> None:
    world.create("t")
    request = fetch_request("t", session_id=77, session_epoch=3, max_wait_ms=60_000)
    response = wire.ask(request, 12, m.FetchResponse)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (response.session_id, response.responses) == (0, [])


# ---- compression and transactions


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("version", [4, 9, 10, 12])
def test_compressed_batches_go_out_as_they_came(
    world: World, wire: Wire, codec: Codec, version: int
) -> None:
    (replica,) = world.create("t")
    plain, sent = batch_of(b"p"), batch_of(b"v" * 1000, codec=codec)
    world.append(replica, plain)
    world.append(replica, sent)
    part = only(wire.ask(fetch_request("t"), version, m.FetchResponse))
    if codec is Codec.ZSTD and version < 10:
        # Version 10 is the first whose clients are known to read zstd.
        assert part.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert part.records == b""
        return
    assert part.error_code == 0
    assert isinstance(part.records, bytes | bytearray | memoryview)
    # All but offset and epoch, which the log assigns.
    assert bytes(part.records)[len(plain) + 16 :] == sent[16:]


def test_isolation_level(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"before")
    for producer_id, value in ((9, b"nine"), (7, b"seven")):
        batch = batch_of(
            value,
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
        world.append(replica, batch)
    world.end_transaction(replica, 7, commit=False)
    part = only(wire.ask(fetch_request("t", isolation_level=1), 11, m.FetchResponse))
    assert (part.high_watermark, part.last_stable_offset) == (4, 1)
    assert (values_in(part.records), part.aborted_transactions) == ([b"before"], [])
    part = only(wire.ask(fetch_request("t", isolation_level=0), 11, m.FetchResponse))
    assert values_in(part.records) == [b"before", b"nine", b"seven"]
    assert part.aborted_transactions is None
    world.end_transaction(replica, 9, commit=False)
    part = only(wire.ask(fetch_request("t", isolation_level=1), 11, m.FetchResponse))
    assert (part.high_watermark, part.last_stable_offset) == (5, 5)
    assert part.aborted_transactions == [
        m.FetchResponseAbortedTransaction(producer_id=9, first_offset=1),
        m.FetchResponseAbortedTransaction(producer_id=7, first_offset=2),
    ]
    # The control batches are there for the client to skip.
    assert isinstance(part.records, bytes | bytearray | memoryview)
    assert len(part.records) > 3 * 70 + 2 * 78 - 10


class NoReading(AllowAll):
    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        return operation is not Operation.READ


def test_authorizer_is_asked() -> None:
    world = World(authorizer=NoReading())
    (replica,) = world.create("t")
    world.write(replica, b"secret")
    part = only(Wire(world).ask(fetch_request("t"), 11, m.FetchResponse))
    assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert part.records == b""


@pytest.mark.parametrize("version", [11, 13])
def test_parked_fetch_ends_when_the_right_to_read_is_taken(version: int) -> None:
    rules = Denies()
    world = World(authorizer=rules)
    (first,), (second,) = world.create("a"), world.create("b")
    wire = Wire(world)
    request = m.FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            m.FetchRequestTopic(
                topic=each.metadata.topic.name,
                topic_id=each.metadata.topic.topic_id,
                partitions=[m.FetchRequestPartition(partition_max_bytes=1 << 20)],
            )
            for each in (first, second)
        ],
    )
    wire.send(request, version)
    world.change_rules()
    assert wire.replies() == []
    rules.denied.add((Operation.READ, Resource.TOPIC, "b"))
    world.change_rules()
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.FetchResponse)
    codes = [each.partitions[0].error_code for each in reply.message.responses]
    assert codes == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert len(world.broker.grants) == 0
    world.write(second, b"secret")
    assert wire.replies() == []


def test_records_that_arrive_after_the_loss_of_the_right_are_not_sent() -> None:
    rules = Denies()
    world = World(authorizer=rules)
    (replica,) = world.create("t")
    wire = Wire(world)
    wire.send(fetch_request("t", max_wait_ms=60_000), 11)
    rules.denied.add((Operation.READ, Resource.TOPIC, "t"))
    # The parked fetch is woken before it is asked again.
    world.broker.grants.revision += 1
    world.write(replica, b"secret")
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.FetchResponse)
    part = only(reply.message)
    assert (part.error_code, part.records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")


def test_grant_ends_with_its_fetch(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    for _ in range(3):
        wire.send(fetch_request("t", max_wait_ms=60_000), 11)
    assert len(world.broker.grants) == 3
    world.write(replica, b"v")
    assert len(world.broker.grants) == 0
    wire.send(fetch_request("t", offset=1, max_wait_ms=60_000), 11)
    wire.lose()
    assert len(world.broker.grants) == 0
