"""Goal: the commands of `dragoman rocketmq` do what `mqadmin`'s do, under both names, and say why
when they cannot.

Method: commands run in this process, against one broker in another thread.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragoman.cli.main import main
from dragoman.client.rocketmq import (
    BlockingRocketmqClient,
    ConsumeFrom,
    Later,
    Message,
    ReceivedMessage,
    Sent,
)
from dragoman.testing import EphemeralBroker

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(listeners=("rocketmq", "rocketmq-broker")) as started:
        yield started


@pytest.fixture
def client(broker: EphemeralBroker) -> Iterator[BlockingRocketmqClient]:
    with BlockingRocketmqClient(broker.address("rocketmq")) as opened:
        yield opened


@pytest.fixture
def dragoman(broker: EphemeralBroker, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(command: str, *arguments: str) -> tuple[int, str, str]:
        status = main(["rocketmq", command, *arguments, "-n", broker.address("rocketmq")])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def topic(dragoman: Run, request: pytest.FixtureRequest) -> str:
    """With two queues. Named after the test."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)[:100]
    assert dragoman("update-topic", "-t", name, "-r", "2", "-w", "2")[0] == 0
    return name


@pytest.fixture
def sent(client: BlockingRocketmqClient, topic: str) -> list[Sent]:
    with client.producer(f"p-{topic}") as producer:
        return [
            producer.send(
                Message(topic=topic, body=b"body %d" % number, tags="a", keys=[f"k{number % 2}"])
            )
            for number in range(4)
        ]


def shown(run: tuple[int, str, str]) -> list[dict[str, object]]:
    status, out, err = run
    assert (status, err) == (0, "")
    found = json.loads(out)
    return found if isinstance(found, list) else [found]


def consumed(client: BlockingRocketmqClient, topic: str, count: int, group: str) -> None:
    """The group consumes as many."""
    done = threading.Semaphore(0)

    def listener(_: ReceivedMessage) -> None:
        done.release()

    with client.push_consumer(group, {topic: "*"}, listener, start=ConsumeFrom.FIRST_OFFSET):
        for _ in range(count):
            assert done.acquire(timeout=60)


def test_topics(dragoman: Run, topic: str, sent: list[Sent]) -> None:
    assert {"topic": topic} in shown(dragoman("topicList", "--output", "json"))
    assert {"topic": topic} in shown(
        dragoman("topic-list", "-c", "DefaultCluster", "--output=json")
    )
    (route,) = shown(dragoman("topicRoute", "-t", topic, "--output", "json"))
    assert (route["read_queues"], route["write_queues"], route["perm"]) == (2, 2, 6)
    queues = shown(dragoman("topicStatus", "-t", topic, "--output", "json"))
    assert [(each["queue"], each["min_offset"], each["max_offset"]) for each in queues] == [
        (0, 0, 2),
        (1, 0, 2),
    ]
    status, out, _ = dragoman("topic-status", "-t", topic)
    assert status == 0
    assert "MAX OFFSET" in out
    assert dragoman("updateTopic", "-t", topic, "-r", "4", "-w", "4")[0] == 0
    assert len(shown(dragoman("topic-status", "-t", topic, "--output", "json"))) == 4
    status, _, err = dragoman("deleteTopic", "-t", topic)
    assert (status, err) == (0, f"deleted topic {topic!r}\n")
    status, _, err = dragoman("topicRoute", "-t", topic)
    assert status == 1
    assert "topic not exist" in err
    assert len(err.splitlines()) == 1


def test_brokers(dragoman: Run, broker: EphemeralBroker) -> None:
    (one,) = shown(dragoman("clusterList", "--output", "json"))
    assert one["cluster"] == "DefaultCluster"
    assert one["address"] == broker.address("rocketmq-broker")
    assert one["version"]
    found = shown(dragoman("brokerStatus", "--output", "json"))
    assert "putTps" in {each["name"] for each in found}
    named = shown(dragoman("broker-status", "-b", str(one["address"]), "--output", "json"))
    assert {each["name"] for each in named} == {each["name"] for each in found}
    assert shown(dragoman("broker-status", "-c", "other", "--output", "json")) == []


def test_groups(
    dragoman: Run, client: BlockingRocketmqClient, topic: str, sent: list[Sent]
) -> None:
    group = f"g-{topic}"
    with client.push_consumer(group, {topic: "*"}, lambda _: None) as consumer:
        assert len(consumer.assigned) >= 2
        (member,) = shown(dragoman("consumerConnection", "-g", group, "--output", "json"))
        assert member["language"] == "PYTHON"
    assert dragoman("consumer-connection", "-g", group)[0] == 1
    status, _, err = dragoman("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    assert (status, err) == (0, "")
    progress = shown(dragoman("consumerProgress", "-g", group, "-t", topic, "--output", "json"))
    assert sum(int(str(each["lag"])) for each in progress) == 4
    rows = shown(dragoman("consumer-progress", "--output", "json"))
    assert {each["group"]: each["lag"] for each in rows}[group] == 4
    consumed(client, topic, 4, group)
    rows = shown(dragoman("consumer-progress", "--output", "json"))
    assert {each["group"]: each["lag"] for each in rows}[group] == 0
    for time in ("2026-01-01#00:00:00:000", "2026-01-01T00:00:00Z", "0"):
        moved = shown(
            dragoman("reset-offset-by-time", "-g", group, "-t", topic, "-s", time, "--output=json")
        )
        assert [each["offset"] for each in moved] == [0, 0]
    moved = shown(
        dragoman("reset-offset-by-time", "-g", group, "-t", topic, "-s", "now", "--output=json")
    )
    assert [each["offset"] for each in moved] == [2, 2]
    status, _, err = dragoman("resetOffsetByTime", "-g", group, "-t", topic, "-s", "end")
    assert status == 2
    assert "expected now, @-15m or a time" in err
    assert dragoman("updateSubGroup", "-g", "made", "-r", "3")[0] == 0
    groups = {each["group"] for each in shown(dragoman("consumer-progress", "--output", "json"))}
    assert "made" in groups
    assert dragoman("deleteSubGroup", "-g", "made")[0] == 0
    groups = {each["group"] for each in shown(dragoman("consumer-progress", "--output", "json"))}
    assert "made" not in groups


def test_producers(dragoman: Run, client: BlockingRocketmqClient, topic: str) -> None:
    with client.producer("writers") as producer:
        producer.send(Message(topic=topic, body=b"x"))
        arguments = ("-g", "writers", "-t", topic)
        (member,) = shown(dragoman("producerConnection", *arguments, "--output", "json"))
        assert member["language"] == "PYTHON"
    assert dragoman("producer-connection", *arguments)[0] == 1


def test_messages(dragoman: Run, topic: str, sent: list[Sent]) -> None:
    (one,) = shown(dragoman("queryMsgById", "-i", sent[1].message_id, "--output", "json"))
    assert (one["body"], one["keys"], one["tags"]) == ("body 1", ["k1"], "a")
    assert one["unique_id"] == sent[1].unique_id
    same = shown(
        dragoman("query-msg-by-id", "-t", topic, "-i", sent[1].unique_id, "--output", "json")
    )
    unique = shown(
        dragoman("queryMsgByUniqueKey", "-t", topic, "-i", sent[1].unique_id, "--output", "json")
    )
    queue = sent[1].queue
    place = ("-b", queue.broker_name, "-i", str(queue.queue_id), "-o", str(sent[1].queue_offset))
    at = shown(dragoman("queryMsgByOffset", "-t", topic, *place, "--output", "json"))
    assert [one] == same == unique == at
    found = shown(dragoman("queryMsgByKey", "-t", topic, "-k", "k1", "--output", "json"))
    assert [each["body"] for each in found] == ["body 1", "body 3"]
    _, table, _ = dragoman("query-msg-by-key", "-t", topic, "-k", "k1")
    assert sent[3].unique_id in table
    _, fields, _ = dragoman("query-msg-by-id", "-i", sent[1].message_id)
    assert "body 1" in fields
    for command, arguments in {
        "queryMsgById": ("-i", "rubbish"),
        "queryMsgByUniqueKey": ("-t", topic, "-i", "rubbish"),
        "queryMsgByOffset": ("-t", topic, *place[:-1], "99"),
    }.items():
        status, out, err = dragoman(command, *arguments)
        assert (status, out, len(err.splitlines())) == (1, "", 1)


def test_sending(dragoman: Run, topic: str) -> None:
    (one,) = shown(
        dragoman("sendMessage", "-t", topic, "-p", "hello", "-k", "a b", "-c", "t", "--output=json")
    )
    (found,) = shown(dragoman("query-msg-by-id", "-i", str(one["message_id"]), "--output", "json"))
    assert (found["body"], found["keys"], found["tags"]) == ("hello", ["a", "b"], "t")
    place = ("-b", str(one["broker"]), "-i", "1")
    status, out, err = dragoman("send-message", "-t", topic, "-p", "x", *place)
    assert status == 0
    assert err.startswith("sent message ")
    assert "MESSAGE ID" in out
    status, _, err = dragoman("send-message", "-t", topic, "-p", "x", "-i", "1")
    assert status == 2
    assert "expected both or none" in err


def test_dead_letters(
    dragoman: Run, client: BlockingRocketmqClient, topic: str, sent: list[Sent]
) -> None:
    group = f"g-{topic}"
    given: list[bytes] = []
    changed = threading.Semaphore(0)
    verdict: list[Later | None] = [Later(-1)]

    def listener(message: ReceivedMessage) -> Later | None:
        given.append(message.body)
        changed.release()
        return verdict[0]

    assert shown(dragoman("dlqList", "-g", group, "--output", "json")) == []
    first = {"start": ConsumeFrom.FIRST_OFFSET}
    with client.push_consumer(group, {topic: "*"}, listener, **first):  # type: ignore[arg-type]
        for _ in range(4):
            assert changed.acquire(timeout=60)
    letters = shown(dragoman("dlqList", "-g", group, "--output", "json"))
    assert {each["origin_topic"] for each in letters} == {topic}
    ids = [str(each["message"]["message_id"]) for each in letters]  # type: ignore[index]
    assert len(ids) == 4
    _, table, _ = dragoman("dlq-list", "-g", group)
    assert ids[0] in table
    verdict[0] = None
    for arguments, count in ((("-i", ids[0], "-i", ids[1]), 2), (("--all",), 4)):
        status, _, err = dragoman("dlqResend", "-g", group, *arguments)
        assert (status, err) == (0, f"resent messages: {count}\n")
    with client.push_consumer(group, {topic: "*"}, listener, **first):  # type: ignore[arg-type]
        for _ in range(6):
            assert changed.acquire(timeout=60)
    for arguments, status in ((("-i", "other"), 1), ((), 2), (("--all", "-i", ids[0]), 2)):
        assert dragoman("dlq-resend", "-g", group, *arguments)[0] == status


def test_failures_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for address, status in (("127.0.0.1:1", 1), ("nowhere", 2)):
        for command in (["topicList"], ["sendMessage", "-t", "T", "-p", "x"]):
            assert main(["rocketmq", *command, "-n", address]) == status
            err = capsys.readouterr().err
            assert len(err.splitlines()) == 1
            assert "--bootstrap" not in err


# ---- users and permissions


@pytest.fixture
def secret(tmp_path: Path) -> str:
    file = tmp_path / "secret"
    file.write_text("12345678\n")
    return str(file)


def test_users_are_administered(dragoman: Run, secret: str) -> None:
    assert dragoman("create-user", "-u", "ann", "--password-file", secret)[0] == 0
    assert dragoman("createUser", "-u", "ben", "-t", "Super", "--password-file", secret)[0] == 0
    assert dragoman("update-user", "-u", "ann", "-s", "disable")[0] == 0
    assert shown(dragoman("list-user", "--output", "json")) == [
        {"user": "ann", "type": "Normal", "status": "disable"},
        {"user": "ben", "type": "Super", "status": "enable"},
    ]
    assert dragoman("deleteUser", "-u", "ben")[0] == 0
    assert [each["user"] for each in shown(dragoman("list-user", "--output", "json"))] == ["ann"]
    status, _, error = dragoman("update-user", "-u", "ben", "-s", "enable")
    assert (status, error) == (1, "dragoman: there is no user 'ben'\n")


def test_permissions_are_administered(dragoman: Run) -> None:
    assert dragoman("create-acl", "-s", "ann", "-r", "Topic:a*,Group:g", "-a", "Sub")[0] == 0
    deny = ("-s", "User:ann", "-r", "Topic:b", "-a", "All", "-d", "Deny", "-i", "10.0.0.1")
    assert dragoman("createAcl", *deny)[0] == 0
    rows = shown(dragoman("list-acl", "-s", "ann", "--output", "json"))
    assert sorted(tuple(each.values()) for each in rows) == [
        ("User:ann", "Group:g", "Sub", "*", "Allow"),
        ("User:ann", "Topic:a*", "Sub", "*", "Allow"),
        ("User:ann", "Topic:b", "All", "10.0.0.1", "Deny"),
    ]
    assert len(shown(dragoman("list-acl", "-r", "Topic:b", "--output", "json"))) == 1
    assert dragoman("delete-acl", "-s", "ann", "-r", "Topic:b")[0] == 0
    assert dragoman("delete-acl", "-s", "ann")[0] == 0
    assert shown(dragoman("list-acl", "--output", "json")) == []


def test_commands_sign_as_a_user(dragoman: Run, secret: str) -> None:
    signed = ("--access-key", "ann", "--secret-key-file", secret)
    assert dragoman("topic-list", *signed)[0] == 0
    status, _, error = dragoman("topic-list", "--access-key", "ann")
    assert (status, error.count("expected both or none")) == (2, 1)
    status, _, error = dragoman("topic-list", "--access-key", "a", "--secret-key-file", "/no/file")
    assert status == 2
    assert "/no/file" in error


def test_a_password_file_must_be_readable(dragoman: Run) -> None:
    status, _, error = dragoman("create-user", "-u", "x", "--password-file", "/no/such/file")
    assert status == 2
    assert "/no/such/file" in error
