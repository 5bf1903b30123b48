"""Goal: a group with live members of any protocol keeps its offsets: `group reset` and `delete` are
refused and name the members. Once they have gone, both work.

Method: stock Kafka clients, RocketMQ's client and `dragoman consume` as members of groups of a node
in a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from confluent_kafka import Consumer

from dragoman.cli.main import main
from dragoman.cli.remote import Remote
from dragoman.cli.status import CommandError
from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic
from dragoman.client.rocketmq import BlockingRocketmqClient, ConsumeFrom
from nodes.process import SOURCE, ServedNode

PATIENCE_S = 60.0
LISTENERS = ("http", "kafka", "minibroker", "cursus", "rocketmq", "rocketmq-broker")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNode]:
    listeners = [word for name in LISTENERS for word in ("--listen", f"{name}=127.0.0.1:0")]
    data = str(tmp_path_factory.mktemp("node") / "data")
    with ServedNode("--data", data, *listeners) as served:
        served.ready()
        with BlockingKafkaClient(served.listeners["kafka"]) as client:
            for member in MEMBERS:
                client.create_topic(NewTopic(name=member))
                client.produce_records(member, [NewRecord(value=b"v") for _ in range(10)])
        yield served


@contextmanager
def kafka(node: ServedNode, group: str, protocol: str = "classic") -> Iterator[None]:
    consumer = Consumer(
        {
            "bootstrap.servers": node.listeners["kafka"],
            "client.id": "the-member",
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    stopping = threading.Event()

    def read() -> None:
        while not stopping.is_set():
            consumer.poll(0.1)
        consumer.close()

    consumer.subscribe([group])
    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@contextmanager
def command(node: ServedNode, protocol: str) -> Iterator[None]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "dragoman.cli.main", "consume", protocol, "--follow"),
            *("--group", protocol, "--protocol", protocol, "-b", node.listeners[protocol]),
        ],
        stdout=subprocess.DEVNULL,
        env={"PYTHONPATH": SOURCE, "PATH": os.environ["PATH"]},
    )
    try:
        yield
    finally:
        # It leaves the group, where a kill would have the node wait for the end of its session.
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


@contextmanager
def rocketmq(node: ServedNode) -> Iterator[None]:
    with (
        BlockingRocketmqClient(node.listeners["rocketmq"]) as client,
        client.push_consumer(
            "rocketmq", {"rocketmq": "*"}, lambda _: None, start=ConsumeFrom.FIRST_OFFSET
        ),
    ):
        yield


#: By group, which reads the topic of its name.
MEMBERS: dict[str, Callable[[ServedNode], AbstractContextManager[None]]] = {
    "classic": lambda node: kafka(node, "classic"),
    "consumer": lambda node: kafka(node, "consumer", "consumer"),
    "minibroker": lambda node: command(node, "minibroker"),
    "cursus": lambda node: command(node, "cursus"),
    "rocketmq": rocketmq,
}


def wait_for(remote: Remote, group: str, *, members: bool) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if bool(remote.group(group).members) is members:
                return
        except CommandError:
            # The group does not exist yet.
            continue
    raise AssertionError(f"group {group} has {'no' if members else 'still'} members")


@pytest.mark.parametrize("group", MEMBERS)
def test_group_is_reset_and_deleted_only_without_members(
    node: ServedNode, capsys: pytest.CaptureFixture[str], group: str
) -> None:
    url = f"http://{node.listeners['http']}"
    remote = Remote(url)
    reset = ["group", "reset", group, "--topic", group, "--to", "2", "--server", url]
    delete = ["group", "delete", group, "--server", url]

    def run(*arguments: str) -> tuple[int, str]:
        return main(list(arguments)), capsys.readouterr().err

    with MEMBERS[group](node):
        wait_for(remote, group, members=True)
        for arguments in (reset, delete):
            for option in ("--dry-run", "--yes"):
                status, err = run(*arguments, option)
                assert (status, err.count("\n")) == (1, 1)
                assert f"group {group!r} has 1 member of protocol" in err
                assert "at 127.0.0.1" in err
                assert "stop them first (non_empty_group)" in err
    wait_for(remote, group, members=False)
    assert run(*reset, "--yes") == (0, f"moved 1 offset of group {group!r}\n")
    # RocketMQ's groups also have a topic of retries.
    offsets = {each.topic: each.committed_offset for each in remote.group(group).offsets}
    assert offsets[group] == 2
    assert run(*delete, "--yes") == (0, f"deleted group {group!r}\n")
    with pytest.raises(CommandError, match="unknown_group"):
        remote.group(group)
