"""Goal: settings of groups, transactions, retention and compaction change what the broker does.

Method: a broker in virtual time for each value; what differs is what the setting is for. The keys
are listed in `tests/integration/test_settings_effects.py`.
"""

from __future__ import annotations

import pytest

from dragoman.broker.errors import (
    GroupMaxSizeReached,
    InvalidSessionTimeout,
    OffsetMetadataTooLarge,
    TransactionalIdNotFound,
    TransactionTimeoutInvalid,
)
from dragoman.broker.groups import Joined, JoinRequest
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit, PreparedOffsets
from dragoman.broker.transactions import ProducerIdentity
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.log.batch import CODEC_MASK, read_header
from dragoman.log.compression import Codec
from dragoman.outcome import start
from dragoman.replication.replica import Replica
from dragoman.types import GroupId, Offset, Partition, TopicName
from worlds.broker import World, batch_of

HOUR_S = 3600


def join(world: World, group: str = "g", session_timeout_ms: int = 10_000) -> list[object]:
    """Replies so far of a member that joins."""
    replies: list[object] = []
    world.broker.coordination.groups.table.join(
        JoinRequest(
            group_id=GroupId(group),
            protocol_type="consumer",
            protocols=(("range", b""),),
            session_timeout_ms=session_timeout_ms,
        ),
        replies.append,
    )
    world.settle()
    return replies


def commit(world: World, metadata: str = "") -> tuple[PreparedOffsets | None, DragomanError | None]:
    outcome: list[tuple[PreparedOffsets | None, DragomanError | None]] = []
    offset = OffsetCommit(
        topic=TopicName("t"), partition=Partition(0), offset=Offset(1), metadata=metadata
    )
    request = CommitRequest(group_id=GroupId("g"), offsets=(offset,))
    world.broker.coordination.groups.commit(request, lambda *result: outcome.append(result))
    world.settle()
    return outcome[0]


def init(world: World, timeout_ms: int = 60_000, name: str = "id") -> object:
    replies: list[object] = []
    start(
        world.broker.coordination.transactions.coordinator.init_producer_id(name, timeout_ms, None)
    ).then(replies.append)
    world.settle()
    return replies[0]


def fill(world: World, replica: Replica, count: int = 30) -> None:
    for number in range(count):
        batch = batch_of(b"%d" % number * 20, timestamp=world.clock.wall_ms())
        world.append(replica, batch)


def values(replica: Replica) -> list[bytes | None]:
    log = replica.log
    return [each.value for each in log.iterate(log.log_start_offset, log.high_watermark)]


# ---- groups


def test_group_min_session_timeout_ms() -> None:
    assert isinstance(join(World(), session_timeout_ms=5000)[0], InvalidSessionTimeout)
    low = World(Settings(group_min_session_timeout_ms=100, group_initial_rebalance_delay_ms=0))
    assert isinstance(join(low, session_timeout_ms=5000)[0], Joined)


def test_group_max_session_timeout_ms() -> None:
    world = World(Settings(group_max_session_timeout_ms=9000))
    assert isinstance(join(world, session_timeout_ms=10_000)[0], InvalidSessionTimeout)


def test_group_initial_rebalance_delay_ms() -> None:
    assert isinstance(join(World(Settings(group_initial_rebalance_delay_ms=0)))[0], Joined)
    slow = World(Settings(group_initial_rebalance_delay_ms=2000))
    replies = join(slow)
    assert replies == []
    slow.advance(1.9)
    assert replies == []
    slow.advance(0.2)
    assert isinstance(replies[0], Joined)


def test_group_max_size() -> None:
    world = World(Settings(group_max_size=1))
    join(world)
    assert isinstance(join(world)[0], GroupMaxSizeReached)


def test_offset_metadata_max_bytes() -> None:
    for limit, is_taken in ((10, False), (100, True)):
        world = World(Settings(offset_metadata_max_bytes=limit))
        world.create("t")
        prepared, error = commit(world, "x" * 50)
        assert error is None
        assert prepared is not None
        refused = list(prepared.errors.values())
        assert (refused == []) is is_taken
        assert all(isinstance(each, OffsetMetadataTooLarge) for each in refused)


def test_offsets_retention_minutes_and_check_interval_ms() -> None:
    world = World(
        Settings(offsets_retention_minutes=10, offsets_retention_check_interval_ms=60_000)
    )
    world.create("t")
    commit(world)
    offsets = world.broker.coordination.groups.offsets
    world.advance(9 * 60)
    assert offsets.all_committed(GroupId("g"))
    world.advance(2 * 60)
    assert not offsets.all_committed(GroupId("g"))
    rarely = World(
        Settings(offsets_retention_minutes=10, offsets_retention_check_interval_ms=10_000_000)
    )
    rarely.create("t")
    commit(rarely)
    rarely.advance(HOUR_S)
    assert rarely.broker.coordination.groups.offsets.all_committed(GroupId("g"))


def test_offsets_topic_num_partitions() -> None:
    world = World(Settings(offsets_topic_num_partitions=3))
    world.create("t")
    commit(world)
    assert len(world.broker.image.topics["__consumer_offsets"].partitions) == 3


# ---- transactions


def test_transaction_max_timeout_ms() -> None:
    world = World(Settings(transaction_max_timeout_ms=5000))
    assert isinstance(init(world, timeout_ms=6000), TransactionTimeoutInvalid)
    assert isinstance(init(world, timeout_ms=5000), ProducerIdentity)


def test_transaction_state_log_num_partitions() -> None:
    world = World(Settings(transaction_state_log_num_partitions=4))
    init(world)
    assert len(world.broker.image.topics["__transaction_state"].partitions) == 4


def test_transactional_id_expiration_ms() -> None:
    world = World(Settings(transactional_id_expiration_ms=2 * HOUR_S * 1000))
    init(world)
    transactions = world.broker.coordination.transactions.coordinator
    world.advance(1.5 * HOUR_S)
    assert transactions.describe("id")
    world.advance(2 * HOUR_S)
    with pytest.raises(TransactionalIdNotFound):
        transactions.describe("id")


def test_transaction_abort_timed_out_transaction_cleanup_interval_ms() -> None:
    for interval_ms, state in ((1000, "CompleteAbort"), (3_600_000, "Ongoing")):
        world = World(
            Settings(transaction_abort_timed_out_transaction_cleanup_interval_ms=interval_ms)
        )
        world.create("t")
        identity = init(world, timeout_ms=2000)
        assert isinstance(identity, ProducerIdentity)
        transactions = world.broker.coordination.transactions.coordinator
        where = [(TopicName("t"), Partition(0))]
        start(transactions.add_partitions("id", identity, where)).then(lambda _: None)
        world.advance(60)
        assert transactions.describe("id").state.value == state


# ---- the log


def test_log_retention_ms_and_check_interval_ms() -> None:
    for check_ms, is_gone in ((1000, True), (3_600_000, False)):
        world = World(Settings(log_retention_ms=5000, log_retention_check_interval_ms=check_ms))
        (replica,) = world.create("t")
        fill(world, replica)
        world.advance(60)
        assert (values(replica) == []) is is_gone


def test_log_retention_bytes() -> None:
    world = World(
        Settings(
            log_retention_bytes=2000, log_segment_bytes=500, log_retention_check_interval_ms=1000
        )
    )
    (replica,) = world.create("t")
    fill(world, replica, 60)
    world.advance(5)
    assert 2000 <= replica.log.size < 2600


def test_log_retention_segments() -> None:
    world = World(Settings(log_retention_segments=3, log_segment_bytes=500))
    (replica,) = world.create("t")
    fill(world, replica, 60)
    assert len(replica.log.all_segments()) == 3


def test_log_roll_ms() -> None:
    world = World(Settings(log_roll_ms=5000, log_retention_check_interval_ms=1000))
    (replica,) = world.create("t")
    fill(world, replica, 2)
    world.advance(10)
    assert len(replica.log.segments) == 1


def test_log_cleaner_backoff_ms() -> None:
    for backoff_ms, is_compacted in ((1000, True), (3_600_000, False)):
        world = World(Settings(log_cleaner_backoff_ms=backoff_ms, log_segment_bytes=500))
        (replica,) = world.create("t", config={"cleanup.policy": "compact"})
        fill(world, replica, 60)
        world.advance(60)
        assert (len(values(replica)) < 30) is is_compacted


def test_log_cleaner_min_cleanable_ratio() -> None:
    for ratio, is_compacted in ((0.01, True), (1.0, False)):
        world = World(
            Settings(
                log_cleaner_backoff_ms=1000,
                log_cleaner_min_cleanable_ratio=ratio,
                log_segment_bytes=500,
            )
        )
        (replica,) = world.create("t", config={"cleanup.policy": "compact"})
        fill(world, replica, 60)
        world.advance(60)
        # All of it was dirty once; from then on only a part is.
        first = len(values(replica))
        fill(world, replica, 8)
        world.advance(60)
        assert (len(values(replica)) < first + 8) is is_compacted


def test_log_cleaner_delete_retention_ms() -> None:
    for retention_ms, is_gone in ((5000, True), (10_000_000, False)):
        world = World(
            Settings(
                log_cleaner_backoff_ms=1000,
                log_cleaner_delete_retention_ms=retention_ms,
                log_roll_ms=1000,
                log_retention_check_interval_ms=1000,
            )
        )
        (replica,) = world.create("t", config={"cleanup.policy": "compact"})
        world.append(replica, batch_of(b"v", key=b"a", timestamp=world.clock.wall_ms()))
        world.append(replica, batch_of(None, key=b"a", timestamp=world.clock.wall_ms()))
        world.advance(60)
        assert (values(replica) == []) is is_gone


def test_compression_type() -> None:
    world = World(Settings(compression_type="lz4"))
    (replica,) = world.create("t")
    world.append(replica, batch_of(b"v" * 100, timestamp=world.clock.wall_ms()))
    stored = replica.log.read(0, 1000, 1).buffers[0]
    assert read_header(stored).attributes & CODEC_MASK == Codec.LZ4
    assert values(replica) == [b"v" * 100]
