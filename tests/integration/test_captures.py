"""Goal: captures of databases on a node as its users see them; no secret is anywhere else than in
the metadata.

Method: brokers in this process; stock clients, the HTTP API and the command line against them. What
captures is `tests/fake_capture`, which misbehaves on request.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from dragoman.api.operations import OPERATIONS
from dragoman.api.values import CaptureDescription
from dragoman.captures.definition import POSITIONS_TOPIC
from dragoman.captures.processes import CaptureProcesses
from dragoman.cli.main import main
from dragoman.cli.remote import Remote
from dragoman.cli.status import CommandError
from dragoman.spark.storage import StoredLog
from dragoman.testing import EphemeralBroker, EphemeralCluster

HERE = Path(__file__).parents[1]
WAIT_S = 30
SECRET = "hunter2-is-not-shown"
DSN = f"postgresql://app:{SECRET}@127.0.0.1:1/shop"


@pytest.fixture(autouse=True)
def _fakes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{HERE.parent / 'src'}")
    monkeypatch.setattr(CaptureProcesses, "module", "fake_capture")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EphemeralBroker]:
    directory = str(tmp_path / "data")
    with EphemeralBroker(storage="directory", directory=directory) as running:
        yield running


class Ran:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def cdc(broker: EphemeralBroker, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*arguments: str, url: str = "") -> Ran:
        status = main(["cdc", *arguments, "--server", url or broker.http_url])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


def added(
    cdc: Callable[..., Ran], name: str = "shop", tables: str = "orders", **kwargs: str
) -> Ran:
    return cdc("add", name, "--dsn", DSN, "--tables", tables, **kwargs)


def capture(url: str, name: str = "shop") -> CaptureDescription:
    return Remote(url).get(f"/api/v1/captures/{name}", CaptureDescription)


def running_node(url: str) -> int | None:
    """As far as a node has heard."""
    try:
        return capture(url).node
    except CommandError:
        return None


def wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)


# ---- positions


def producer(broker: EphemeralBroker, transactional_id: str | None) -> Producer:
    config: dict[str, str | int] = {"bootstrap.servers": broker.bootstrap_servers}
    if transactional_id is not None:
        config["transactional.id"] = transactional_id
    made = Producer(config)
    if transactional_id is not None:
        made.init_transactions(WAIT_S)
        made.begin_transaction()
    return made


def write(writing: Producer) -> int | None:
    """The error that a record for the topic of positions meets, if it does."""
    met: list[KafkaError | None] = []
    try:
        writing.produce(
            POSITIONS_TOPIC, b"{}", b"shop", 0, on_delivery=lambda error, _: met.append(error)
        )
        writing.flush(WAIT_S)
    except KafkaException as error:
        met.append(error.args[0])
    return None if met[-1] is None else met[-1].code()


def test_positions_are_written_by_captures_alone_and_read_by_all(broker: EphemeralBroker) -> None:
    writing = producer(broker, "__capture.shop")
    assert write(writing) is None
    writing.commit_transaction(WAIT_S)
    for another in ("shop", None):
        assert write(producer(broker, another)) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    reading = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    reading.subscribe([POSITIONS_TOPIC])
    message = reading.poll(WAIT_S)
    reading.close()
    assert message is not None
    assert (message.key(), message.value()) == (b"shop", b"{}")


# ---- life


def test_capture_is_added_paused_resumed_and_removed(
    broker: EphemeralBroker, cdc: Callable[..., Ran]
) -> None:
    ran = added(cdc)
    assert (ran.status, ran.err) == (0, "added capture shop\ncapture shop is streaming\n")
    assert capture(broker.http_url).status.lsn == broker.bootstrap_servers
    assert cdc("pause", "shop").err == "capture shop is paused\n"
    wait(lambda: capture(broker.http_url).status.state == "paused")
    assert cdc("resume", "shop").err == "capture shop is resumed\n"
    wait(lambda: capture(broker.http_url).status.state == "streaming")
    assert (
        cdc("snapshot", "shop", "--tables", "orders").err == "capture shop snapshots orders again\n"
    )
    rewound = cdc("rewind", "shop", "--to", "0/1")
    assert rewound.status == 1
    assert rewound.err == "dragoman: 0/1 is gone from ******** (capture_refused)\n"
    again = added(cdc)
    assert again.status == 1
    assert "the capture shop exists already" in again.err
    assert (
        "capture shop uses the slot dragoman_shop"
        in cdc(*("add", "other", "--dsn", DSN, "--tables", "users", "--slot", "dragoman_shop")).err
    )
    removed = cdc("remove", "shop")
    assert (removed.status, removed.err) == (0, "capture shop is removed; its topics remain\n")
    assert "there is no capture 'shop'" in cdc("status", "shop").err
    assert broker._node is not None
    assert not broker._node.capture_processes._tasks


def test_captures_and_pauses_outlive_the_node(
    broker: EphemeralBroker, cdc: Callable[..., Ran]
) -> None:
    added(cdc)
    added(cdc, "other", "users")
    cdc("pause", "other")
    broker.restart()
    wait(lambda: capture(broker.http_url).status.state == "streaming")
    wait(lambda: capture(broker.http_url, "other").status.state == "paused")


def test_a_database_that_is_not_fit_is_not_captured(cdc: Callable[..., Ran]) -> None:
    ran = added(cdc, tables="problem")
    assert ran.status == 1
    assert "ALTER SYSTEM SET wal_level = logical" in ran.err
    assert cdc("list", "--output", "json").out.strip() == "[]"
    looked = cdc("doctor", "--dsn", DSN, "--tables", "crash")
    assert looked.status == 1
    assert "cannot look at ********" in looked.err


def test_a_capture_whose_database_is_away_is_not_removed_without_a_word(
    cdc: Callable[..., Ran],
) -> None:
    added(cdc, tables="problem,x", name="shop")
    cdc("add", "shop", "--dsn", DSN, "--tables", "problem", "--no-check")
    refused = cdc("remove", "shop")
    assert refused.status == 1
    assert "capture shop was not removed: wal_level; remove it with --keep-slot" in refused.err
    assert cdc("remove", "shop", "--keep-slot").status == 0


def test_without_kafka_captures_are_refused(cdc: Callable[..., Ran]) -> None:
    with EphemeralBroker(listeners=("http",)) as alone:
        ran = added(cdc, url=alone.http_url)
    assert ran.status == 1
    assert "captures write over Kafka's protocol: open the listener kafka or any" in ran.err


def test_a_capture_through_any_listener_has_its_address(cdc: Callable[..., Ran]) -> None:
    with EphemeralBroker(listeners=("http", "any")) as broker:
        assert added(cdc, url=broker.http_url).status == 0
        assert capture(broker.http_url).status.lsn == broker.address("any")


# ---- secrets


def answers(broker: EphemeralBroker) -> Iterator[str]:
    """Everything that the API answers to questions, and to nonsense about captures."""
    host, _, port = broker.address("http").partition(":")
    wrong = json.dumps({"name": "x", "dsn": DSN, "tables": [], "more": 1})
    asked = [
        ("GET", each.path.replace("{name}", name), None)
        for each in OPERATIONS
        for name in ("shop", "complain", "crash")
        if each.method == "GET"
    ]
    asked += [("GET", path, None) for path in ("/metrics", "/openapi.json", "/readyz")]
    asked += [
        ("POST", "/api/v1/captures", wrong),
        ("POST", "/api/v1/captures", json.dumps({"name": "x", "dsn": DSN})),
        ("POST", "/api/v1/captures", json.dumps({"name": "shop", "dsn": DSN, "tables": ["t"]})),
        ("POST", "/api/v1/captures/shop/commands", '{"command": "rewind", "lsn": "0/1"}'),
        ("POST", "/api/v1/captures/shop/commands", '{"command": "snapshot"}'),
        ("POST", "/api/v1/capture-checks", '{"name": "shop"}'),
        ("POST", "/api/v1/capture-checks", '{"name": "crash"}'),
        ("DELETE", "/api/v1/captures/crash", None),
    ]
    for method, path, body in asked:
        connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
        headers = {"content-type": "application/json"} if body else {}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        yield f"{method} {path}: {response.headers} {response.read().decode()}"
        connection.close()


def test_passwords_are_nowhere_in_clear(
    broker: EphemeralBroker,
    cdc: Callable[..., Ran],
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = [added(cdc)]
    shown.append(cdc("add", "complain", "--dsn", DSN, "--tables", "complain", "--detach"))
    shown.append(cdc("add", "crash", "--dsn", DSN, "--tables", "crash", "--no-check", "--detach"))
    wait(lambda: capture(broker.http_url, "crash").restarts > 0)
    wait(lambda: bool(capture(broker.http_url, "complain").status.warnings))
    shown += [cdc("list"), cdc("status"), cdc("status", "complain"), cdc("status", "crash")]
    for ran in shown:
        assert SECRET not in ran.out + ran.err
    assert "********" in shown[3].out
    for answer in answers(broker):
        assert SECRET not in answer
    for pid in map(int, re.findall(r"for (\d+)", caplog.text)):
        for name in ("cmdline", "environ"):
            path = Path(f"/proc/{pid}/{name}")
            assert not path.exists() or SECRET.encode() not in path.read_bytes()
    assert "connecting to ********" in caplog.text
    assert SECRET not in caplog.text
    directory = Path(broker.data_directory)
    broker.stop()
    holders = [
        path
        for path in directory.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert holders == []
    assert not StoredLog(str(directory), committed_only=True).topics(["__cluster_metadata"])
    for command in ("inspect", "verify"):
        main(["log", command, str(directory)])
        assert SECRET not in capsys.readouterr().out


# ---- several nodes


def test_a_capture_moves_when_its_node_dies_and_any_node_answers(cdc: Callable[..., Ran]) -> None:
    with EphemeralCluster() as cluster:
        urls = {number: node.http_url for number, node in cluster.nodes.items()}
        # Nodes that have just started agree first on what all of them know.
        wait(lambda: added(cdc, url=urls[1]).status == 0)
        first = capture(urls[1]).node
        assert first is not None
        for number, url in urls.items():
            wait(lambda url=url: running_node(url) == first)
            assert cdc("snapshot", "shop", url=url).status == 0, number
        assert cdc("pause", "shop", url=urls[first % 3 + 1]).status == 0
        wait(lambda: capture(urls[first]).status.state == "paused")
        cluster.kill(first)
        other = urls[first % 3 + 1]
        wait(lambda: capture(other).node not in (first, None))
        wait(lambda: capture(other).status.state == "paused")
        assert capture(other).status.lsn != ""
        assert cdc("resume", "shop", url=other).status == 0
        wait(lambda: capture(other).status.state == "streaming")
        assert cdc("remove", "shop", url=other).status == 0
