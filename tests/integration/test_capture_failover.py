"""Goal: a capture continues when its node dies, elsewhere or on it again, and each change is in the
topic once.

Method: a real PostgreSQL, in which rows are written all the time. Three nodes in this process, of
which the one that runs the capture is killed; and `dragoman serve`, killed and started again. A
stock consumer reads all at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from captures.rows import Writer, checked, empty, everything, wait
from demo.postgres import LocalPostgres
from dragoman.api.values import CaptureDescription, Told
from dragoman.captures.definition import Definition
from dragoman.cli.main import main
from dragoman.cli.remote import Remote
from dragoman.testing import EphemeralCluster
from nodes.process import ServedNode


@pytest.fixture(scope="module")
def postgres() -> Iterator[LocalPostgres]:
    server = LocalPostgres().start()
    try:
        yield server
    finally:
        server.stop()
        server.remove()


def test_each_change_is_in_the_topic_once_although_its_node_dies(postgres: LocalPostgres) -> None:
    dsn = postgres.dsn()
    writer = Writer(empty(dsn))
    with EphemeralCluster() as cluster:
        definition = Definition(name="shop", dsn=dsn, tables=("orders",), snapshot="never")
        remotes = {number: Remote(node.http_url) for number, node in cluster.nodes.items()}
        remotes[1].post("/api/v1/captures", definition, CaptureDescription)

        def look(number: int) -> CaptureDescription:
            return remotes[number].get("/api/v1/captures/shop", CaptureDescription)

        wait(lambda: look(1).status.state == "streaming")
        with writer:
            wait(lambda: look(1).rows > 100)
            killed = look(1).node
            assert killed is not None
            cluster.kill(killed)
            another = killed % 3 + 1
            wait(lambda: look(another).node not in (killed, None))
            wait(lambda: look(another).rows > 100)
        bootstrap = cluster.bootstrap_servers
        wait(lambda: len(everything(bootstrap)) >= 2 * writer.rows - 1)
        events = everything(bootstrap)
        remotes[another].remove("/api/v1/captures/shop", Told)
    checked(events, writer.rows)
    with psycopg.connect(dsn) as database:
        assert database.execute("SELECT FROM pg_replication_slots").fetchall() == []


def captures_of(node: ServedNode) -> list[Path]:
    """Processes that capture for a node, as folders that are there as long as they are."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = each.read_text().rpartition(")")[2].split()[1]
            command = each.with_name("cmdline").read_bytes().split(b"\0")
            if int(parent) == node.process.pid and b"dragoman.cdc" in command:
                found.append(each.parent)
    return found


def test_a_node_that_is_killed_takes_its_captures_with_it_and_goes_on_with_them(
    postgres: LocalPostgres, tmp_path: Path
) -> None:
    """The command line as well: `add` waits until the capture streams."""
    writer = Writer(empty(postgres.dsn()))
    data = ("--data", str(tmp_path / "data"))
    where = {"http": "127.0.0.1:0", "kafka": "127.0.0.1:0"}
    with ServedNode(*data, *listening(where)) as node:
        where = node.ready().listeners
        url = f"http://{where['http']}"
        told = ("--dsn", postgres.dsn(), "--tables", "orders", "--snapshot", "never")
        assert main(["cdc", "add", "shop", *told, "--server", url]) == 0

        def rows() -> int:
            return Remote(url).get("/api/v1/captures/shop", CaptureDescription).rows

        (process,) = captures_of(node)
        with writer:
            wait(lambda: rows() > 100)
            node.kill()
            wait(lambda: not process.exists())
    with ServedNode(*data, *listening(where)) as node:
        node.ready()
        with writer.again() as second:
            wait(lambda: rows() > 100)
        kafka = where["kafka"]
        wait(lambda: len(everything(kafka)) >= 2 * second.rows - 1)
        checked(everything(kafka), second.rows)
        assert main(["cdc", "remove", "shop", "--server", url]) == 0
        assert node.stop() == 0
        assert postgres.password not in "".join(node.log + node.output)
    for path in (tmp_path / "data" / "partitions").rglob("*.log"):
        is_metadata = path.parent.name.startswith("0-")
        assert is_metadata or postgres.password.encode() not in path.read_bytes()


def listening(where: dict[str, str]) -> list[str]:
    return [part for name in where for part in ("--listen", f"{name}={where[name]}")]
