"""Goal: the node answers mlog's requests as the original does, in its codes, texts and bytes.

Method: connections to a broker on virtual time, with a disk in memory; replies compared byte for
byte where the specification has captured them.
"""

from __future__ import annotations

import pytest

from dragoman.broker.errors import (
    CoordinatorLoading,
    NotEnoughReplicas,
    NotLeader,
    ShuttingDown,
)
from dragoman.config.settings import Settings
from dragoman.errors import DiskFullError
from dragoman.limits import (
    MLOG_BATCH_VALUES_MAX,
    MLOG_FETCH_BYTES_MAX,
    MLOG_FETCH_COUNT_MAX,
    READ_AHEAD_REQUESTS_MAX,
)
from dragoman.log.batch import Record, build_batch
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.codec import decode_batch
from dragoman.protocols.mlog.constants import PAYLOAD_BYTES_MAX, Encoding
from dragoman.protocols.mlog.handlers.service import MlogService
from dragoman.protocols.mlog.handlers.session import refusal
from dragoman.protocols.mlog.handlers.topics import split
from dragoman.replication.replica import Acknowledge, Replica
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import AllowAll
from protocols.mlog_vectors import JSON_FRAMES
from worlds.broker import World, batch_of
from worlds.mlog import MlogPipe


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pipe(world: World) -> MlogPipe:
    return MlogPipe(world)


def frame(number: int, text: str) -> bytes:
    payload = text.encode()
    return number.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload


def vector(message: m.Message) -> bytes:
    return next(bytes.fromhex(data) for data, each in JSON_FRAMES if each == message)


def error_frame(code: int, message: str) -> bytes:
    return frame(20, f'{{"code":{code},"message":"{message}"}}')


# ---- bytes


def test_a_life_in_captured_bytes(pipe: MlogPipe) -> None:
    exchange = pipe.exchange
    assert exchange(vector(m.ListTopics())) == frame(26, '{"Topics":[]}')
    create = frame(16, '{"Topic":"orders","ReplicaCount":0,"DesignatedLeaderNodeID":""}')
    assert exchange(create) == frame(17, '{"Topic":"orders","ReplicaNodeIds":[]}')
    assert exchange(create) == error_frame(12, "topic orders already exists: topic already exists")
    produce = vector(m.Produce(topic="orders", value=b"hello", acks=1))
    assert exchange(produce) == frame(3, '{"Offset":0}')
    fetch = frame(6, '{"Topic":"orders","Id":"c1","Offset":0,"ReplicaNodeID":""}')
    assert exchange(fetch) == frame(7, '{"Entry":{"Offset":0,"Value":"aGVsbG8="}}')
    assert exchange(frame(6, '{"Topic":"orders","Id":"c1","Offset":1}')) == error_frame(
        6,
        "failed to read offset 1: offset 1 is beyond high watermark 0 (uncommitted data): "
        "log: offset beyond high watermark",
    )
    assert exchange(frame(8, '{"Topic":"orders","Offset":9,"MaxCount":5}')) == vector(
        m.FetchBatchResp()
    )
    assert exchange(
        frame(8, '{"Topic":"orders","Offset":99,"ReplicaNodeID":"node-2"}')
    ) == error_frame(6, "no data at offset 99 (replica caught up)")
    commit = vector(m.CommitOffset(topic="orders", id="c1", offset=8))
    assert exchange(commit) == vector(m.CommitOffsetResp(success=True))
    assert exchange(vector(m.FetchOffset(topic="orders", id="c1"))) == vector(
        m.FetchOffsetResp(offset=8)
    )
    leader = vector(m.FindTopicLeaderResp(leader_addr="127.0.0.1:9094"))
    assert exchange(vector(m.FindTopicLeader(topic="orders"))) == leader
    raft = vector(m.FindRaftLeaderResp(raft_leader_addr="127.0.0.1:9094"))
    assert exchange(vector(m.FindRaftLeader())) == raft
    assert exchange(vector(m.ListTopics())) == frame(
        26,
        '{"Topics":[{"Name":"orders","LeaderNodeID":"node-1","LeaderEpoch":1,"Replicas":[]}]}',
    )
    update = vector(m.ApplyIsrUpdateEvent(topic="orders", replica_node_id="node-2", isr=True))
    assert exchange(update) == vector(m.ApplyIsrUpdateEventResp())
    delete = vector(m.DeleteTopic(topic="orders"))
    assert exchange(delete) == vector(m.DeleteTopicResp(topic="orders"))
    assert exchange(delete) == error_frame(3, "topic orders not found: topic not found")


@pytest.mark.parametrize("encoding", list(Encoding))
def test_every_request_is_answered_in_its_own_encoding(world: World, encoding: Encoding) -> None:
    names = {m.CreateTopic: "new", m.DeleteTopic: "gone"}
    for name in ("t", "gone"):
        world.create(name)
    pipe = MlogPipe(world, encoding)
    for request, reply in m.REPLIES.items():
        asked = request()
        if "topic" in asked.__struct_fields__:
            name = names.get(request, "t")
            asked = request(topic=name)  # type: ignore[call-arg]
        if isinstance(asked, m.Produce):
            asked = m.Produce(topic="t", value=b"v")
        if isinstance(asked, m.ProduceBatch):
            asked = m.ProduceBatch(topic="t", values=[b"v"])
        if isinstance(asked, m.ReplicateStream):
            asked = replicate(0)
        pipe.ask(asked, reply)


# ---- refusals


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (m.Produce(value=b"v"), 1, "topic is required"),
        (m.ProduceBatch(values=[b"v"]), 1, "topic is required"),
        (m.Fetch(), 1, "topic is required"),
        (m.FetchBatch(), 1, "topic is required"),
        (m.FetchStream(), 1, "topic is required"),
        (m.CommitOffset(), 1, "topic is required"),
        (m.FetchOffset(), 1, "topic is required"),
        (m.FindTopicLeader(), 1, "topic is required"),
        (m.ReplicateStream(), 1, "topic is required"),
        (m.ApplyIsrUpdateEvent(), 1, "topic is required"),
        (m.CreateTopic(), 2, "topic name is required"),
        (m.DeleteTopic(), 2, "topic name is required"),
        *(
            (request, 3, "topic zz not found: topic zz not found: topic not found")
            for request in (
                m.Produce(topic="zz", value=b"v"),
                m.ProduceBatch(topic="zz", values=[b"v"]),
                m.Fetch(topic="zz"),
                m.FetchBatch(topic="zz"),
                m.FetchStream(topic="zz"),
                m.FindTopicLeader(topic="zz"),
                m.ReplicateStream(topic="zz"),
                m.ApplyIsrUpdateEvent(topic="zz"),
            )
        ),
        (m.DeleteTopic(topic="zz"), 3, "topic zz not found: topic not found"),
        (m.Produce(topic="t"), 5, "value is required"),
        (m.Produce(topic="t", value=b""), 5, "value is required"),
        (m.ProduceBatch(topic="t"), 5, "values are required"),
        (m.ProduceBatch(topic="t", values=[]), 5, "values are required"),
        (
            m.CreateTopic(topic="x", replica_count=1),
            13,
            "failed to create topic: not enough nodes: need 1, have 0: not enough nodes",
        ),
        (m.Produce(topic="t", value=b"v", acks=9), 15, "invalid ack mode: 9: invalid ack mode"),
        (m.Produce(topic="t", value=b"v", acks=-1), 15, "invalid ack mode: -1: invalid ack mode"),
        (
            m.ProduceBatch(topic="t", values=[b"v"], acks=3),
            15,
            "invalid ack mode: 3: invalid ack mode",
        ),
        (
            m.CommitOffset(topic="t", offset=1 << 63),
            7,
            "failed to commit offset: offset 9223372036854775808 is not in 0 .. 2^63-1",
        ),
        (
            m.CreateTopic(topic="x@1"),
            0,
            "failed to create topic: x@1 would be a partition of another topic",
        ),
        (
            m.ProduceBatch(topic="t", values=[b"v"] * (MLOG_BATCH_VALUES_MAX + 1)),
            0,
            f"{MLOG_BATCH_VALUES_MAX + 1} values in a batch; at most {MLOG_BATCH_VALUES_MAX}",
        ),
    ],
)
def test_refusals_in_the_words_of_the_original(
    world: World, pipe: MlogPipe, request_: m.Message, code: int, text: str
) -> None:
    (replica,) = world.create("t")
    assert pipe.refused(request_) == (code, text)
    assert replica.log.log_end_offset == 0, "nothing was appended"
    pipe.ask(m.FindRaftLeader(), m.FindRaftLeaderResp)


def test_what_the_broker_refuses_has_a_code() -> None:
    assert refusal(NotLeader("node 2 leads")) == m.RPCError(
        code=4, message="this node is not the topic leader; produce to the topic leader"
    )
    assert refusal(NotEnoughReplicas("1 in sync")).code == 13
    assert refusal(ShuttingDown("stopping")).code == 11
    assert refusal(CoordinatorLoading("loading")).code == 11
    assert refusal(DiskFullError("full")) == m.RPCError(code=0, message="full")


def test_a_server_answers_replies_sent_to_it_instead_of_staying_silent(world: World) -> None:
    pipe = MlogPipe(world)
    sent = bytes.fromhex("00030000000d7b224f6666736574223a34327d")
    assert pipe.exchange(sent) == error_frame(0, "a server does not take ProduceResp")
    pipe.ask(m.FindRaftLeader(), m.FindRaftLeaderResp)


@pytest.mark.parametrize(
    "data",
    [
        frame(29, "{}"),
        frame(65535, "{}"),
        frame(2, "{"),
        frame(2, '{"Topic":5}'),
        frame(2, '{"Value":"?"}'),
        frame(2, "[]"),
        b"\x00\x02" + (PAYLOAD_BYTES_MAX + 1).to_bytes(4, "big"),
        b"\x00\x02\xff\xff\xff\xff",
    ],
)
def test_what_the_original_closes_without_a_word_is_closed(world: World, data: bytes) -> None:
    pipe = MlogPipe(world)
    assert pipe.exchange(data) == b""
    assert pipe.is_closed
    MlogPipe(world).ask(m.FindRaftLeader(), m.FindRaftLeaderResp)


def test_an_empty_payload_after_json_closes(pipe: MlogPipe) -> None:
    pipe.ask(m.ListTopics(), m.ListTopicsResp)
    assert pipe.exchange(b"\x00\x19\x00\x00\x00\x00") == b""
    assert pipe.is_closed


def test_replies_before_a_bad_frame_are_sent(world: World, pipe: MlogPipe) -> None:
    assert pipe.exchange(vector(m.ListTopics()) + frame(77, "{}")) == frame(26, '{"Topics":[]}')
    assert pipe.is_closed


def test_one_byte_at_a_time(pipe: MlogPipe) -> None:
    pipe.ask(m.CreateTopic(topic="t"), m.CreateTopicResp)
    for byte in pipe.connection.send(m.Produce(topic="t", value=b"slow")):
        pipe.feed(bytes([byte]))
    pipe.world.settle()
    assert pipe.replies() == [m.ProduceResp(offset=0)]


# ---- produce


@pytest.mark.parametrize("acks", [0, 1, 2])
def test_every_ack_mode_is_answered_when_the_record_is_there(
    world: World, pipe: MlogPipe, acks: int
) -> None:
    world.create("t")
    assert pipe.ask(m.Produce(topic="t", value=b"a", acks=acks), m.ProduceResp).offset == 0
    batch = m.ProduceBatch(topic="t", values=[b"b", b"", None], acks=acks)
    assert pipe.ask(batch, m.ProduceBatchResp) == m.ProduceBatchResp(
        base_offset=1, last_offset=3, count=3
    )
    found = pipe.ask(m.FetchBatch(topic="t", max_count=10), m.FetchBatchResp).entries
    assert found == [
        m.Entry(offset=0, value=b"a"),
        m.Entry(offset=1, value=b"b"),
        m.Entry(offset=2, value=b""),
        m.Entry(offset=3, value=None),
    ]


def test_pipelined_requests_are_answered_in_order_with_their_offsets(
    world: World, pipe: MlogPipe
) -> None:
    world.create("t")
    replies = pipe.ask_all(
        m.Produce(topic="t", value=b"0"),
        m.Fetch(topic="nope"),
        m.ProduceBatch(topic="t", values=[b"1", b"2"]),
        m.ListTopics(),
        m.Produce(topic="t", value=b"3"),
    )
    assert [type(each) for each in replies] == [
        m.ProduceResp,
        m.RPCError,
        m.ProduceBatchResp,
        m.ListTopicsResp,
        m.ProduceResp,
    ]
    assert replies[0] == m.ProduceResp(offset=0)
    assert replies[2] == m.ProduceBatchResp(base_offset=1, last_offset=2, count=2)
    assert replies[4] == m.ProduceResp(offset=3)


@pytest.mark.parametrize("timeout_ms", [5000, 700])
def test_ack_all_gives_up_after_its_time(monkeypatch: pytest.MonkeyPatch, timeout_ms: int) -> None:
    world = World(Settings(mlog_acks_all_timeout_ms=timeout_ms))
    pipe = MlogPipe(world)
    (replica,) = world.create("t")
    replica.metadata.in_sync = (1, 2)
    held: list[Acknowledge] = []
    monkeypatch.setattr(Replica, "when_committed", lambda _, offset, done: held.append(done))
    pipe.send(m.Produce(topic="t", value=b"a", acks=1), m.Produce(topic="t", value=b"b", acks=2))
    world.settle()
    world.advance(timeout_ms / 1000 - 0.1)
    assert pipe.replies() == []
    world.advance(0.2)
    # The first still waits: it did not ask for all replicas. The second is answered behind it.
    held[0](None)
    world.settle()
    assert pipe.replies() == [
        m.ProduceResp(offset=0),
        m.RPCError(
            code=16,
            message="failed to wait for all followers to catch up: "
            "timeout before all followers caught up",
        ),
    ]


def test_ack_all_that_was_answered_is_not_timed_out(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("t")
    replica.metadata.in_sync = (1, 2)
    for _ in range(3):
        pipe.ask(m.Produce(topic="t", value=b"a", acks=2), m.ProduceResp)
        world.advance(3)
    assert pipe.replies() == []


def test_ack_all_needs_the_replicas_that_the_topic_asks_for(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("t", config={"min.insync.replicas": "2"})
    code, _ = pipe.refused(m.Produce(topic="t", value=b"v", acks=2))
    assert code == 13
    assert replica.log.log_end_offset == 0


def test_record_larger_than_the_topic_allows_is_refused(world: World, pipe: MlogPipe) -> None:
    world.create("t", config={"max.message.bytes": "1000"})
    code, text = pipe.refused(m.Produce(topic="t", value=bytes(2000)))
    assert code == 0
    assert "max.message.bytes is 1000" in text


def test_large_batch_is_one_range_of_offsets(world: World, pipe: MlogPipe) -> None:
    world.create("t")
    values: list[bytes | None] = [bytes(400_000) for _ in range(7)]
    reply = pipe.ask(m.ProduceBatch(topic="t", values=values), m.ProduceBatchResp)
    assert reply == m.ProduceBatchResp(base_offset=0, last_offset=6, count=7)


# ---- fetch


def test_offset_zero_is_the_committed_one_only_when_there_is_one(
    world: World, pipe: MlogPipe
) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"0", b"1", b"2")

    def first(client: str, replica_id: str = "") -> int:
        asked = m.Fetch(topic="t", id=client, replica_node_id=replica_id)
        entry = pipe.ask(asked, m.FetchResp).entry
        assert entry is not None
        return entry.offset

    assert first("a") == 0
    pipe.ask(m.CommitOffset(topic="t", id="a", offset=2), m.CommitOffsetResp)
    assert first("a") == 2
    assert first("b") == 0
    assert first("a", "node-2") == 0, "replicas know where they are"
    pipe.ask(m.CommitOffset(topic="t", offset=1), m.CommitOffsetResp)
    assert first("") == first("default") == 1
    found = pipe.ask(m.FetchBatch(topic="t", id="a", max_count=9), m.FetchBatchResp).entries
    assert found == [m.Entry(offset=2, value=b"2")]
    assert pipe.ask(m.Fetch(topic="t", id="a", offset=1), m.FetchResp).entry == m.Entry(
        offset=1, value=b"1"
    )


def test_max_count_zero_is_one(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"0", b"1")
    found = pipe.ask(m.FetchBatch(topic="t"), m.FetchBatchResp).entries
    assert found == [m.Entry(offset=0, value=b"0")]


def test_records_one_by_one_are_decoded_once(
    world: World, pipe: MlogPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    (replica,) = world.create("t")
    world.write(replica, *(b"%d" % number for number in range(100)))
    from dragoman.broker import local_reader

    reads = []
    original = local_reader.RecordBuffer

    def counted(*arguments: object) -> object:
        reads.append(arguments)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(local_reader, "RecordBuffer", counted)
    for offset in range(100):
        entry = pipe.ask(m.Fetch(topic="t", offset=offset, replica_node_id="r"), m.FetchResp).entry
        assert entry == m.Entry(offset=offset, value=b"%d" % offset)
    assert len(reads) == 1


def test_what_was_deleted_reads_on_with_the_oldest(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"0", b"1")
    world.write(replica, b"2")
    replica.delete_below(2)
    assert pipe.ask(m.Fetch(topic="t", offset=1), m.FetchResp).entry == m.Entry(
        offset=2, value=b"2"
    )


def test_reply_is_no_larger_than_there_is_memory_for(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("t")
    world.write(replica, *(b"x" * 1000 for _ in range(9)))
    asked = m.FetchBatch(topic="t", max_count=100)
    world.budget.take(world.budget.room - 8000)
    assert 0 < len(pipe.ask(asked, m.FetchBatchResp).entries or ()) < 9
    world.budget.take(world.budget.room)
    # One record comes whatever is left.
    assert len(pipe.ask(asked, m.FetchBatchResp).entries or ()) == 1


def test_reply_is_bounded_in_bytes_and_records(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("big")
    for _ in range(8):
        world.write(replica, bytes(200_000))
    asked = m.FetchBatch(topic="big", max_count=(1 << 32) - 1)
    found = pipe.ask(asked, m.FetchBatchResp).entries
    assert found is not None
    assert 1 <= len(found) <= MLOG_FETCH_BYTES_MAX // 200_000 + 1
    (small,) = world.create("small")
    for _ in range(11):
        world.write(small, *([b"x"] * 1000))
    asked = m.FetchBatch(topic="small", max_count=(1 << 32) - 1)
    found = pipe.ask(asked, m.FetchBatchResp).entries
    assert found is not None
    assert 1000 <= len(found) <= MLOG_FETCH_COUNT_MAX
    # Reading on gives the rest.
    seen = len(found)
    while found:
        asked = m.FetchBatch(topic="small", offset=seen, max_count=(1 << 32) - 1)
        found = pipe.ask(asked, m.FetchBatchResp).entries
        seen += len(found or ())
    assert seen == 11_000


@pytest.mark.parametrize("encoding", list(Encoding))
def test_record_that_no_message_can_hold_is_an_error_and_no_hang(
    world: World, encoding: Encoding
) -> None:
    (replica,) = world.create("t", config={"max.message.bytes": "8000000"})
    batch = build_batch([Record(value=bytes(PAYLOAD_BYTES_MAX + 1), timestamp=1_704_067_200_000)])
    world.append(replica, batch)
    world.write(replica, b"after")
    pipe = MlogPipe(world, encoding)
    for request in (m.Fetch(topic="t"), m.FetchBatch(topic="t"), m.FetchStream(topic="t")):
        code, text = pipe.refused(request)
        assert code == 0
        assert "bytes in a message; at most 4194304" in text
    assert pipe.ask(m.Fetch(topic="t", offset=1), m.FetchResp).entry == m.Entry(
        offset=1, value=b"after"
    )


def test_nothing_uncommitted_is_read(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"plain")
    world.append(
        replica,
        batch_of(b"open", attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0),
    )
    asked = m.FetchBatch(topic="t", max_count=9)
    assert pipe.ask(asked, m.FetchBatchResp).entries == [m.Entry(offset=0, value=b"plain")]
    world.end_transaction(replica, 7, commit=False)
    assert pipe.ask(m.FetchBatch(topic="t", offset=1, max_count=9), m.FetchBatchResp) == (
        m.FetchBatchResp()
    )


# ---- FetchStream


def test_stream_answers_at_once_when_there_is_something(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"0", b"1")
    found = pipe.ask(m.FetchStream(topic="t", max_count=5), m.FetchStreamResp).entries
    assert found == [m.Entry(offset=0, value=b"0"), m.Entry(offset=1, value=b"1")]


def test_stream_waits_for_records(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("t")
    assert pipe.ask_all(m.FetchStream(topic="t", max_count=5)) == []
    world.advance(3)
    assert pipe.replies() == []
    world.write(replica, b"late")
    assert pipe.replies() == [m.FetchStreamResp(entries=[m.Entry(offset=0, value=b"late")])]
    world.advance(60)
    assert pipe.replies() == []


@pytest.mark.parametrize("wait_ms", [10_000, 900])
def test_stream_ends_empty_when_its_time_is_up(wait_ms: int) -> None:
    world = World(Settings(mlog_stream_wait_ms=wait_ms))
    pipe = MlogPipe(world)
    world.create("t")
    pipe.ask_all(m.FetchStream(topic="t"))
    world.advance(wait_ms / 1000 - 0.1)
    assert pipe.replies() == []
    world.advance(0.2)
    assert pipe.replies() == [m.FetchStreamResp()]


def test_requests_behind_a_stream_wait_for_it(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("t")
    waiting = m.FetchStream(topic="t", offset=1, max_count=5)
    assert pipe.ask_all(m.FetchStream(topic="t"), m.ListTopics(), waiting, m.FindRaftLeader()) == []
    world.write(replica, b"0")
    first, second = pipe.replies()
    assert first == m.FetchStreamResp(entries=[m.Entry(offset=0, value=b"0")])
    assert isinstance(second, m.ListTopicsResp)
    world.advance(11)
    third, fourth = pipe.replies()
    assert third == m.FetchStreamResp()
    assert isinstance(fourth, m.FindRaftLeaderResp)


def test_bad_frame_behind_a_stream_closes_when_its_turn_comes(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("t")
    pipe.send(m.FetchStream(topic="t"))
    pipe.feed(frame(2, "{"))
    world.settle()
    assert not pipe.is_closed
    world.write(replica, b"0")
    assert [type(each) for each in pipe.replies()] == [m.FetchStreamResp]
    assert pipe.is_closed


def test_deletion_of_a_topic_ends_its_stream_with_an_error(world: World, pipe: MlogPipe) -> None:
    world.create("t")
    pipe.ask_all(m.FetchStream(topic="t"))
    other = MlogPipe(world)
    other.ask(m.DeleteTopic(topic="t"), m.DeleteTopicResp)
    (reply,) = pipe.replies()
    assert isinstance(reply, m.RPCError)
    assert reply.code == 3


def test_stream_of_a_connection_that_goes_leaves_nothing_behind(
    world: World, pipe: MlogPipe
) -> None:
    (replica,) = world.create("t")
    pipe.ask_all(m.FetchStream(topic="t"), m.ListTopics())
    assert replica.parked
    pipe.lose()
    world.settle()
    assert not replica.parked
    assert world.budget.used == 0
    world.write(replica, b"0")
    world.advance(60)


# ---- offsets


def test_commit_for_a_topic_that_does_not_exist_is_kept(pipe: MlogPipe) -> None:
    pipe.ask(m.CommitOffset(topic="later", id="c", offset=3), m.CommitOffsetResp)
    assert pipe.ask(m.FetchOffset(topic="later", id="c"), m.FetchOffsetResp).offset == 3
    assert pipe.ask(m.FetchOffset(topic="later", id="d"), m.FetchOffsetResp).offset == 0


def test_commits_may_go_back(pipe: MlogPipe) -> None:
    for offset in (9, 4):
        pipe.ask(m.CommitOffset(topic="t", offset=offset), m.CommitOffsetResp)
    assert pipe.ask(m.FetchOffset(topic="t"), m.FetchOffsetResp).offset == 4


def test_everything_acknowledged_is_there_after_a_kill(world: World, pipe: MlogPipe) -> None:
    pipe.ask(m.CreateTopic(topic="t"), m.CreateTopicResp)
    pipe.ask(m.ProduceBatch(topic="t", values=[b"a", b"b", b"c"], acks=2), m.ProduceBatchResp)
    pipe.ask(m.CommitOffset(topic="t", id="c", offset=2), m.CommitOffsetResp)
    again = MlogPipe(world.reopened(kill=True))
    assert again.ask(m.FetchOffset(topic="t", id="c"), m.FetchOffsetResp).offset == 2
    found = again.ask(m.FetchBatch(topic="t", id="c", max_count=9), m.FetchBatchResp).entries
    assert found == [m.Entry(offset=2, value=b"c")]


# ---- partitions and names


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("t", ("t", 0)),
        ("t@0", ("t", 0)),
        ("t@12", ("t", 12)),
        ("a@b@3", ("a@b", 3)),
        ("@3", ("@3", 0)),
        ("t@", ("t@", 0)),
        ("t@x", ("t@x", 0)),
        ("t@-1", ("t@-1", 0)),
        ("t@²", ("t@²", 0)),
        ("t@" + "9" * 5000, ("t@" + "9" * 5000, 0)),
    ],
)
def test_names(name: str, found: tuple[str, int]) -> None:
    assert split(name) == found


def test_partitions_are_reached_by_number(world: World, pipe: MlogPipe) -> None:
    replicas = world.create("t", partitions=3)
    pipe.ask(m.Produce(topic="t@2", value=b"two"), m.ProduceResp)
    pipe.ask(m.Produce(topic="t", value=b"zero"), m.ProduceResp)
    assert [each.log.log_end_offset for each in replicas] == [1, 0, 1]
    pipe.ask(m.CommitOffset(topic="t@2", id="c", offset=1), m.CommitOffsetResp)
    assert pipe.ask(m.FetchOffset(topic="t@2", id="c"), m.FetchOffsetResp).offset == 1
    assert pipe.ask(m.FetchOffset(topic="t", id="c"), m.FetchOffsetResp).offset == 0
    assert pipe.refused(m.Fetch(topic="t@3"))[0] == 3
    assert pipe.refused(m.DeleteTopic(topic="t@1"))[0] == 3


def test_topics_that_mlog_cannot_name_and_internal_ones_are_not_there(
    world: World, pipe: MlogPipe
) -> None:
    for name in ("plain", "odd@1", "größe"):
        world.create(name)
    pipe.ask(m.CommitOffset(topic="plain", offset=1), m.CommitOffsetResp)
    assert "__consumer_offsets" in world.broker.image.topics
    topics = pipe.ask(m.ListTopics(), m.ListTopicsResp).topics
    assert topics is not None
    assert [each.name for each in topics] == ["größe", "plain"]
    for request in (
        m.Fetch(topic="__consumer_offsets"),
        m.Produce(topic="__consumer_offsets", value=b"x"),
        m.DeleteTopic(topic="__consumer_offsets"),
    ):
        assert pipe.refused(request)[0] == 3
    assert pipe.refused(m.CreateTopic(topic="__consumer_offsets"))[0] == 12


def test_lenient_factor_accepts_any_replica_count() -> None:
    pipe = MlogPipe(World(Settings(replication_factor_lenient=True)))
    reply = pipe.ask(m.CreateTopic(topic="t", replica_count=3), m.CreateTopicResp)
    assert reply.replica_node_ids == []


def test_addresses_with_colons_are_bracketed(world: World) -> None:
    service = MlogService(world.broker, world.budget, lambda _: ("::1", 9094))
    pipe = MlogPipe(world, service=service)
    reply = pipe.ask(m.FindRaftLeader(), m.FindRaftLeaderResp)
    assert reply.raft_leader_addr == "[::1]:9094"


# ---- replicas


def replicate(offset: int) -> m.ReplicateStream:
    return m.ReplicateStream(topic="t", offset=offset, batch_size=2, replica_node_id="node-1")


@pytest.mark.parametrize("who", ["", "node-2", "1"])
def test_only_holders_of_a_replica_are_replicated_to(pipe: MlogPipe, who: str) -> None:
    pipe.world.create("t")
    request = m.ReplicateStream(topic="t", batch_size=2, replica_node_id=who)
    assert "holds no replica of topic t" in pipe.ask(request, m.RPCError).message


def test_replicate_stream_gives_binary_batches_until_the_end(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"a", b"b", b"c")
    first = pipe.ask(replicate(0), m.ReplicateResp)
    assert decode_batch(first.raw_chunk or b"") == [
        m.Entry(offset=0, value=b"a"),
        m.Entry(offset=1, value=b"b"),
    ]
    assert (first.topic, first.end_of_stream, first.leader_leo) == ("t", False, 3)
    second = pipe.ask(replicate(2), m.ReplicateResp)
    assert decode_batch(second.raw_chunk or b"") == [m.Entry(offset=2, value=b"c")]
    assert second.end_of_stream
    last = pipe.ask(replicate(3), m.ReplicateResp)
    assert last == m.ReplicateResp(topic="t", end_of_stream=True, leader_leo=3)


# ---- who may


class OnlyReaders(AllowAll):
    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        return operation in (Operation.READ, Operation.DESCRIBE) and name != "secret"


def test_the_authorizer_is_asked() -> None:
    world = World(authorizer=OnlyReaders())
    for name in ("t", "secret"):
        world.create(name)
    pipe = MlogPipe(world)
    for request in (
        m.Produce(topic="t", value=b"v"),
        m.CreateTopic(topic="new"),
        m.DeleteTopic(topic="t"),
        m.Fetch(topic="secret"),
        m.CommitOffset(topic="t", id="secret", offset=1),
    ):
        code, text = pipe.refused(request)
        assert code == 0
        assert "may not" in text
    assert pipe.ask(m.FetchBatch(topic="t"), m.FetchBatchResp) == m.FetchBatchResp()
    topics = pipe.ask(m.ListTopics(), m.ListTopicsResp).topics
    assert [each.name for each in topics or ()] == ["t"]


# ---- slow and stuck peers


def test_peer_that_takes_nothing_stops_the_work_for_it(world: World, pipe: MlogPipe) -> None:
    (replica,) = world.create("t")
    for _ in range(5):
        world.write(replica, bytes(100_000))
    pipe.transport.is_stuck = True
    request = pipe.connection.send(m.FetchBatch(topic="t", max_count=9, replica_node_id="r"))
    for _ in range(100):
        if pipe.transport.is_reading:
            pipe.feed(request)
    world.settle()
    assert len(pipe.transport.unsent) < 8 << 20
    pipe.transport.is_stuck = False
    pipe.transport.take()
    world.settle()
    replies = pipe.replies()
    while not pipe.transport.is_reading:
        world.settle()
    assert all(isinstance(each, m.FetchBatchResp) for each in replies)
    assert world.budget.used == 0


def test_reading_ahead_is_bounded(world: World, pipe: MlogPipe) -> None:
    world.create("t")
    pipe.send(m.FetchStream(topic="t"))
    sent = 0
    while pipe.transport.is_reading and sent < 2 * READ_AHEAD_REQUESTS_MAX:
        pipe.send(m.ListTopics())
        sent += 1
    assert not pipe.transport.is_reading
    assert sent <= READ_AHEAD_REQUESTS_MAX
    world.advance(11)
    assert len(pipe.replies()) == sent + 1
    assert pipe.transport.is_reading
