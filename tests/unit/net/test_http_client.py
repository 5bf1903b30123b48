"""Goal: every request has exactly one outcome, streams end when they should, and a server that does
not answer is left for the next.

Method: the client and scripted servers, on simulated loops and network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dragoman.config.listeners import Address
from dragoman.net import http_client
from dragoman.net.http_client import HttpClient
from dragoman.testing.sim.loop import SimLoop, SimWorld

PORT = 2379


def answer(body: bytes, status: str = "200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (
        status.encode(),
        len(body),
        more,
        body,
    )


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Server:
    """Takes what it gets for requests, one a packet, and answers as its script says."""

    def __init__(self, world: SimWorld, host: str) -> None:
        self.loop: SimLoop = world.loop(host)
        self.requests: list[bytes] = []
        self.connections: list[ServerConnection] = []
        #: What to send for a request; None: nothing.
        self.script: Callable[[bytes], bytes | None] = lambda _: answer(b"{}")
        world.run(self.loop.create_server(self._accept, host, PORT), self.loop, 1)

    def _accept(self) -> ServerConnection:
        connection = ServerConnection(self)
        self.connections.append(connection)
        return connection

    @property
    def live(self) -> list[ServerConnection]:
        return [each for each in self.connections if not each.is_closed]


class ServerConnection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self.server = server
        self.is_closed = False
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        if not blank:
            return
        [length] = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")]
        if len(body) < int(length.rpartition(b" ")[2]):
            return
        request, self._received = self._received, b""
        self.server.requests.append(request)
        reply = self.server.script(request)
        if reply is not None:
            self.transport.write(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True


class Stage:
    def __init__(self, servers: int = 1) -> None:
        self.world = SimWorld(1)
        self.servers = [Server(self.world, f"s{number}") for number in range(servers)]
        self.loop = self.world.loop("client")
        self.client = self.call(
            lambda: HttpClient([Address(each.loop.host, PORT) for each in self.servers], self.loop)
        )
        self.outcomes: list[tuple[int, bytes]] = []
        self.lines: list[bytes] = []
        self.ends: list[str] = []

    def call(self, work: Callable[[], object]):
        async def do() -> object:
            return work()

        return self.world.run(do(), self.loop, 1)

    def wait(self, seconds: float = 0.5) -> None:
        self.world.run_until(lambda: False, seconds)

    def ask(self, path: str = "/v3/kv/txn", body: bytes = b"{}", timeout_s: float = 1.0) -> None:
        self.call(
            lambda: self.client.request("POST", path, body, timeout_s).then(self.outcomes.append)
        )

    def stream(self):
        return self.call(
            lambda: self.client.stream("/v3/watch", b"{}", self.lines.append, self.ends.append)
        )


@pytest.fixture
def stage() -> Stage:
    return Stage()


# ---- requests


def test_request_is_sent_and_answered(stage: Stage) -> None:
    stage.servers[0].script = lambda _: answer(b'{"a":1}')
    stage.ask(body=b'{"b":2}')
    assert stage.outcomes == []
    stage.wait()
    assert stage.outcomes == [(200, b'{"a":1}')]
    [request] = stage.servers[0].requests
    assert request.startswith(b"POST /v3/kv/txn HTTP/1.1\r\nHost: s0:2379\r\n")
    assert request.endswith(b'\r\nContent-Length: 7\r\n\r\n{"b":2}')


def test_connections_are_used_again(stage: Stage) -> None:
    for _ in range(5):
        stage.ask()
        stage.wait()
    assert [status for status, _ in stage.outcomes] == [200] * 5
    assert len(stage.servers[0].connections) == 1


def test_server_that_closes_after_its_answer_is_dialled_again(stage: Stage) -> None:
    stage.servers[0].script = lambda _: answer(b"{}", more=b"Connection: close\r\n")
    for _ in range(2):
        stage.ask()
        stage.wait()
    assert [status for status, _ in stage.outcomes] == [200] * 2
    assert len(stage.servers[0].connections) == 2
    assert stage.servers[0].live == []


def test_chunks_and_errors_are_answers_too(stage: Stage) -> None:
    stage.servers[0].script = lambda _: STREAM_HEAD + chunk(b"ab") + chunk(b"c") + chunk(b"")
    stage.ask()
    stage.wait()
    stage.servers[0].script = lambda _: answer(b"no", "404 Not Found")
    stage.ask()
    stage.wait()
    assert stage.outcomes == [(200, b"abc"), (404, b"no")]


def test_informational_answers_are_passed_over(stage: Stage) -> None:
    stage.servers[0].script = lambda _: b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"x")
    stage.ask()
    stage.wait()
    assert stage.outcomes == [(200, b"x")]


def test_connections_are_bounded_and_the_rest_waits(stage: Stage) -> None:
    stage.servers[0].script = lambda _: None
    for _ in range(12):
        stage.ask()
    stage.wait(0.1)
    assert len(stage.servers[0].live) == 8
    for connection in stage.servers[0].live:
        connection.transport.write(answer(b"{}"))
    stage.wait(0.1)
    assert len(stage.outcomes) == 8
    assert len(stage.servers[0].connections) == 8
    stage.wait(2.0)
    assert sorted(status for status, _ in stage.outcomes) == [0] * 4 + [200] * 8


def test_late_answer_is_no_answer(stage: Stage) -> None:
    stage.servers[0].script = lambda _: None
    stage.ask(timeout_s=0.2)
    stage.wait(0.3)
    assert stage.outcomes == [(0, b"no answer in 0.2 s")]
    stage.wait()
    assert stage.servers[0].live == []


def test_time_counts_also_while_waiting_and_connecting(stage: Stage) -> None:
    stage.world.network.isolate("s0", ["client"])
    for _ in range(10):
        stage.ask(timeout_s=0.2)
    stage.wait(0.3)
    assert [status for status, _ in stage.outcomes] == [0] * 10
    stage.wait(3.0)
    assert len(stage.outcomes) == 10


@pytest.mark.parametrize(
    "reply", [b"HTTP/1.1 what\r\n\r\n", b"\x00" * 100, b"HTTP/1.1 200 OK\r\nC"]
)
def test_rubbish_and_half_answers_are_no_answers(stage: Stage, reply: bytes) -> None:
    stage.servers[0].script = lambda _: reply
    stage.ask()
    stage.wait(0.2)
    for connection in stage.servers[0].live:
        connection.transport.abort()
    stage.wait()
    [(status, reason)] = stage.outcomes
    assert status == 0
    assert b"s0" in reason
    assert stage.servers[0].live == []


def test_answer_that_is_too_large_is_not_taken(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "ETCD_ANSWER_BYTES_MAX", 1000)
    stage.servers[0].script = lambda _: answer(b"x" * 1001)
    stage.ask()
    stage.wait()
    assert stage.outcomes == [(0, b"the answer is too large")]
    assert stage.servers[0].live == []


# ---- several servers


@pytest.mark.parametrize("how", ["refuses", "is silent", "says no", "breaks off"])
def test_server_that_does_not_answer_is_left_for_the_next(how: str) -> None:
    stage = Stage(servers=2)
    first, second = stage.servers
    if how == "refuses":
        stage.world.crash(first.loop)
    elif how == "is silent":
        first.script = lambda _: None
    elif how == "says no":
        first.script = lambda _: answer(b"no leader", "503 Service Unavailable")
    else:
        first.script = lambda _: b"HTTP/1.1 200"
    stage.ask()
    stage.wait(0.2)
    if how == "breaks off":
        first.live[0].transport.abort()
    stage.wait(2.0)
    stage.ask()
    stage.wait()
    assert [status for status, _ in stage.outcomes] == [503 if how == "says no" else 0, 200]
    assert len(second.requests) == 1


def test_streams_of_a_server_that_is_left_end() -> None:
    stage = Stage(servers=2)
    first, second = stage.servers
    first.script = lambda _: STREAM_HEAD
    stage.stream()
    stage.wait()
    first.script = lambda _: answer(b"", "503 Service Unavailable")
    stage.ask()
    stage.wait()
    assert stage.ends == ["its server does not answer"]
    assert first.live == []
    stage.stream()
    stage.wait()
    assert len(second.requests) == 1


def test_all_servers_are_tried_again_and_again() -> None:
    stage = Stage(servers=2)
    stage.world.crash(stage.servers[0].loop)
    stage.servers[1].script = lambda _: answer(b"", "500 Oh")
    for _ in range(4):
        stage.ask()
        stage.wait()
    assert [status for status, _ in stage.outcomes] == [0, 500, 0, 500]


# ---- streams


def test_lines_come_as_they_are_however_they_are_cut(stage: Stage) -> None:
    stage.servers[0].script = lambda _: STREAM_HEAD
    stage.stream()
    stage.wait()
    [connection] = stage.servers[0].live
    for piece in (b"on", b"e\ntwo\nth", b"ree\n", b"\n", b"rest"):
        connection.transport.write(chunk(piece))
        stage.wait(0.1)
    assert stage.lines == [b"one", b"two", b"three"]
    assert stage.ends == []
    connection.transport.write(chunk(b""))
    stage.wait()
    assert stage.ends == ["status 200: rest"]
    assert stage.servers[0].live == []


def test_stream_that_is_closed_says_nothing_more(stage: Stage) -> None:
    stage.servers[0].script = lambda _: STREAM_HEAD + chunk(b"one\n")
    stream = stage.stream()
    stage.wait()
    stage.servers[0].live[0].transport.write(chunk(b"two\n"))
    stage.call(stream.close)
    stage.wait()
    assert stage.lines == [b"one"]
    assert stage.ends == []
    assert stage.servers[0].live == []


def test_stream_may_be_closed_by_its_own_line(stage: Stage) -> None:
    stage.servers[0].script = lambda _: STREAM_HEAD + chunk(b"one\ntwo\n") + chunk(b"three\n")
    heard: list[bytes] = []

    def start() -> None:
        def line(data: bytes) -> None:
            heard.append(data)
            stream.close()

        stream = stage.client.stream("/v3/watch", b"", line, stage.ends.append)

    stage.call(start)
    stage.wait()
    assert heard == [b"one"]
    assert stage.ends == []


def test_stream_closed_while_it_is_dialled_leaves_no_connection(stage: Stage) -> None:
    stream = stage.stream()
    stream.close()
    stage.wait(3.0)
    assert stage.servers[0].requests == []
    assert stage.ends == []


def test_stream_that_is_refused_or_lost_ends(stage: Stage) -> None:
    stage.servers[0].script = lambda _: answer(b"not\nhere", "404 Not Found")
    stage.stream()
    stage.wait()
    stage.servers[0].script = lambda _: STREAM_HEAD
    stage.stream()
    stage.wait()
    stage.servers[0].live[0].transport.abort()
    stage.wait()
    assert stage.ends[0] == "status 404: not\nhere"
    assert "was lost" in stage.ends[1]
    stage.world.crash(stage.servers[0].loop)
    stage.stream()
    stage.wait()
    assert len(stage.ends) == 3
    assert stage.lines == []


def test_line_that_is_too_large_ends_the_stream(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "ETCD_ANSWER_BYTES_MAX", 1000)
    stage.servers[0].script = lambda _: STREAM_HEAD + chunk(b"x" * 1001)
    stage.stream()
    stage.wait()
    assert stage.ends == ["a line is too large"]


# ---- the end


def test_close_ends_everything_that_is_under_way(stage: Stage) -> None:
    stage.servers[0].script = lambda _: None
    for _ in range(10):
        stage.ask()
    stage.stream()
    stage.wait(0.1)
    stage.call(stage.client.close)
    assert stage.outcomes == [(0, b"the connection was closed")] * 10
    assert stage.ends == ["the connection was closed"]
    stage.ask(timeout_s=0.2)
    stage.stream()
    stage.wait()
    assert len(stage.outcomes) == 11
    assert len(stage.ends) == 2
    assert stage.servers[0].live == []


def test_close_while_dialling_is_clean(stage: Stage) -> None:
    stage.ask()
    stage.stream()
    stage.call(stage.client.close)
    stage.wait(2.0)
    assert [status for status, _ in stage.outcomes] == [0]
    assert stage.servers[0].live == []
    assert stage.loop.failures == []


def test_finish_waits_for_what_was_asked_but_not_for_ever(stage: Stage) -> None:
    stage.ask()
    stage.world.run(stage.client.finish(5.0), stage.loop, 1)
    assert stage.outcomes == [(200, b"{}")]
    second = Stage()
    second.servers[0].script = lambda _: None
    second.ask(timeout_s=10.0)
    second.world.run(second.client.finish(0.5), second.loop, 1)
    assert second.outcomes == [(0, b"the connection was closed")]
