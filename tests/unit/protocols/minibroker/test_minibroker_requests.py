"""Goal: every request does what the specification says, refuses in its words, and in order.

Method: a broker on virtual time; peers that send messages and look at what comes back.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from dragoman.broker.local_reader import LocalReader
from dragoman.config.settings import Settings
from dragoman.outcome import start
from dragoman.protocols.kafka import messages as k
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.codec import fnv1a_32
from dragoman.security.access import CLUSTER_NAME, Operation, Resource
from worlds.access import Denies
from worlds.broker import Wire, World, batch_of, fetch_request, only, values_in
from worlds.minibroker import Peer, service_of


def frame(op: int, body: bytes) -> bytes:
    return struct.pack(">IB", len(body) + 1, op) + body


def reason(peer: Peer, data: bytes) -> str:
    """The text of the ERR that these bytes are answered with."""
    reply = peer.exchange(data)
    size, op, length = struct.unpack_from(">IBH", reply)
    assert op == 0x11
    assert size == length + 3 == len(reply) - 4
    return reply[7:].decode("utf-8", "surrogateescape")


def refused(peer: Peer, request: m.Request) -> str:
    answer = peer.ask(request)
    assert isinstance(answer, m.Failed), answer
    return answer.reason


# ---- PUB


@pytest.mark.parametrize(
    ("key", "expected"), [(b"k1", 0x983D80C1), (b"user-1", 0xF5537974), (b"order-1", 0x2B7FCD6D)]
)
def test_hash_of_keys(key: bytes, expected: int) -> None:
    assert fnv1a_32(key) == expected


def test_keyed_records_go_where_the_hash_says_and_do_not_count_as_turns(peer: Peer) -> None:
    assert peer.publish("t", b"1", b"2", key=b"order-1") == [(1, 0), (1, 1)]
    assert peer.publish("t", b"3") == [(0, 0)]
    assert peer.publish("t", b"4", key=b"user-1") == [(0, 1)]
    assert peer.publish("t", *[b"x"] * 4) == [(1, 2), (2, 0), (3, 0), (0, 2)]


def test_topics_take_turns_of_their_own(peer: Peer) -> None:
    assert peer.publish("a", b"") == [(0, 0)]
    assert peer.publish("b", b"") == [(0, 0)]
    assert peer.publish("a", b"") == [(1, 0)]


def test_record_in_the_log_has_no_key_for_an_empty_one(peer: Peer, world: World) -> None:
    peer.publish("t", b"v")
    peer.publish("t", b"", key=b"k1")
    replicas = [world.broker.partitions.find("t", index) for index in range(4)]
    read = [LocalReader(each, 0, lambda: None).read(1 << 20, 100) for each in replicas]
    assert [[each.key for each in records] for records in read] == [[None], [b"k1"], [], []]


def test_reply_waits_for_the_disk(peer: Peer, world: World) -> None:
    peer.publish("t", b"first")
    peer.send(m.Publish(topic="t", payload=b"v"))
    assert peer.received() == b""
    assert len(peer.events()) == 1


def test_records_of_one_turn_share_batches(peer: Peer, world: World) -> None:
    peer.publish("t", *[b"x"] * 400)
    sizes = [world.broker.partitions.find("t", index).log.size for index in range(4)]
    assert max(sizes) < 100 * 20


def test_topic_of_several_first_publishers_is_made_once(connect: Callable[[], Peer]) -> None:
    first, second = connect(), connect()
    for peer in (first, second):
        peer.send(m.Publish(topic="t", payload=b"a"), m.Publish(topic="t", payload=b"b"))
    assert [each.partition for each in first.events() if isinstance(each, m.Published)] == [0, 1]
    assert [each.partition for each in second.events() if isinstance(each, m.Published)] == [2, 3]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "pub: bad topic"),
        (b"\x00\x05abc", "pub: bad topic"),
        (b"\x00\x01t", "pub: bad key"),
        (b"\x00\x01t\x00\x00\x00\x09abc", "pub: bad key"),
        (b"\x00\x01t\x00\x00\x00\x00", "pub: bad payload"),
        (b"\x00\x01t\x00\x00\x00\x00\xff\xff\xff\xffabc", "pub: bad payload"),
    ],
)
def test_short_publish(peer: Peer, body: bytes, text: str) -> None:
    assert reason(peer, frame(1, body)) == text
    assert not peer.is_closed


@pytest.mark.parametrize(
    ("topic", "shown"),
    [
        (b"", '""'),
        (b"a b", '"a b"'),
        (b".", '"."'),
        (b"..", '".."'),
        (b'q"\\', '"q\\"\\\\"'),
        (b"\x00\n\x7f", '"\\x00\\n\\x7f"'),
        ("ü".encode(), '"ü"'),
        (b"\xff", '"\\xff"'),
        ("\u200b\U000e0001".encode(), '"\\u200b\\U000e0001"'),
        (b"__consumer_offsets", '"__consumer_offsets"'),
        (b"x" * 250, '"' + "x" * 250 + '"'),
    ],
)
def test_topics_that_there_cannot_be(peer: Peer, topic: bytes, shown: str) -> None:
    peer.ask(m.Commit(topic="t", group="g", partition=0, offset=0))
    body = struct.pack(">H", len(topic)) + topic
    assert reason(peer, frame(1, body + bytes(8))) == f"invalid topic: {shown}"
    assert reason(peer, frame(2, body + bytes(5))) == f"invalid topic: {shown}"
    assert reason(peer, frame(4, body + b"\x00\x01g" + bytes(12))) == f"invalid topic: {shown}"


def test_key_that_the_originals_files_have_no_room_for(peer: Peer) -> None:
    text = "record key too large (>65535 bytes)"
    assert refused(peer, m.Publish(topic="t", payload=b"", key=bytes(65536))) == text
    assert peer.publish("t", b"", key=bytes(65535))


def test_payload_above_the_topics_bound(peer: Peer, world: World) -> None:
    world.create("t", config={"max.message.bytes": "1000"})
    assert "max.message.bytes is 1000" in refused(peer, m.Publish(topic="t", payload=bytes(2000)))
    assert peer.publish("t", b"small") == [(0, 0)]


def test_topics_are_not_made_when_the_node_makes_none() -> None:
    world = World(Settings(auto_create_topics_enable=False))
    peer = Peer(world, service_of(world))
    assert refused(peer, m.Publish(topic="t", payload=b"")) == "there is no topic 't'"
    world.create("t")
    assert peer.publish("t", b"") == [(0, 0)]


def test_too_few_replicas_in_sync(peer: Peer, world: World) -> None:
    world.create("t", config={"min.insync.replicas": "2"})
    assert "min.insync.replicas is 2" in refused(peer, m.Publish(topic="t", payload=b""))


# ---- SUB


def subscribe(peer: Peer, request: m.Subscribe) -> list[bytes]:
    """Payloads that come right behind the OK."""
    peer.send(request)
    answer, *pushed = peer.events()
    assert isinstance(answer, m.Subscribed | m.Joined), answer
    return [each.payload for each in pushed if isinstance(each, m.Delivered)]


def test_head_starts_with_what_comes_next(peer: Peer) -> None:
    peer.publish("t", b"old", key=b"k1")
    assert subscribe(peer, m.SubscribeHead(topic="t", partition=1)) == []
    peer.send(m.Publish(topic="t", payload=b"new", key=b"k1"))
    assert [(each.offset, each.key, each.payload) for each in peer.deliveries()] == [
        (1, b"k1", b"new")
    ]


def test_head_behind_a_pipelined_publish_does_not_see_it(peer: Peer) -> None:
    peer.send(
        m.Publish(topic="t", payload=b"old"),
        m.SubscribeHead(topic="t", partition=0),
        m.Publish(topic="t", payload=b"new", key=b"user-1"),
    )
    published, subscribed, *rest = peer.events()
    assert isinstance(published, m.Published)
    assert isinstance(subscribed, m.Subscribed)
    assert [each.payload for each in rest if isinstance(each, m.Delivered)] == [b"new"]


def test_offset_replays_and_goes_on(peer: Peer) -> None:
    peer.publish("t", b"0", b"1", b"2", key=b"k1")
    assert subscribe(peer, m.SubscribeOffset(topic="t", partition=1, offset=1)) == [b"1", b"2"]
    peer.send(m.Publish(topic="t", payload=b"3", key=b"k1"))
    assert [each.payload for each in peer.deliveries()] == [b"3"]


def test_offset_past_the_end_waits_for_it(peer: Peer) -> None:
    assert subscribe(peer, m.SubscribeOffset(topic="t", partition=1, offset=2)) == []
    peer.send(*(m.Publish(topic="t", payload=b"%d" % n, key=b"k1") for n in range(4)))
    assert [each.payload for each in peer.deliveries()] == [b"2", b"3"]


def test_offset_that_no_log_reaches(peer: Peer) -> None:
    offset = (1 << 64) - 1
    assert subscribe(peer, m.SubscribeOffset(topic="t", partition=0, offset=offset)) == []
    peer.send(m.Publish(topic="t", payload=b""))
    assert peer.deliveries() == []


def test_offset_below_the_oldest_starts_there_without_an_error(peer: Peer, world: World) -> None:
    peer.publish("t", b"0", b"1", b"2", key=b"k1")
    world.broker.partitions.find("t", 1).delete_below(2)
    assert subscribe(peer, m.SubscribeOffset(topic="t", partition=1, offset=0)) == [b"2"]
    assert peer.publish("t", b"", key=b"user-1") == [(0, 0)]


def test_records_deleted_under_a_slow_reader_are_passed_over(peer: Peer, world: World) -> None:
    for _ in range(20):
        peer.publish("t", bytes(30_000), key=b"k1")
    peer.transport.is_stuck = True
    peer.send(m.SubscribeOffset(topic="t", partition=1, offset=0))
    world.settle()
    world.broker.partitions.find("t", 1).delete_below(19)
    peer.transport.is_stuck = False
    peer.transport.take()
    offsets = [each.offset for each in peer.deliveries()]
    assert offsets[-1] == 19
    assert len(offsets) < 20
    assert not peer.is_closed


def test_deleted_topic_ends_the_connection_with_a_reason(peer: Peer, world: World) -> None:
    subscribe(peer, m.SubscribeHead(topic="t", partition=2))
    start(world.broker.topics.delete("t")).then(lambda _: None)
    (event,) = peer.events()
    assert isinstance(event, m.Failed)
    assert event.reason.startswith("iterate t/2: ")
    assert peer.is_closed


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "sub: bad topic"),
        (b"\x00\x01t", "sub: bad mode"),
        (b"\x00\x01t\x00\x00\x00", "sub: missing partition"),
        (b"\x00\x01t\x01\x00", "sub: missing partition"),
        (b"\x00\x01t\x01\x00\x00\x00\x00\x00\x00", "sub: missing offset"),
        (b"\x00\x01t\x02\x00", "sub: missing group"),
        (b"\x00\x01t\x02\x00\x05ab", "sub: missing group"),
        (b"\x00\x01t\x03", "sub: unknown mode 3"),
        (b"\x00\x01t\x00\xff\xff\xff\xff", "partition 4294967295 out of range (0..3)"),
        (b"\x00\x01t\x02\x00\x00", 'invalid group: ""'),
        (b"\x00\x01t\x02\x00\x01\xff", 'invalid group: "\\xff"'),
    ],
)
def test_bad_subscribe(peer: Peer, body: bytes, text: str) -> None:
    assert reason(peer, frame(2, body)) == text
    assert not peer.is_closed


def test_one_subscription_a_topic_whatever_its_mode(peer: Peer) -> None:
    subscribe(peer, m.SubscribeHead(topic="t", partition=0))
    text = "already subscribed to t"
    assert refused(peer, m.SubscribeHead(topic="t", partition=1)) == text
    assert refused(peer, m.SubscribeGroup(topic="t", group="g")) == text
    assert subscribe(peer, m.SubscribeHead(topic="u", partition=0)) == []
    assert peer.ask(m.Unsubscribe(topic="t")) == m.Done()
    assert subscribe(peer, m.SubscribeGroup(topic="t", group="g")) == []


def test_long_names_in_errors_are_cut_to_what_an_error_can_say(peer: Peer) -> None:
    text = refused(peer, m.Unsubscribe(topic="x" * 65535))
    assert len(text) == 65535
    assert text.startswith("not-subscribed: xxx")


def test_null_value_of_another_protocol_is_an_empty_payload(peer: Peer, world: World) -> None:
    (replica,) = world.create("t")
    world.append(replica, batch_of(None, b"v", key=None))
    assert subscribe(peer, m.SubscribeOffset(topic="t", partition=0, offset=0)) == [b"", b"v"]


def test_only_committed_transactions_are_pushed(peer: Peer, world: World) -> None:
    (replica,) = world.create("t")
    for producer, commit in ((1, False), (2, True)):
        world.append(
            replica,
            batch_of(
                b"%d" % producer,
                attributes=0x10,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
            ),
        )
        world.end_transaction(replica, producer, commit=commit)
    assert subscribe(peer, m.SubscribeOffset(topic="t", partition=0, offset=0)) == [b"2"]


# ---- UNSUB, HEARTBEAT, QUIT, and what is none of these


def test_unsubscribed_connections_are_sent_nothing_more(peer: Peer) -> None:
    subscribe(peer, m.SubscribeHead(topic="t", partition=0))
    assert peer.ask(m.Unsubscribe(topic="t")) == m.Done()
    peer.send(m.Publish(topic="t", payload=b""))
    assert peer.deliveries() == []
    assert reason(peer, frame(3, b"\x00")) == "unsub: bad topic"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"\x00", "heartbeat: bad topic"),
        (b"\x00\x01t\x00", "heartbeat: bad group"),
        (b"\x00\x01t\x00\x05other", "heartbeat: not-subscribed: t"),
        (b"\x00\x01u\x00\x01g", "heartbeat: not-subscribed: u"),
    ],
)
def test_bad_heartbeat(peer: Peer, body: bytes, text: str) -> None:
    subscribe(peer, m.SubscribeGroup(topic="t", group="g"))
    assert reason(peer, frame(6, body)) == text


def test_heartbeat_makes_no_topic_and_is_for_groups_only(peer: Peer, world: World) -> None:
    text = "heartbeat: not-subscribed: t"
    assert refused(peer, m.Heartbeat(topic="t", group="g")) == text
    assert "t" not in world.broker.image.topics
    subscribe(peer, m.SubscribeHead(topic="t", partition=0))
    assert refused(peer, m.Heartbeat(topic="t", group="")) == text


@pytest.mark.parametrize("op", [0x00, 0x07, 0x10, 0x11, 0x20, 0x21, 0xFF])
def test_unknown_ops(peer: Peer, op: int) -> None:
    assert reason(peer, frame(op, b"anything")) == f"unknown op 0x{op:02x}"
    assert not peer.is_closed


def test_bytes_behind_the_last_field_are_ignored(peer: Peer) -> None:
    body = b"\x00\x01t\x00\x00\x00\x00\x00\x00\x00\x01vand more"
    assert peer.exchange(frame(1, body)) == bytes.fromhex("0000000d10000000000000000000000000")


def test_quit_waits_for_what_was_asked_before(peer: Peer) -> None:
    peer.send(m.Publish(topic="t", payload=b""), m.Quit(), m.Publish(topic="t", payload=b""))
    assert peer.events() == [m.Published(partition=0, offset=0), m.Done()]
    assert peer.is_closed


# ---- COMMIT


def commit(offset: int, partition: int = 0, group: str = "g") -> m.Commit:
    return m.Commit(topic="t", group=group, partition=partition, offset=offset)


def test_commits_are_echoed_and_may_go_back(peer: Peer) -> None:
    for offset in (5, 3, (1 << 63) - 1, 0):
        assert peer.ask(commit(offset)) == m.Committed(offset=offset)


def test_commits_that_no_log_can_have(peer: Peer) -> None:
    assert refused(peer, commit(1 << 63)) == "commit: bad offset"
    assert refused(peer, commit(0, partition=4)) == "partition 4 out of range (0..3)"
    assert refused(peer, commit(0, group="")) == 'invalid group: ""'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"\x00", "commit: bad topic"),
        (b"\x00\x01t\x00", "commit: bad group"),
        (b"\x00\x01t\x00\x01g\x00", "commit: bad partition"),
        (b"\x00\x01t\x00\x01g\x00\x00\x00\x00\x00", "commit: bad offset"),
    ],
)
def test_short_commit(peer: Peer, body: bytes, text: str) -> None:
    assert reason(peer, frame(4, body)) == text


def test_commit_before_a_group_subscription_in_one_write_counts(peer: Peer) -> None:
    peer.publish("t", b"0", b"1", key=b"k1")
    peer.send(commit(1, partition=1), m.SubscribeGroup(topic="t", group="g"))
    *_, pushed = peer.events()
    assert isinstance(pushed, m.Delivered)
    assert pushed.payload == b"1"


# ---- who may


def test_the_authorizer_is_asked() -> None:
    rules = Denies()
    world = World(authorizer=rules)
    peer = Peer(world, service_of(world))
    publish = m.Publish(topic="t", payload=b"")
    join = m.SubscribeGroup(topic="t", group="g")
    create = (Operation.CREATE, Resource.TOPIC, "t")
    read, read_group = (Operation.READ, Resource.TOPIC, "t"), (Operation.READ, Resource.GROUP, "g")
    for denied, request in (
        ((create, (Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)), publish),
        (((Operation.WRITE, Resource.TOPIC, "t"),), publish),
        ((read,), m.SubscribeHead(topic="t", partition=0)),
        ((read,), join),
        ((read_group,), join),
        ((read_group,), commit(0)),
        ((read,), commit(0)),
    ):
        rules.denied = set(denied)
        assert "may not" in refused(peer, request)
    assert world.broker.image.topics.get("t") is None
    rules.denied = {create}
    assert peer.publish("t", b"") == [(0, 0)]


# ---- the same log as Kafka's


def test_kafka_reads_what_was_published(peer: Peer, world: World) -> None:
    peer.publish("t", b"a", b"b", key=b"k1")
    answer = Wire(world).ask(fetch_request("t", partition=1), 12, k.FetchResponse)
    assert values_in(only(answer).records) == [b"a", b"b"]


# ---- restart


def test_records_and_commits_survive_a_kill(peer: Peer, world: World) -> None:
    peer.publish("t", b"0", b"1", b"2", key=b"k1")
    assert peer.ask(commit(2, partition=1)) == m.Committed(offset=2)
    after = world.reopened(kill=True)
    again = Peer(after, service_of(after))
    assert subscribe(again, m.SubscribeGroup(topic="t", group="g")) == [b"2"]
    other = Peer(after, service_of(after))
    request = m.SubscribeOffset(topic="t", partition=1, offset=0)
    assert subscribe(other, request) == [b"0", b"1", b"2"]
    peer = Peer(after, service_of(after))
    assert peer.publish("t", b"3", key=b"k1") == [(1, 3)]


def test_members_that_come_back_before_the_groups_are_read_wait_for_them(world: World) -> None:
    peer = Peer(world, service_of(world))
    world.pretend_loading(True)
    peer.send(commit(1), m.SubscribeGroup(topic="t", group="g"))
    assert peer.events() == []
    world.pretend_loading(False)
    world.advance(1)
    assert [type(each) for each in peer.events()] == [m.Committed, m.Joined]


@pytest.mark.parametrize("limit", [-1, 3])
def test_topics_are_made_with_the_originals_rules_of_retention(limit: int) -> None:
    """Age takes closed segments only; the number of segments is the node's limit, if it has one."""
    world = World(Settings(log_retention_segments=limit, log_retention_ms=5000))
    peer = Peer(world, service_of(world))
    peer.publish("t", *[b"v"] * 8)
    replica = world.broker.partitions.find("t", 0)
    assert replica.config.retention_segments == (limit if limit >= 0 else (1 << 31) - 1)
    world.advance(3600)
    assert replica.log.log_start_offset == 0
    assert replica.log.high_watermark == 2
