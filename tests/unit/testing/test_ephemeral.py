"""Goal: a broker inside a test is real, quick, isolated, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from dragoman.errors import ConfigError, DirectoryInUseError
from dragoman.testing import EphemeralBroker
from protocols.kafka_socket import KafkaSocket, fetch_request
from worlds.broker import batch_of, values_in


def write(broker: EphemeralBroker, value: bytes) -> None:
    with KafkaSocket(broker.bootstrap_servers) as client:
        client.metadata("t")
        assert client.produce("t", batch_of(value)).error_code == 0


def read(broker: EphemeralBroker) -> list[bytes | None]:
    with KafkaSocket(broker.bootstrap_servers) as client:
        client.metadata("t")
        return values_in(client.fetch("t", 0).records)


def test_context_manager_serves_kafka_and_http() -> None:
    with EphemeralBroker() as broker:
        write(broker, b"v")
        assert read(broker) == [b"v"]
        assert httpx.get(f"{broker.http_url}/readyz", timeout=60).status_code == 200
        topics = httpx.get(f"{broker.http_url}/api/v1/topics", timeout=60).json()
        assert [topic["name"] for topic in topics["items"]] == ["t"]
    with pytest.raises(ConnectionRefusedError):
        KafkaSocket(broker.bootstrap_servers)


def test_nothing_is_left_after_the_end() -> None:
    before = set(threading.enumerate())
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with EphemeralBroker() as broker:
            write(broker, b"v")
    # Threads that earlier tests left may end meanwhile.
    assert set(threading.enumerate()) <= before
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_connection_that_comes_with_the_stop_is_closed() -> None:
    """Tried often, because it has to come in the one turn; a forgotten one is a warning."""
    for _ in range(20):
        with EphemeralBroker(listeners=("kafka",)) as broker:
            host, _, port = broker.bootstrap_servers.partition(":")
            socket.create_connection((host, int(port))).close()
    gc.collect()


def test_several_at_the_same_time_are_apart() -> None:
    with EphemeralBroker() as one, EphemeralBroker() as two:
        write(one, b"1")
        write(two, b"2")
        assert (read(one), read(two)) == ([b"1"], [b"2"])


async def test_beside_a_running_loop() -> None:
    async with EphemeralBroker() as broker:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await asyncio.to_thread(write, broker, b"v")
        assert await asyncio.to_thread(read, broker) == [b"v"]
        counting.cancel()
        assert turns


def test_memory_is_forgotten_and_the_ports_are_kept_over_a_restart() -> None:
    with EphemeralBroker() as broker:
        write(broker, b"v")
        address = broker.bootstrap_servers
        broker.restart()
        assert broker.bootstrap_servers == address
        assert read(broker) == []
        with pytest.raises(ValueError, match="keeps nothing on disk"):
            _ = broker.data_directory


def test_directory_keeps_data_over_a_restart_and_goes_at_the_end() -> None:
    with EphemeralBroker(storage="directory") as broker:
        write(broker, b"v")
        directory = Path(broker.data_directory)
        broker.restart()
        assert read(broker) == [b"v"]
        assert (directory / "node.json").exists()
    assert not directory.exists()


def test_given_directory_stays(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with EphemeralBroker(storage="directory", directory=data) as broker:
        write(broker, b"v")
    with EphemeralBroker(storage="directory", directory=data) as broker:
        assert read(broker) == [b"v"]
    assert os.listdir(data)


def test_settings_are_those_of_serve() -> None:
    with (
        EphemeralBroker(settings={"auto.create.topics.enable": "false"}) as broker,
        KafkaSocket(broker.bootstrap_servers) as client,
    ):
        assert client.metadata("t").topics[0].error_code == 3


def test_bad_setting_is_reported_and_leaves_nothing() -> None:
    before = set(threading.enumerate())
    broker = EphemeralBroker(settings={"nun.partitions": "3"})
    with pytest.raises(ConfigError, match="did you mean"):
        broker.start()
    assert set(threading.enumerate()) <= before
    broker.stop()


def test_directory_in_use_is_refused_and_its_owner_undisturbed(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with EphemeralBroker(storage="directory", directory=data) as owner:
        with pytest.raises(DirectoryInUseError):
            EphemeralBroker(storage="directory", directory=data).start()
        write(owner, b"v")


def test_taken_port_is_reported_and_the_directory_released(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    broker = EphemeralBroker(storage="directory", directory=data)
    with broker:
        write(broker, b"v")
    port = int(broker.address("http").rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ConfigError, match="cannot bind"):
        broker.start()
    with broker:
        assert read(broker) == [b"v"]


def test_second_start_is_refused_and_second_stop_is_nothing() -> None:
    broker = EphemeralBroker().start()
    with pytest.raises(RuntimeError, match="running"):
        broker.start()
    broker.stop()
    broker.stop()


def test_stop_with_a_reader_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.listeners.CONNECTION_CLOSE_GRACE_S", 0)
    with EphemeralBroker() as broker, KafkaSocket(broker.bootstrap_servers) as writer:
        for _ in range(10):
            writer.metadata("t")
            writer.produce("t", batch_of(b"x" * 1_000_000))
        stuck = KafkaSocket(broker.bootstrap_servers, receive_buffer=4096)
        stuck.send(fetch_request("t", 0, bytes_max=50 << 20), 11)
        stuck.socket.recv(1)
    stuck.socket.close()


SUITE = """
import asyncio
import socket

import pytest


@pytest.fixture
def broker_settings():
    return {"num.partitions": "3"}


def connect(broker):
    host, port = broker.bootstrap_servers.split(":")
    socket.create_connection((host, int(port))).close()


def test_sync(broker):
    connect(broker)
    assert broker._node.settings.num_partitions == 3


async def test_async(broker):
    await asyncio.to_thread(connect, broker)


def test_fresh(broker):
    assert not broker._node.broker.image.topics


def test_cluster(broker_cluster):
    broker_cluster.topic("t").create(replicas=3).write("a").assert_values("a")
    assert broker_cluster.nodes[1]._node.settings.num_partitions == 3
"""


def test_plugin_gives_each_test_a_broker(tmp_path: Path) -> None:
    """In a process of its own, as in the suite of a user of the installed package."""
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE)
    plugins = ("dragoman.testing.plugin", "pytest_asyncio.plugin")
    source = str(Path(__file__).parents[3] / "src")
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-o", "asyncio_mode=auto"]
        + ["-o", "asyncio_default_fixture_loop_scope=function"]
        + [argument for plugin in plugins for argument in ("-p", plugin)]
        + ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(suite)],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "4 passed" in finished.stdout
