"""Goal: two ends of the layer work over the simulated network, whatever its delays and seeds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dragoman.log_limiter import LogLimiter
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import log
from dragoman.net.tls.connection import TlsConnection, TlsEnd
from dragoman.net.tls.handshakes import Handshakes
from dragoman.testing.sim.loop import SimLoop, SimWorld
from worlds.tls import Above, TlsFiles, client_context, server_context

PORT = 9093


class End:
    """One side: its connections, and the protocols above them."""

    def __init__(self, loop: SimLoop, context: object, server_name: str | None) -> None:
        self.loop = loop
        self.budget = MemoryBudget(64 << 20)
        self.handshakes = Handshakes(self.budget, loop)
        self.above: list[Above] = []
        self._end = TlsEnd(
            self.handshakes,
            lambda: context,  # type: ignore[arg-type, return-value]
            server_name=server_name,
            allows_plaintext=lambda: True,
            limiter=LogLimiter(log, loop),
        )

    def protocol(self) -> asyncio.BaseProtocol:
        return TlsConnection(self._end, self._make, self.loop)

    def _make(self) -> Above:
        self.above.append(Above())
        return self.above[-1]


class Pair:
    def __init__(self, files: TlsFiles, seed: int, server_name: str = "localhost") -> None:
        self.world = SimWorld(seed)
        self.server = End(self.world.loop("server"), server_context(files), None)
        self.client = End(self.world.loop("client"), client_context(files), server_name)
        listening = self.server.loop.create_server(self.server.protocol, "server", PORT)
        self.world.run(listening, self.server.loop, 1)

    def connect(self) -> None:
        connecting = self.client.loop.create_connection(self.client.protocol, "server", PORT)
        self.world.run(connecting, self.client.loop, 60)

    def until(self, is_done: object) -> bool:
        return self.world.run_until(is_done, 60)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
def test_both_ends_exchange_records_and_end(tmp_path: Path, seed: int) -> None:
    pair = Pair(TlsFiles(tmp_path), seed)
    pair.connect()
    assert pair.until(lambda: pair.server.above and pair.client.above)
    (server,), (client,) = pair.server.above, pair.client.above
    assert client.transport is not None
    assert server.transport is not None
    question = bytes(range(256)) * 300
    client.transport.write(question)
    assert pair.until(lambda: server.received == question)
    server.transport.writelines([b"answer ", b"to it"])
    assert pair.until(lambda: client.received == b"answer to it")
    client.transport.close()
    assert pair.until(lambda: "eof" in server.calls)
    server.transport.close()
    assert pair.until(lambda: "lost" in server.calls and "lost" in client.calls)
    assert (pair.server.handshakes.count, pair.server.budget.used) == (0, 0)
    assert (pair.client.handshakes.count, pair.client.budget.used) == (0, 0)


def test_plain_client_reaches_the_protocol_itself(tmp_path: Path) -> None:
    pair = Pair(TlsFiles(tmp_path), 1)
    client = Above()
    connecting = pair.client.loop.create_connection(lambda: client, "server", PORT)
    pair.world.run(connecting, pair.client.loop, 60)
    assert client.transport is not None
    client.transport.write(b"plain")
    assert pair.until(lambda: pair.server.above and pair.server.above[0].received == b"plain")
    (server,) = pair.server.above
    assert server.transport is not None
    server.transport.write(b"answer")
    assert pair.until(lambda: client.received == b"answer")


def test_client_does_not_connect_to_a_server_of_another_name(tmp_path: Path) -> None:
    pair = Pair(TlsFiles(tmp_path), 1, server_name="other.example")
    pair.connect()
    assert pair.until(lambda: pair.client.handshakes.failed)
    assert pair.client.above == []
    assert pair.until(lambda: not pair.server.handshakes.count)
