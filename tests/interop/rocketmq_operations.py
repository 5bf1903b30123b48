"""What every RocketMQ client is tried with: messages, consumers, transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from client import Operations, wait_until
from rocketmq_client import Consumer, Delivery, Message, RocketmqClient

#: Of a round of messages: several for every queue.
COUNT = 12


# ---- what operations are made of


def bodies(prefix: str, count: int = COUNT) -> list[Message]:
    return [Message(f"{prefix} {number}", tags="a", keys=f"k{number}") for number in range(count)]


def collect(consumer: Consumer, wanted: Collection[str]) -> list[Delivery]:
    """Poll until all of these bodies have come; what came, in its order."""
    came: list[Delivery] = []
    missing = set(wanted)

    def is_complete() -> bool:
        new = consumer.poll()
        came.extend(new)
        missing.difference_update(each.body for each in new)
        return not missing

    wait_until(is_complete, f"{len(wanted)} messages came")
    return came


def read(client: RocketmqClient, topic: str, wanted: Sequence[Message]) -> list[Delivery]:
    """By a group of its own; each exactly once."""
    consumer = client.consumer(f"reads-{topic}", topic)
    try:
        came = collect(consumer, [each.body for each in wanted])
    finally:
        consumer.close()
    assert sorted(each.body for each in came) == sorted(each.body for each in wanted), came
    return came


def made(client: RocketmqClient, topic: str) -> str:
    """The topic, with the group that `read` uses at its beginning."""
    client.make_topic(topic, f"reads-{topic}")
    return topic


# ---- messages


def first_use(client: RocketmqClient, topic: str) -> None:
    client.needs("first use")
    client.send(topic, bodies("first"))
    client.make_group(topic, f"reads-{topic}")
    read(client, topic, bodies("first"))


def send_and_receive(client: RocketmqClient, topic: str) -> None:
    properties = {"colour": "blå", "n": "7"} if "properties" in client.has else {}
    sent = [each._replace(properties=properties) for each in bodies("sync")]
    placed = client.send(made(client, topic), sent)
    assert all(offset >= 0 for _, offset in placed), placed
    expected = {each.body: each for each in sent}
    for each in read(client, topic, sent):
        asked = expected[each.body]
        assert (each.topic, each.tags, each.keys) == (topic, asked.tags, asked.keys), each
        assert properties.items() <= each.properties.items(), each


def sent_by(way: str) -> Callable[[RocketmqClient, str], None]:
    def operation(client: RocketmqClient, topic: str) -> None:
        client.needs(way)
        client.send(made(client, topic), bodies(way), way)
        read(client, topic, bodies(way))

    return operation


def large(text: str) -> Callable[[RocketmqClient, str], None]:
    def operation(client: RocketmqClient, topic: str) -> None:
        sent = [Message(text)]
        client.send(made(client, topic), sent)
        read(client, topic, sent)

    return operation


def chosen_queue(client: RocketmqClient, topic: str) -> None:
    client.needs("queue")
    sent = [each._replace(queue=3) for each in bodies("queue")]
    placed = client.send(made(client, topic), sent)
    assert placed == [[3, number] for number in range(COUNT)], placed
    came = read(client, topic, sent)
    assert {each.queue for each in came} == {3}, came


def delay(client: RocketmqClient, topic: str) -> None:
    client.needs("delay")
    made(client, topic)
    consumer = client.consumer(f"reads-{topic}", topic)
    try:
        begun = time.monotonic()
        client.send(topic, [Message("late", delay_level=1)])
        client.send(topic, [Message("at once")])
        came = collect(consumer, ["late", "at once"])
        assert time.monotonic() - begun >= 1
    finally:
        consumer.close()
    assert sorted(each.body for each in came) == ["at once", "late"], came
    assert {each.topic for each in came} == {topic}, came


# ---- transactions


def transaction(decision: str, by_question: bool) -> Callable[[RocketmqClient, str], None]:
    """A message that is decided on at once, or when the broker asks; then one without."""

    def operation(client: RocketmqClient, topic: str) -> None:
        client.needs("transactions")
        made(client, topic)
        client.transact(topic, Message("decided", tags="a"), decision, by_question)
        client.send(topic, [Message("after")])
        wanted = [Message("after")] + [Message("decided")] * (decision == "commit")
        read(client, topic, wanted)

    return operation


# ---- consumers


def filtered(language: str, expression: str) -> Callable[[RocketmqClient, str], None]:
    def operation(client: RocketmqClient, topic: str) -> None:
        client.needs(language)
        sent = [
            Message(f"{tag} {n}", tags=tag, properties={"n": str(n)} if language == "SQL92" else {})
            for n in range(4)
            for tag in ("a", "b", "c")
        ]
        group = f"filters-{topic}"
        client.make_topic(topic, group)
        client.send(topic, sent)
        consumer = client.consumer(group, topic, language=language, expression=expression)
        wanted = {"a 2", "a 3", "b 2", "b 3"} if language == "SQL92" else {
            each.body for each in sent if each.tags in "ab"
        }  # fmt: skip
        try:
            came = collect(consumer, wanted)
            client.send(topic, [Message("a 9", tags="a", properties={"n": "9"})])
            came += collect(consumer, ["a 9"])
        finally:
            consumer.close()
        assert {each.body for each in came} == wanted | {"a 9"}, came

    return operation


def shared(client: RocketmqClient, topic: str) -> None:
    """Two share what comes; when one leaves, the other gets all of it."""
    group = f"shares-{topic}"
    client.make_topic(topic, group)
    first = client.consumer(group, topic)
    second = client.consumer(group, topic)
    rounds = iter(range(1000))

    def shares(*members: Consumer) -> list[set[str]]:
        """Of a round of messages, what each got."""
        sent = bodies(f"round {next(rounds)}:")
        client.send(topic, sent)
        wanted = {each.body for each in sent}
        got: list[set[str]] = [set() for _ in members]

        def is_complete() -> bool:
            for member, its in zip(members, got, strict=True):
                its.update(wanted & {each.body for each in member.poll()})
            return set().union(*got) == wanted

        wait_until(is_complete, "the members got the round")
        return got

    def is_shared() -> bool:
        mine, others = shares(first, second)
        return bool(mine) and bool(others) and not mine & others

    try:
        wait_until(is_shared, "both members get a share")
        second.close()
        shares(first)
    finally:
        second.close()
        first.close()


def goes_on(client: RocketmqClient, topic: str) -> None:
    group = f"goes-on-{topic}"
    client.make_topic(topic, group)
    client.send(topic, bodies("before"))
    first = client.consumer(group, topic)
    try:
        collect(first, {each.body for each in bodies("before")})
    finally:
        first.close()
    client.send(topic, bodies("after"))
    second = client.consumer(group, topic)
    try:
        came = collect(second, {each.body for each in bodies("after")})
    finally:
        second.close()
    assert {each.body for each in came} == {each.body for each in bodies("after")}, came


def broadcast(client: RocketmqClient, topic: str) -> None:
    """Two members get everything, once they have begun: where they begin is their own affair."""
    client.needs("broadcasting")
    group = f"broadcast-{topic}"
    client.make_topic(topic)
    members = [client.consumer(group, topic, model="broadcasting") for _ in range(2)]
    try:
        for member in members:
            _wait_for_beginning(client, topic, member)
        client.send(topic, bodies("all"))
        wanted = {each.body for each in bodies("all")}
        for member in members:
            collect(member, wanted)
    finally:
        for member in members:
            member.close()


def _wait_for_beginning(client: RocketmqClient, topic: str, member: Consumer) -> None:
    """A member that gets a whole round reads every queue."""
    rounds = iter(range(1000))

    def has_begun() -> bool:
        sent = bodies(f"probe {next(rounds)}:")
        client.send(topic, sent)
        wanted = {each.body for each in sent}
        deadline = time.monotonic() + 2
        while wanted and time.monotonic() < deadline:
            wanted.difference_update(each.body for each in member.poll())
        return not wanted

    wait_until(has_begun, "the member gets what is sent")


def orderly(client: RocketmqClient, topic: str) -> None:
    """One queue in its order, also when a message is only taken at the second attempt."""
    client.needs("orderly", "queue")
    group = f"orderly-{topic}"
    client.make_topic(topic, group)
    sent = [Message(f"refuse {n}" if n == 5 else f"{n}", queue=1) for n in range(COUNT)]
    client.send(topic, sent)
    consumer = client.consumer(group, topic, orderly=True, refused=1)
    try:
        came = collect(consumer, {each.body for each in sent})
    finally:
        consumer.close()
    wanted = [each.body for each in sent]
    assert [each.body for each in came] == wanted[:6] + wanted[5:], came


def retried(client: RocketmqClient, topic: str) -> None:
    group = f"retries-{topic}"
    client.make_topic(topic, group)
    client.send(topic, [Message("refuse me", tags="a", keys="k"), Message("take me")])
    consumer = client.consumer(group, topic, refused=1)
    came: list[Delivery] = []

    def has_come_twice() -> bool:
        came.extend(consumer.poll())
        return sum(each.body == "refuse me" for each in came) == 2

    try:
        wait_until(has_come_twice, "the message came again")
    finally:
        consumer.close()
    assert sum(each.body == "take me" for each in came) == 1, came
    again = [each for each in came if each.body == "refuse me"][1]
    assert (again.topic, again.tags, again.keys) == (topic, "a", "k"), again


def dead_letter(client: RocketmqClient, topic: str) -> None:
    """Refused at the first delivery and at the one retry, then found among the dead letters."""
    group = f"dead-{topic}"
    dead = f"%DLQ%{group}"
    client.make_topic(topic, group)
    if "attempts max" not in client.has:
        client.set_attempts_max(group, 1)
    client.send(topic, [Message("refuse for good", tags="a", keys="k")])
    consumer = client.consumer(group, topic, refused=100, attempts_max=1)
    came: list[Delivery] = []

    def has_come_twice() -> bool:
        came.extend(consumer.poll())
        return len(came) == 2

    try:
        wait_until(has_come_twice, "the message came again")
        wait_until(lambda: client.has_topic(dead), "there are dead letters")
        client.make_group(dead, f"reads-{group}", 1)
        finder = client.consumer(f"reads-{group}", dead)
        try:
            (found,) = collect(finder, ["refuse for good"])
        finally:
            finder.close()
    finally:
        consumer.close()
    assert (found.tags, found.keys) == ("a", "k"), found
    assert len(came) == 2, came


def pulled(client: RocketmqClient, topic: str) -> None:
    client.needs("pull")
    group = f"pulls-{topic}"
    client.make_topic(topic, group)
    client.send(topic, bodies("pull"))
    consumer = client.consumer(group, topic, style="pull")
    try:
        came = collect(consumer, {each.body for each in bodies("pull")})
    finally:
        consumer.close()
    assert len(came) == COUNT, came


def restarted(client: RocketmqClient, topic: str) -> None:
    """What is sent after the restart reaches a consumer that was there before."""
    group = f"restarts-{topic}"
    client.make_topic(topic, group)
    consumer = client.consumer(group, topic)
    try:
        client.send(topic, bodies("before"))
        collect(consumer, {each.body for each in bodies("before")})
        client.broker.restart()
        wait_until(lambda: _is_sent(client, topic), "a message is sent after the restart")
        client.send(topic, bodies("after"))
        collect(consumer, {each.body for each in bodies("after")})
    finally:
        consumer.close()


def _is_sent(client: RocketmqClient, topic: str) -> bool:
    try:
        client.send(topic, [Message("again")])
    except Exception:  # noqa: BLE001 - whatever the library raises while it has no connection
        time.sleep(0.5)
        return False
    return True


MESSAGES: Operations = {
    "topic made on first use": first_use,
    "send, with tags, keys and properties": send_and_receive,
    "send one-way": sent_by("one-way"),
    "send asynchronously": sent_by("async"),
    "send a batch": sent_by("batch"),
    "compressed body": large("compressible " * 2000),
    "body of 100 KiB": large("".join(f"{n * 2654435761 % 2**32:08x}" for n in range(12800))),
    "send to a chosen queue": chosen_queue,
    "delayed message": delay,
    "transaction, committed": transaction("commit", by_question=False),
    "transaction, rolled back": transaction("rollback", by_question=False),
    "transaction, committed when asked": transaction("commit", by_question=True),
    "transaction, rolled back when asked": transaction("rollback", by_question=True),
}
CONSUMERS: Operations = {
    "tags": filtered("TAG", "a || b"),
    "SQL92": filtered("SQL92", "n > 1 AND TAGS IN ('a', 'b')"),
    "two share, one leaves, the other takes over": shared,
    "goes on where it was": goes_on,
    "broadcasting": broadcast,
    "orderly, with a second attempt": orderly,
    "refused and retried": retried,
    "refused for good: dead letter": dead_letter,
    "pull": pulled,
    "broker restarts": restarted,
}
SECTIONS = {"RocketMQ: messages": MESSAGES, "RocketMQ: consumers": CONSUMERS}
