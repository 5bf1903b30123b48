"""Goal: nodes reach each other whenever they can, and every request has exactly one outcome.

Method: nodes on simulated loops and network, with services that note and answer.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import ClassVar

import msgspec
import pytest

from dragoman.config.listeners import Requirement
from dragoman.errors import ClusterError, ConfigError, DecodeError, NotSentError
from dragoman.limits import (
    PEER_FRAME_BYTES_MAX,
    PEER_HELLO_BYTES_MAX,
    PEER_HELLO_TIMEOUT_S,
    PEER_REQUESTS_MAX,
    PEER_STRANGERS_MAX,
)
from dragoman.net import peer_connections
from dragoman.net.admission import DescriptorShare, MemoryBudget
from dragoman.net.channel import Channel, Channels
from dragoman.net.peer_connections import PeerAnswer, PeerConnections, PeerSession, Reply
from dragoman.net.peer_frames import Hello, Kind, frame, read_hello, take_apart
from dragoman.net.peer_handshake import Evidence, Policy
from dragoman.testing.sim.loop import SimLoop, SimWorld
from dragoman.testing.sim.network import NetworkFaults
from worlds.broker import FakeTransport

SERVICE = 3
PORT = 9190


class Noting:
    """Answers with what it was asked, backwards; or later, or never."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, bytes]] = []
        self.held: list[tuple[bytes, Reply]] = []

    def message(self, node: int, header: memoryview) -> None:
        self.messages.append((node, bytes(header)))

    def request(self, node: int, header: memoryview, body: memoryview, reply: Reply) -> None:
        text = bytes(header)
        if text == b"refuse":
            raise ClusterError("no, thank you")
        if text.startswith(b"hold"):
            self.held.append((text, reply))
        else:
            reply(text[::-1], [bytes(body)[::-1]])


class Member:
    def __init__(self, world: SimWorld, node: int, cluster_id: str = "c") -> None:
        self.world = world
        self.node = node
        self.cluster_id = cluster_id
        self.told: list[str] = []
        self.service = Noting()
        self.start(1)

    def start(self, incarnation: int) -> None:
        world = self.world
        self.loop: SimLoop = world.loop(f"n{self.node}")
        self.budget = MemoryBudget(1 << 30, bounds_working=False)
        hello = Hello(node_id=self.node, incarnation=incarnation, cluster_id=self.cluster_id)
        self.connections = PeerConnections(lambda: hello, self.loop, Random(self.node), self.budget)
        self.connections.serve(SERVICE, self.service)
        for name in ("connected", "lost", "caller_lost"):
            getattr(self.connections, f"on_{name}").append(partial(self._note, name))
        self.channels = Channels(self.budget, self.loop)
        world.run(self.loop.create_server(self._accept, self.loop.host, PORT), self.loop, 1)

    def _note(self, name: str, node: int) -> None:
        self.told.append(f"{name} {node}")

    def _accept(self) -> Channel:
        return Channel(self.channels, self.connections.session, self.loop)

    def know(self, *others: Member) -> None:
        async def set_peers() -> None:
            self.connections.set_peers({each.node: (f"n{each.node}", PORT) for each in others})

        self.world.run(set_peers(), self.loop, 1)

    def ask(
        self, node: int, header: bytes, body: Sequence[bytes] = (), timeout_s: float = 5
    ) -> list[PeerAnswer | ClusterError]:
        """The outcomes, which come into the list."""
        outcomes: list[PeerAnswer | ClusterError] = []

        async def ask() -> None:
            self.connections.request(
                node, SERVICE, header, outcomes.append, timeout_s=timeout_s, body=body
            )

        self.world.run(ask(), self.loop, 1)
        return outcomes


class Pair:
    def __init__(self) -> None:
        self.world = SimWorld(1)
        self.one, self.two = Member(self.world, 1), Member(self.world, 2)
        self.one.know(self.two)
        self.two.know(self.one)
        self.wait(1)

    def wait(self, seconds: float) -> None:
        self.world.run_until(lambda: False, seconds)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    for loop in made.world.loops:
        # What it has begun goes no further.
        loop.halt()


def test_request_and_reply_with_bodies(pair: Pair) -> None:
    outcomes = pair.one.ask(2, b"abc", [b"12", b"345"])
    pair.wait(1)
    (answer,) = outcomes
    assert isinstance(answer, PeerAnswer)
    assert (bytes(answer.header), bytes(answer.body)) == (b"cba", b"54321")


def test_replies_may_come_in_any_order(pair: Pair) -> None:
    first, second = pair.one.ask(2, b"hold 1"), pair.one.ask(2, b"second")
    pair.wait(1)
    assert not first
    assert len(second) == 1
    pair.two.service.held[0][1](b"done", [])
    pair.wait(1)
    assert isinstance(first[0], PeerAnswer)


def test_messages_arrive_once_and_in_order(pair: Pair) -> None:
    async def send() -> None:
        for number in range(100):
            pair.one.connections.send(2, SERVICE, b"%d" % number)

    pair.world.run(send(), pair.one.loop, 1)
    pair.wait(1)
    assert pair.two.service.messages == [(1, b"%d" % number) for number in range(100)]


def test_refusal_comes_back_in_words(pair: Pair) -> None:
    outcomes = pair.one.ask(2, b"refuse")
    pair.wait(1)
    assert isinstance(outcomes[0], ClusterError)
    assert str(outcomes[0]) == "no, thank you"
    assert not isinstance(outcomes[0], NotSentError)


def test_what_is_larger_than_a_frame_is_refused_in_both_directions(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller or its peer continues, perhaps in the middle of something else."""
    asked = pair.one.ask(2, b"hold 1")
    pair.wait(1)
    monkeypatch.setattr("dragoman.net.peer_frames.PEER_FRAME_BYTES_MAX", 1000)
    pair.two.service.held[0][1](b"large", [b"x" * 2000])
    pair.wait(1)
    assert "bytes for another node; at most 1000" in str(asked[0])
    (refused,) = pair.one.ask(2, b"x" * 2000)
    assert isinstance(refused, NotSentError)


def test_unknown_service_is_refused(pair: Pair) -> None:
    outcomes: list[PeerAnswer | ClusterError] = []

    async def ask() -> None:
        pair.one.connections.request(2, 99, b"", outcomes.append, timeout_s=1)

    pair.world.run(ask(), pair.one.loop, 1)
    pair.wait(1)
    assert "unknown service 99" in str(outcomes[0])


def test_late_reply_is_a_time_out_and_then_nothing(pair: Pair) -> None:
    outcomes = pair.one.ask(2, b"hold", timeout_s=0.5)
    pair.wait(1)
    assert "within 0.5 s" in str(outcomes[0])
    pair.two.service.held[0][1](b"late", [])
    pair.wait(1)
    assert len(outcomes) == 1
    assert pair.one.told == ["connected 2"]


def test_lost_connection_is_an_unknown_outcome_and_is_dialled_again(pair: Pair) -> None:
    outcomes = pair.one.ask(2, b"hold")
    pair.wait(0.1)
    pair.world.network.reset("n1", "n2")
    pair.wait(2)
    assert "outcome is unknown" in str(outcomes[0])
    assert sorted(pair.one.told) == ["caller_lost 2", "connected 2", "connected 2", "lost 2"]
    again = pair.one.ask(2, b"abc")
    pair.wait(1)
    assert isinstance(again[0], PeerAnswer)


def test_node_that_is_not_there_is_not_sent_to(pair: Pair) -> None:
    pair.world.crash(pair.two.loop)
    pair.wait(0.5)
    outcomes = pair.one.ask(2, b"abc")
    assert isinstance(outcomes[0], NotSentError)
    assert isinstance(pair.one.ask(7, b"abc")[0], NotSentError)
    pair.two.start(incarnation=2)
    pair.wait(3)
    again = pair.one.ask(2, b"abc")
    pair.wait(1)
    assert isinstance(again[0], PeerAnswer)


def test_callers_are_known_while_they_call(pair: Pair) -> None:
    assert pair.one.connections.is_calling(2)
    pair.world.crash(pair.two.loop)
    pair.wait(1)
    assert not pair.one.connections.is_calling(2)
    assert "caller_lost 2" in pair.one.told


def test_node_of_another_cluster_and_ones_own_shadow_are_turned_away() -> None:
    world = SimWorld(1)
    one, stranger, shadow = Member(world, 1), Member(world, 2, "other"), Member(world, 1_000)
    shadow_hello = Hello(node_id=1, incarnation=9, cluster_id="c")
    shadow.connections.hello = lambda: shadow_hello
    stranger.know(one)
    shadow.know(one)
    world.run_until(lambda: False, 2)
    assert not one.connections.is_calling(2)
    assert not one.connections.is_calling(1)
    outcomes = stranger.ask(1, b"abc")
    world.run_until(lambda: bool(outcomes), 10)
    assert isinstance(outcomes[0], ClusterError)


def test_refused_node_retries_with_growing_pauses() -> None:
    world = SimWorld(1)
    one, stranger = Member(world, 1), Member(world, 2, "other")
    stranger.know(one)
    world.run_until(lambda: False, 20)
    # A second apart at most, and half of that at least.
    assert 20 <= stranger.told.count("lost 1") <= 50


def test_node_that_has_not_joined_yet_may_call() -> None:
    world = SimWorld(1)
    one, new = Member(world, 1), Member(world, 2, "")
    new.know(one)
    world.run_until(lambda: False, 1)
    assert one.connections.is_calling(2)


def test_requests_are_bounded(pair: Pair) -> None:
    outcomes = [pair.one.ask(2, b"hold", timeout_s=60) for _ in range(PEER_REQUESTS_MAX)]
    (refused,) = pair.one.ask(2, b"hold")
    assert isinstance(refused, NotSentError)
    assert not any(outcomes)


def test_what_is_not_taken_is_not_piled_up(pair: Pair) -> None:
    pair.two.loop.is_paused = True
    pair.world.network.cut("n1", "n2")
    big = bytes(8 << 20)
    outcomes = [pair.one.ask(2, b"x", [big], timeout_s=60) for _ in range(4)]
    refused = [each[0] for each in outcomes if each]
    assert refused
    assert all(isinstance(each, NotSentError) for each in refused)


def test_peer_that_is_no_longer_wanted_is_disconnected(pair: Pair) -> None:
    pair.one.know()
    pair.wait(1)
    assert not pair.one.connections.is_connected(2)
    assert not pair.two.connections.is_calling(1)
    assert pair.two.connections.is_connected(1)


@pytest.mark.parametrize("seed", range(5))
def test_every_request_has_one_outcome_whatever_happens(seed: int) -> None:
    world = SimWorld(seed)
    world.network.faults = NetworkFaults(reset_rate=0.05, slow_rate=0.05, patience_s=1)
    one, two = Member(world, 1), Member(world, 2)
    one.know(two)
    outcomes = []
    for number in range(200):
        outcomes.append(one.ask(2, b"%d" % number, [bytes(number)], timeout_s=2))
        world.run_until(lambda: False, world.random.uniform(0, 0.05))
    world.run_until(lambda: False, 5)
    assert [len(each) for each in outcomes] == [1] * 200
    answers = [each[0] for each in outcomes if isinstance(each[0], PeerAnswer)]
    assert len(answers) > 20


# ---- frames


def test_frames_round_trip() -> None:
    data = b"".join(map(bytes, frame(Kind.REQUEST, 3, 77, b"head", [b"bo", b"dy"])))
    arrived = take_apart(bytearray(data[4:]))
    assert (arrived.kind, arrived.service, arrived.number) == (Kind.REQUEST, 3, 77)
    assert (bytes(arrived.header), bytes(arrived.body)) == (b"head", b"body")


def test_frame_cut_anywhere_is_an_error_or_shorter() -> None:
    data = b"".join(map(bytes, frame(Kind.REPLY, 3, 77, b"head", [b"body"])))[4:]
    for end in range(len(data)):
        try:
            arrived = take_apart(bytearray(data[:end]))
        except DecodeError:
            continue
        assert bytes(arrived.body) == b"body"[: len(arrived.body)]


def test_random_bytes_are_frames_or_errors() -> None:
    rng = Random(5)
    for _ in range(3000):
        data = bytearray(rng.randbytes(rng.randrange(40)))
        try:
            arrived = take_apart(data)
            read_hello(arrived)
        except DecodeError:
            continue


def test_too_large_a_frame_is_not_sent() -> None:
    with pytest.raises(ClusterError, match="at most"):
        frame(Kind.MESSAGE, 1, 0, b"", [bytes(PEER_FRAME_BYTES_MAX)])


def test_unknown_fields_of_a_newer_hello_are_no_fault() -> None:
    newer = msgspec.msgpack.encode({"node_id": 1, "incarnation": 2, "version": 9, "more": [1]})
    arrived = take_apart(bytearray(b"".join(map(bytes, frame(Kind.HELLO, 0, 0, newer)))[4:]))
    assert read_hello(arrived).version == 9


@pytest.mark.parametrize(
    ("hello", "cure"),
    [
        (Hello(node_id=7, incarnation=1, version=0, version_min=0), "a newer release on node 7"),
        (Hello(node_id=7, incarnation=1, version=9, version_min=8), "an older release on node 7"),
    ],
)
def test_too_old_and_too_new_a_version_is_refused(hello: Hello, cure: str) -> None:
    said = msgspec.msgpack.encode(hello)
    arrived = take_apart(bytearray(b"".join(map(bytes, frame(Kind.HELLO, 0, 0, said)))[4:]))
    with pytest.raises(DecodeError, match=cure):
        read_hello(arrived)


def test_refused_node_logs_the_reason_once(caplog: pytest.LogCaptureFixture) -> None:
    world = SimWorld(1)
    one, newer = Member(world, 1), Member(world, 2)
    hello = Hello(node_id=2, incarnation=1, cluster_id="c", version=9, version_min=8)
    newer.connections.hello = lambda: hello
    newer.know(one)
    world.run_until(lambda: False, 20)
    told = [each.getMessage() for each in caplog.records if "refuses calls" in each.getMessage()]
    assert len(told) == 1
    assert "node 1 refuses calls from this one: node 2 speaks versions 8 to 9" in told[0]


# ---- strangers


class Stranger:
    """A connection to a member's listener, of which the test says what comes."""

    def __init__(
        self,
        member: Member,
        peer: str = "10.0.0.9",
        *,
        is_lost_later: bool = False,
        connected: socket.socket | None = None,
    ):
        """`is_lost_later`: as transports do, which report an end in a later turn of the loop."""
        self.channel = Channel(member.channels, member.connections.session, member.loop)
        self.transport = FakeTransport(
            (lambda: None) if is_lost_later else lambda: self.channel.connection_lost(None),
            ("10.0.0.1", PORT),
            peer,
        )
        self.transport.channel = self.channel
        self.transport.connected = connected
        self.channel.connection_made(self.transport)  # type: ignore[arg-type]

    def send(self, data: bytes) -> None:
        while data and not self.transport.is_closed:
            buffer = self.channel.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.channel.buffer_updated(count)
            data = data[count:]

    def say_hello(self, node: int = 7) -> None:
        hello = msgspec.msgpack.encode(Hello(node_id=node, incarnation=1, cluster_id="c"))
        self.send(b"".join(frame(Kind.HELLO, 0, 0, hello)))


def test_stranger_may_not_announce_a_large_frame(pair: Pair) -> None:
    stranger = Stranger(pair.one)
    stranger.send((100 << 20).to_bytes(4, "big") + b"x")
    assert stranger.transport.is_closed
    node = Stranger(pair.one)
    node.say_hello()
    used = pair.one.budget.used
    node.send((100 << 20).to_bytes(4, "big") + b"x")
    assert not node.transport.is_closed
    assert pair.one.budget.used == used + 1


def test_large_request_may_follow_at_once(pair: Pair) -> None:
    node = Stranger(pair.one)
    hello = msgspec.msgpack.encode(Hello(node_id=7, incarnation=1, cluster_id="c"))
    request = frame(Kind.REQUEST, SERVICE, 1, b"hold", [bytes(3 * PEER_HELLO_BYTES_MAX)])
    node.send(b"".join([*frame(Kind.HELLO, 0, 0, hello), *request]))
    assert not node.transport.is_closed
    assert len(pair.one.service.held) == 1


def test_stranger_has_little_time(pair: Pair) -> None:
    silent, node = Stranger(pair.one), Stranger(pair.one)
    node.say_hello()
    pair.wait(PEER_HELLO_TIMEOUT_S + 1)
    assert (silent.transport.is_closed, node.transport.is_closed) == (True, False)


def test_however_many_strangers_there_are_a_node_finds_a_place(pair: Pair) -> None:
    first = Stranger(pair.one)
    first.say_hello()
    strangers = [Stranger(pair.one) for _ in range(10 * PEER_STRANGERS_MAX)]
    gone = [each.transport.is_closed for each in strangers]
    assert gone == [True] * (9 * PEER_STRANGERS_MAX) + [False] * PEER_STRANGERS_MAX
    last = Stranger(pair.one)
    last.say_hello(8)
    assert (first.transport.is_closed, last.transport.is_closed) == (False, False)
    assert pair.one.connections.is_calling(8)


def test_strangers_that_come_in_one_turn_are_bounded(pair: Pair) -> None:
    strangers = [Stranger(pair.one, is_lost_later=True) for _ in range(10 * PEER_STRANGERS_MAX)]
    still_there = [each for each in strangers if not each.transport.is_closed]
    assert still_there == strangers[-PEER_STRANGERS_MAX:]


def test_many_strangers_of_one_address_do_not_push_out_a_node_at_another(pair: Pair) -> None:
    node = Stranger(pair.one, "10.0.0.2", is_lost_later=True)
    for _ in range(10 * PEER_STRANGERS_MAX):
        Stranger(pair.one, "10.0.0.66", is_lost_later=True)
    node.say_hello()
    assert not node.transport.is_closed
    assert pair.one.connections.is_calling(7)


def test_strangers_give_way_when_descriptors_run_out(pair: Pair) -> None:
    """Where few descriptors are allowed they are gone before there are many strangers."""
    one = pair.one
    strangers = [Stranger(one) for _ in range(3)]
    share = DescriptorShare(lambda: 0, one.connections.give_way)
    one.channels = Channels(one.budget, one.loop, descriptors=share)
    with socket.socket() as connected:
        node = Stranger(one, connected=connected)
        node.say_hello()
        assert one.connections.is_calling(7)
        assert [each.transport.is_closed for each in strangers] == [True, False, False]
        others = [Stranger(one, connected=connected) for _ in range(2)]
        # A node that has said who it is does not give way.
        others[1].say_hello(8)
        assert all(each.transport.is_closed for each in strangers)
        last = Stranger(one, connected=connected)
        assert (others[0].transport.is_closed, last.transport.is_closed) == (True, False)
        last.say_hello(9)
        refused = Stranger(one, connected=connected)
        assert refused.transport.is_closed
        assert not any(each.transport.is_closed for each in (node, others[1], last))


def test_node_that_has_said_who_it_is_is_read_whatever_others_hold(pair: Pair) -> None:
    """It may only ever send messages, which have no replies."""
    pair.one.budget.take(1 << 30)
    node = Stranger(pair.one)
    node.say_hello()
    assert node.transport.is_reading
    pair.one.budget.give_back(1 << 30)


def test_half_a_frame_of_another_node_is_in_the_budget_until_it_is_gone(pair: Pair) -> None:
    before = pair.one.budget.used, pair.two.budget.used
    outcomes = pair.one.ask(2, b"abc", [bytes(5 << 20)])
    pair.wait(1)
    assert isinstance(outcomes[0], PeerAnswer)
    node = Stranger(pair.one)
    node.say_hello()
    node.send((1 << 20).to_bytes(4, "big") + bytes(1000))
    assert pair.one.budget.used == before[0] + 1000
    node.channel.abort()
    assert (pair.one.budget.used, pair.two.budget.used) == before == (0, 0)


# ---- nodes that prove who they are


class Proving:
    """The security of a node with a secret; `binding` stands for its TLS."""

    tls: Requirement = "off"

    def __init__(self, authentication: Requirement, secret: bytes = b"s" * 32) -> None:
        self.current = Policy(authentication=authentication, secrets=(secret,))
        self.failure: ConfigError | None = None

    def policy(self) -> Policy:
        if self.failure is not None:
            raise self.failure
        return self.current

    def client_context(self) -> ssl.SSLContext:
        raise ConfigError("the simulated network has no TLS")


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection looks as if it were TLS, of the same session at both ends."""
    monkeypatch.setattr(peer_connections, "evidence_of", lambda _tls: Evidence(binding=b"b"))


def proving_pair(first: Proving, second: Proving) -> Pair:
    pair = Pair.__new__(Pair)
    pair.world = SimWorld(1)
    pair.one, pair.two = Member(pair.world, 1), Member(pair.world, 2)
    pair.one.connections.security, pair.two.connections.security = first, second
    pair.one.know(pair.two)
    pair.two.know(pair.one)
    pair.wait(1)
    return pair


@pytest.mark.usefixtures("bound")
def test_nodes_with_one_secret_serve_each_other() -> None:
    judged: list[tuple[int, str, str]] = []
    pair = proving_pair(Proving("required"), Proving("required"))
    pair.one.connections.on_judged.append(lambda *each: judged.append(each))
    outcomes = pair.one.ask(2, b"abc")
    pair.wait(1)
    assert isinstance(outcomes[0], PeerAnswer)
    pair.world.network.reset("n1", "n2")
    pair.wait(3)
    assert pair.one.connections.is_calling(2)
    assert [(node, refusal) for node, _, refusal in judged] == [(2, "")]


@pytest.mark.usefixtures("bound")
def test_nodes_with_different_secrets_stay_apart(caplog: pytest.LogCaptureFixture) -> None:
    judged: list[tuple[int, str, str]] = []
    pair = proving_pair(Proving("required"), Proving("required", b"o" * 32))
    pair.one.connections.on_judged.append(lambda *each: judged.append(each))
    pair.wait(5)
    assert not pair.one.connections.is_calling(2)
    assert not pair.one.connections.is_connected(2)
    assert not pair.two.connections.is_connected(1)
    assert isinstance(pair.one.ask(2, b"abc")[0], NotSentError)
    assert judged[0][0] == 2
    assert "node 2 has not proven to know the secret" in judged[0][2]
    # Once, not with each attempt.
    said = [each for each in caplog.messages if "refuses calls from this one" in each]
    assert len(said) == 2


@pytest.mark.usefixtures("bound")
def test_insisting_at_run_time_closes_what_is_not_proven_and_keeps_the_rest() -> None:
    first, second = Proving("off"), Proving("off")
    pair = proving_pair(first, second)
    assert pair.one.connections.is_connected(2)
    for each in (first, second):
        each.current = Policy(authentication="optional", secrets=(b"s" * 32,))
    pair.one.connections.recheck()
    pair.wait(1)
    assert pair.one.told == ["connected 2"]
    insist(pair, first, second)
    pair.wait(3)
    # By connections that have taken the place of the others.
    assert pair.one.told == ["connected 2"]
    assert pair.two.told == ["connected 1"]
    pair.one.told.clear()
    pair.one.connections.recheck()
    pair.two.connections.recheck()
    pair.wait(3)
    assert pair.one.told == []


def insist(pair: Pair, *members: Proving) -> None:
    """Both nodes demand proofs from now on."""
    for each in members:
        each.current = Policy(authentication="required", secrets=(b"s" * 32,))

    async def recheck(member: Member) -> None:
        member.connections.recheck()

    for member in (pair.one, pair.two):
        pair.world.run(recheck(member), member.loop, 1)


def open_connections(member: Member) -> int:
    return len(member.channels.open)


@pytest.mark.usefixtures("bound")
def test_requests_in_flight_are_answered_while_connections_are_replaced() -> None:
    first, second = Proving("off"), Proving("off")
    pair = proving_pair(first, second)
    held = pair.one.ask(2, b"hold")
    pair.wait(0.05)
    insist(pair, first, second)
    pair.wait(0.2)
    # The new connection is in use, and the old one waits for its reply.
    assert open_connections(pair.two) == 2
    assert open_connections(pair.one) == 1
    asked = pair.one.ask(2, b"abc")
    pair.wait(0.1)
    assert isinstance(asked[0], PeerAnswer)
    assert held == []
    pair.two.service.held[0][1](b"done", [])
    pair.wait(0.1)
    assert isinstance(held[0], PeerAnswer)
    assert open_connections(pair.two) == 1
    pair.wait(3)
    assert pair.one.told == ["connected 2"]
    assert pair.two.told == ["connected 1"]


@pytest.mark.usefixtures("bound")
def test_what_is_not_answered_in_time_ends_with_the_replaced_connection() -> None:
    first, second = Proving("off"), Proving("off")
    pair = proving_pair(first, second)
    held = pair.one.ask(2, b"hold")
    pair.wait(0.05)
    insist(pair, first, second)
    pair.wait(1)
    assert "outcome is unknown" in str(held[0])
    assert open_connections(pair.two) == 1
    assert pair.one.told == ["connected 2"]
    assert pair.one.connections.is_connected(2)


@pytest.mark.usefixtures("bound")
def test_connection_that_cannot_be_replaced_is_closed_within_a_second() -> None:
    first, second = Proving("off"), Proving("off", b"o" * 32)
    pair = proving_pair(first, second)
    first.current = Policy(authentication="required", secrets=(b"s" * 32,))

    async def recheck() -> None:
        pair.one.connections.recheck()

    pair.world.run(recheck(), pair.one.loop, 1)
    pair.wait(1)
    assert not pair.one.connections.is_connected(2)
    assert not pair.one.connections.is_calling(2)
    assert not pair.two.connections.is_calling(1)
    # It is called until it can be.
    first.current = Policy()
    pair.wait(5)
    assert pair.one.connections.is_connected(2)
    assert pair.two.connections.is_connected(1)


@pytest.mark.usefixtures("bound")
def test_connections_that_are_being_replaced_end_with_their_node() -> None:
    first, second = Proving("off"), Proving("off")
    pair = proving_pair(first, second)
    held = pair.one.ask(2, b"hold")
    pair.wait(0.05)
    insist(pair, first, second)
    pair.wait(0.2)
    assert not held

    async def close() -> None:
        pair.one.connections.close()

    pair.world.run(close(), pair.one.loop, 1)
    pair.wait(1)
    assert len(held) == 1
    assert open_connections(pair.two) == 0


@pytest.mark.usefixtures("bound")
def test_secret_that_cannot_be_read_refuses_callers_without_saying_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = Proving("required"), Proving("required")
    second.failure = ConfigError("peer.secret.file: /etc/secret: Permission denied")
    pair = proving_pair(first, second)
    pair.wait(3)
    assert not pair.one.connections.is_connected(2)
    refusals = [each for each in caplog.messages if "refuses calls" in each]
    assert refusals == [
        "node 2 refuses calls from this one: the settings of this node are not usable"
    ]
    second.failure = None
    pair.wait(5)
    assert pair.one.connections.is_connected(2)
    # Settings that cannot be read close no connection that was proven.
    second.failure = ConfigError("gone")
    pair.two.connections.recheck()
    pair.wait(1)
    assert pair.two.connections.is_connected(1)


@pytest.mark.usefixtures("bound")
def test_silent_node_is_given_up_and_called_again() -> None:
    """It takes connections, and answers no HELLO."""
    world = SimWorld(1)
    one, silent = Member(world, 1), Member(world, 2)
    one.connections.security = Proving("required")
    silent.connections.session = partial(Mute, silent.connections)  # type: ignore[method-assign]
    one.know(silent)
    world.run_until(lambda: False, PEER_HELLO_TIMEOUT_S - 1)
    assert one.told == []
    assert isinstance(one.ask(2, b"abc")[0], NotSentError)
    world.run_until(lambda: False, 3 * PEER_HELLO_TIMEOUT_S)
    assert len(Mute.made) >= 2
    assert one.told == []


class Mute(PeerSession):
    made: ClassVar[list[Mute]] = []

    def __init__(self, connections: PeerConnections, channel: Channel) -> None:
        super().__init__(connections, channel)
        self._timer.cancel()
        self.made.append(self)

    def buffer_updated(self, count: int) -> None: ...


@pytest.mark.usefixtures("bound")
def test_node_that_stops_in_the_middle_of_a_handshake_leaves_no_connection() -> None:
    world = SimWorld(1)
    one, silent = Member(world, 1), Member(world, 2)
    one.connections.security = Proving("required")
    silent.connections.session = partial(Mute, silent.connections)  # type: ignore[method-assign]
    one.know(silent)
    world.run_until(lambda: False, 1)
    assert silent.channels.open

    async def close() -> None:
        one.connections.close()

    world.run(close(), one.loop, 1)
    world.run_until(lambda: not silent.channels.open, 5)
    assert not silent.channels.open


def test_callers_with_tls_are_reported_once_to_a_node_without(
    caplog: pytest.LogCaptureFixture, pair: Pair
) -> None:
    """The other nodes require it, and the settings of this one were forgotten."""

    def reports() -> list[str]:
        return [each for each in caplog.messages if "write listener.peer.tls" in each]

    for _ in range(3):
        caller = Stranger(pair.one)
        caller.send(bytes.fromhex("1603010200010001fc0303"))
        assert caller.transport.is_closed
    assert len(reports()) == 1
    pair.one.connections.recheck()
    Stranger(pair.one).send(bytes.fromhex("16"))
    assert len(reports()) == 2
    Stranger(pair.one).send(b"GET / HTTP/1.1")
    assert len(reports()) == 2


def test_node_without_tls_is_called_without_it_where_that_is_allowed() -> None:
    """The certificates of this node are unusable, which a simulated network is, too."""
    optional, required = Proving("off"), Proving("off")
    optional.tls, required.tls = "optional", "required"
    pair = proving_pair(optional, required)
    pair.wait(3)
    assert pair.one.connections.is_connected(2)
    assert not pair.two.connections.is_connected(1)
