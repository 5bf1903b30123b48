"""`kill -9` of a node under a client of each protocol, which has to find its way back by itself.

One client writes from several threads, another reads as a member of a group and commits; both live
through all kills. Every value names its writer and its number, and is otherwise made from these, so
what is found in the log can be judged by itself. Afterwards:

- what was acknowledged is where the acknowledgement said,
- what is there twice was on its way, its outcome unknown, when the node died,
- the reader was given everything, and again only what its protocol says may come again.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from dragoman.client.cursus import ClientError, MemberFencedError
from nodes.kill_rounds import WAIT_S, records_between, value_of
from nodes.process import ServedNode, serve
from protocols.clients import PARTITIONS, SPEAKERS, Member, Place, Record, Speaker
from protocols.kafka_socket import KafkaSocket

TOPIC = GROUP = "load"
WRITERS = 4
#: Records between two commits of the reader.
COMMIT_EVERY = 25
#: Acknowledgements between two kills, at most.
LOAD_MAX = 400


class Figures(msgspec.Struct, kw_only=True):
    protocol: str
    kills: int
    acknowledged: int
    lost: int
    doubled: int
    #: Records in flight when the node died: their outcome is unknown.
    unknown: int
    delivered: int
    delivered_again: int

    def __str__(self) -> str:
        fields = (f"{name.replace('_', ' ')} {value}" for name, value in self._counts())
        return f"{self.protocol}: {', '.join(fields)}"

    def _counts(self) -> list[tuple[str, int]]:
        return [(each, getattr(self, each)) for each in self.__struct_fields__[1:]]


class Diary:
    """What was sent, what was acknowledged, and what was on its way when the node died."""

    def __init__(self) -> None:
        self.acknowledged: dict[bytes, Place] = {}
        self.unknown: set[bytes] = set()
        self.kills = 0
        self.failures: list[Exception] = []
        self._on_their_way: set[bytes] = set()
        self._changed = threading.Condition()

    def sends(self, value: bytes) -> None:
        with self._changed:
            self._on_their_way.add(value)

    def has(self, value: bytes, place: Place) -> None:
        with self._changed:
            self._on_their_way.remove(value)
            self.acknowledged[value] = place
            self._changed.notify_all()

    def failed(self, error: Exception) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def killed(self) -> None:
        """To be called when the node is dead: what is not acknowledged now may be in its log."""
        with self._changed:
            self.kills += 1
            self.unknown |= self._on_their_way

    def delivers(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, is_reached: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: is_reached() or bool(self.failures), WAIT_S)
        assert not self.failures, self.failures
        assert is_reached(), f"{len(self.acknowledged)} acknowledgements, and nothing more came"

    def wait_for(self, more: int) -> None:
        """For so many more acknowledgements."""
        count = len(self.acknowledged) + more
        self.wait_until(lambda: len(self.acknowledged) >= count)


class Worker:
    """Something on a thread of its own; what it raises is put into the diary."""

    def __init__(self, diary: Diary) -> None:
        self.diary = diary
        self.is_ending = threading.Event()
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _work(self) -> None:
        try:
            while not self.is_ending.is_set():
                self.step()
        except (ClientError, AssertionError) as error:
            self.diary.failed(error)

    def step(self) -> None:
        raise NotImplementedError


class Writer(Worker):
    """One record at a time; the client sees to it that each is taken."""

    def __init__(self, speaker: Speaker, series: str, diary: Diary) -> None:
        self._speaker = speaker
        self._series = series
        self._number = 0
        super().__init__(diary)

    def step(self) -> None:
        value = value_of(self._series, self._number)
        self.diary.sends(value)
        written = self._speaker.write(TOPIC, Record(value), self._number % PARTITIONS)
        self.diary.has(value, written.place)
        self._number += 1


class Reader(Worker):
    """Takes and commits, and checks that nothing is passed over."""

    def __init__(self, member: Member, diary: Diary) -> None:
        self._member = member
        self.delivered: Counter[Place] = Counter()
        self.next_offsets = [0] * PARTITIONS
        self._uncommitted = 0
        super().__init__(diary)

    def step(self) -> None:
        place = self._member.poll(0.1)
        if place is None:
            return
        partition, offset = place
        assert offset <= self.next_offsets[partition], f"{self.next_offsets} and then {place}"
        self.delivered[place] += 1
        self.next_offsets[partition] = max(self.next_offsets[partition], offset + 1)
        self.diary.delivers()
        self._uncommitted += 1
        if self._uncommitted >= COMMIT_EVERY:
            self.commit()

    def commit(self) -> None:
        try:
            self._member.commit()
        except MemberFencedError:
            # The new node does not know the member yet, which finds out with its next heartbeat.
            return
        self._uncommitted = 0

    def commit_all(self) -> None:
        """Once the reader has ended."""
        while self._uncommitted:
            self.commit()


def run(data: Path, protocol: str, kills: int, seed: int) -> Figures:
    """Raises `AssertionError` for anything amiss; doubled records are counted."""
    rng = random.Random(seed)
    diary = Diary()
    node = serve(data, "--listen", f"{protocol}=127.0.0.1:0")
    with KafkaSocket(node.bootstrap_servers) as client:
        client.create_topic(TOPIC, PARTITIONS, segment_bytes="300000")
    address = node.listeners[protocol]
    try:
        with SPEAKERS[protocol](address) as writing, SPEAKERS[protocol](address) as reading:
            reader = Reader(reading.join(TOPIC, GROUP), diary)
            writers = [Writer(writing, f"w{index}", diary) for index in range(WRITERS)]
            try:
                for _ in range(kills):
                    # A moment that has nothing to do with what the broker is doing then.
                    diary.wait_for(rng.randint(1, LOAD_MAX))
                    node = restarted(node, data, protocol, diary)
                diary.wait_for(LOAD_MAX)
                end_all(writers)
                found = values_in(node)
                diary.wait_until(lambda: reader.next_offsets == [len(each) for each in found])
            finally:
                end_all([*writers, reader])
            reader.commit_all()
            check_commits(node, found)
        assert node.stop() == 0, node.log
    finally:
        node.kill()
    return judged(protocol, diary, reader, found)


def end_all(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.is_ending.set()
    for worker in workers:
        worker.thread.join()


def restarted(node: ServedNode, data: Path, protocol: str, diary: Diary) -> ServedNode:
    addresses = node.listeners
    node.kill()
    diary.killed()
    port = int(addresses["kafka"].rpartition(":")[2])
    return serve(data, "--listen", f"{protocol}={addresses[protocol]}", port=port)


def values_in(node: ServedNode) -> list[list[bytes]]:
    """Of each partition, by offset."""
    found: list[list[bytes]] = []
    with KafkaSocket(node.bootstrap_servers) as client:
        for partition in range(PARTITIONS):
            end = client.fetch(TOPIC, 0, partition).high_watermark
            values: list[bytes] = []
            for offset, value in records_between(client, TOPIC, partition, 0, end):
                assert offset == len(values), f"{offset} in partition {partition}: a gap"
                assert value is not None
                values.append(value)
            found.append(values)
    return found


def check_commits(node: ServedNode, found: list[list[bytes]]) -> None:
    with SPEAKERS["kafka"](node.bootstrap_servers) as kafka:
        for partition, values in enumerate(found):
            assert kafka.committed(TOPIC, GROUP, partition) == len(values)


def judged(protocol: str, diary: Diary, reader: Reader, found: list[list[bytes]]) -> Figures:
    times = Counter(value for values in found for value in values)
    strange = times.keys() - diary.acknowledged.keys()
    assert not strange, "everything that was sent was acknowledged in the end"
    doubled = {value for value, count in times.items() if count > 1}
    assert doubled <= diary.unknown, "what was acknowledged at once is there once"
    for values in found:
        check_order(values)
    return Figures(
        protocol=protocol,
        kills=diary.kills,
        acknowledged=len(diary.acknowledged),
        lost=sum(
            found[place.partition][place.offset : place.offset + 1] != [value]
            for value, place in diary.acknowledged.items()
        ),
        doubled=times.total() - len(times),
        unknown=len(diary.unknown),
        delivered=len(reader.delivered),
        delivered_again=reader.delivered.total() - len(reader.delivered),
    )


def check_order(values: list[bytes]) -> None:
    """A writer's records are in the order of its writing, as they first come."""
    last: dict[bytes, int] = {}
    for value in dict.fromkeys(values):
        series, number = value.split(b":", 2)[0], int(value.split(b":", 2)[1])
        assert number > last.get(series, -1), f"{series!r}: {number} after {last[series]}"
        last[series] = number


def check_promise(figures: Figures) -> None:
    """What each protocol promises (`docs/reference`)."""
    assert figures.lost == 0
    match figures.protocol:
        case "cursus":
            assert figures.doubled == 0, "a producer's messages are there once"
        case _:
            assert figures.doubled <= figures.unknown, "twice only if the outcome was unknown"
    match figures.protocol:
        case "minibroker":
            # A reader that cannot commit takes no more.
            assert figures.delivered_again <= figures.kills * COMMIT_EVERY
        case _:
            assert figures.delivered_again == 0, "a consumer hands out no record twice"
