"""Goal: what clients were promised holds after kills, pauses and cuts: a slice of `make chaos`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from chaos.checker import judge
from chaos.clients import KAFKA_TOPIC, GroupReader, KafkaWriter, Place, Publisher
from chaos.network import Network
from chaos.run import run
from chaos.totals import Book, Totals
from dragoman.net.peer_frames import Hello, Kind, frame
from nodes.ports import free_ports


@pytest.mark.timeout(300)
def test_promises_survive_kills_pauses_and_cuts(tmp_path: Path) -> None:
    violations, totals = run(tmp_path, cycles=3, seed=1, first=2)
    assert violations == []
    assert {"kill", "pause", "isolate"} <= totals.faults.keys()
    assert totals.acknowledged.keys() == {"kafka", "cursus", "mlog", "minibroker"}


def place(offset: int) -> Place:
    return Place(KAFKA_TOPIC, 0, offset)


def written(*values: bytes) -> dict[Place, bytes]:
    return {place(offset): value for offset, value in enumerate(values)}


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        (written(b"w:0", b"w:1", b"w:2"), ""),
        (written(b"w:0", b"w:1"), "b'w:2' was acknowledged"),
        (written(b"w:0", b"w:1", b"w:2", b"w:2"), "4 records for 3 written"),
        (written(b"w:0", b"w:2", b"w:1"), "from number 1 on"),
    ],
)
def test_the_checker_sees_what_is_lost_doubled_or_out_of_order(
    log: dict[Place, bytes], fault: str
) -> None:
    writer = KafkaWriter("w", "127.0.0.1:1", 0)
    writer.written = 3
    writer.acknowledged = written(b"w:0", b"w:1", b"w:2")
    assert fault in "; ".join(judge(log, [writer], [])) if fault else not judge(log, [writer], [])


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        (written(b"p:0", b"p:1", b"p:2"), ""),
        (written(b"p:0", b"p:2"), ""),
        (written(b"p:0", b"p:2", b"p:2"), "2 after 2"),
        (written(b"p:2", b"p:0"), "0 after 2"),
    ],
)
def test_the_checker_sees_what_was_acknowledged_and_is_doubled_or_late(
    log: dict[Place, bytes], fault: str
) -> None:
    publisher = Publisher("p", lambda: pytest.fail("not started"))
    # Whether the second was written is unknown.
    publisher.acknowledged = {where: log[where] for where in list(log)[:2] if log[where] != b"p:1"}
    assert fault in "; ".join(judge(log, [publisher], []) or [""])
    assert bool(judge(log, [publisher], [])) == bool(fault)


def test_the_checker_sees_a_changed_and_an_unread_record() -> None:
    reader = GroupReader("r", "127.0.0.1:1")
    reader.seen = written(b"a")
    assert "saw b'a'" in judge(written(b"b"), [], [reader])[0]
    assert "has never read 1 records" in judge(written(b"a", b"b"), [], [reader])[0]


# ---- the network


class Echo:
    """A node that sends back what it is sent; one connection of node 1 to it, through a proxy."""

    def __init__(self, network: Network, port: int) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        network.place(2, port, f"127.0.0.1:{self._server.getsockname()[1]}")
        network.up(2)
        self.caller = socket.create_connection(("127.0.0.1", port), 10)
        hello = msgspec.msgpack.encode(Hello(node_id=1, incarnation=1))
        said = b"".join(map(bytes, frame(Kind.HELLO, 0, 0, hello)))
        self.caller.sendall(said)
        self.called, _ = self._server.accept()
        self.called.settimeout(10)
        assert self.called.recv(len(said), socket.MSG_WAITALL) == said

    def close(self) -> None:
        for each in (self.caller, self.called, self._server):
            each.close()


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    yield made
    made.close()


@pytest.fixture
def echo(network: Network) -> Iterator[Echo]:
    made = Echo(network, next(free_ports()))
    yield made
    made.close()


def test_a_way_that_is_cut_is_silent_and_the_other_is_not(network: Network, echo: Echo) -> None:
    network.cut([(1, 2)])
    echo.caller.sendall(b"there")
    echo.called.sendall(b"back")
    assert echo.caller.recv(10) == b"back"
    echo.called.settimeout(0.2)
    with pytest.raises(TimeoutError):
        echo.called.recv(10)
    # Not even that the caller has gone is heard.
    echo.caller.close()
    with pytest.raises(TimeoutError):
        echo.called.recv(10)
    network.heal()
    echo.called.settimeout(10)
    assert echo.called.recv(10) == b"there"
    assert echo.called.recv(10) == b""


def test_a_reset_is_heard_on_both_sides(network: Network, echo: Echo) -> None:
    network.reset(1, 2)
    for each in (echo.caller, echo.called):
        with pytest.raises(ConnectionResetError):
            each.recv(10)


def test_nobody_listens_where_a_node_is_down(network: Network, echo: Echo) -> None:
    network.down(2)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(echo.caller.getpeername(), 10)


# ---- totals


def test_runs_add_up(tmp_path: Path) -> None:
    book = tmp_path / "deep" / "totals.json"
    one = Totals(cycles=2, acknowledged={"kafka": 5}, faults={"kill": 1}, violations=0)
    Book(book).add(7, one)
    Book(book).add(7, one)
    Book(book).add(8, Totals(cycles=1, acknowledged={"mlog": 1}, violations=3))
    found = Book(book)
    assert found.seeds[7].cycles == 4
    assert found.all().acknowledged == {"kafka": 10, "mlog": 1}
    assert found.all().lines()[-1].split() == ["violations", "3"]
