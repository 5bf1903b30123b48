"""Administration: what an admin client changes, it finds changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from client import Client, Member, wait_until
from group_operations import Readers
from record_operations import numbered


def create_and_delete(client: Client, topic: str) -> None:
    client.create_topic(topic, 3)
    client.delete_topic(topic)
    assert topic not in client.list_topics()


def list_topics(client: Client, topic: str) -> None:
    client.produce(topic, numbered(1))
    assert topic in client.list_topics()


def describe_topic(client: Client, topic: str) -> None:
    client.produce(topic, numbered(1))
    assert client.describe_topic(topic) == 1


def create_partitions(client: Client, topic: str) -> None:
    client.create_topic(topic, 2)
    client.create_partitions(topic, 5)
    client.produce(topic, numbered(50))
    assert {row.partition for row in client.consume(topic, 50)} == {0, 1, 2, 3, 4}


def topic_config(client: Client, topic: str) -> None:
    client.needs("topic_config")
    client.create_topic(topic, 1, {"retention.ms": "1234567"})
    assert client.topic_config(topic)["retention.ms"] == "1234567"
    client.alter_topic_config(topic, "retention.ms", "7654321")
    assert client.topic_config(topic)["retention.ms"] == "7654321"


def broker_config(client: Client, topic: str) -> None:
    assert client.broker_config()["num.partitions"] == "1"


def cluster(client: Client, topic: str) -> None:
    assert client.describe_cluster() == [1]


def delete_records(client: Client, topic: str) -> None:
    client.create_topic(topic, 1)
    client.produce(topic, numbered(10))
    assert client.delete_records(topic, 0, 4) in (4, None)
    assert [row.offset for row in client.consume(topic, 6)] == list(range(4, 10))


def list_offsets(client: Client, topic: str) -> None:
    client.create_topic(topic, 1)
    client.produce(topic, numbered(10))
    assert list(client.list_offsets(topic, 0)) == [0, 10]


def _group_of_one(client: Client, topic: str, protocol: str = "classic") -> tuple[str, Member]:
    """A group with one member that has read and committed ten records."""
    client.create_topic(topic, 4)
    client.produce(topic, numbered(10))
    group = f"group-{topic}"
    member = client.member(group, [topic], protocol=protocol)
    Readers(member).read(10)
    member.commit()
    return group, member


def _describe_groups(protocol: str) -> Callable[[Client, str], None]:
    def run(client: Client, topic: str) -> None:
        client.needs("describe_group")
        group, member = _group_of_one(client, topic, protocol)
        with closing(member):
            assert group in client.list_groups()
            state, count = client.describe_group(group)
            assert (state.lower(), count) == ("stable", 1)

    return run


def delete_groups(client: Client, topic: str) -> None:
    """Not while it has a member."""
    client.needs("delete_group")
    group, member = _group_of_one(client, topic)
    with closing(member):
        try:
            client.delete_group(group)
        except Exception as error:  # noqa: BLE001 - every library has an error of its own
            words = f"{type(error).__name__} {error}".lower().replace("_", "").replace(" ", "")
            assert "empty" in words, words
        else:
            raise AssertionError("a group with a member was deleted")
    client.delete_group(group)
    assert group not in client.list_groups()


def _total(client: Client, group: str) -> int:
    return sum(offset for _, _, offset in client.group_offsets(group))


def list_group_offsets(client: Client, topic: str) -> None:
    client.needs("group_offsets")
    group, member = _group_of_one(client, topic)
    member.close()
    assert _total(client, group) == 10


def alter_group_offsets(client: Client, topic: str) -> None:
    """The next member reads from there."""
    client.needs("alter_group_offset")
    group, member = _group_of_one(client, topic)
    member.close()
    for partition in range(4):
        client.alter_group_offset(group, topic, partition, 0)
    with closing(client.member(group, [topic])) as again:
        Readers(again).read(10)


def delete_group_offsets(client: Client, topic: str) -> None:
    client.needs("delete_group_offset")
    group, member = _group_of_one(client, topic)
    member.close()
    for partition in range(4):
        client.delete_group_offset(group, topic, partition)
    assert _total(client, group) == 0


def transactions(client: Client, topic: str) -> None:
    client.needs("list_transactions")
    client.create_topic(topic, 1)
    with closing(client.transactor(topic)) as transactor:
        transactor.begin()
        transactor.send(topic, [b"open"])
        assert client.list_transactions()[topic] == "Ongoing"
        transactor.commit()
    # The markers may still be on their way when the commit is answered.
    wait_until(lambda: client.list_transactions()[topic] == "CompleteCommit", "a finished commit")


def producers(client: Client, topic: str) -> None:
    client.needs("producer_states")
    client.create_topic(topic, 1)
    with closing(client.transactor(topic)) as transactor:
        transactor.begin()
        transactor.send(topic, [b"open"])
        assert list(client.producer_states(topic, 0)) == [True]
        transactor.abort()
    assert list(client.producer_states(topic, 0)) == [False]


def elect_leaders(client: Client, topic: str) -> None:
    client.create_topic(topic, 1)
    words = client.elect_leader(topic, 0).lower().replace("_", "").replace(" ", "")
    assert words == "" or "electionnotneeded" in words or "notneeded" in words, words


def reassignments(client: Client, topic: str) -> None:
    assert client.list_reassignments() == 0


def features(client: Client, topic: str) -> None:
    found = client.features()
    assert found["transaction.version"] == 2, found
    assert found["group.version"] == 1, found


def quotas(client: Client, topic: str) -> None:
    client.alter_quota(topic, "producer_byte_rate", 1_000_000)
    assert client.quota(topic) == {"producer_byte_rate": 1_000_000}


def log_directories(client: Client, topic: str) -> None:
    client.create_topic(topic, 1)
    client.produce(topic, numbered(10))
    assert client.log_directory_bytes(topic) > 0


ADMIN: dict[str, Callable[[Client, str], None]] = {
    "create and delete topics": create_and_delete,
    "list topics": list_topics,
    "describe topics": describe_topic,
    "create partitions": create_partitions,
    "describe and alter topic configs": topic_config,
    "describe broker configs": broker_config,
    "describe cluster": cluster,
    "delete records": delete_records,
    "list offsets": list_offsets,
    "list and describe groups": _describe_groups("classic"),
    "list and describe groups, KIP-848": _describe_groups("consumer"),
    "delete groups": delete_groups,
    "list group offsets": list_group_offsets,
    "alter group offsets": alter_group_offsets,
    "delete group offsets": delete_group_offsets,
    "list transactions": transactions,
    "describe producers": producers,
    "elect leaders": elect_leaders,
    "list reassignments": reassignments,
    "describe features": features,
    "client quotas": quotas,
    "describe log directories": log_directories,
}
