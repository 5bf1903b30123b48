"""Transactions: what readers of either isolation see, offsets inside them, and who is fenced."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from client import Client, Member, Record, Row, wait_until
from record_operations import check_values, numbered


def commit_and_abort(client: Client, topic: str) -> None:
    """In one partition, so that a record that should be hidden would come before the others."""
    client.create_topic(topic, 1)
    with closing(client.transactor(topic)) as transactor:
        for prefix, end in ((b"a", "commit"), (b"b", "abort"), (b"c", "commit"), (b"d", "abort")):
            transactor.begin()
            transactor.send(topic, [prefix, prefix])
            getattr(transactor, end)()
    client.produce(topic, [Record(b"e")])
    committed = client.consume(topic, 5, committed_only=True)
    assert [row.value for row in committed] == [b"a", b"a", b"c", b"c", b"e"], committed
    everything = client.consume(topic, 9)
    assert [row.value for row in everything] == [b"%c" % each for each in b"aabbccdde"]


def open_transaction(client: Client, topic: str) -> None:
    """What follows an open transaction in the log waits for its end; an abort hides it."""
    client.create_topic(topic, 1)
    client.produce(topic, [Record(b"before")])
    with closing(client.transactor(topic)) as transactor:
        transactor.begin()
        transactor.send(topic, [b"open"])
        client.produce(topic, [Record(b"after")])
        seen = [row.value for row in client.consume(topic, 3)]
        assert seen == [b"before", b"open", b"after"], seen
        assert [row.value for row in client.consume(topic, 1, committed_only=True)] == [b"before"]
        transactor.abort()
    seen = [row.value for row in client.consume(topic, 2, committed_only=True)]
    assert seen == [b"before", b"after"], seen


def _consume_transform_produce(protocol: str) -> Callable[[Client, str], None]:
    def run(client: Client, topic: str) -> None:
        """An aborted round is read again by the next member; a committed one is not."""
        source, target, group = f"{topic}-in", f"{topic}-out", f"group-{topic}"
        client.create_topic(source, 1)
        client.create_topic(target, 1)
        client.produce(source, numbered(10))
        with closing(client.transactor(topic)) as transactor:
            for end in ("abort", "commit"):
                with closing(client.member(group, [source], protocol=protocol)) as member:
                    rows = _read(member, 10)
                    check_values(rows, numbered(10))
                    transactor.begin()
                    transactor.send(target, [b"seen " + (row.value or b"") for row in rows])
                    transactor.send_offsets(member)
                    getattr(transactor, end)()
            client.produce(source, numbered(5, first=10))
            with closing(client.member(group, [source], protocol=protocol)) as member:
                check_values(_read(member, 5), numbered(5, first=10))
        rows = client.consume(target, 10, committed_only=True)
        assert [row.value for row in rows] == [b"seen value %d" % each for each in range(10)]
        assert rows[0].offset > 0, "the aborted round left nothing in the log"

    return run


def _read(member: Member, count: int) -> list[Row]:
    rows: list[Row] = []

    def enough() -> bool:
        rows.extend(member.poll())
        return len(rows) >= count

    wait_until(enough, f"{count} records for a member")
    return rows


def fencing(client: Client, topic: str) -> None:
    """A second producer with the id ends the first one's transaction and its right to write."""
    client.create_topic(topic, 1)
    with closing(client.transactor(topic)) as older:
        older.begin()
        older.send(topic, [b"older"])
        with closing(client.transactor(topic)) as newer:
            try:
                older.send(topic, [b"too late"])
                older.commit()
            except Exception as error:  # noqa: BLE001 - every library has an error of its own
                words = f"{type(error).__name__} {error}".lower()
                assert "fenced" in words or "epoch" in words, words
            else:
                raise AssertionError("the older producer could commit")
            newer.begin()
            newer.send(topic, [b"newer"])
            newer.commit()
    rows = client.consume(topic, 1, committed_only=True)
    assert [row.value for row in rows] == [b"newer"]


def broker_restart(client: Client, topic: str) -> None:
    """A transaction that was open before continues after."""
    client.create_topic(topic, 1)
    with closing(client.transactor(topic)) as transactor:
        transactor.begin()
        transactor.send(topic, [b"before"])
        client.broker.restart()
        transactor.send(topic, [b"after"])
        transactor.commit()
    rows = client.consume(topic, 2, committed_only=True)
    assert [row.value for row in rows] == [b"before", b"after"]


TRANSACTIONS: dict[str, Callable[[Client, str], None]] = {
    "commit and abort, both isolation levels": commit_and_abort,
    "open transaction holds readers back": open_transaction,
    "consume, transform, produce": _consume_transform_produce("classic"),
    "consume, transform, produce, KIP-848": _consume_transform_produce("consumer"),
    "older producer is fenced": fencing,
    "broker restarts in between": broker_restart,
}
