"""Goal: a node runs on macOS, and clients, the Spark source and brokers in memory on Windows.

Method: stand-ins (`tests/platforms`) take away what Linux alone has, in processes of their own.
Neither system is run: what only a real one shows is not tested here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodes.process import SOURCE, WAIT_S, ServedNode

_TESTS = Path(__file__).parents[1]
_ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{SOURCE}:{_TESTS}"}


def run(*arguments: str, status: int = 0, text: str = "") -> str:
    """The output of a Python process, which must end with this status."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=_ENVIRONMENT,
        input=text,
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


# ---- macOS


def macos_node(data: Path) -> ServedNode:
    return ServedNode(
        "--data", str(data), "--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0",
        module="platforms.macos",
    ).ready()  # fmt: skip


def command(*arguments: str, text: str = "") -> str:
    return run("-m", "platforms.macos", *arguments, text=text)


@pytest.mark.parametrize("is_killed", [False, True])
def test_records_outlive_a_node_as_on_macos(tmp_path: Path, is_killed: bool) -> None:
    first = macos_node(tmp_path)
    lines = "".join(f"{number}\n" for number in range(100))
    broker = ("--protocol", "kafka", "-b", first.bootstrap_servers)
    command("produce", "fruit", *broker, text=lines)
    if is_killed:
        first.kill()
    else:
        assert first.stop() == 0
    second = macos_node(tmp_path)
    options = ("--protocol", "kafka", "-b", second.bootstrap_servers, "--max", "100")
    assert command("consume", "fruit", *options, "--format", "%s\\n") == lines
    assert second.stop() == 0
    assert [each for each in second.complaints if "log recovered" not in each] == []


def test_administrator_reaches_a_node_as_on_macos_below_a_long_path(tmp_path: Path) -> None:
    data = tmp_path / ("long" * 30)
    with macos_node(data):
        assert "fruit" not in command("topic", "list", "--server", f"unix:{data}")
    short = [each for each in Path("/tmp").glob("dragoman-*/data") if each.is_symlink()]
    assert [each for each in short if os.readlink(each) == str(data)] == []


_SYNCS = """
from platforms import macos
import sys
from dragoman.log.flusher_process import FullSync, perform
from dragoman.operating_system import RealDisk, platforms
disk = RealDisk(sys.argv[1])
file = disk.open("a", "create")
file.write_durable([b"1"] * 2000, 0)
assert file.size() == 2000
assert len(macos.full_syncs) == 1
file.sync()
disk.sync_directory("")
assert len(macos.full_syncs) == 3
disk.sync_all()
assert len(macos.full_syncs) == 5
FullSync.command = platforms.FULL_SYNC
path = sys.argv[1].encode() + b"/b"
perform((), (), ((path, b"data"),), (), ((path, 0, 4),), sys.maxsize)
assert len(macos.full_syncs) == 7
"""


def test_every_sync_is_a_full_one_as_on_macos(tmp_path: Path) -> None:
    run("-c", _SYNCS, str(tmp_path))


def test_limit_of_open_files_is_raised_as_far_as_macos_allows() -> None:
    run(
        "-c",
        "from platforms import macos; import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 20_000))\n"
        "from dragoman.operating_system import allow_open_files, open_files_max\n"
        "allow_open_files(); assert open_files_max() == 10_240, open_files_max()",
    )


def test_disk_and_flusher_keep_their_contract_as_on_macos() -> None:
    tests = ("unit/testing/test_disk_contract.py", "unit/log/test_flusher.py")
    # Other tests of the flusher watch its process in /proc themselves.
    chosen = "disk_contract or exactly_what_perform"
    options = ("-q", "-n", "0", "-p", "platforms.macos", "-k", chosen)
    run("-m", "pytest", *options, *(str(_TESTS / each) for each in tests))


# ---- Windows

_BROKER = """
from platforms import windows
import asyncio, sys
from kafka import KafkaConsumer, KafkaProducer
from dragoman.testing import EphemeralBroker, EphemeralCluster

every = ("kafka", "rocketmq", "cursus", "minibroker", "mlog", "http")
with EphemeralBroker(listeners=every) as broker:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number in range(10):
        producer.send("fruit", b"%d apples" % number).get(30)
    producer.close()
    consumer = KafkaConsumer(
        "fruit", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    )
    assert [next(consumer).value for _ in range(10)] == [b"%d apples" % n for n in range(10)]
    consumer.close()
    from dragoman.cli.main import main
    assert main(["topic", "list", "--server", broker.http_url]) == 0
    assert main(["consume", "fruit", "--max", "1", "-b", broker.bootstrap_servers]) == 0
with EphemeralBroker(tls=True) as broker:
    assert broker.ca_file
with EphemeralCluster() as cluster:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
    producer.send("fruit", b"plums").get(30)
    producer.close()
"""


def test_brokers_in_memory_serve_clients_as_on_windows() -> None:
    shown = run("-c", _BROKER)
    assert "fruit" in shown
    assert "0 apples" in shown


_IMPORTS = """
import pyspark.sql.datasource
from platforms import windows
import importlib, pkgutil
import dragoman.client, dragoman.testing, dragoman.spark, pyspark_dragoman
for package in (dragoman.client, dragoman.testing, dragoman.spark):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("._records"):
            importlib.import_module(found.name)
from dragoman.cli.main import _NOUNS, _MODULES
for noun in _NOUNS:
    importlib.import_module("dragoman.cli." + _MODULES.get(noun, noun))
"""


def test_clients_the_spark_source_and_commands_are_imported_as_on_windows() -> None:
    run("-c", _IMPORTS)


@pytest.mark.parametrize("arguments", [("serve",), ("log", "verify", "DATA"), ("doctor", "DATA")])
def test_commands_for_data_directories_say_where_they_run(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    data = tmp_path / "data"
    with ServedNode("--data", str(data), "--listen", "kafka=127.0.0.1:0") as node:
        node.ready()
        node.signal(signal.SIGTERM)
        node.finish()
    words = [str(data) if each == "DATA" else each for each in arguments]
    refused = run("-m", "platforms.windows", *words, status=2)
    assert "needs Linux or macOS" in refused
    assert "Traceback" not in refused


def test_broker_with_a_directory_says_where_it_runs(tmp_path: Path) -> None:
    refused = run(
        "-c",
        "from platforms import windows; import sys; from dragoman.testing import EphemeralBroker\n"
        "EphemeralBroker(storage='directory').start()",
        status=1,
    )
    assert "a data directory needs Linux or macOS" in refused
