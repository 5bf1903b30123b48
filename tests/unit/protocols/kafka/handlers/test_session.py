"""Goal: replies keep the order of the requests, memory stays bounded, bad bytes end a connection.

Method: the real channel, session and codec over a transport made of lists, on virtual time. After
every test the memory budget must be back at zero once the connections are gone.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest

from dragoman.config.settings import Settings
from dragoman.limits import READ_AHEAD_REQUESTS_MAX, SEND_BUFFER_BYTES_MAX
from dragoman.log.store import Durability
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.handlers.session import HANDLERS
from worlds.broker import (
    Wire,
    World,
    batch_of,
    fetch_request,
    only,
    only_produced,
    produce_request,
    values_in,
)

API_VERSIONS = m.ApiVersionsRequest()


@pytest.fixture(autouse=True)
def _budget_returns_to_zero(world: World) -> Iterator[None]:
    yield
    for channel in list(world.channels.open):
        channel.connection_lost(None)
    assert world.budget.used == 0


def frame(request: m.Message, version: int, correlation_id: int = 1) -> bytes:
    return codec.join(codec.encode_request(request, version, correlation_id, "raw"))


def raw(api_key: int, version: int, body: bytes = b"") -> bytes:
    head = struct.pack(">hhih", api_key, version, 1, -1)
    return struct.pack(">i", len(head) + len(body)) + head + body


# ---- order


def test_replies_wait_behind_a_parked_fetch_and_keep_their_order(world: World, wire: Wire) -> None:
    world.create("t")
    wire.send(fetch_request("t", max_wait_ms=60_000), 11)
    wire.send(API_VERSIONS, 0)
    wire.send(m.MetadataRequest(topics=[]), 1)
    world.settle()
    assert wire.replies() == []
    other = Wire(world)
    other.ask(produce_request("t", batch_of(b"v")), 9, m.ProduceResponse)
    keys = [reply.api_key for reply in wire.replies()]
    assert keys == [ApiKey.FETCH, ApiKey.API_VERSIONS, ApiKey.METADATA]


def test_produce_behind_a_parked_fetch_on_the_same_connection_wakes_it(
    world: World, wire: Wire
) -> None:
    world.create("t")
    wire.send(fetch_request("t", max_wait_ms=60_000), 11)
    wire.send(produce_request("t", batch_of(b"v")), 9)
    world.settle()
    fetched, produced = wire.replies()
    assert values_in(only(fetched.message).records) == [b"v"]
    assert only_produced(produced.message).base_offset == 0


def test_requests_of_one_read_are_answered_in_order(world: World, wire: Wire) -> None:
    world.create("t")
    sent = b""
    for index in range(50):
        request = produce_request("t", batch_of(b"%d" % index)) if index % 2 else API_VERSIONS
        sent += frame(request, 9 if index % 2 else 3, index)
    wire.feed(sent)
    world.settle()
    ids = []
    data = bytes(wire.transport.sent)
    while data:
        size, correlation_id = struct.unpack_from(">ii", data)
        ids.append(correlation_id)
        data = data[4 + size :]
    assert ids == list(range(50))


def test_acks_0_takes_no_place_in_the_line_of_replies(world: World, wire: Wire) -> None:
    world.create("t")
    wire.send(produce_request("t", batch_of(b"quiet"), acks=0), 9)
    wire.send(API_VERSIONS, 0)
    world.settle()
    (reply,) = wire.replies()
    assert reply.api_key == ApiKey.API_VERSIONS
    assert world.broker.partitions.find("t", 0).log.log_end_offset == 1


# ---- bytes


def test_sender_of_one_byte_at_a_time_is_served(world: World, wire: Wire) -> None:
    world.create("t")
    data = frame(API_VERSIONS, 3) + frame(produce_request("t", batch_of(b"v" * 50)), 9, 2)
    for byte in data:
        wire.feed(bytes([byte]))
    world.settle()
    assert not wire.is_closed
    assert world.broker.partitions.find("t", 0).log.log_end_offset == 1


def test_sender_of_odd_pieces_is_served(world: World, wire: Wire) -> None:
    world.create("t")
    rng = random.Random(7)
    values = [rng.randbytes(rng.choice((1, 100, 70_000))) for _ in range(30)]
    data = b"".join(frame(produce_request("t", batch_of(value)), 9) for value in values)
    while data:
        count = rng.choice((1, 3, 1000, 65_536, 200_000))
        wire.feed(data[:count])
        world.settle()
        data = data[count:]
    log = world.broker.partitions.find("t", 0).log
    assert [record.value for record in log.iterate(0, log.high_watermark)] == values


@pytest.mark.parametrize("size", [0, -1, -(1 << 31), 104_857_601, (1 << 31) - 1])
def test_size_out_of_bounds_closes_before_anything_is_taken(
    world: World, wire: Wire, size: int
) -> None:
    wire.feed(struct.pack(">i", size) + bytes(100))
    assert wire.is_closed
    assert world.budget.used == 0


def test_announced_size_takes_memory_only_as_bytes_arrive(world: World, wire: Wire) -> None:
    wire.feed(struct.pack(">i", 100 << 20) + bytes(10))
    assert not wire.is_closed
    assert world.budget.used < 3 << 20


def test_request_limit_is_a_setting() -> None:
    world = World(Settings(socket_request_max_bytes=2000, message_max_bytes=1000))
    wire = Wire(world)
    wire.feed(struct.pack(">i", 2001))
    assert wire.is_closed


def test_half_a_request_and_then_nothing_leaves_nothing(world: World, wire: Wire) -> None:
    world.create("t")
    data = frame(produce_request("t", batch_of(b"v" * 100_000)), 9)
    wire.feed(data[:80_000])
    assert world.budget.used > 0
    wire.lose()
    assert world.budget.used == 0
    assert world.broker.partitions.find("t", 0).log.log_end_offset == 0


@pytest.mark.parametrize("seed", range(20))
def test_garbage_closes_the_connection_or_is_answered(world: World, seed: int) -> None:
    rng = random.Random(seed)
    wire, other = Wire(world), Wire(world)
    wire.feed(rng.randbytes(rng.choice((4, 50, 5000))))
    wire.feed(struct.pack(">i", 60) + rng.randbytes(60))
    world.settle()
    other.ask(API_VERSIONS, 0, m.ApiVersionsResponse)


# ---- requests that are not served


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        (-1, 0),
        (999, 0),
        (4, 0),
        (0, 2),
        (0, 14),
        (1, 3),
        (1, 18),
        (3, 14),
        (3, -1),
        (38, 9),
        (71, 1),
        (39, 1),
    ],
)
def test_unknown_key_or_version_closes(
    world: World, wire: Wire, api_key: int, version: int
) -> None:
    served = HANDLERS.keys()
    assert api_key not in served or not 3 <= version <= 13 or api_key == 1
    wire.feed(raw(api_key, version, bytes(40)))
    assert wire.is_closed
    world.settle()
    assert not wire.transport.sent


def test_header_that_cannot_be_read_closes(wire: Wire) -> None:
    wire.feed(struct.pack(">i", 5) + bytes(5))
    assert wire.is_closed


def test_body_that_cannot_be_read_closes(world: World, wire: Wire) -> None:
    wire.feed(raw(3, 9, b"\xff\xff\xff\xff\xff"))
    assert wire.is_closed
    world.settle()
    assert world.budget.used == 0


def test_bytes_behind_the_body_are_ignored(world: World, wire: Wire) -> None:
    wire.feed(raw(18, 0, bytes(7)))
    world.settle()
    assert not wire.is_closed
    assert wire.transport.sent


def test_requests_behind_the_one_that_closed_have_no_effect(world: World, wire: Wire) -> None:
    world.create("t")
    wire.feed(raw(3, 9, b"\xff") + frame(produce_request("t", batch_of(b"v")), 9))
    world.settle()
    assert wire.is_closed
    assert world.broker.partitions.find("t", 0).log.log_end_offset == 0


def test_unknown_tags_are_skipped(world: World, wire: Wire) -> None:
    body = codec.encode_body(m.MetadataRequest(topics=[]), 9)
    assert body.endswith(b"\0")
    tagged = body[:-1] + bytes([1, 77, 3]) + b"abc"
    head = struct.pack(">hhih", 3, 9, 1, -1) + bytes([1, 9, 2]) + b"zz"
    wire.feed(struct.pack(">i", len(head) + len(tagged)) + head + tagged)
    world.settle()
    assert not wire.is_closed
    assert wire.transport.sent


# ---- bounds


def test_pipelining_is_bounded(world: World, wire: Wire) -> None:
    world.create("t")
    wire.send(fetch_request("t", max_wait_ms=60_000), 11)
    for _ in range(READ_AHEAD_REQUESTS_MAX - 1):
        wire.send(API_VERSIONS, 0)
    assert wire.transport.is_reading
    wire.send(API_VERSIONS, 0)
    assert not wire.transport.is_reading
    world.write(world.broker.partitions.find("t", 0), b"v")
    assert wire.transport.is_reading
    assert len(wire.replies()) == READ_AHEAD_REQUESTS_MAX + 1


def test_slow_reader_does_not_grow_memory(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    for _ in range(40):
        world.write(replica, b"x" * 500_000)
    wire.transport.is_stuck = True
    for _ in range(READ_AHEAD_REQUESTS_MAX):
        wire.send(fetch_request("t", partition_max_bytes=1 << 20), 11)
        if not wire.transport.is_reading:
            break
    world.settle()
    # One reply past the bound at which the peer counts as slow, and not a byte more.
    assert len(wire.transport.unsent) <= SEND_BUFFER_BYTES_MAX + (1 << 20) + 1000
    assert not wire.transport.is_reading


def test_requests_wait_unopened_while_the_peer_is_slow(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    for _ in range(4):
        world.write(replica, b"x" * 900_000)
    wire.transport.is_stuck = True
    ahead = b"".join(
        frame(fetch_request("t", partition_max_bytes=2 << 20, max_bytes=3 << 20), 11, index)
        for index in range(5)
    )
    wire.feed(ahead + frame(produce_request("t", batch_of(b"late")), 9, 9))
    world.settle()
    assert replica.log.log_end_offset == 4
    for _ in range(6):
        wire.transport.take()
        world.settle()
    assert replica.log.log_end_offset == 5
    assert wire.transport.is_reading


def test_bad_request_that_waited_closes_too(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    for _ in range(2):
        world.write(replica, b"x" * 900_000)
    wire.transport.is_stuck = True
    fetch = frame(fetch_request("t", partition_max_bytes=2 << 20), 11)
    wire.feed(fetch + raw(999, 0) + frame(produce_request("t", batch_of(b"late")), 9))
    assert not wire.is_closed
    wire.transport.take()
    world.settle()
    assert wire.is_closed
    assert replica.log.log_end_offset == 2


def test_replies_held_behind_a_parked_fetch_are_in_the_budget(world: World, wire: Wire) -> None:
    (full, _empty) = world.create("t", 2)
    for _ in range(20):
        world.write(full, b"x" * 500_000)
    wire.send(fetch_request("t", partition=1, max_wait_ms=60_000), 11)
    before = world.budget.used
    for _ in range(3):
        wire.send(fetch_request("t", partition_max_bytes=5 << 20), 11)
    held = world.budget.used - before
    assert 3 * (4 << 20) < held < 3 * (6 << 20)
    world.write(world.broker.partitions.find("t", 1), b"go")
    assert len(wire.replies()) == 4
    assert world.budget.used == 0


def test_fetches_shrink_as_the_budget_fills() -> None:
    budget = 8 << 20
    world = World(
        Settings(memory_budget_bytes=budget, socket_request_max_bytes=2 << 20),
        durability=Durability.OS,
    )
    (full, _) = world.create("t", 2)
    for _ in range(40):
        world.write(full, b"x" * 500_000)
    readers = [Wire(world) for _ in range(30)]
    for reader in readers:
        reader.transport.is_stuck = True
        reader.send(fetch_request("t", partition_max_bytes=50 << 20), 11)
        world.settle()
    unsent = sum(len(reader.transport.unsent) for reader in readers)
    # Beside the budget, each reader has its send buffer and the one batch that is always whole.
    assert unsent < budget + 30 * (SEND_BUFFER_BYTES_MAX + 510_000)
    assert all(reader.transport.unsent for reader in readers)
    for reader in readers:
        reader.transport.take()
        reader.lose()
    assert world.budget.used == 0


def test_over_budget_connections_are_not_read_until_memory_is_free() -> None:
    world = World(
        Settings(memory_budget_bytes=2 << 20, socket_request_max_bytes=2 << 20),
        durability=Durability.OS,
    )
    (replica,) = world.create("t", config={"max.message.bytes": str(2 << 20)})
    big, small = Wire(world), Wire(world)
    world.budget.take(2 << 20)
    big.send(API_VERSIONS, 0)
    assert not big.transport.is_reading
    small.send(produce_request("t", batch_of(b"v" * 100_000)), 9)
    assert not small.transport.is_reading
    # What was read is still worked on.
    world.settle()
    assert replica.log.log_end_offset == 1
    world.budget.give_back(2 << 20)
    assert big.transport.is_reading
    assert small.transport.is_reading


# ---- the connection goes


def test_disconnect_cancels_a_parked_fetch(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    wire.send(fetch_request("t", max_wait_ms=60_000), 11)
    wire.send(API_VERSIONS, 0)
    assert replica.parked
    wire.lose()
    assert not replica.parked
    world.write(replica, b"v")
    world.advance(120)
    assert not wire.transport.sent


def test_disconnect_before_the_commit_keeps_the_records(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    wire.send(produce_request("t", batch_of(b"v")), 9)
    wire.lose()
    world.settle()
    assert replica.log.high_watermark == 1


def test_disconnect_while_a_topic_is_being_created(world: World, wire: Wire) -> None:
    wire.send(m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")]), 9)
    topic = m.CreateTopicsRequestTopic(name="u", num_partitions=1, replication_factor=1)
    wire.send(m.CreateTopicsRequest(topics=[topic]), 7)
    wire.send(m.InitProducerIdRequest(transactional_id=None), 4)
    wire.lose()
    world.settle()
    assert set(world.broker.image.topics) == {"t", "u"}


def test_stop_answers_parked_fetches(world: World, wire: Wire) -> None:
    world.create("t")
    wire.send(fetch_request("t", max_wait_ms=60_000), 11)
    world.broker.stop()
    world.settle()
    (reply,) = wire.replies()
    assert only(reply.message).records == b""
