"""`produce` and `consume` over every protocol but Kafka, which has tests of its own: what each can
say is done, what it cannot is refused, and every failure is one line.

Commands run in this process, against one broker; each test has topics of its own.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import get_args

import msgspec
import pytest

from dragoman.cli.main import main
from dragoman.cli.positions import Place
from dragoman.cli.record_clients import MODULES, ProtocolName, minibroker, mlog, record_client
from dragoman.cli.record_clients.session import Batch, Batches, Merged, PlainRecord, Plan, resolved
from dragoman.client.cursus import BlockingCursusClient, CursusClient
from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic
from dragoman.client.minibroker import BlockingMinibrokerClient
from dragoman.client.rocketmq import BlockingRocketmqClient
from dragoman.config.listeners import default_addresses
from dragoman.testing import EphemeralBroker

OTHERS = ("rocketmq", "minibroker", "cursus", "mlog")


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(listeners=("http", "kafka", "rocketmq-broker", *OTHERS)) as started:
        yield started


@pytest.fixture(scope="module")
def client(broker: EphemeralBroker) -> Iterator[BlockingKafkaClient]:
    with BlockingKafkaClient(broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def topic(client: BlockingKafkaClient, request: pytest.FixtureRequest) -> str:
    """With two partitions. Named after the test."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)[:200]
    client.create_topic(NewTopic(name=name, partitions=2))
    return name


class Ran:
    def __init__(self, status: int, out: bytes, err: str) -> None:
        self.status, self.out, self.err = status, out, err


Run = Callable[..., Ran]


@pytest.fixture
def dragoman(
    broker: EphemeralBroker,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    def run(command: str, topic: str, protocol: str, *arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        where = () if "-b" in arguments else ("-b", broker.address(protocol))
        status = main([command, topic, "--protocol", protocol, *arguments, *where])
        captured = capfdbinary.readouterr()
        return Ran(status, captured.out, captured.err.decode())

    return run


def numbers(client: BlockingKafkaClient, topic: str, count: int, partition: int = 0) -> None:
    client.produce_records(
        topic, [NewRecord(value=b"%d" % n, partition=partition) for n in range(count)]
    )


def lines(*values: int) -> bytes:
    return b"".join(b"%d\n" % value for value in values)


def committed(client: BlockingKafkaClient, group: str) -> dict[int, int]:
    found = client.committed_offsets(group)
    return {where.partition: each.offset for where, each in found.items()}


# ---- the table


def test_every_protocol_has_a_module_and_its_own_port() -> None:
    assert get_args(ProtocolName) == tuple(MODULES)
    for name in MODULES:
        assert record_client(name).bootstrap == str(default_addresses()[name])


# ---- refusals


@pytest.mark.parametrize(
    ("protocol", "arguments", "option", "reason"),
    [
        ("rocketmq", ["-z", "zstd"], "--codec", "by itself"),
        ("rocketmq", ["-Z"], "--empty-as-null", "no null"),
        ("minibroker", ["-H", "a=1"], "--header", "no headers"),
        ("minibroker", ["-p", "0"], "--partition", "the broker chooses"),
        ("minibroker", ["-z", "zstd"], "--codec", "does not compress"),
        ("minibroker", ["--acks", "1"], "--acks", "when it is durable"),
        ("minibroker", ["-Z"], "--empty-as-null", "no null"),
        ("cursus", ["-H", "a=1"], "--header", "no headers"),
        ("cursus", ["-Z"], "--empty-as-null", "no null"),
        ("mlog", ["-k", "key"], "--key", "no keys"),
        ("mlog", ["-K", ":"], "--key-separator", "no keys"),
        ("mlog", ["-H", "a=1"], "--header", "no headers"),
        ("mlog", ["-z", "gzip"], "--codec", "does not compress"),
        ("mlog", ["-Z"], "--empty-as-null", "no null"),
    ],
)
def test_what_cannot_be_written_is_refused_by_option_and_protocol(
    dragoman: Run, protocol: str, arguments: list[str], option: str, reason: str
) -> None:
    """Before anything is asked for: there is no broker at that address."""
    ran = dragoman("produce", "t", protocol, *arguments, "-b", "127.0.0.1:1", stdin=b"v\n")
    assert (ran.status, ran.out) == (2, b"")
    assert ran.err.startswith(f"dragoman: {option}: not possible with --protocol {protocol}: ")
    assert reason in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("protocol", "arguments", "option", "reason"),
    [
        ("rocketmq", ["--follow", "--until", "end"], "--until", "expected an offset"),
        ("rocketmq", ["--isolation", "read_uncommitted"], "--isolation", "committed"),
        ("minibroker", [], "--protocol minibroker", "give --follow, --idle, --max"),
        ("minibroker", ["--until", "end"], "--until", "give an offset"),
        ("minibroker", ["-F", "--from", "-5"], "--from", "where a partition ends"),
        ("minibroker", ["-F", "--from", "@5"], "--from", "cannot look up times"),
        ("minibroker", ["-F", "--until", "2026-11-15"], "--until", "cannot look up times"),
        ("minibroker", ["-F", "--isolation", "read_uncommitted"], "--isolation", "committed"),
        ("minibroker", ["-F", "-g", "g", "-p", "0"], "--partition", "the broker assigns"),
        ("minibroker", ["-F", "-g", "g", "--from", "3"], "--from", "at the committed offset"),
        ("minibroker", ["-g", "g", "--until", "3"], "--until", "the committed offset"),
        ("minibroker", ["-F", "-f", "%T"], "--format %T", "the time"),
        ("minibroker", ["-F", "-f", "%h"], "--format %h", "headers"),
        ("cursus", ["--from", "@5"], "--from", "cannot look up times"),
        ("cursus", ["--until", "@5"], "--until", "cannot look up times"),
        ("cursus", ["-F", "--until", "-1"], "--until", "expected an offset"),
        ("cursus", ["--isolation", "read_uncommitted"], "--isolation", "committed"),
        ("cursus", ["-g", "g", "-p", "0"], "--partition", "the broker assigns"),
        ("cursus", ["-g", "g", "--from", "3"], "--from", "beginning or end"),
        ("cursus", ["-f", "%T"], "--format %T", "the time"),
        ("mlog", ["--from", "end"], "--from", "where a partition ends"),
        ("mlog", ["--from", "-5"], "--from", "where a partition ends"),
        ("mlog", ["--until", "@5"], "--until", "where a partition ends"),
        ("mlog", ["-F", "--until", "end"], "--until", "expected an offset"),
        ("mlog", ["--isolation", "read_uncommitted"], "--isolation", "committed"),
        ("mlog", ["-f", "%k"], "--format %k", "keys"),
        ("mlog", ["-f", "%K"], "--format %K", "keys"),
    ],
)
def test_what_cannot_be_read_is_refused_by_option_and_protocol(
    dragoman: Run, protocol: str, arguments: list[str], option: str, reason: str
) -> None:
    ran = dragoman("consume", "t", protocol, *arguments, "-b", "127.0.0.1:1")
    assert (ran.status, ran.out) == (2, b"")
    assert ran.err.startswith(f"dragoman: {option}")
    assert protocol in ran.err
    assert reason in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-H", "KEYS=1"], "a message has one property 'KEYS'"),
        (["-H", "a=1", "-H", "a=2"], "a message has one property 'a'"),
        (["-H", "a="], "header 'a': rocketmq cannot express b''"),
        (["-k", "a\x02b"], "key: rocketmq cannot express"),
        (["-p", "2"], "has no partition 2; it has 2"),
    ],
)
def test_what_rocketmq_cannot_put_into_a_message_is_refused(
    dragoman: Run, topic: str, arguments: list[str], reason: str
) -> None:
    ran = dragoman("produce", topic, "rocketmq", *arguments, stdin=b"v\n")
    assert ran.status != 0
    assert reason in ran.err


def test_rocketmq_keeps_keys_together_and_shows_places(dragoman: Run, topic: str) -> None:
    given = b"".join(b"k%d:%d\n" % (number % 3, number) for number in range(30))
    assert dragoman("produce", topic, "rocketmq", "-K", ":", stdin=given).status == 0
    found = [
        line.split()
        for line in dragoman("consume", topic, "rocketmq", "-f", "%p %k %s\\n").out.splitlines()
    ]
    by_key: dict[bytes, list[tuple[bytes, int]]] = {}
    for partition, key, value in found:
        by_key.setdefault(key, []).append((partition, int(value)))
    assert by_key.keys() == {b"k0", b"k1", b"k2"}
    for key, entries in by_key.items():
        assert len({partition for partition, _ in entries}) == 1
        assert [value for _, value in entries] == list(range(int(key[1:]), 30, 3))
    one_way = dragoman("produce", topic, "rocketmq", "--acks", "0", "-p", "1", stdin=b"x\ny\n")
    assert one_way.status == 0
    # They may still be on their way: they are waited for.
    ran = dragoman("consume", topic, "rocketmq", "--follow", "-c", "32", "-f", "%s\\n")
    assert {b"x", b"y"} <= set(ran.out.splitlines())


def test_rocketmq_refuses_a_group_that_has_members(
    dragoman: Run, broker: EphemeralBroker, topic: str
) -> None:
    with (
        BlockingRocketmqClient(broker.address("rocketmq")) as client,
        client.push_consumer(topic, {topic: "*"}, lambda _: None),
    ):
        ran = dragoman("consume", topic, "rocketmq", "--group", topic)
    assert (ran.status, ran.out) == (1, b"")
    assert "has 1 member; stop them first" in ran.err


def test_help_says_what_minibroker_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["consume", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "The minibroker protocol does not report where a partition ends" in shown


def test_name_of_a_partition_is_no_topic_for_mlog(dragoman: Run) -> None:
    ran = dragoman("consume", "orders@2", "mlog")
    assert ran.status == 2
    assert "'orders@2' is partition 2 of 'orders'; give --partition" in ran.err


@pytest.mark.parametrize("protocol", OTHERS)
def test_what_holds_anyway_may_be_asked_for(dragoman: Run, topic: str, protocol: str) -> None:
    written = dragoman("produce", topic, protocol, "--acks", "all", "-z", "none", stdin=b"v\n")
    assert (written.status, written.err) == (0, f"produced 1 record to {topic!r}\n")
    read = dragoman("consume", topic, protocol, "--isolation", "read_committed", "-c", "1")
    assert (read.status, read.out, read.err) == (0, b"v\n", "")


# ---- lines of JSON

LINE = {"key": "k", "value": "v", "headers": {"h": "1"}, "partition": 1, "timestamp": 5}
CARRIED = {
    "rocketmq": {"key", "value", "partition", "headers"},
    "minibroker": {"key", "value"},
    "cursus": {"key", "value", "partition"},
    "mlog": {"value", "partition"},
}


@pytest.mark.parametrize("protocol", OTHERS)
@pytest.mark.parametrize("field", ["key", "headers", "partition", "timestamp", "null"])
def test_field_that_cannot_be_carried_is_named_with_its_line(
    dragoman: Run, topic: str, protocol: str, field: str
) -> None:
    line = {"value": None} if field == "null" else {"value": "v", field: LINE[field]}
    given = b'{"value": "good"}\n' + json.dumps(line).encode()
    ran = dragoman("produce", topic, protocol, "--json", stdin=given)
    if field in CARRIED[protocol]:
        assert (ran.status, ran.err) == (0, f"produced 2 records to {topic!r}\n")
        return
    assert ran.status == 1
    said, complained = ran.err.splitlines()
    assert said == f"produced 1 record to {topic!r}"
    named = "value is null" if field == "null" else field
    assert complained.startswith(f"dragoman: line 2: {named}: ")


@pytest.mark.parametrize("protocol", OTHERS)
def test_fields_can_be_left_out_of_lines(
    dragoman: Run, client: BlockingKafkaClient, topic: str, protocol: str
) -> None:
    left_out = sorted(LINE.keys() - CARRIED[protocol])
    options = [word for field in left_out for word in ("--without", field)]
    given = json.dumps(LINE).encode()
    ran = dragoman("produce", topic, protocol, "--json", *options, stdin=given)
    assert (ran.status, ran.err) == (0, f"produced 1 record to {topic!r}\n")
    (read,) = dragoman("consume", topic, "kafka", "--json").out.splitlines()
    found = json.loads(read)
    for field in CARRIED[protocol] - {"headers"}:
        assert found[field] == LINE[field]
    if "headers" in CARRIED[protocol]:
        assert ["rocketmq.h", "1"] in found["headers"]
    assert found["timestamp"] != LINE["timestamp"]


def test_only_json_has_fields_to_leave_out(dragoman: Run) -> None:
    ran = dragoman("produce", "t", "kafka", "--without", "key", stdin=b"v\n")
    assert (ran.status, ran.err) == (
        2,
        "dragoman: --without: only JSON lines have fields; give --json, too\n",
    )


# ---- writing


@pytest.mark.parametrize("protocol", ["minibroker", "cursus"])
def test_keys_are_written_and_decide_the_partition(
    dragoman: Run, topic: str, protocol: str
) -> None:
    given = b"".join(b"key-%d:%d\n" % (n % 7, n) for n in range(50))
    ran = dragoman("produce", topic, protocol, "-K", ":", stdin=given)
    assert ran.err == f"produced 50 records to {topic!r}\n"
    out = dragoman("consume", topic, "kafka", "-f", r"%p %k %s\n").out.decode()
    found = [line.split() for line in out.splitlines()]
    places: dict[str, set[str]] = {}
    for partition, key, _ in found:
        places.setdefault(key, set()).add(partition)
    assert all(len(each) == 1 for each in places.values())
    assert {each for places_of in places.values() for each in places_of} == {"0", "1"}
    for wanted in places:
        values = [int(value) for _, key, value in found if key == wanted]
        assert values == sorted(values)
    assert sorted(int(value) for *_, value in found) == list(range(50))


@pytest.mark.parametrize("protocol", ["cursus", "mlog"])
def test_partition_is_the_one_asked_for(dragoman: Run, topic: str, protocol: str) -> None:
    assert dragoman("produce", topic, protocol, "-p", "1", stdin=b"a\nb\n").status == 0
    assert dragoman("consume", topic, "kafka", "-f", r"%p%o%s ").out == b"10a 11b "
    assert dragoman("consume", topic, protocol, "-p", "1").out == b"a\nb\n"
    assert dragoman("consume", topic, protocol, "-p", "0").out == b""


@pytest.mark.parametrize("protocol", OTHERS)
def test_any_bytes_go_through(dragoman: Run, topic: str, protocol: str) -> None:
    given = [b"\xff\xfe not UTF-8", b" blanks ", b"tab\tnul\0", b"", b"x" * 300_000]
    ran = dragoman("produce", topic, protocol, stdin=b"\n".join(given))
    assert ran.err == f"produced 5 records to {topic!r}\n"
    for reader in ("kafka", protocol):
        out = dragoman("consume", topic, reader, "-c", "5").out
        assert sorted(out.removesuffix(b"\n").split(b"\n")) == sorted(given)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_cursus_batches_are_compressed(dragoman: Run, topic: str, codec: str) -> None:
    given = b"".join(b"line %d\n" % n for n in range(500))
    assert dragoman("produce", topic, "cursus", "-z", codec, "-p", "0", stdin=given).status == 0
    assert dragoman("consume", topic, "cursus").out == given


@pytest.mark.parametrize("protocol", ["cursus", "mlog"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acknowledgement_can_be_chosen(dragoman: Run, topic: str, protocol: str, acks: str) -> None:
    ran = dragoman("produce", topic, protocol, "--acks", acks, stdin=b"v\n")
    assert ran.err == f"produced 1 record to {topic!r}\n"


# ---- reading


@pytest.mark.parametrize(
    ("protocol", "arguments", "values"),
    [
        ("minibroker", ["--max", "4"], range(4)),
        ("minibroker", ["--until", "10", "-p", "0"], range(10)),
        ("minibroker", ["--from", "7", "--until", "10", "-p", "0"], range(7, 10)),
        ("minibroker", ["--from", "5", "--until", "5"], ()),
        ("minibroker", ["-F", "-c", "10"], range(10)),
        ("cursus", [], range(10)),
        ("cursus", ["--from", "7"], (7, 8, 9)),
        ("cursus", ["--from", "99"], ()),
        ("cursus", ["--from", "end"], ()),
        ("cursus", ["--from", "-2"], (8, 9)),
        ("cursus", ["--until", "3"], (0, 1, 2)),
        ("cursus", ["--until", "-7"], (0, 1, 2)),
        ("cursus", ["--max", "4"], range(4)),
        ("cursus", ["-F", "-p", "0", "--until", "10"], range(10)),
        ("cursus", ["-F", "-c", "10"], range(10)),
        ("mlog", [], range(10)),
        ("mlog", ["--from", "7"], (7, 8, 9)),
        ("mlog", ["--from", "99"], ()),
        ("mlog", ["--until", "3"], (0, 1, 2)),
        ("mlog", ["--until", "end"], range(10)),
        ("mlog", ["--max", "4"], range(4)),
        ("mlog", ["-F", "-p", "0", "--until", "10"], range(10)),
        ("mlog", ["-F", "-c", "10"], range(10)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_range_is_what_was_asked_for(
    dragoman: Run,
    client: BlockingKafkaClient,
    topic: str,
    protocol: str,
    arguments: list[str],
    values: range,
) -> None:
    numbers(client, topic, 10)
    ran = dragoman("consume", topic, protocol, *arguments)
    assert (ran.status, ran.out, ran.err) == (0, lines(*values), "")


@pytest.mark.parametrize("protocol", OTHERS)
def test_all_partitions_are_read(
    dragoman: Run, client: BlockingKafkaClient, topic: str, protocol: str
) -> None:
    for partition in range(2):
        numbers(client, topic, 5, partition)
    out = dragoman("consume", topic, protocol, "-c", "10", "-f", r"%t %p %o %s %S\n").out.decode()
    expected = [f"{topic} {p} {n} {n} 1" for p in range(2) for n in range(5)]
    assert sorted(out.splitlines()) == expected


@pytest.mark.parametrize("protocol", OTHERS)
def test_json_shows_null_for_what_the_protocol_does_not_tell(
    dragoman: Run, client: BlockingKafkaClient, topic: str, protocol: str
) -> None:
    given = NewRecord(key=b"k", value=b"\xff", headers=(("h", b"1"),), partition=1)
    client.produce_records(topic, [given])
    found = json.loads(dragoman("consume", topic, protocol, "--json", "-c", "1").out)
    is_told = protocol == "rocketmq"
    assert found == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": found["timestamp"] if is_told else None,
        "key": None if protocol == "mlog" else "k",
        "value": {"base64": "/w=="},
        "headers": [["h", "1"]] if is_told else None,
    }
    assert (found["timestamp"] is not None) == is_told


def test_end_of_minibroker_partition_is_where_new_records_come(
    dragoman: Run, client: BlockingKafkaClient, broker: EphemeralBroker, topic: str
) -> None:
    """`--from end` prints what is written once it reads; here, that is written by hand."""
    numbers(client, topic, 3)

    async def read() -> list[bytes | None]:
        plan = Plan(
            bootstrap=broker.address("minibroker"),
            topic=topic,
            start=Place("end"),
            follow=True,
        )
        async with minibroker.CLIENT.open_reader(plan) as reader:
            merged = Merged(await reader.sources(*await resolved(reader)))
            await asyncio.to_thread(
                client.produce_records, topic, [NewRecord(value=b"new", partition=0)]
            )
            found = await merged.next_batch()
            await merged.close()
        assert found is not None
        return [each.value for each in found.records]

    assert asyncio.run(read()) == [b"new"]


@pytest.mark.parametrize("protocol", OTHERS)
def test_reader_that_follows_ends_when_no_record_comes(
    dragoman: Run, topic: str, protocol: str
) -> None:
    for group in ([], ["-g", f"idle-{protocol}"]):
        ran = dragoman("consume", topic, protocol, "--idle", "0.01", *group)
        assert (ran.status, ran.out, ran.err) == (0, b"", "")


# ---- groups


@pytest.mark.parametrize("protocol", OTHERS)
def test_group_goes_on_where_it_was_and_only_what_was_printed_is_committed(
    dragoman: Run, client: BlockingKafkaClient, topic: str, protocol: str
) -> None:
    numbers(client, topic, 10)
    assert dragoman("consume", topic, protocol, "-g", topic, "--max", "3").out == lines(0, 1, 2)
    assert committed(client, topic)[0] == 3
    assert client.describe_group(topic).state == "Empty"
    rest = dragoman("consume", topic, protocol, "-g", topic, "--max", "7")
    assert (rest.status, rest.out) == (0, lines(*range(3, 10)))
    assert committed(client, topic)[0] == 10
    if protocol != "minibroker":
        again = dragoman("consume", topic, protocol, "-g", topic)
        assert (again.status, again.out, again.err) == (0, b"", "")


def test_cursus_group_starts_at_the_end_on_request(
    dragoman: Run, client: BlockingKafkaClient, topic: str
) -> None:
    numbers(client, topic, 4)
    assert dragoman("consume", topic, "cursus", "-g", topic, "--from", "end").out == b""
    until = dragoman("consume", topic, "cursus", "-g", topic, "--until", "2")
    assert until.out == lines(0, 1)
    assert committed(client, topic)[0] == 2


def test_cursus_group_stops_before_the_end_of_a_transaction(
    dragoman: Run, broker: EphemeralBroker, topic: str
) -> None:
    """Which takes an offset, and is no record that could come."""

    async def write() -> None:
        async with (
            CursusClient(broker.address("cursus")) as client,
            client.transaction("writer") as transaction,
        ):
            await transaction.publish(topic, b"inside", key="k")

    asyncio.run(write())
    ran = dragoman("consume", topic, "cursus", "-g", topic)
    assert (ran.status, ran.out, ran.err) == (0, b"inside\n", "")
    again = dragoman("consume", topic, "cursus", "-g", topic)
    assert (again.status, again.out, again.err) == (0, b"", "")


def test_mlog_group_without_commits_starts_at_the_requested_position(
    dragoman: Run, client: BlockingKafkaClient, topic: str
) -> None:
    numbers(client, topic, 4)
    ran = dragoman("consume", topic, "mlog", "-g", topic, "--from", "2", "-p", "0")
    assert ran.out == lines(2, 3)


@pytest.mark.parametrize("protocol", ["kafka", "mlog", "minibroker"])
def test_group_that_is_alive_elsewhere_is_refused_before_anything_is_printed(
    dragoman: Run,
    client: BlockingKafkaClient,
    broker: EphemeralBroker,
    topic: str,
    protocol: str,
) -> None:
    numbers(client, topic, 3)
    with (
        BlockingCursusClient(broker.address("cursus")) as cursus,
        cursus.consumer(topic, topic) as member,
    ):
        assert member.assigned == (0, 1)
        ran = dragoman("consume", topic, protocol, "-g", topic, "--max", "1")
        assert (ran.status, ran.out) == (1, b"")
        assert f"group '{topic}'" in ran.err
        assert ran.err.count("\n") == 1


def test_live_minibroker_group_is_refused_to_cursus(
    dragoman: Run, client: BlockingKafkaClient, broker: EphemeralBroker, topic: str
) -> None:
    numbers(client, topic, 3)
    with (
        BlockingMinibrokerClient(broker.address("minibroker")) as other,
        other.join(topic, topic),
    ):
        ran = dragoman("consume", topic, "cursus", "-g", topic)
        assert (ran.status, ran.out) == (1, b"")
        assert "live members of protocol minibroker" in ran.err
        assert ran.err.count("\n") == 1


def test_two_members_share_the_partitions(
    dragoman: Run, client: BlockingKafkaClient, broker: EphemeralBroker, topic: str
) -> None:
    for partition in range(2):
        numbers(client, topic, 3, partition)
    with (
        BlockingMinibrokerClient(broker.address("minibroker")) as other,
        other.join(topic, topic) as member,
    ):
        assert member.partitions == (0, 1)
        ran = dragoman("consume", topic, "minibroker", "-g", topic, "-c", "3", "-f", r"%p %s\n")
        partitions = {line.split()[0] for line in ran.out.splitlines()}
        assert len(partitions) == 1
        (mine,) = map(int, partitions)
        assert committed(client, topic) == {mine: 3}


# ---- failures


@pytest.mark.parametrize("protocol", OTHERS)
@pytest.mark.parametrize("command", ["produce", "consume"])
def test_broker_that_cannot_be_reached_is_named(dragoman: Run, protocol: str, command: str) -> None:
    arguments = ["-c", "1"] if command == "consume" else []
    ran = dragoman(command, "t", protocol, *arguments, "-b", "127.0.0.1:1")
    assert (ran.status, ran.err) == (
        1,
        "dragoman: cannot reach 127.0.0.1:1: connection refused; is a node running there?\n",
    )
    wrong = dragoman(command, "t", protocol, *arguments, "-b", "127.0.0.1:port")
    assert wrong.status == 2
    assert "--bootstrap: expected HOST:PORT" in wrong.err


@pytest.mark.parametrize(
    ("protocol", "listener"),
    [
        ("minibroker", "kafka"),
        ("minibroker", "cursus"),
        ("minibroker", "http"),
        ("cursus", "kafka"),
        ("cursus", "minibroker"),
        ("cursus", "http"),
        ("mlog", "http"),
        ("kafka", "minibroker"),
        ("kafka", "cursus"),
        ("kafka", "http"),
    ],
)
def test_listener_of_another_protocol_is_doubted(
    dragoman: Run, broker: EphemeralBroker, protocol: str, listener: str
) -> None:
    ran = dragoman("consume", "t", protocol, "-c", "1", "-b", broker.address(listener))
    assert (ran.status, ran.out) == (1, b"")
    assert broker.address(listener) in ran.err
    assert "speak" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("module", "protocol", "listener"),
    [(minibroker, "minibroker", "mlog"), (mlog, "mlog", "cursus")],
)
def test_listener_that_says_nothing_is_doubted(
    dragoman: Run,
    broker: EphemeralBroker,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    protocol: str,
    listener: str,
) -> None:
    hello = module._HELLO  # type: ignore[attr-defined]
    impatient = msgspec.structs.replace(hello, request_timeout_s=0.2)
    monkeypatch.setattr(module, "_HELLO", impatient)
    ran = dragoman("consume", "t", protocol, "-c", "1", "-b", broker.address(listener))
    assert ran.status == 1
    assert f"did not answer within 0.2 s; does it speak {protocol}?" in ran.err


@pytest.mark.parametrize("protocol", ["cursus", "mlog"])
@pytest.mark.parametrize("command", ["produce", "consume"])
def test_topic_that_is_not_there_is_named(dragoman: Run, protocol: str, command: str) -> None:
    ran = dragoman(command, "nowhere", protocol, stdin=b"v\n")
    assert (ran.status, ran.out, ran.err) == (
        1,
        b"",
        "dragoman: topic 'nowhere': there is no such topic\n",
    )


def test_minibroker_makes_a_topic_on_first_use(dragoman: Run) -> None:
    ran = dragoman("produce", "made-by-minibroker", "minibroker", stdin=b"v\n")
    assert ran.err == "produced 1 record to 'made-by-minibroker'\n"
    assert dragoman("consume", "made-by-minibroker", "kafka").out == b"v\n"


@pytest.mark.parametrize("protocol", OTHERS)
def test_partition_that_is_not_there_is_named(dragoman: Run, topic: str, protocol: str) -> None:
    ran = dragoman("consume", topic, protocol, "-c", "1", "-p", "7")
    assert (ran.status, ran.err) == (
        1,
        f"dragoman: topic {topic!r} has no partition 7; it has 2\n",
    )


@pytest.mark.parametrize("protocol", ["cursus", "mlog"])
def test_partition_to_write_to_has_to_be_there(dragoman: Run, topic: str, protocol: str) -> None:
    ran = dragoman("produce", topic, protocol, "-p", "7", stdin=b"v\n")
    assert (ran.status, ran.err.splitlines()) == (
        1,
        [
            f"produced 0 records to {topic!r}",
            f"dragoman: topic {topic!r} has no partition 7; it has 2",
        ],
    )


@pytest.mark.parametrize("protocol", OTHERS)
def test_record_that_is_too_large_is_refused(dragoman: Run, topic: str, protocol: str) -> None:
    ran = dragoman("produce", topic, protocol, stdin=b"small\n" + b"x" * 2_000_000 + b"\n")
    said, complained = ran.err.splitlines()
    assert (ran.status, said) == (1, f"produced 1 record to {topic!r}")
    assert complained.startswith("dragoman: ")
    assert "max.message.bytes is 1048588" in complained
    assert dragoman("consume", topic, "kafka").out == b"small\n"


# ---- sources that are merged


async def _source(partition: int, count: int, failure: Exception | None, log: list[int]) -> Batches:
    try:
        for offset in range(count):
            yield Batch([PlainRecord("t", partition, offset, None, b"")])
        if failure is not None:
            raise failure
    finally:
        log.append(partition)


async def test_merged_sources_keep_their_order_and_end_together() -> None:
    ended: list[int] = []
    merged = Merged([_source(partition, 3, None, ended) for partition in range(4)])
    found: list[tuple[int, int]] = []
    while batch := await merged.next_batch():
        found += [(each.partition, each.offset) for each in batch.records]
    assert sorted(found) == [(partition, offset) for partition in range(4) for offset in range(3)]
    for partition in range(4):
        offsets = [offset for where, offset in found if where == partition]
        assert offsets == sorted(offsets)
    assert await merged.next_batch() is None
    await merged.close()
    assert sorted(ended) == [0, 1, 2, 3]


async def test_failure_of_a_source_is_raised_behind_what_it_gave() -> None:
    merged = Merged([_source(0, 1, ValueError("broken"), [])])
    first = await merged.next_batch()
    assert first is not None
    assert len(first.records) == 1
    with pytest.raises(ValueError, match="broken"):
        await merged.next_batch()
    await merged.close()


async def test_closing_ends_sources_with_untaken_records() -> None:
    ended: list[int] = []
    merged = Merged([_source(partition, 1000, None, ended) for partition in range(2)])
    await merged.next_batch()
    await merged.close()
    assert sorted(ended) == [0, 1]


async def test_without_sources_there_is_nothing() -> None:
    assert await Merged([]).next_batch() is None


async def test_waiting_for_a_batch_may_have_an_end() -> None:
    silent = asyncio.Event()

    async def source() -> Batches:
        yield Batch([PlainRecord("t", 0, 0, None, b"")])
        await silent.wait()

    merged = Merged([source()])
    assert await merged.next_batch(time.monotonic() + 600) is not None
    assert await merged.next_batch(time.monotonic() - 1) is None
    await merged.close()
