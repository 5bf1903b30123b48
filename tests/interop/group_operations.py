"""Groups: members share partitions, take over from each other, and resume where they stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

from client import Client, Member, Row, wait_until
from record_operations import check_values, numbered

PARTITIONS = 4
#: `classic` is whatever the library does by default in the first protocol.
PROTOCOLS = {"classic": "classic", "cooperative": "cooperative", "KIP-848": "consumer"}
Partitions = set[tuple[str, int]]


class Readers:
    """The members of one group and everything they have read."""

    def __init__(self, *members: Member) -> None:
        self.members = list(members)
        self.rows: list[Row] = []

    def poll(self) -> None:
        for member in self.members:
            self.rows += member.poll()

    def read(self, count: int) -> None:
        wait_until(lambda: self._polled(lambda: len(self.rows) >= count), f"{count} records")

    def share(self, *topics: str) -> list[Partitions]:
        """Poll until every partition belongs to one of them and each has its fair part."""
        everything = {(topic, index) for topic in topics for index in range(PARTITIONS)}
        fair = len(everything) // len(self.members)

        def is_shared() -> bool:
            parts = [set(member.assignment()) for member in self.members]
            return (
                set().union(*parts) == everything
                and sum(map(len, parts)) == len(everything)
                and min(map(len, parts)) >= fair
            )

        wait_until(lambda: self._polled(is_shared), f"{len(self.members)} members share {topics}")
        return [set(member.assignment()) for member in self.members]

    def _polled(self, is_reached: Callable[[], bool]) -> bool:
        self.poll()
        return is_reached()


def _take_over(protocol: str) -> Callable[[Client, str], None]:
    def run(client: Client, topic: str) -> None:
        """Two share, one leaves, the other has it all; what was committed is not read again."""
        client.create_topic(topic, PARTITIONS)
        group = f"group-{topic}"
        with ExitStack() as stack:
            first = _join(stack, client, group, [topic], protocol)
            second = _join(stack, client, group, [topic], protocol)
            both = Readers(first, second)
            both.share(topic)
            client.produce(topic, numbered(40))
            both.read(40)
            for member in both.members:
                member.commit()
            second.close()
            left = Readers(first)
            left.share(topic)
            client.produce(topic, numbered(20, first=40))
            left.read(20)
            first.commit()
        check_values(both.rows, numbered(40))
        check_values(left.rows, numbered(20, first=40))
        client.produce(topic, numbered(8, first=60))
        with closing(client.member(group, [topic], protocol=protocol)) as third:
            later = Readers(third)
            later.read(8)
        check_values(later.rows, numbered(8, first=60))

    return run


def _join(
    stack: ExitStack, client: Client, group: str, topics: Sequence[str], protocol: str
) -> Member:
    return stack.enter_context(closing(client.member(group, topics, protocol=protocol)))


def _static(protocol: str) -> Callable[[Client, str], None]:
    def run(client: Client, topic: str) -> None:
        """A returning static member has its partitions again, and no other member lost any."""
        client.create_topic(topic, PARTITIONS)
        group = f"group-{topic}"

        def join(instance: str) -> Member:
            return client.member(group, [topic], protocol=protocol, instance=instance)

        with closing(join("a")) as first, closing(join("b")) as second:
            before = Readers(first, second).share(topic)
            first.close()
            with closing(join("a")) as again:
                kept: list[Partitions] = []

                def is_back() -> bool:
                    again.poll()
                    second.poll()
                    kept.append(set(second.assignment()))
                    return set(again.assignment()) == before[0]

                wait_until(is_back, "the static member has its partitions again")
                assert all(each == before[1] for each in kept), kept

    return run


def _pattern(protocol: str) -> Callable[[Client, str], None]:
    def run(client: Client, topic: str) -> None:
        """A topic that is made later and fits is read as well; one that does not fit is not."""
        client.create_topic(f"{topic}-a", PARTITIONS)
        client.create_topic(f"other-{topic}", PARTITIONS)
        group = f"group-{topic}"
        with closing(client.member(group, [], pattern=f"^{topic}-.*", protocol=protocol)) as member:
            readers = Readers(member)
            readers.share(f"{topic}-a")
            client.create_topic(f"{topic}-b", PARTITIONS)
            client.produce(f"{topic}-b", numbered(10))
            readers.share(f"{topic}-a", f"{topic}-b")
            readers.read(10)
        check_values(readers.rows, numbered(10))

    return run


def change_of_protocol(client: Client, topic: str) -> None:
    """An empty group continues in the other protocol from its offsets, there and back."""
    client.create_topic(topic, PARTITIONS)
    group = f"group-{topic}"
    for round_, protocol in enumerate(("classic", "consumer", "classic")):
        records = numbered(12, first=12 * round_)
        client.produce(topic, records)
        with closing(client.member(group, [topic], protocol=protocol)) as member:
            readers = Readers(member)
            readers.read(12)
            member.commit()
        check_values(readers.rows, records)


def live_change_of_protocol(client: Client, topic: str) -> None:
    """A member of the second protocol joins one of the first, which then leaves."""
    client.create_topic(topic, PARTITIONS)
    group = f"group-{topic}"
    with ExitStack() as stack:
        old = _join(stack, client, group, [topic], "cooperative")
        Readers(old).share(topic)
        new = _join(stack, client, group, [topic], "consumer")
        Readers(old, new).share(topic)
        old.close()
        readers = Readers(new)
        readers.share(topic)
        client.produce(topic, numbered(12))
        readers.read(12)
    check_values(readers.rows, numbered(12))


def _broker_restart(protocol: str) -> Callable[[Client, str], None]:
    def run(client: Client, topic: str) -> None:
        """A member reads on where it was, without a call."""
        client.create_topic(topic, PARTITIONS)
        with closing(client.member(f"group-{topic}", [topic], protocol=protocol)) as member:
            Readers(member).share(topic)
            for round_ in range(2):
                client.produce(topic, numbered(20, first=20 * round_))
                readers = Readers(member)
                readers.read(20)
                check_values(readers.rows, numbered(20, first=20 * round_))
                member.commit()
                client.broker.restart()

    return run


GROUPS: dict[str, Callable[[Client, str], None]] = {
    **{
        f"{title}: share, take over, go on": _take_over(protocol)
        for title, protocol in PROTOCOLS.items()
    },
    "classic: static member": _static("classic"),
    "KIP-848: static member": _static("consumer"),
    "classic: topics by pattern": _pattern("classic"),
    "KIP-848: topics by pattern": _pattern("consumer"),
    "classic: broker restarts": _broker_restart("classic"),
    "KIP-848: broker restarts": _broker_restart("consumer"),
    "empty group changes protocol and back": change_of_protocol,
    "group with members changes protocol": live_change_of_protocol,
}
