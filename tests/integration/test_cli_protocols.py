"""Goal: what `dragoman produce` writes over any protocol, `dragoman consume` reads over any other;
groups resume where another protocol stopped; large files go through every protocol.

Method: the commands as processes of their own, against a node in a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.api.values import GroupDescription
from dragoman.cli.record_clients import MODULES
from dragoman.cli.remote import Remote, group_path
from dragoman.client.kafka import BlockingKafkaClient, NewTopic
from nodes.process import SOURCE, ServedNode

PROTOCOLS = tuple(MODULES)
KEYED = ("kafka", "rocketmq", "minibroker", "cursus")
#: Which also show headers and times.
TELLING = ("kafka", "rocketmq")
LISTENERS = ("http", *PROTOCOLS, "rocketmq-broker")
PAIRS = [(first, second) for first in PROTOCOLS for second in PROTOCOLS if first != second]
ENVIRONMENT = {"PYTHONPATH": SOURCE, "PATH": os.environ["PATH"]}
LINES = 20_000

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNode]:
    listeners = [word for name in LISTENERS for word in ("--listen", f"{name}=127.0.0.1:0")]
    data = str(tmp_path_factory.mktemp("node") / "data")
    with ServedNode("--data", data, *listeners) as served:
        served.ready()
        yield served


@pytest.fixture(scope="module")
def client(node: ServedNode) -> Iterator[BlockingKafkaClient]:
    with BlockingKafkaClient(node.listeners["kafka"]) as opened:
        yield opened


def start(node: ServedNode, command: str, topic: str, protocol: str, *arguments: str):
    return subprocess.Popen(
        [
            *(sys.executable, "-W", "error", "-m", "dragoman.cli.main"),
            *(command, topic, "--protocol", protocol, "-b", node.listeners[protocol]),
            *arguments,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )


def run(
    node: ServedNode,
    command: str,
    topic: str,
    protocol: str,
    *arguments: str,
    stdin: bytes = b"",
) -> bytes:
    with start(node, command, topic, protocol, *arguments) as process:
        out, err = process.communicate(stdin, timeout=250)
    assert process.returncode == 0, err.decode()
    return out


def read(node: ServedNode, topic: str, protocol: str, count: int, *arguments: str) -> list[dict]:
    """Lines of JSON. minibroker needs their number; the others find the end."""
    bound = ("--max", str(count)) if protocol == "minibroker" else ()
    out = run(node, "consume", topic, protocol, "--json", *bound, *arguments)
    return [json.loads(line) for line in out.splitlines()]


# ---- every writer, every reader

VALUES = ["plain", "", " blanks ", "ünïcödé", {"base64": "/wD+"}]


@pytest.fixture(scope="module")
def written(node: ServedNode, client: BlockingKafkaClient) -> dict[str, list[dict]]:
    """By writer, what was written: with keys where there are such."""
    found = {}
    for protocol in PROTOCOLS:
        client.create_topic(NewTopic(name=f"by-{protocol}", partitions=3))
        records: list[dict] = [{"value": each} for each in VALUES]
        if protocol in KEYED:
            records += [{"key": f"key-{n % 4}", "value": f"value {n}"} for n in range(20)]
        given = b"".join(json.dumps(each).encode() + b"\n" for each in records)
        run(node, "produce", f"by-{protocol}", protocol, "--json", stdin=given)
        found[protocol] = records
    return found


@pytest.mark.parametrize("reader", PROTOCOLS)
@pytest.mark.parametrize("writer", PROTOCOLS)
def test_what_one_writes_the_other_reads(
    node: ServedNode, written: dict[str, list[dict]], writer: str, reader: str
) -> None:
    records = written[writer]
    topic = f"by-{writer}"
    found = read(node, topic, reader, len(records))
    has_keys = reader in KEYED
    expected = [(each.get("key") if has_keys else None, each["value"]) for each in records]
    assert sorted(map(repr, expected)) == sorted(
        repr((each["key"], each["value"])) for each in found
    )
    assert {each["topic"] for each in found} == {topic}
    # The same places as Kafka shows, and the order of each partition is that of its offsets.
    by_kafka = {
        (each["partition"], each["offset"]): each["value"]
        for each in read(node, topic, "kafka", len(records))
    }
    assert {(each["partition"], each["offset"]): each["value"] for each in found} == by_kafka
    for partition in range(3):
        offsets = [each["offset"] for each in found if each["partition"] == partition]
        assert offsets == list(range(len(offsets)))
    if reader not in TELLING:
        assert {(each["timestamp"], each["headers"]) for each in found} == {(None, None)}
    # Records with one key keep their order.
    for key in {each.get("key") for each in records} - {None}:
        numbers = [int(each["value"].split()[1]) for each in found if each["key"] == key]
        assert numbers == sorted(numbers)


# ---- groups


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_group_goes_on_over_another_protocol(
    node: ServedNode, client: BlockingKafkaClient, first: str, second: str
) -> None:
    topic = group = f"group-{first}-{second}"
    client.create_topic(NewTopic(name=topic, partitions=1))
    run(node, "produce", topic, "kafka", stdin=b"".join(b"%d\n" % n for n in range(8)))
    begun = read(node, topic, first, 3, "--group", group, *_at_most(first, 3))
    rest = read(node, topic, second, 5, "--group", group)
    assert [each["value"] for each in begun] == ["0", "1", "2"]
    assert [each["value"] for each in rest] == ["3", "4", "5", "6", "7"]
    described = Remote(f"http://{node.listeners['http']}").get(group_path(group), GroupDescription)
    assert described.state == "Empty"
    assert [(each.committed_offset, each.lag_records) for each in described.offsets] == [(8, 0)]


def _at_most(protocol: str, count: int) -> tuple[str, ...]:
    return () if protocol == "minibroker" else ("--max", str(count))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_interrupt_commits_what_was_printed_and_leaves(
    node: ServedNode, client: BlockingKafkaClient, protocol: str
) -> None:
    topic = group = f"interrupted-{protocol}"
    client.create_topic(NewTopic(name=topic, partitions=1))
    run(node, "produce", topic, "kafka", stdin=b"0\n1\n")
    with start(node, "consume", topic, protocol, "--follow", "--group", group) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        assert process.stdout.readline() == b"1\n"
        run(node, "produce", topic, "kafka", stdin=b"new\n")
        assert process.stdout.readline() == b"new\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")
    described = Remote(f"http://{node.listeners['http']}").get(group_path(group), GroupDescription)
    assert (described.state, described.members) == ("Empty", ())
    # The interrupt may come between the printing of the last record and its commit.
    (offset,) = [each.committed_offset for each in described.offsets]
    assert offset in (2, 3)
    again = read(node, topic, protocol, 3 - offset, "--group", group) if offset < 3 else []
    assert [each["value"] for each in again] == ["0", "1", "new"][offset:]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_interrupted_produce_writes_what_it_was_given(
    node: ServedNode, client: BlockingKafkaClient, protocol: str
) -> None:
    topic = f"given-{protocol}"
    client.create_topic(NewTopic(name=topic, partitions=1))
    with start(node, "produce", topic, protocol) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert run(node, "consume", topic, "kafka", "--follow", "--max", "1") == b"one\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    expected = f"produced 1 record to {topic!r}\n".encode()
    assert (process.returncode, out, err) == (130, b"", expected)


# ---- many lines


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_large_file_goes_through(
    node: ServedNode, client: BlockingKafkaClient, tmp_path: Path, protocol: str
) -> None:
    """Together, not one by one: with far fewer writes to the disk than there are lines."""
    topic = f"large-{protocol}"
    client.create_topic(NewTopic(name=topic, partitions=1))
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"line %d %s\n" % (n, b"x" * (n % 150)) for n in range(LINES)))
    before = journal_groups(node)
    run(node, "produce", topic, protocol, "--file", str(path))
    assert journal_groups(node) - before < LINES // 20
    assert run(node, "consume", topic, protocol, "--max", str(LINES)) == path.read_bytes()


def journal_groups(node: ServedNode) -> int:
    with urllib.request.urlopen(f"http://{node.listeners['http']}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    (found,) = re.findall(r"^dragoman_journal_groups_total (\S+)$", text, re.MULTILINE)
    return int(float(found))
