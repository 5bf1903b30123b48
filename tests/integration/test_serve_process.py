"""Goal: `dragoman serve` as people run it: what it prints, how it ends, how it refuses to start.

Method: real processes, real signals, real ports; every wait is for an event.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import msgspec
import pytest

from dragoman.config.listeners import listener_names
from dragoman.log.node import FEATURE_LEVEL, read_node_state, write_node_state
from dragoman.operating_system import RealDisk
from nodes.process import SOURCE, ServedNode, serve
from protocols.kafka_socket import KafkaSocket, fetch_request
from worlds.broker import batch_of, values_in

ANY_KAFKA = ("--listen", "kafka=127.0.0.1:0")


def refused(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """The one line with which the start is refused."""
    node = ServedNode(*arguments, environment=environment)
    assert node.finish() == 2, (node.output, node.log)
    assert node.output == []
    (line,) = node.complaints
    assert line.startswith("dragoman: ")
    return line


# ---- the service manager


@pytest.mark.parametrize("is_abstract", [False, True])
def test_service_manager_hears_of_the_start_and_of_the_stop(
    tmp_path: Path, is_abstract: bool
) -> None:
    name = f"@dragoman-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name[1:]}" if is_abstract else name)
        manager.settimeout(60)
        node = ServedNode(
            "--data", str(tmp_path / "data"), *ANY_KAFKA, environment={"NOTIFY_SOCKET": name}
        )
        node.ready()
        assert manager.recv(100) == b"READY=1"
        node.process.send_signal(signal.SIGTERM)
        assert manager.recv(100) == b"STOPPING=1"
        assert node.finish() == 0


def test_service_manager_that_has_gone_does_not_disturb_the_node(tmp_path: Path) -> None:
    gone = {"NOTIFY_SOCKET": str(tmp_path / "nothing")}
    node = ServedNode("--data", str(tmp_path / "data"), *ANY_KAFKA, environment=gone)
    node.ready()
    node.process.send_signal(signal.SIGTERM)
    assert node.finish() == 0


# ---- what it loads

#: What costs a start time and memory, and only some nodes need: those with users, rules, secrets,
#: certificates, other nodes, etcd, captures, HTTP clients.
_FOR_SOME_NODES = """
    anyio cryptography cyclopts h11 jwt psycopg re2 rich scramp starlette uvicorn
    http.client ipaddress json shutil tempfile urllib.parse
    dragoman.api.node dragoman.api.operations
    dragoman.broker.access dragoman.broker.access_rules dragoman.broker.first_access
    dragoman.broker.users
    dragoman.cluster.etcd
    dragoman.config.principals
    dragoman.net.detection dragoman.net.http_client dragoman.net.peer_connections
    dragoman.net.peer_security dragoman.net.tls.connection
    dragoman.peers
    dragoman.security.bearer_tokens dragoman.security.token_keys
"""
_SHOW_MODULES = """
import os, signal, sys
from dragoman.cli import serve

def announce(line):
    if line == "ready":
        print(*sys.modules, sep="\\n", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

serve._announce = announce
sys.exit(serve.serve(sys.argv[1:]))
"""


def test_open_node_on_its_own_loads_nothing_that_only_other_nodes_need(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": SOURCE, "PATH": os.environ["PATH"]}
    options = ("-c", _SHOW_MODULES, "--data", str(tmp_path), *ANY_KAFKA)
    done = subprocess.run(
        [sys.executable, *options], env=environment, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "dragoman.protocols.kafka.handlers.session" in loaded
    assert loaded.isdisjoint(_FOR_SOME_NODES.split()), loaded & set(_FOR_SOME_NODES.split())


# ---- what it prints


def test_one_line_for_each_listener_and_then_ready(tmp_path: Path) -> None:
    listeners = (*ANY_KAFKA, "--listen", "http=127.0.0.1:0")
    node = ServedNode("--data", str(tmp_path), *listeners, "--advertise", "kafka=example.org:7")
    with node.ready():
        kafka, http, ready = node.output
        assert kafka.startswith("kafka on 127.0.0.1:")
        assert kafka.endswith(", advertised as example.org:7")
        assert http.startswith("http on 127.0.0.1:")
        assert ready == "ready"
        # The first request waits for the libraries that serve it.
        live = httpx.get(f"http://{node.listeners['http']}/livez", timeout=60)
        assert live.status_code == 200
        # Ready means that a client is served at once.
        with KafkaSocket(node.bootstrap_servers) as client:
            (broker,) = client.metadata().brokers
            assert (broker.host, broker.port) == ("example.org", 7)
        assert node.stop() == 0
        assert node.complaints == []


def test_socket_of_the_administrator_shows_pipelines_that_report_by_http(tmp_path: Path) -> None:
    node = ServedNode("--data", str(tmp_path), *ANY_KAFKA, "--listen", "http=127.0.0.1:0")
    with node.ready():
        path, status = "/api/v1/pipelines", {"name": "orders", "file": "orders.py"}
        url = f"http://{node.listeners['http']}{path}"
        assert httpx.post(url, json=status, timeout=60).is_success
        socket_of_node = httpx.HTTPTransport(uds=str(tmp_path / "admin.sock"))
        with httpx.Client(transport=socket_of_node, timeout=60) as administrator:
            (found,) = administrator.get(f"http://localhost{path}").json()["items"]
        assert found["name"] == "orders"


def test_wildcard_is_announced_as_such(tmp_path: Path) -> None:
    node = ServedNode("--data", str(tmp_path), "--insecure", "--listen", "kafka=0.0.0.0:0")
    with node.ready():
        assert node.output[0].endswith("advertised as the address each client came in on")
        port = node.listeners["kafka"].rpartition(":")[2]
        with KafkaSocket(f"127.0.0.1:{port}") as client:
            assert client.metadata().brokers[0].host == "127.0.0.1"


def test_listener_without_a_login_is_refused_to_other_machines(tmp_path: Path) -> None:
    data = tmp_path / "data"
    line = refused("--data", str(data), "--listen", "kafka=0.0.0.0:0")
    assert "--set listener.kafka.authentication=required" in line
    assert "--insecure" in line
    assert not data.exists()


def test_directory_of_an_earlier_release_starts_with_a_warning(tmp_path: Path) -> None:
    with ServedNode("--data", str(tmp_path), *ANY_KAFKA).ready() as node:
        assert node.stop() == 0
    disk = RealDisk(str(tmp_path), 0)
    state = read_node_state(disk)
    assert state.feature_level == FEATURE_LEVEL
    refused("--data", str(tmp_path), "--listen", "kafka=0.0.0.0:0")
    state.feature_level = FEATURE_LEVEL - 1
    write_node_state(disk, state)
    node = ServedNode("--data", str(tmp_path), "--listen", "kafka=0.0.0.0:0")
    with node.ready():
        assert node.stop() == 0
    assert any(
        "other machines reach kafka on 0.0.0.0:0 without a login" in each for each in node.log
    )


# ---- how it ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_signal_stops_cleanly_and_the_next_start_has_everything(
    tmp_path: Path, number: signal.Signals, durability: str
) -> None:
    with serve(tmp_path, "--durability", durability) as node:
        with KafkaSocket(node.bootstrap_servers) as client:
            client.create_topic("t", 3)
            for index in range(30):
                assert client.produce("t", batch_of(b"%d" % index), index % 3).error_code == 0
        node.signal(number)
        assert node.finish() == 0
        assert node.complaints == []
    assert read_node_state(RealDisk(str(tmp_path))).is_clean
    with serve(tmp_path) as node, KafkaSocket(node.bootstrap_servers) as client:
        client.metadata("t")
        for partition in range(3):
            found = values_in(client.fetch("t", 0, partition).records)
            assert found == [b"%d" % index for index in range(partition, 30, 3)]


def test_stop_answers_a_parked_fetch(tmp_path: Path) -> None:
    with serve(tmp_path) as node, KafkaSocket(node.bootstrap_servers) as client:
        client.create_topic("t")
        client.send(fetch_request("t", 0, max_wait_ms=600_000), 11)
        # Answered after the fetch has been parked: requests are taken in order of their turns.
        with KafkaSocket(node.bootstrap_servers) as other:
            other.metadata()
        node.signal(signal.SIGTERM)
        assert client.receive().api_key == 1
        assert client.is_closed_by_peer()
        assert node.finish() == 0


def test_second_signal_forces_the_end_and_loses_nothing(tmp_path: Path) -> None:
    with serve(tmp_path) as node:
        with KafkaSocket(node.bootstrap_servers) as client:
            client.create_topic("t")
            client.produce("t", batch_of(b"kept"))
            # Both reach it in the same moment, before a clean stop could be over.
            for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
                node.signal(number)
            assert node.finish() == 130
        assert any("forced" in line for line in node.log)
    with serve(tmp_path) as node, KafkaSocket(node.bootstrap_servers) as client:
        client.metadata("t")
        assert values_in(client.fetch("t", 0).records) == [b"kept"]


def test_killed_node_leaves_no_process_behind(tmp_path: Path) -> None:
    with serve(tmp_path) as node:
        children = _children(node.process.pid)
        assert children
        node.kill()
    deadline = time.monotonic() + 60
    while any(_is_running(child) for child in children):
        assert time.monotonic() < deadline, children
        os.sched_yield()


def _is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A zombie counts as dead: its new parent may reap it late.
    return status.rpartition(") ")[2][0] != "Z"


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


# ---- how it refuses to start


def test_bad_configuration(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "d"))
    assert "did you mean 'num.partitions'" in refused(*data, "--set", "nun.partitions=3")
    assert "num.partitions" in refused(*data, "--set", "num.partitions=0")
    assert "DRAGOMAN_NUM_PARTITIONS" in refused(
        *data, environment={"DRAGOMAN_NUM_PARTITIONS": "many"}
    )
    file = tmp_path / "node.toml"
    file.write_text("num.partitions = ")
    assert "is not TOML" in refused("--config", str(file))
    assert not (tmp_path / "d").exists()


def test_directory_in_use(tmp_path: Path) -> None:
    with serve(tmp_path) as owner:
        line = refused("--data", str(tmp_path), *ANY_KAFKA)
        assert "another process uses" in line
        assert str(tmp_path) in line
        with KafkaSocket(owner.bootstrap_servers) as client:
            client.create_topic("t")
        assert owner.stop() == 0


def test_port_that_was_asked_for_and_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refused("--data", str(tmp_path), "--listen", f"kafka={address}")
        assert f"listener kafka: cannot bind {address}" in line
        assert list(tmp_path.iterdir()) == []
    with serve(tmp_path) as node:
        assert node.complaints == []


_WRONG = {
    "certificate": ("--set", "listener.kafka.tls=required", "--set", "ssl.certificate.file=/none"),
    "group": ("--set", "data.group=no-such-group"),
    "key": ("--set", "cluster.key.file=/none"),
    "users": ("--set", "bootstrap.users.file=/dev/null/users"),
}


@pytest.mark.parametrize("wrong", _WRONG)
@pytest.mark.parametrize("kind", ["absent", "empty", "with a file of the settings"])
def test_refused_start_leaves_a_new_directory_as_it_was(
    tmp_path: Path, wrong: str, kind: str
) -> None:
    data = tmp_path / "a" / "data"
    options = ["--data", str(data), *ANY_KAFKA]
    if kind != "absent":
        data.mkdir(parents=True)
    if kind == "with a file of the settings":
        (data / "node.toml").write_text("num.partitions = 2")
        options += ["--config", str(data / "node.toml")]
    before = sorted(tmp_path.rglob("*"))
    node = ServedNode(*options, *_WRONG[wrong])
    assert (node.finish(), node.output) == (2, [])
    assert node.log[-1].startswith("dragoman: ")
    assert sorted(tmp_path.rglob("*")) == before
    with ServedNode(*options).ready() as node:
        assert (node.stop(), node.complaints) == (0, [])


def test_refused_start_keeps_a_directory_that_was_used(tmp_path: Path) -> None:
    with serve(tmp_path) as node:
        with KafkaSocket(node.bootstrap_servers) as client:
            client.create_topic("t")
        assert node.stop() == 0
    refused("--data", str(tmp_path), *ANY_KAFKA, *_WRONG["key"])
    with serve(tmp_path) as node, KafkaSocket(node.bootstrap_servers) as client:
        assert [each.name for each in client.metadata("t").topics] == ["t"]


def test_directory_of_something_else(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    line = refused("--data", str(tmp_path), *ANY_KAFKA)
    assert f"{tmp_path} is not a data directory and not empty: it has .git" in line
    assert [each.name for each in tmp_path.rglob("*")] == [".git"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    line = refused("--data", str(file / "data"), *ANY_KAFKA)
    assert "Not a directory" in line


def test_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    line = refused("--data", str(tmp_path), *ANY_KAFKA)
    assert "lock" in line


def test_directory_of_a_newer_release(tmp_path: Path) -> None:
    with serve(tmp_path) as node:
        node.stop()
    disk = RealDisk(str(tmp_path))
    state = read_node_state(disk)
    write_node_state(disk, msgspec.structs.replace(state, format=99))
    assert "has format 99" in refused("--data", str(tmp_path), *ANY_KAFKA)
    write_node_state(disk, state)
    serve(tmp_path).kill()


def test_damaged_directory(tmp_path: Path) -> None:
    with serve(tmp_path) as node:
        node.stop()
    state = tmp_path / "node.json"
    whole = state.read_bytes()
    state.write_bytes(whole.replace(b"fsync", b"fsynk"))
    line = refused("--data", str(tmp_path), *ANY_KAFKA)
    assert "node.json" in line
    assert "checksum" in line
    state.write_bytes(whole)
    serve(tmp_path).kill()


def test_directory_of_another_node(tmp_path: Path) -> None:
    with serve(tmp_path) as node:
        node.stop()
    line = refused("--data", str(tmp_path), *ANY_KAFKA, "--node-id", "2")
    assert "belongs to node 1" in line


def test_default_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Another process may have it already, which is what this test is about.
        with suppress(OSError):
            taken.bind(("127.0.0.1", 8080))
            taken.listen()
        others = ",".join(f"{name}=off" for name in listener_names() if name != "http")
        line = refused("--data", str(tmp_path), environment={"DRAGOMAN_LISTEN": others})
        assert "listener http: cannot bind 127.0.0.1:8080: address already in use" in line
        # Without it, no listener would be open.
        assert "--listen http=HOST:PORT" in line
        assert list(tmp_path.iterdir()) == []


# ---- what it logs


def test_log_lines_are_json_when_asked(tmp_path: Path) -> None:
    with serve(tmp_path, "--log-format", "json", "--log-level", "info") as node:
        with KafkaSocket(node.bootstrap_servers) as client:
            client.socket.sendall(b"\xff\xff\xff\xff")
            assert client.is_closed_by_peer()
        assert node.stop() == 0
        lines = [json.loads(line) for line in node.log]
    (line,) = [each for each in lines if each["logger"] == "dragoman.net"]
    assert line["level"] == "info"
    assert "frame of -1 bytes" in line["message"]


def test_log_level_hides_what_is_less_important(tmp_path: Path) -> None:
    with serve(tmp_path, "--log-level", "warning") as node:
        with KafkaSocket(node.bootstrap_servers) as client:
            client.socket.sendall(b"\xff\xff\xff\xff")
            assert client.is_closed_by_peer()
        assert node.stop() == 0
        assert node.log == []


def messages(node: ServedNode) -> list[str]:
    return [json.loads(line)["message"] for line in node.log]


def test_start_and_stop_are_logged(tmp_path: Path) -> None:
    with serve(tmp_path, "--log-format", "json", "--set", "num.partitions=3") as node:
        assert node.stop() == 0
        assert messages(node) == [
            *("starting", "settings differ from the defaults", "log created"),
            *("feature level raised", "listening", "ready"),
            *("stopping", "connections closed", "stopped"),
        ]
        lines = {each["message"]: each for each in map(json.loads, node.log)}
    assert lines["starting"].items() >= {
        ("data", str(tmp_path)),
        ("node", 1),
        ("durability", "fsync"),
        ("quorum", "raft"),
    }
    changed = lines["settings differ from the defaults"]["settings"]
    assert changed == {"data": str(tmp_path), "log.format": "json", "num.partitions": "3"}
    assert lines["listening"].items() >= {
        ("listener", "kafka"),
        ("address", node.bootstrap_servers),
        ("advertised", node.bootstrap_servers),
        ("tls", "off"),
        ("authentication", "off"),
    }
    assert len(lines["ready"]["cluster"]) == 22
    assert lines["stopping"]["why"] == "SIGTERM"
    assert lines["stopped"]["status"] == 0


def test_start_after_a_kill_says_what_was_recovered(tmp_path: Path) -> None:
    with serve(tmp_path) as node:
        with KafkaSocket(node.bootstrap_servers) as client:
            client.create_topic("t", 1)
            assert client.produce("t", batch_of(b"x"), 0).error_code == 0
        node.kill()
    with serve(tmp_path, "--log-format", "json") as node:
        assert node.stop() == 0
        lines = {each["message"]: each for each in map(json.loads, node.log)}
    assert lines["log recovered"]["groups"] > 0
    assert lines["log recovered"]["lost_groups"] == 0


def test_refused_start_is_json_when_asked(tmp_path: Path) -> None:
    with serve(tmp_path):
        node = ServedNode("--data", str(tmp_path), *ANY_KAFKA, "--log-format", "json")
        assert node.finish() == 2
    (line,) = map(json.loads, node.log)
    assert (line["level"], line["message"]) == ("critical", "the node cannot start")
    assert "another process uses" in line["error"]


#: Fails in every way in which Python writes to stderr on its own.
_FAIL_EVERYWHERE = """
import asyncio, sys, threading, warnings
from dragoman.cli import serve

class Unraisable:
    def __del__(self):
        raise RuntimeError("in a destructor")

def fail(what):
    raise RuntimeError(what)

def announce(line):
    if line == "ready":
        asyncio.get_running_loop().call_soon(fail, "in a callback")
        warnings.warn("a warning")
        thread = threading.Thread(target=fail, args=("in a thread",))
        thread.start()
        thread.join()
        Unraisable()
        asyncio.get_running_loop().call_later(0.1, sys.exit, 5)

serve._announce = announce
try:
    serve.serve(sys.argv[1:])
except SystemExit:
    fail("at the end")
"""


def test_every_line_on_stderr_is_json(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": SOURCE, "PATH": os.environ["PATH"]}
    options = ("-c", _FAIL_EVERYWHERE, "--data", str(tmp_path), *ANY_KAFKA)
    done = subprocess.run(
        [sys.executable, *options, "--log-format", "json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    found = "".join(each.get("exception", "") + each["message"] for each in lines)
    for where in ("a callback", "a thread", "a destructor"):
        assert f"in {where}" in found, done.stderr
    assert "at the end" in found
    assert "a warning" in found


def test_signal_switches_the_log_to_debug_and_back(tmp_path: Path) -> None:
    with serve(tmp_path) as node:
        node.signal(signal.SIGUSR1)
        node.wait_for_log("log level changed log_level=DEBUG")
        with KafkaSocket(node.bootstrap_servers) as client:
            client.metadata()
        node.wait_for_log("connection closed connection=kafka-1")
        node.signal(signal.SIGUSR1)
        node.wait_for_log("log level changed log_level=INFO")
        with KafkaSocket(node.bootstrap_servers) as client:
            client.metadata()
        assert node.stop() == 0
        assert not any("connection=kafka-2" in each for each in node.log)
