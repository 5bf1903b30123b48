"""Goal: every fault that the doctor knows has a finding with a remedy, and a sound node has none.

Method: data directories with one fault each, checks of a node as values, and a real node.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from dragoman.api.health_checks import HealthChecks
from dragoman.api.values import Check, ClusterStatus, ListenerStatus, NodeStatus
from dragoman.cli.diagnosis import console, machine, node
from dragoman.cli.diagnosis import directory as data_directory
from dragoman.cli.diagnosis.finding import Finding
from dragoman.cli.main import main
from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from dragoman.limits import CLOCK_JUMP_S
from dragoman.log.node import FEATURE_LEVEL, read_node_state, write_node_state
from dragoman.operating_system import RealDisk
from dragoman.testing import EphemeralBroker
from protocols.kafka_socket import KafkaSocket
from worlds.broker import batch_of

PAGE = (Path(__file__).parents[3] / "docs/reference/doctor.md").read_text()
NO_LISTENERS = Settings(listeners=())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory that a node has used and stopped cleanly."""
    found = tmp_path / "data"
    with on(found) as broker, KafkaSocket(broker.bootstrap_servers) as client:
        client.create_topic("t")
        assert client.produce("t", batch_of(b"value")).error_code == 0
    return found


def on(directory: Path) -> EphemeralBroker:
    return EphemeralBroker(storage="directory", directory=str(directory))


def findings(directory: Path, settings: Settings = NO_LISTENERS) -> dict[str, Finding]:
    """The worst finding of each check."""
    order = ("ok", "warning", "problem")
    found: dict[str, Finding] = {}
    for each in data_directory.checks(str(directory), settings):
        known = found.get(each.check)
        if known is None or order.index(each.level) > order.index(known.level):
            found[each.check] = each
    return found


def test_sound_directory_has_no_problem(data: Path) -> None:
    found = findings(data)
    assert set(found) == {
        *("lock", "permissions", "disk", "node.json", "clock", "damage", "descriptors"),
    }
    assert {each.level for each in found.values()} <= {"ok"}, found


def _world_writable(data: Path) -> None:
    data.chmod(0o777)


def _newer(data: Path) -> None:
    disk = RealDisk(str(data))
    state = msgspec.structs.replace(read_node_state(disk), feature_level=FEATURE_LEVEL + 1)
    write_node_state(disk, state)


def _torn_node(data: Path) -> None:
    (data / "node.json").write_bytes(b"{}")


def _no_node(data: Path) -> None:
    (data / "node.json").unlink()


def _short_segment(data: Path) -> None:
    segment = max(data.glob("partitions/*/*.log"), key=lambda each: each.stat().st_size)
    os.truncate(segment, segment.stat().st_size - 1)


def _from_the_future(data: Path) -> None:
    later = time.time() + 10 * CLOCK_JUMP_S
    os.utime(data / "node.json", (later, later))


@pytest.mark.parametrize(
    ("harm", "check", "level", "what", "remedy"),
    [
        (_world_writable, "permissions", "problem", "every user may write", "chmod o-rwx"),
        (_newer, "node.json", "problem", "feature level", "newer one"),
        (_torn_node, "node.json", "problem", "checksum", "dragoman log adopt"),
        (_no_node, "node.json", "problem", "is missing", "dragoman log adopt"),
        (_short_segment, "damage", "problem", "bytes are there", "dragoman log repair"),
        (_from_the_future, "clock", "warning", "gone back", "timedatectl"),
    ],
)
def test_fault_has_a_finding_with_a_remedy(
    data: Path, harm: Callable[[Path], None], check: str, level: str, what: str, remedy: str
) -> None:
    harm(data)
    found = findings(data)[check]
    assert found.level == level, found
    assert what in found.what
    assert remedy in found.remedy


def test_file_that_cannot_be_written(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root, as whom tests may run, may write to every file.
    monkeypatch.setattr("os.access", lambda path, _: not str(path).endswith("node.json"))
    found = findings(data)["permissions"]
    assert (found.level, "cannot be written" in found.what) == ("problem", True)
    assert "chmod" in found.remedy


def test_files_of_another_user(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4321)
    found = findings(data)["permissions"]
    assert "belongs to" in found.what
    assert "user 4321" in found.what
    assert found.remedy.startswith("run it as")


def test_directory_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"")
    found = findings(tmp_path)["directory"]
    assert (found.level, found.what) == (
        "problem",
        f"{tmp_path} is no data directory: it has photo.jpg",
    )
    assert os.listdir(tmp_path) == ["photo.jpg"]


def test_directory_that_does_not_exist_stays_so(tmp_path: Path) -> None:
    found = findings(tmp_path / "new")
    assert found["directory"].level == "ok"
    assert not (tmp_path / "new").exists()
    assert findings(tmp_path / "a" / "b")["directory"].level == "problem"


def test_directory_in_use(data: Path) -> None:
    with on(data):
        wanted = Settings(listeners=(Listener(name="kafka", bind=Address("127.0.0.1", 0)),))
        found = findings(data, wanted)
    assert "a node is using" in found["lock"].what
    assert "unix:" in found["lock"].remedy
    assert "ports" not in found
    assert "not clean" not in found["node.json"].what


def test_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        address = Address("127.0.0.1", number)
        found = machine.port(Listener(name="kafka", bind=address))
    assert found.level == "problem"
    assert "another process uses the port" in found.what
    assert f"sport = :{number}" in found.remedy


def test_address_of_another_machine() -> None:
    bind = Address("192.0.2.1", 9092)
    found = machine.port(Listener(name="kafka", bind=bind))
    assert found.level == "problem"
    assert "--listen kafka=" in found.remedy


def test_low_limit_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (100, 100))
    assert "LimitNOFILE" in machine.descriptors().remedy


class Volume:
    """What `statvfs` returns."""

    f_frsize = 1
    f_files = 1000

    def __init__(self, free: int, files: int) -> None:
        self.f_bavail = free
        self.f_favail = files


@pytest.mark.parametrize(
    ("volume", "level"),
    [
        (Volume(1 << 20, 1000), "problem"),
        (Volume(300 << 20, 1000), "warning"),
        (Volume(1 << 40, 3), "warning"),
        (Volume(1 << 40, 1000), "ok"),
    ],
)
def test_room_of_the_volume(volume: Volume, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.statvfs", lambda _: volume)
    assert machine.room("/").level == level


# ---- a running node


def status(*alive: bool, **more: object) -> ClusterStatus:
    nodes = tuple(
        NodeStatus(node_id=number, alive=each, listeners=(), feature_level=5)
        for number, each in enumerate(alive, 1)
    )
    known: dict[str, object] = {
        "cluster_id": "c",
        "node_id": 1,
        "controller": 1,
        "version": "0",
        "feature_level": 5,
        "ready": True,
        "durability": "fsync",
        "uptime_ms": 1,
        "topics": 0,
        "partitions": 7,
        "groups": 0,
        "nodes": nodes,
    }
    return ClusterStatus(**(known | more))  # type: ignore[arg-type]


def levels(found: list[Finding]) -> dict[str, str]:
    return {each.check: each.level for each in found}


def test_sound_cluster() -> None:
    found = list(node.cluster(status(True, True)))
    assert levels(found) == {"cluster": "ok", "partitions": "ok"}


@pytest.mark.parametrize(
    ("found", "check", "level"),
    [
        (status(True, False), "cluster", "problem"),
        (status(True, controller=None), "cluster", "problem"),
        (status(True, leaderless=1), "partitions", "problem"),
        (status(True, under_replicated=1), "partitions", "warning"),
    ],
)
def test_faults_of_a_cluster(found: ClusterStatus, check: str, level: str) -> None:
    worst = [each for each in node.cluster(found) if each.level != "ok"]
    assert [(each.check, each.level) for each in worst] == [(check, level)]
    assert worst[0].remedy


def test_nodes_of_different_releases() -> None:
    older = NodeStatus(node_id=2, alive=True, listeners=(), feature_level=4)
    mixed = status(True)
    mixed = msgspec.structs.replace(mixed, nodes=(*mixed.nodes, older))
    assert levels(list(node.cluster(mixed)))["releases"] == "warning"


def test_clocks_that_differ() -> None:
    assert node.clock(formatdate(1_000_000, usegmt=True), 1_000_001.0).level == "ok"
    differing = node.clock(formatdate(1_000_000, usegmt=True), 1_000_100.0)
    assert (differing.level, differing.check) == ("warning", "time")
    assert "-100 s" in differing.what
    assert node.clock("", 0.0).level == "warning"


def test_advertised_address_that_is_not_reachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    listener = ListenerStatus(name="kafka", bound=address, advertised=address)
    (found,) = node.addresses(NodeStatus(node_id=1, alive=True, listeners=(listener,)))
    assert found.level == "warning"
    assert "--advertise kafka=" in found.remedy


def test_every_check_of_a_node_has_a_remedy() -> None:
    checks = HealthChecks(None)._checks  # type: ignore[arg-type]
    assert set(node.REMEDIES) == {name for name, _ in checks}


def test_check_without_details_says_why() -> None:
    found = node.of_check(Check("damage", "warning"))
    assert "right to describe the cluster" in found.what
    assert found.remedy == node.REMEDIES["damage"]


# ---- the console


def _asked(detail: str, host: str = "") -> list[Finding]:
    checks = [Check("disk", "ok", "full of room"), Check("console", "ok", detail)]
    return list(console.reached(checks, host, ssl.create_default_context()))


def test_console_that_is_off_or_for_its_machine_only_is_not_asked() -> None:
    assert _asked("it is off") == []
    (found,) = _asked("http://127.0.0.1:1/", "node.example")
    assert (found.level, "programs on the node's machine" in found.what) == ("ok", True)


def test_console_that_does_not_answer() -> None:
    (found,) = _asked("http://127.0.0.1:1/; SQL needs duckdb: pip install")
    assert (found.level, found.check) == ("problem", "console")
    assert "log of the node" in found.remedy


@pytest.mark.parametrize(
    ("users", "words"),
    [({}, "only reads until `dragoman user create"), ({"ann": "secret"}, "asks for a login")],
)
def test_console_is_asked_under_its_path(
    users: dict[str, str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "password").write_text("secret")
    login = ("--user", "ann", "--password-file", str(tmp_path / "password")) if users else ()
    with EphemeralBroker(
        storage="directory",
        users=users,
        listeners=("kafka", "http", "console"),
        settings={
            "console.base.path": "/dragoman",
            "listener.http.authentication": "optional" if users else "off",
            "super.users": "User:ann",
        },
    ) as broker:
        main(["doctor", "--server", broker.http_url, *login, "--output", "json"])
        listed = json.loads(capsys.readouterr().out)
        address = broker.address("console")
    (said,) = [each for each in listed if each["check"] == "console" and words in each["what"]]
    assert said["level"] == "ok"
    if not users:
        assert f"http://{address}/dragoman/ answers" in said["what"]


def test_console_without_users_that_others_reach_is_a_problem() -> None:
    state = {"needs_login": True, "obstacle": "create a user", "bootstrap": ""}
    with answering(state) as port:
        found = _asked(f"http://0.0.0.0:{port}/: no user")
    assert [(each.level, "user create" in each.remedy) for each in found] == [
        ("problem", True),
        ("warning", False),
    ]


@contextmanager
def answering(state: object) -> Iterator[int]:
    """A server that gives one answer."""
    body = json.dumps(state).encode()
    head = f"HTTP/1.0 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(head + body)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is installed" in console.queries().what
    monkeypatch.setattr(console, "missing_modules", lambda _: ["duckdb"])
    assert "needs duckdb: pip install" in console.queries().what


# ---- the command


def test_command_checks_a_running_node(capsys: pytest.CaptureFixture[str]) -> None:
    with EphemeralBroker() as broker:
        url = broker.http_url
        assert main(["doctor", "--server", url, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {each["level"] for each in found} <= {"ok", "warning"}
    assert {"time", "recovery", "cluster", "partitions", "addresses"} <= {
        each["check"] for each in found
    }
    assert main(["doctor", "--server", url]) == 1
    assert "problem  connection: cannot reach" in capsys.readouterr().out


def test_command_checks_a_directory(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "dragoman.toml"
    config.write_text('listen.kafka = "127.0.0.1:0"\n')
    assert main(["doctor", str(data), "--config", str(config)]) == 0
    text = capsys.readouterr().out
    assert "ok       ports: kafka on 127.0.0.1:0" in text
    _world_writable(data)
    assert main(["doctor", str(data), "--config", str(config)]) == 1
    assert f"→ `chmod o-rwx {data}`" in capsys.readouterr().out
    config.write_text("no.such.key = 1\n")
    assert main(["doctor", str(data), "--config", str(config)]) == 1
    assert "problem  configuration: unknown key" in capsys.readouterr().out


def test_command_refuses_a_directory_with_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "x", "--server", "http://127.0.0.1:1"]) == 2
    assert main(["doctor", "--config", "x"]) == 2
    assert capsys.readouterr().out == ""


def test_page_lists_every_check() -> None:
    listed = set(re.findall(r"`([a-z.]+)`", "".join(re.findall(r"^\| `.*?\|", PAGE, re.MULTILINE))))
    source = "".join(
        Path(each.__file__ or "").read_text() for each in (console, data_directory, machine, node)
    )
    written = set(re.findall(r'(?:ok|warning|problem)\(\s*"([a-z.]+)"', source))
    assert listed == written | set(node.REMEDIES) | {"configuration", "ports"}
