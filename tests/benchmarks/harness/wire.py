"""Raw Kafka clients: frames are made before the clock starts, replies are counted, not decoded.

A Produce reply of version 7 and a Fetch reply of version 4 have the same layout every time for the
same topic, so a client finds errors, offsets and record bytes at fixed positions. That keeps the
client's cost per request near one microsecond and the broker the limit.

    Produce v7 reply   size i32, id i32, topics i32, name str16, partitions i32,
                       [ index i32, error i16, base i64, time i64, start i64 ] ..., throttle i32
    Fetch v4 reply     size i32, id i32, throttle i32, topics i32, name str16, partitions i32,
                       index i32, error i16, watermark i64, stable i64, aborted i32, records i32
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence

from dragoman.framing import Scratch
from dragoman.log.batch import Record, build_batch
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import ClientConnection
from harness.broker import BenchmarkError
from harness.sampling import Latency

Address = tuple[str, int]

_PRODUCE_VERSION = 7
_FETCH_VERSION = 4
_CREATE_TOPICS_VERSION = 5
_LIST_OFFSETS_VERSION = 2
_METADATA_VERSION = 4
#: The timestamp that asks for the end of the log.
_LATEST = -1
_REPLY_SECONDS_MAX = 60.0
_RECEIVE_BYTES = 1 << 20
_CLIENT_ID = "benchmark"


def connect(address: Address) -> socket.socket:
    connection = socket.create_connection(address, timeout=_REPLY_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(address: Address, message: m.Message, version: int) -> m.Message:
    """One request and its reply on a connection of its own, decoded: for setting things up."""
    client = ClientConnection(_CLIENT_ID, 100 << 20, Scratch())
    with connect(address) as connection:
        _, frame = client.send(message, version)
        connection.sendall(codec.join(frame))
        while True:
            data = connection.recv(_RECEIVE_BYTES)
            if not data:
                raise BenchmarkError("the broker closed the connection")
            for reply in client.receive_data(data):
                return reply.message


def create_topics(
    address: Address,
    names: Sequence[str],
    partitions: int,
    config: dict[str, str] | None = None,
    copies: int = 1,
) -> None:
    configs = [m.CreateTopicsRequestConfig(name, value) for name, value in (config or {}).items()]
    topics = [
        m.CreateTopicsRequestTopic(
            name=name, num_partitions=partitions, replication_factor=copies, configs=configs
        )
        for name in names
    ]
    reply = ask(address, m.CreateTopicsRequest(topics=topics), _CREATE_TOPICS_VERSION)
    assert isinstance(reply, m.CreateTopicsResponse)
    for topic in reply.topics:
        if topic.error_code:
            raise BenchmarkError(f"{topic.name}: error {topic.error_code}, {topic.error_message}")


def leaders(address: Address, topic: str) -> dict[int, list[int]]:
    """Partitions of a topic by the port at which their leaders take Kafka clients.

    Empty until all of them have as many copies in sync as they are to have.
    """
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=topic)])
    reply = ask(address, request, _METADATA_VERSION)
    assert isinstance(reply, m.MetadataResponse)
    ports = {each.node_id: each.port for each in reply.brokers}
    found: dict[int, list[int]] = {}
    if reply.topics[0].error_code:
        return {}
    for each in reply.topics[0].partitions:
        if each.error_code or len(each.isr_nodes) < len(each.replica_nodes):
            return {}
        found.setdefault(ports[each.leader_id], []).append(each.partition_index)
    return found


def end_offsets(address: Address, topic: str, partitions: int) -> list[int]:
    """The offset after the last record of every partition."""
    wanted = [
        m.ListOffsetsRequestPartition(partition_index=index, timestamp=_LATEST)
        for index in range(partitions)
    ]
    request = m.ListOffsetsRequest(
        replica_id=-1, topics=[m.ListOffsetsRequestTopic(name=topic, partitions=wanted)]
    )
    reply = ask(address, request, _LIST_OFFSETS_VERSION)
    assert isinstance(reply, m.ListOffsetsResponse)
    found = reply.topics[0].partitions
    for each in found:
        if each.error_code:
            raise BenchmarkError(f"{topic}-{each.partition_index}: error {each.error_code}")
    return [each.offset for each in sorted(found, key=lambda each: each.partition_index)]


def batch_of(count: int, value_bytes: int) -> bytes:
    """A batch of `count` records with values that do not repeat inside the batch."""
    now_ms = int(time.time() * 1000)
    value = bytes(range(256)) * (value_bytes // 256 + 1)
    records = [
        Record(value=value[index % 256 :][:value_bytes].ljust(value_bytes, b"."), timestamp=now_ms)
        for index in range(count)
    ]
    return bytes(build_batch(records))


def produce_frame(topic: str, partitions: Sequence[int], batch: bytes) -> bytes:
    """One request with one batch for each of the partitions."""
    data = [m.ProduceRequestPartition(index=index, records=batch) for index in partitions]
    request = m.ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[m.ProduceRequestTopic(name=topic, partition_data=data)],
    )
    return codec.join(codec.encode_request(request, _PRODUCE_VERSION, 1, _CLIENT_ID))


def produce_reply_bytes(topic: str, partitions: int = 1) -> int:
    return 4 + 4 + 4 + 2 + len(topic) + 4 + 30 * partitions + 4


def check_produce_replies(replies: bytes | bytearray, topic: str, partitions: int = 1) -> None:
    """Raise when any reply, of any partition, carries an error."""
    size = produce_reply_bytes(topic, partitions)
    if len(replies) % size:
        raise BenchmarkError(f"{len(replies)} bytes of replies are not whole replies of {size}")
    first = 4 + 4 + 4 + 2 + len(topic) + 4 + 4
    for error in range(first, first + 30 * partitions, 30):
        for code in (replies[error::size], replies[error + 1 :: size]):
            if any(code):
                raise BenchmarkError(f"a produce was refused with error {max(code)}")


class Pipeline:
    """Keeps a number of equal-sized requests in flight, over one or more connections.

    `frames` are sent in turn, again and again. What is answered together is sent on together,
    in one call, as a client under load would.
    """

    def __init__(self, address: Address, frames: Sequence[bytes], reply_bytes: int | None) -> None:
        """Replies of one size, or, with None, each behind its size in four bytes."""
        if len({len(frame) for frame in frames}) != 1:
            raise ValueError("frames of a pipeline have one size")
        self._address = address
        self._frame_bytes = len(frames[0])
        self._cycle = len(frames)
        self._frames = list(frames)
        self._reply_bytes = reply_bytes
        self._lanes: list[_Lane] = []

    def open(self, connections: int, in_flight: int) -> None:
        """Share `in_flight` requests out over the connections, each beginning elsewhere."""
        share, left = divmod(in_flight, connections)
        if left:
            raise ValueError(f"{in_flight} requests do not share out over {connections}")
        # Twice around and a window: any stretch that is sent is one slice.
        whole = memoryview(b"".join(self._frames * (1 + -(-share // self._cycle))))
        for number in range(connections):
            start = number * self._cycle // connections
            self._lanes.append(_Lane(connect(self._address), whole, share, start))

    def run(self, requests: int, seconds_max: float) -> tuple[int, list[Latency]]:
        """Requests answered, and how long they took. Stops sending at the count or the time."""
        poller = select.epoll()
        lanes = {lane.connection.fileno(): lane for lane in self._lanes}
        for descriptor in lanes:
            poller.register(descriptor, select.EPOLLIN)
        deadline = time.perf_counter() + seconds_max
        latencies: list[Latency] = []
        unsent, unanswered, answered = requests, 0, 0
        for lane in self._lanes:
            count = min(lane.window, unsent)
            self._send(lane, count)
            unsent -= count
            unanswered += count
        while unanswered:
            events = poller.poll(_REPLY_SECONDS_MAX)
            if not events:
                raise BenchmarkError(f"no reply within {_REPLY_SECONDS_MAX:g} s")
            for descriptor, _ in events:
                lane = lanes[descriptor]
                count = lane.receive(self._reply_bytes, latencies)
                answered += count
                unanswered -= count
                again = min(count, unsent) if time.perf_counter() < deadline else 0
                if again:
                    self._send(lane, again)
                    unsent -= again
                    unanswered += again
        poller.close()
        return answered, latencies

    def _send(self, lane: _Lane, count: int) -> None:
        if not count:
            return
        size = self._frame_bytes
        lane.sent.append((time.perf_counter(), count))
        lane.connection.sendall(lane.frames[lane.next * size : (lane.next + count) * size])
        lane.next = (lane.next + count) % self._cycle

    def take_replies(self) -> bytes:
        """All replies since the last call, to be checked outside the timed stretch."""
        return b"".join(lane.take() for lane in self._lanes)

    def close(self) -> None:
        for lane in self._lanes:
            lane.connection.close()
        self._lanes.clear()


class _Lane:
    """One connection of a pipeline."""

    def __init__(
        self, connection: socket.socket, frames: memoryview, window: int, first: int
    ) -> None:
        self.connection = connection
        self.frames = frames
        self.window = window
        self.next = first
        self.sent: deque[tuple[float, int]] = deque()
        self.replies = bytearray()
        self._seen = 0

    def receive(self, reply_bytes: int | None, latencies: list[Latency]) -> int:
        data = self.connection.recv(_RECEIVE_BYTES)
        if not data:
            raise BenchmarkError("the broker closed the connection")
        now = time.perf_counter()
        self.replies += data
        if reply_bytes is None:
            count = self._count_frames()
        else:
            self._seen += len(data)
            count, self._seen = divmod(self._seen, reply_bytes)
        left = count
        while left:
            at, together = self.sent[0]
            done = min(left, together)
            latencies.append(Latency(now - at, done))
            left -= done
            if done == together:
                self.sent.popleft()
            else:
                self.sent[0] = (at, together - done)
        return count

    def _count_frames(self) -> int:
        """Whole frames since the last call; `_seen` is where the next one begins."""
        count, end = 0, len(self.replies)
        while end - self._seen >= 4:
            (size,) = struct.unpack_from(">I", self.replies, self._seen)
            if self._seen + 4 + size > end:
                break
            self._seen += 4 + size
            count += 1
        return count

    def take(self) -> bytes:
        """What has come since the last call; nothing may be under way."""
        taken, self._seen = bytes(self.replies), 0
        self.replies.clear()
        return taken


# ---- fetching


class FetchReader:
    """One consumer that throws the records away. Batches must all have one size and count."""

    def __init__(
        self,
        address: Address,
        topic: str,
        *,
        batch_bytes: int,
        batch_records: int,
        bytes_max: int,
        wait_ms: int = 500,
        partition: int = 0,
        offset: int = 0,
    ) -> None:
        self.connection = connect(address)
        self.offset = offset
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        self._frame = bytearray(fetch_frame(topic, partition, offset, bytes_max, wait_ms))
        self._head = 52 + len(topic)
        self._buffer = bytearray(max(bytes_max, batch_bytes) + (1 << 16))
        self._view = memoryview(self._buffer)

    def ask(self) -> None:
        """Send a request for what follows; a v4 request ends with offset and partition's bytes."""
        struct.pack_into(">q", self._frame, len(self._frame) - 12, self.offset)
        self.connection.sendall(self._frame)

    def answer(self) -> int:
        """Wait for the reply; bytes of records in it, by which the offset has moved on."""
        filled = 0
        size = 4
        while filled < size:
            count = self.connection.recv_into(self._view[filled:])
            if not count:
                raise BenchmarkError("the broker closed the connection")
            filled += count
            if size == 4 and filled >= 4:
                size = 4 + struct.unpack_from(">i", self._buffer)[0]
                if size > len(self._buffer):
                    raise BenchmarkError(f"reply of {size} bytes, room for {len(self._buffer)}")
        (error,) = struct.unpack_from(">h", self._buffer, self._head - 26)
        (found,) = struct.unpack_from(">i", self._buffer, self._head - 4)
        if error or found != size - self._head:
            raise BenchmarkError(f"fetch: error {error}, {found} bytes in a reply of {size}")
        batches, rest = divmod(found, self._batch_bytes)
        if rest:
            raise BenchmarkError(f"{found} bytes are not whole batches of {self._batch_bytes}")
        self.offset += batches * self._batch_records
        return int(found)

    def fetch(self) -> int:
        self.ask()
        return self.answer()

    def close(self) -> None:
        self.connection.close()


def fetch_frame(topic: str, partition: int, offset: int, bytes_max: int, wait_ms: int) -> bytes:
    wanted = m.FetchRequestPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max
    )
    request = m.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        topics=[m.FetchRequestTopic(topic=topic, partitions=[wanted])],
    )
    return codec.join(codec.encode_request(request, _FETCH_VERSION, 1, _CLIENT_ID))
