"""Goal: a batch that breaks a rule is refused for its own reason, and the refusal leaves no trace.

Method: one valid batch, damaged in one way at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import product

import pytest
from crc32c import crc32c

from dragoman.broker.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedFormat,
)
from dragoman.broker.produce import (
    as_configured,
    check_produced,
    check_rules,
    is_ordinary,
    place,
)
from dragoman.errors import DragomanError
from dragoman.log.batch import CONTROL, Record, build_batch, read_header, records
from dragoman.log.compression import Codec
from dragoman.log.producer import InvalidProducerEpochError, OutOfOrderSequenceError
from dragoman.replication.replica import Replica
from worlds.broker import World, batch_of


def changed(batch: bytearray, form: str, position: int, value: int) -> bytearray:
    """With one field overwritten and the checksum right again."""
    struct.pack_into(form, batch, position, value)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def check(batch: bytearray | None) -> None:
    check_produced(memoryview(batch) if batch is not None else None)


# ---- the batch by itself


@pytest.mark.parametrize("codec", list(Codec))
def test_good_batch_is_taken(codec: Codec) -> None:
    batch = batch_of(b"a", b"b", codec=codec)
    assert check_produced(memoryview(batch)).record_count == 2


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda b: None, CorruptMessage),
        (lambda b: bytearray(), CorruptMessage),
        (lambda b: b[:60], CorruptMessage),
        (lambda b: b[:-1], CorruptMessage),
        (lambda b: b + b"\0", InvalidRecord),
        (lambda b: b + b, InvalidRecord),
        (lambda b: changed(b, ">b", 16, 0), UnsupportedFormat),
        (lambda b: changed(b, ">b", 16, 1), UnsupportedFormat),
        (lambda b: changed(b, ">b", 16, 1)[:30], UnsupportedFormat),
        (lambda b: changed(b, ">b", 16, 3), CorruptMessage),
        (lambda b: changed(b, ">b", 16, -1), CorruptMessage),
        (lambda b: changed(b, ">i", 8, -1), CorruptMessage),
        (lambda b: changed(b, ">i", 8, 48), CorruptMessage),
        (lambda b: changed(b, ">i", 8, (1 << 31) - 1), CorruptMessage),
        (lambda b: changed(b, ">i", 57, 0), InvalidRecord),
        (lambda b: changed(b, ">i", 57, -1), InvalidRecord),
        (lambda b: changed(b, ">i", 57, 3), InvalidRecord),
        (lambda b: changed(b, ">i", 23, 5), InvalidRecord),
        (lambda b: changed(b, ">i", 23, -1), InvalidRecord),
        (lambda b: changed(b, ">h", 21, CONTROL), InvalidRecord),
        (lambda b: changed(b, ">q", 43, 5), InvalidRecord),
        (lambda b: changed(b, ">q", 43, -2), InvalidRecord),
    ],
)
def test_each_fault_has_its_reason(
    make: Callable[[bytearray], bytearray | None], reason: type[DragomanError]
) -> None:
    with pytest.raises(reason):
        check(make(batch_of(b"a", b"b")))


def test_producer_id_needs_epoch_and_sequence() -> None:
    for epoch, sequence in ((-1, 0), (0, -1)):
        batch = batch_of(b"a", producer_id=5, producer_epoch=epoch, base_sequence=sequence)
        with pytest.raises(InvalidRecord):
            check(batch)


@pytest.mark.parametrize("position", [21, 27, 43, 57, 61, -1])
def test_flipped_bit_under_the_checksum_is_found(position: int) -> None:
    batch = batch_of(b"a", b"b")
    batch[position] ^= 0x10
    with pytest.raises((CorruptMessage, InvalidRecord)):
        check(batch)


def test_leader_epoch_and_base_offset_of_the_producer_are_ignored(world: World) -> None:
    (replica,) = world.create("t")
    batch = batch_of(b"a")
    struct.pack_into(">q", batch, 0, 77)
    struct.pack_into(">i", batch, 12, -1)
    world.append(replica, batch)
    (buffer,) = replica.log.read(0, 1000, 1).buffers
    header = read_header(buffer)
    assert (header.base_offset, header.leader_epoch) == (0, 0)


# ---- under the topic's rules


def refuse(world: World, replica: Replica, batch: bytearray) -> DragomanError:
    end = replica.log.log_end_offset
    with pytest.raises(DragomanError) as raised:
        world.append(replica, batch)
    assert replica.log.log_end_offset == end
    return raised.value


def test_batch_above_the_topics_limit_is_refused(world: World) -> None:
    batch = batch_of(b"x" * 500)
    (exact,) = world.create("exact", config={"max.message.bytes": str(len(batch))})
    (small,) = world.create("small", config={"max.message.bytes": str(len(batch) - 1)})
    world.append(exact, batch)
    error = refuse(world, small, batch)
    assert isinstance(error, MessageTooLarge)
    assert "max.message.bytes" in str(error)


@pytest.mark.parametrize("codec", list(Codec))
def test_compacted_topic_names_the_records_without_a_key(world: World, codec: Codec) -> None:
    (replica,) = world.create("t", config={"cleanup.policy": "compact"})
    now = world.clock.wall_ms()
    mixed = build_batch(
        [Record(key=key, value=b"v", timestamp=now) for key in (b"k", None, b"", None)],
        codec=codec,
    )
    error = refuse(world, replica, mixed)
    assert isinstance(error, InvalidRecord)
    assert error.indexes == (1, 3)
    world.append(replica, batch_of(b"v", codec=codec, timestamp=now))


def test_compacted_topic_refuses_what_it_cannot_look_into(world: World) -> None:
    (replica,) = world.create("t", config={"cleanup.policy": "compact,delete"})
    broken = batch_of(b"value")
    broken[61:] = b"\xff" * (len(broken) - 61)
    assert isinstance(refuse(world, replica, changed(broken, ">h", 21, 0)), CorruptMessage)
    broken = changed(broken, ">h", 21, Codec.GZIP)
    assert isinstance(refuse(world, replica, broken), CorruptMessage)


def test_time_outside_the_topics_bounds_is_refused(world: World) -> None:
    bounds = {
        "message.timestamp.before.max.ms": "1000",
        "message.timestamp.after.max.ms": "2000",
    }
    (replica,) = world.create("t", config=bounds)
    now = world.clock.wall_ms()
    for good in (now - 1000, now, now + 2000, -1):
        world.append(replica, batch_of(b"v", timestamp=good))
    for bad in (now - 1001, now + 2001):
        assert isinstance(refuse(world, replica, batch_of(b"v", timestamp=bad)), InvalidTimestamp)


def test_by_default_a_time_may_lie_an_hour_ahead_and_any_time_behind(world: World) -> None:
    (replica,) = world.create("t")
    now = world.clock.wall_ms()
    for good in (0, 1, now + 3_600_000):
        world.append(replica, batch_of(b"v", timestamp=good))
    late = batch_of(b"v", timestamp=now + 3_600_001)
    assert isinstance(refuse(world, replica, late), InvalidTimestamp)


def timeless(*times: int, codec: Codec = Codec.NONE) -> bytearray:
    """A batch as librdkafka builds it: the maximum begins at 0 although no record has that time."""
    batch = build_batch([Record(value=b"v", timestamp=each) for each in times], codec=codec)
    return changed(batch, ">q", 35, max(0, *times))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(
    ("times", "latest"), [((-1,), -1), ((-1, -1, -1), -1), ((-1, 77_000, -1), 77_000)]
)
def test_records_without_a_time_leave_no_maximum(
    world: World, codec: Codec, times: tuple[int, ...], latest: int
) -> None:
    (replica,) = world.create("t")
    world.append(replica, timeless(*times, codec=codec))
    (buffer,) = replica.log.read(0, 10_000, len(times)).buffers
    header = check_produced(memoryview(buffer))
    assert (header.base_timestamp, header.max_timestamp) == (-1, latest)
    assert [each.timestamp for each in records(memoryview(buffer), header)] == list(times)
    assert replica.log.latest_timestamp() == latest


def test_records_without_a_time_are_within_any_bounds(world: World) -> None:
    bounds = {
        "message.timestamp.before.max.ms": "1000",
        "message.timestamp.after.max.ms": "2000",
    }
    (replica,) = world.create("t", config=bounds)
    now = world.clock.wall_ms()
    for good in ((-1,), (-1, -1), (-1, now), (-1, now - 1000, -1)):
        world.append(replica, timeless(*good))
    for bad in ((-1, now - 1001), (-1, now, now + 2001)):
        assert isinstance(refuse(world, replica, timeless(*bad)), InvalidTimestamp)


def test_a_batch_without_a_first_time_is_judged_by_its_header_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 kB of compressed records may be two million, which take seconds to read one by one."""

    def refuse_to_expand(*_: object) -> bytes:
        raise AssertionError("records are not read")

    monkeypatch.setattr("dragoman.log.batch.decompress", refuse_to_expand)
    (replica,) = world.create("t", config={"message.timestamp.before.max.ms": "1000"})
    for times in ((-1, -1), (-1, world.clock.wall_ms())):
        world.append(replica, timeless(*times, codec=Codec.GZIP))


def test_append_time_topic_stamps_records_without_a_time(world: World) -> None:
    (replica,) = world.create("t", config={"message.timestamp.type": "LogAppendTime"})
    world.append(replica, timeless(-1, -1))
    assert replica.log.latest_timestamp() == world.clock.wall_ms()


def test_append_time_topic_stamps_the_batch(world: World) -> None:
    (replica,) = world.create("t", config={"message.timestamp.type": "LogAppendTime"})
    world.advance(5)
    # Far ahead, which such a topic does not mind.
    world.append(replica, batch_of(b"a", b"b", timestamp=1 << 50))
    (buffer,) = replica.log.read(0, 1000, 2).buffers
    header = check_produced(memoryview(buffer))
    found = records(memoryview(buffer), header)
    assert [each.timestamp for each in found] == [world.clock.wall_ms()] * 2


def test_the_rules_have_nothing_to_say_about_an_ordinary_batch(world: World) -> None:
    """The few comparisons for most batches agree with the rules, and are not idle."""
    now = world.clock.wall_ms()
    bounds = {"message.timestamp.before.max.ms": "50", "message.timestamp.after.max.ms": "60"}
    configs: list[dict[str, str]] = [
        {},
        {"compression.type": "gzip"},
        {"message.timestamp.type": "LogAppendTime"},
        {"cleanup.policy": "compact"},
        {"cleanup.policy": ""},
        {"max.message.bytes": "70"},
        bounds,
        bounds | {"cleanup.policy": "compact,delete"},
    ]
    times = (-1, 0, now - 51, now - 50, now, now + 60, now + 61, now + 3_600_001)
    found = []
    for number, config in enumerate(configs):
        (replica,) = world.create(f"t{number}", config=config)
        for first, last in product(times, times):
            batch = memoryview(timeless(first, last))
            header = check_produced(batch)
            found.append(is_ordinary(replica.config, batch, header, now))
            if found[-1]:
                before = bytes(batch)
                fitted = as_configured(replica, batch, header, now)
                assert fitted == (batch, header)
                assert bytes(batch) == before
                check_rules(replica, batch, header, now)
    assert 50 < sum(found) < len(found) - 50


# ---- idempotence, through the same door


def numbered(sequence: int, *, producer_id: int = 5, epoch: int = 0) -> bytearray:
    return batch_of(
        b"v%d" % sequence,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def test_repeat_gets_the_original_offset_and_is_not_appended(world: World) -> None:
    (replica,) = world.create("t")
    for sequence in range(5):
        world.append(replica, numbered(sequence))
    for sequence in range(5):
        again = world.append(replica, numbered(sequence))
        assert (again.base_offset, again.is_duplicate) == (sequence, True)
    assert replica.log.log_end_offset == 5


def test_repeat_of_an_uncommitted_batch_waits_like_the_original(world: World) -> None:
    (replica,) = world.create("t")
    first = world.append(replica, numbered(0), settle=False)
    again = world.append(replica, numbered(0), settle=False)
    assert again.next_offset == first.next_offset > replica.log.high_watermark


def test_gap_and_old_epoch_are_refused(world: World) -> None:
    (replica,) = world.create("t")
    world.append(replica, numbered(0))
    assert isinstance(refuse(world, replica, numbered(2)), OutOfOrderSequenceError)
    world.append(replica, numbered(0, epoch=1))
    assert isinstance(refuse(world, replica, numbered(1)), InvalidProducerEpochError)


@pytest.mark.parametrize("kill", [False, True])
def test_repeats_are_known_after_a_restart(world: World, kill: bool) -> None:
    (replica,) = world.create("t")
    for sequence in range(3):
        world.append(replica, numbered(sequence))
    again = world.reopened(kill=kill)
    replica = again.broker.partitions.find("t", 0)
    assert again.append(replica, numbered(1)).base_offset == 1
    assert not again.append(replica, numbered(3)).is_duplicate
    assert replica.log.log_end_offset == 4


def test_placing_changes_nothing_when_the_log_refuses(world: World) -> None:
    (replica,) = world.create("t")
    view = memoryview(numbered(0))
    place(replica, view, check_produced(view), world.clock.wall_ms())
    gap = memoryview(numbered(9))
    before = bytes(gap)
    with pytest.raises(OutOfOrderSequenceError):
        place(replica, gap, check_produced(gap), world.clock.wall_ms())
    assert bytes(gap) == before
