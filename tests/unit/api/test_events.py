"""Goal: streams of records resume where they were, end with their right, and hold no more memory
than they are charged, whatever their clients do.

Method: streams of a broker in virtual time, one event at a time; and a node over real sockets, with
a client that reads and one that never does.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
import uvloop

from dragoman import limits
from dragoman.api.declaration import ApiError, LastEventId, ValueBytes
from dragoman.api.events import RecordEvents, positions_of
from dragoman.broker.errors import NotAuthorized, Overloaded, UnknownTopic
from dragoman.cluster.events import TopicDeleted
from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from dragoman.errors import AuthenticationFailedError, OffsetOutOfRangeError
from dragoman.log.batch import Record, build_batch
from dragoman.security.access import Caller, Operation, Principal, Resource
from nodes.thread import Running
from worlds.broker import World
from worlds.http import Services
from worlds.rights import Guard

CALLER = Caller()


class Event(NamedTuple):
    kind: str
    known: str
    data: Any


def parsed(chunk: bytes) -> Iterator[Event]:
    for block in chunk.decode().strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields:
            known = fields["id"].partition("@")[0]
            yield Event(fields.get("event", ""), known, json.loads(fields["data"]))


class Stage:
    def __init__(self, partitions: int = 1) -> None:
        self.world = World()
        self.services = Services(self.world)
        self.replicas = self.world.create("t", partitions)

    async def open(
        self, begin: str = "latest", last: str = "", partitions: str = "", caller: Caller = CALLER
    ) -> Stream:
        opened = self.services.records.record_events(
            caller, "t", partitions, begin, LastEventId(last), ValueBytes(1000), "text"
        )
        events = await opened
        assert isinstance(events, RecordEvents)
        return Stream(self, events)


class Stream:
    def __init__(self, stage: Stage, events: RecordEvents) -> None:
        self.stage = stage
        self.events = events
        self.iterator: AsyncIterator[bytes] = events.events()
        self.found: list[Event] = []

    async def next(self) -> Event:
        while not self.found:
            waiting = asyncio.ensure_future(anext(self.iterator))
            while not waiting.done():
                await asyncio.sleep(0)
                self.stage.world.settle()
            self.found += parsed(waiting.result())
        return self.found.pop(0)


def run(work: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(work())


def test_records_arrive_as_they_are_written() -> None:
    async def work() -> None:
        stage = Stage(2)
        stage.world.write(stage.replicas[0], b"before")
        stream = await stage.open()
        assert await stream.next() == Event("start", "0:1,1:0", {"0": 1, "1": 0})
        for index, value, known in ((1, b"a", "0:1,1:1"), (0, b"b", "0:2,1:1")):
            stage.world.write(stage.replicas[index], value)
            event = await stream.next()
            assert (event.kind, event.known) == ("", known)
            assert event.data["value"]["data"] == value.decode()
            assert event.data["partition"] == index

    run(work)


def test_stream_resumes_after_the_last_event() -> None:
    async def work() -> None:
        stage = Stage(2)
        for number in range(6):
            stage.world.write(stage.replicas[number % 2], b"%d" % number)
        stream = await stage.open("earliest")
        await stream.next()
        first = [await stream.next() for _ in range(4)]
        again = await stage.open(last=first[-1].known)
        await again.next()
        rest = [await again.next() for _ in range(2)]
        values = sorted(event.data["value"]["data"] for event in [*first, *rest])
        assert values == [str(number) for number in range(6)]

    run(work)


def test_stream_of_chosen_partitions_from_an_offset() -> None:
    async def work() -> None:
        stage = Stage(3)
        for replica in stage.replicas:
            stage.world.write(replica, b"0", b"1", b"2")
        for begin, offset in (("-1", 2), ("+1", 1), ("@-52w", 0), ("@2200-01-01", 3), ("9", 3)):
            other = await stage.open(begin, partitions="1")
            assert (await other.next()).data == {"1": offset}
        stream = await stage.open("2", partitions="2,0")
        assert (await stream.next()).data == {"0": 2, "2": 2}
        found = [await stream.next() for _ in range(2)]
        assert [(event.data["partition"], event.data["offset"]) for event in found] == [
            (0, 2),
            (2, 2),
        ]

    run(work)


def test_client_that_is_too_slow_is_told_what_it_missed() -> None:
    async def work() -> None:
        stage = Stage()
        stage.world.write(stage.replicas[0], *(b"%d" % number for number in range(8)))
        stream = await stage.open("earliest")
        await stream.next()
        stage.replicas[0].delete_below(5)
        event = await stream.next()
        assert event == Event("lagging", "0:5", {"partition": 0, "before": 0, "after": 5})
        assert (await stream.next()).data["offset"] == 5

    run(work)


def test_stream_does_not_resume_past_the_end_or_in_a_later_topic_of_the_same_name() -> None:
    async def work() -> None:
        stage = Stage()
        stage.world.write(stage.replicas[0], b"0", b"1")
        (start,) = parsed(await anext((await stage.open()).iterator))
        assert start.known == "0:2"
        with pytest.raises(OffsetOutOfRangeError, match="past the end"):
            await stage.open(last="0:3")
        id_line = (await anext((await stage.open()).iterator)).split(b"\n")[0].decode()
        known = id_line.removeprefix("id: ")
        await stage.open(last=known)
        topic = stage.world.broker.image.topics["t"]
        stage.world.apply(TopicDeleted(topic_id=topic.topic_id))
        (replica,) = stage.world.create("t", 1)
        stage.world.write(replica, b"0", b"1", b"2")
        with pytest.raises(OffsetOutOfRangeError, match="created again"):
            await stage.open(last=known)

    run(work)


def test_records_with_many_headers_are_shown_over_several_turns() -> None:
    async def work() -> None:
        stage = Stage()
        headers = (("h", b""),) * limits.HTTP_HEADERS_MAX
        records = [Record(value=b"", headers=headers) for _ in range(20)]
        stage.world.append(stage.replicas[0], build_batch(records))
        stream = await stage.open("earliest")
        sizes, count = [], 0
        while count < len(records) + 1:
            chunk = await anext(stream.iterator)
            sizes.append(len(chunk))
            count += len(list(parsed(chunk)))
        assert max(sizes) < 2 * limits.HTTP_SHOWN_BYTES_PER_TURN
        assert sum(sizes) > 3 * limits.HTTP_SHOWN_BYTES_PER_TURN

    run(work)


def test_busy_stream_notices_that_a_login_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_HEARTBEAT_SECONDS", 0)

    async def work() -> None:
        stage = Stage()
        stage.world.write(stage.replicas[0], b"0")
        stream = await stage.open("earliest")

        def refuse() -> None:
            raise AuthenticationFailedError("the token has expired")

        stream.events.check = refuse
        assert (await stream.next()).kind == "start"
        assert (await stream.next()).data["code"] == AuthenticationFailedError.code

    run(work)


def test_stream_ends_with_its_topic() -> None:
    async def work() -> None:
        stage = Stage()
        stream = await stage.open()
        await stream.next()
        topic = stage.world.broker.image.topics["t"]
        waiting = asyncio.ensure_future(stream.next())
        await asyncio.sleep(0)
        stage.world.apply(TopicDeleted(topic_id=topic.topic_id))
        event = await waiting
        assert (event.kind, event.data["code"]) == ("end", "unknown_topic")
        with pytest.raises(StopAsyncIteration):
            await anext(stream.iterator)

    run(work)


def test_stream_ends_with_its_right() -> None:
    async def work() -> None:
        stage = Stage()
        guard = Guard(stage.world)
        stream = await stage.open()
        broker = stage.world.broker
        broker.grants.hold(stream.events.check, stream.events.end)
        await stream.next()
        with guard.without([(Operation.READ, Resource.TOPIC, "t")]):
            stage.world.settle()
            event = await stream.next()
        assert (event.kind, event.data["code"]) == ("end", NotAuthorized.code)

    run(work)


def test_stream_ends_when_the_node_stops() -> None:
    async def work() -> None:
        stage = Stage()
        stream = await stage.open()
        await stream.next()
        for each in stage.world.broker.on_stopping:
            each()
        assert (await stream.next()).data["code"] == "shutting_down"

    run(work)


def test_heartbeat_notices_that_a_login_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_HEARTBEAT_SECONDS", 0)

    async def work() -> None:
        stage = Stage()
        stream = await stage.open()
        await stream.next()
        assert await anext(stream.iterator) == b":\n\n"

        def refuse() -> None:
            raise AuthenticationFailedError("the token has expired")

        stream.events.check = refuse
        assert (await stream.next()).data["code"] == AuthenticationFailedError.code

    run(work)


def test_streams_are_bounded_and_give_their_memory_back() -> None:
    async def work() -> None:
        stage = Stage()
        streams = [await stage.open() for _ in range(limits.HTTP_STREAMS_MAX)]
        assert stage.services.budget.used == limits.HTTP_STREAMS_MAX * limits.HTTP_STREAM_BYTES
        with pytest.raises(Overloaded):
            await stage.open()
        for each in streams:
            each.events.close()
            each.events.close()
        assert stage.services.budget.used == 0
        assert not stage.replicas[0].parked
        await stage.open()

    run(work)


def test_client_with_most_streams_gives_way_to_others() -> None:
    async def work() -> None:
        stage = Stage()
        greedy = [await stage.open() for _ in range(limits.HTTP_STREAMS_MAX)]
        other = Caller(Principal("User", "bob"), "10.0.0.9")
        for _ in range(limits.HTTP_STREAMS_MAX // 2):
            await stage.open(caller=other)
        for caller in (other, CALLER):
            with pytest.raises(Overloaded):
                await stage.open(caller=caller)
        assert (await greedy[0].next()).kind == "start"
        assert (await greedy[0].next()).data["code"] == Overloaded.code
        assert (await greedy[-1].next()).kind == "start"
        used = stage.services.budget.used
        for each in greedy:
            each.events.close()
            each.events.close()
        freed = used - stage.services.budget.used
        assert freed == len(greedy) * limits.HTTP_STREAM_BYTES

    run(work)


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"begin": "now"}, ApiError),
        ({"begin": "shift:1"}, ApiError),
        ({"begin": "9" * 30}, ApiError),
        ({"partitions": "0,x"}, ApiError),
        ({"partitions": ","}, ApiError),
        ({"partitions": "2"}, UnknownTopic),
        ({"last": "0"}, ApiError),
        ({"last": "0:x"}, ApiError),
        ({"last": "²:1"}, ApiError),
        ({"last": "0:" + "9" * 30}, ApiError),
        ({"last": "7:1"}, UnknownTopic),
    ],
)
def test_bad_beginning_is_refused(named: dict[str, str], error: type[Exception]) -> None:
    async def work() -> None:
        stage = Stage(2)
        with pytest.raises(error):
            await stage.open(**named)
        assert stage.services.budget.used == 0

    run(work)


def test_too_many_partitions_are_refused() -> None:
    async def work() -> None:
        stage = Stage(limits.HTTP_STREAM_PARTITIONS_MAX + 1)
        with pytest.raises(ApiError):
            await stage.open()
        await stage.open(partitions="0,1")

    run(work)


def test_ids_are_read_back() -> None:
    assert positions_of("", "ab") == {}
    assert positions_of("0:1,12:9", "ab") == positions_of("0:1,12:9@ab", "ab") == {0: 1, 12: 9}
    with pytest.raises(OffsetOutOfRangeError):
        positions_of("0:1@cd", "ab")


# ---- over sockets


@pytest.fixture
def node() -> Iterator[Running]:
    listeners = tuple(
        Listener(name=name, bind=Address("127.0.0.1", 0)) for name in ("kafka", "http")
    )
    running = Running(uvloop.new_event_loop, Settings(listeners=listeners))
    yield running
    running.stop()


def connected(node: Running) -> socket.socket:
    port = node.node.listeners.find("http").bound.port
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def ask(node: Running, text: str) -> bytes:
    with connected(node) as connection:
        connection.sendall(text.encode())
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def get(path: str, method: str = "GET") -> str:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def post(path: str, body: str) -> str:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"


def test_stream_over_http_and_a_client_that_goes(node: Running) -> None:
    ask(node, post("/api/v1/topics", '{"name": "t", "partitions": 1}'))
    head = ask(node, get("/api/v1/topics/t/events", "HEAD"))
    assert b"text/event-stream" in head
    service = node.node._http_view().records
    with connected(node) as client:
        client.sendall(get("/api/v1/topics/t/events").encode())
        received = b""
        while b"event: start" not in received:
            received += client.recv(1 << 16)
        assert b"content-type: text/event-stream" in received
        ask(node, post("/api/v1/topics/t/records", '{"records": [{"value": "hello"}]}'))
        while b"hello" not in received:
            received += client.recv(1 << 16)
        assert b"id: 0:1@" in received
        assert node.look(lambda: len(service._streams)) == 1
    node.wait_until(lambda: not service._streams)
    assert node.look(lambda: node.node.listeners.budget.used) == 0


def test_client_that_never_reads_holds_little_memory_and_keeps_no_probe_out(node: Running) -> None:
    ask(node, post("/api/v1/topics", '{"name": "t", "partitions": 1}'))
    record = '{"value": "' + "x" * 60_000 + '"}'
    for _ in range(40):
        ask(node, post("/api/v1/topics/t/records", f'{{"records": [{",".join([record] * 10)}]}}'))
    service = node.node._http_view().records
    client = connected(node)
    with client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(get("/api/v1/topics/t/events?begin=earliest").encode())
        engine = node.node.listeners._http._engine

        def blocked() -> list[Any]:
            return [each for each in engine.connections() if each.flow and each.flow.write_paused]

        node.wait_until(lambda: bool(blocked()))
        (held,) = node.look(lambda: [e.transport.get_write_buffer_size() for e in blocked()])
        # One step of a stream above what makes the transport pause.
        assert held < 1 << 20
        (stream,) = node.look(lambda: list(service._streams))
        assert stream.positions[0] < 400
        assert node.look(lambda: all(each.is_quiet for each in blocked()))
        assert b"200 OK" in ask(node, get("/livez"))
    node.wait_until(lambda: not service._streams)


def test_stream_gives_way_to_a_probe(node: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(node, post("/api/v1/topics", '{"name": "t", "partitions": 1}'))
    with connected(node) as client:
        client.sendall(get("/api/v1/topics/t/events").encode())
        received = b""
        while b"event: start" not in received:
            received += client.recv(1 << 16)
        monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 1)
        assert b"200 OK" in ask(node, get("/livez"))
        with suppress(ConnectionError):
            assert client.recv(1 << 16) == b""
