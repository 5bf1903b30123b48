"""Goal: simulated connections behave as real ones do, at their best and at their worst.

Method: two hosts, protocols that record their callbacks, and faults at chosen moments.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.testing.sim.loop import SimLoop, SimWorld
from dragoman.testing.sim.network import NetworkFaults, SimTransport


class Noting(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.told: list[str] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(f"lost {type(exc).__name__}" if exc else "lost")

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


class Rig:
    def __init__(self, seed: int = 1, faults: NetworkFaults | None = None) -> None:
        self.world = SimWorld(seed)
        if faults is not None:
            self.world.network.faults = faults
        self.server_loop = self.world.loop("server")
        self.client_loop = self.world.loop("client")
        self.accepted: list[Noting] = []
        self.world.run(
            self.server_loop.create_server(self._accept, "server", 9), self.server_loop, 1
        )

    def _accept(self) -> Noting:
        self.accepted.append(Noting())
        return self.accepted[-1]

    def connect(self, seconds: float = 60) -> Noting:
        work = self.client_loop.create_connection(Noting, "server", 9)
        _, protocol = self.world.run(work, self.client_loop, seconds)
        self.world.run_until(lambda: bool(self.accepted and self.accepted[-1].told), 1)
        assert isinstance(protocol, Noting)
        return protocol

    @property
    def server(self) -> Noting:
        return self.accepted[-1]

    def send(self, sender: Noting, loop: SimLoop, data: bytes) -> None:
        async def write() -> None:
            sender.transport.write(data)

        self.world.run(write(), loop, 1)

    def wait(self, seconds: float) -> None:
        self.world.run_until(lambda: False, seconds)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_bytes_arrive_in_order_both_ways(rig: Rig) -> None:
    client = rig.connect()
    sent = b"".join(b"%d," % number for number in range(500))
    for start in range(0, len(sent), 7):
        rig.send(client, rig.client_loop, sent[start : start + 7])
    rig.send(rig.server, rig.server_loop, b"hello")
    rig.wait(1)
    assert rig.server.received == sent
    assert client.received == b"hello"


def test_close_delivers_what_was_written(rig: Rig) -> None:
    client = rig.connect()
    rig.send(client, rig.client_loop, b"last words")
    client.transport.close()
    rig.wait(1)
    assert rig.server.received == b"last words"
    assert rig.server.told == ["made", "lost"]
    assert client.told == ["made", "lost"]


def test_abort_resets_the_peer(rig: Rig) -> None:
    client = rig.connect()
    client.transport.abort()
    rig.wait(1)
    assert rig.server.told == ["made", "lost ConnectionResetError"]


def test_connection_to_a_closed_port_is_refused(rig: Rig) -> None:
    work = rig.client_loop.create_connection(Noting, "server", 10)
    with pytest.raises(ConnectionRefusedError):
        rig.world.run(work, rig.client_loop, 60)


def test_address_can_be_taken_only_once(rig: Rig) -> None:
    again = rig.server_loop.create_server(Noting, "server", 9)
    with pytest.raises(OSError, match="in use"):
        rig.world.run(again, rig.server_loop, 1)


def test_cut_direction_holds_bytes_until_it_is_healed(rig: Rig) -> None:
    client = rig.connect()
    rig.world.network.cut("client", "server")
    rig.send(client, rig.client_loop, b"held")
    rig.send(rig.server, rig.server_loop, b"through")
    rig.wait(5)
    assert rig.server.received == b""
    assert client.received == b"through"
    rig.world.network.heal()
    rig.wait(1)
    assert rig.server.received == b"held"


def test_cut_that_lasts_fails_the_sender_only(rig: Rig) -> None:
    client = rig.connect()
    rig.world.network.cut("client", "server")
    rig.send(client, rig.client_loop, b"lost")
    rig.wait(30)
    assert client.told == ["made", "lost TimeoutError"]
    # Half open: the other end has heard nothing.
    assert rig.server.told == ["made"]


def test_connecting_over_a_cut_times_out(rig: Rig) -> None:
    rig.world.network.cut("server", "client")
    with pytest.raises(TimeoutError):
        rig.world.run(rig.client_loop.create_connection(Noting, "server", 9), rig.client_loop, 60)


def test_reset_fails_both_ends(rig: Rig) -> None:
    client = rig.connect()
    rig.world.network.reset("client", "server")
    rig.wait(1)
    assert client.told == rig.server.told == ["made", "lost ConnectionResetError"]


@pytest.mark.parametrize("silently", [False, True])
def test_crashed_process_resets_its_peers_unless_the_machine_went(rig: Rig, silently: bool) -> None:
    client = rig.connect()
    rig.world.crash(rig.server_loop, silently=silently)
    rig.wait(1)
    assert client.told == (["made"] if silently else ["made", "lost ConnectionResetError"])
    rig.send(client, rig.client_loop, b"anybody?")
    rig.wait(30)
    assert len(client.told) == 2
    # Nothing ran in the crashed process, not even its own notice.
    assert rig.server.told == ["made"]


def test_unsent_bytes_are_bounded_by_telling_the_writer(rig: Rig) -> None:
    client = rig.connect()
    rig.server.transport.pause_reading()
    rig.send(client, rig.client_loop, bytes(1 << 20))
    rig.wait(1)
    assert client.told == ["made", "pause"]
    rig.server.transport.resume_reading()
    rig.wait(1)
    assert client.told == ["made", "pause", "resume"]
    assert len(rig.server.received) == 1 << 20


def test_pieces_can_fail_anywhere() -> None:
    cut = 0
    for seed in range(20):
        rig = Rig(seed, NetworkFaults(reset_rate=0.3))
        client = rig.connect()
        for _ in range(10):
            rig.send(client, rig.client_loop, b"0123456789")
        rig.wait(5)
        received = rig.server.received
        assert received == (b"0123456789" * 10)[: len(received)]
        cut += len(received) % 10 != 0
    assert cut


def test_paused_loop_takes_no_turns_while_time_passes(rig: Rig) -> None:
    client = rig.connect()
    rig.server_loop.is_paused = True
    rig.send(client, rig.client_loop, b"wait")
    rig.wait(5)
    assert rig.server.received == b""
    rig.server_loop.is_paused = False
    rig.wait(1)
    assert rig.server.received == b"wait"


def test_clocks_run_at_their_own_speed() -> None:
    world = SimWorld(1)
    fast, slow = world.loop("fast", speed=2.0), world.loop("slow", speed=0.5)
    woke: dict[str, float] = {}

    def wake(loop: SimLoop) -> None:
        woke[loop.host] = world.now

    for loop in (fast, slow):
        loop.call_later(10, wake, loop)
    world.run_until(lambda: len(woke) == 2, 100)
    assert woke == {"fast": pytest.approx(5), "slow": pytest.approx(20)}


def test_the_same_seed_is_the_same_run() -> None:
    def run(seed: int) -> tuple[float, int, list[int]]:
        rig = Rig(seed)
        client = rig.connect()
        sizes: list[int] = []

        class Sizes(Noting):
            def data_received(self, data: bytes) -> None:
                sizes.append(len(data))

        rig.server.data_received = Sizes().data_received  # type: ignore[method-assign]
        for _ in range(50):
            rig.send(client, rig.client_loop, bytes(100))
        rig.wait(1)
        return rig.world.now, rig.world.turns, sizes

    assert run(5) == run(5)
    assert run(5) != run(6)


def test_threads_are_refused(rig: Rig) -> None:
    with pytest.raises(RuntimeError, match="no threads"):
        rig.client_loop.run_in_executor(None, print)
    with pytest.raises(RuntimeError, match="no threads"):
        rig.client_loop.call_soon_threadsafe(print)


def test_unhandled_failures_of_the_loop_are_recorded(rig: Rig) -> None:
    def fail() -> None:
        raise ValueError("noticed")

    rig.client_loop.call_soon(fail)
    rig.wait(1)
    assert "noticed" in repr(rig.client_loop.failures)


def test_transports_know_their_names(rig: Rig) -> None:
    client = rig.connect()
    transport = client.transport
    assert isinstance(transport, SimTransport)
    assert transport.get_extra_info("peername") == ("server", 9)
    assert transport.get_extra_info("sockname") == rig.server.transport.get_extra_info("peername")
