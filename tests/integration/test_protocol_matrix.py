"""Goal: what a client of one protocol writes, commits and holds is there for all other protocols.

Method: all ordered pairs of protocols against one broker; the first has its own port, the second
comes in through `any`. What each protocol makes of a record is stated in `protocols.clients`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from dragoman.client.cursus import BlockingCursusClient
from dragoman.client.mlog import BlockingMlogClient
from dragoman.testing import EphemeralBroker
from protocols.clients import (
    GROUP_SPEAKERS,
    PARTITIONS,
    SPEAKERS,
    WAIT_S,
    Member,
    Place,
    Record,
    Speaker,
)
from protocols.kafka_socket import KafkaSocket

HEADERS = (("h", b"1"), ("h", b""), ("none", None))
RECORDS = [
    Record(b"text"),
    Record(b"text", b"key"),
    Record(bytes(range(256)), bytes(range(256))),
    Record(b""),
    Record(b"", b""),
    Record(None, b"gone"),
    Record("ünïcödé".encode(), "schlüssel".encode(), HEADERS),
    Record(bytes(100_000), b"large"),
    Record(b" blanks and zeros \x00\x00"),
    *(Record(b"%d" % number, b"k%d" % number) for number in range(9)),
]

LISTENERS = ("kafka", "minibroker", "cursus", "mlog", "rocketmq", "rocketmq-broker", "any")


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(listeners=LISTENERS) as started:
        yield started


_numbers = count()


@pytest.fixture
def topic(broker: EphemeralBroker) -> str:
    """A new one for each test; groups are called the same."""
    name = f"topic-{next(_numbers)}"
    with KafkaSocket(broker.bootstrap_servers) as client:
        client.create_topic(name, PARTITIONS)
    return name


def first_of(broker: EphemeralBroker, kind: str) -> Speaker:
    speaker = GROUP_SPEAKERS[kind]
    return speaker(broker.address(speaker.name))


def second_of(broker: EphemeralBroker, kind: str) -> Speaker:
    return GROUP_SPEAKERS[kind](broker.address("any"))


# ---- addresses


def test_clients_of_the_any_listener_get_its_own_address(
    broker: EphemeralBroker, topic: str
) -> None:
    address = broker.address("any")
    with BlockingMlogClient(address) as mlog, BlockingCursusClient(address) as cursus:
        assert mlog.topic_leader(topic) == address
        assert set(cursus.topic(topic).leaders) == {address}
    brokers = AdminClient({"bootstrap.servers": address}).list_topics(timeout=WAIT_S).brokers
    assert {f"{each.host}:{each.port}" for each in brokers.values()} == {address}


# ---- records


@pytest.mark.parametrize("reader_kind", SPEAKERS)
@pytest.mark.parametrize("writer_kind", SPEAKERS)
def test_what_one_writes_the_other_reads(
    broker: EphemeralBroker, topic: str, writer_kind: str, reader_kind: str
) -> None:
    with first_of(broker, writer_kind) as writer, second_of(broker, reader_kind) as reader:
        written = [
            writer.write(topic, record, number % PARTITIONS)
            for number, record in enumerate(RECORDS)
        ]
        for partition in range(PARTITIONS):
            there = [each for each in written if each.place.partition == partition]
            assert [each.place.offset for each in there] == list(range(len(there)))
            assert len(there) > 1, "every partition has several"
            expected = [(each.place, reader.shown(each.stored)) for each in there]
            assert reader.read(topic, Place(partition, 0), len(there)) == expected
            assert reader.read(topic, Place(partition, 1), len(there) - 1) == expected[1:]


@pytest.mark.parametrize("reader_kind", [each for each in SPEAKERS if each != "kafka"])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_of_kafka_are_read_by_all(
    broker: EphemeralBroker, topic: str, reader_kind: str, codec: str
) -> None:
    values = [b"%d" % number * 20 for number in range(500)]
    config = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50}
    producer = Producer({**config, "compression.type": codec})
    for value in values:
        producer.produce(topic, value, partition=1)
    assert producer.flush(WAIT_S) == 0
    with second_of(broker, reader_kind) as reader:
        found = reader.read(topic, Place(1, 0), len(values))
    assert [record.value for _, record in found] == values


# ---- groups


def fill(broker: EphemeralBroker, topic: str, per_partition: int) -> set[Place]:
    places = set()
    with first_of(broker, "kafka") as writer:
        for number in range(per_partition * PARTITIONS):
            written = writer.write(topic, Record(b"%d" % number), number % PARTITIONS)
            places.add(written.place)
    return places


def taken(member: Member, number: int) -> list[Place]:
    return [member.take() for _ in range(number)]


@pytest.mark.parametrize("second_kind", GROUP_SPEAKERS)
@pytest.mark.parametrize("first_kind", GROUP_SPEAKERS)
def test_a_group_goes_on_where_it_stopped(
    broker: EphemeralBroker, topic: str, first_kind: str, second_kind: str
) -> None:
    everything = fill(broker, topic, 6)
    with first_of(broker, first_kind) as first, second_of(broker, second_kind) as second:
        member = first.join(topic, topic)
        before = taken(member, 10)
        member.commit()
        member.leave()
        for partition in range(PARTITIONS):
            read = len([each for each in before if each.partition == partition])
            if read < 6:
                assert second.committed(topic, topic, partition) == read
        member = second.join(topic, topic)
        after = taken(member, len(everything) - len(before))
        member.commit()
        member.leave()
        assert sorted(before + after) == sorted(everything), "each once, over both"
        for partition in range(PARTITIONS):
            order = [each.offset for each in before + after if each.partition == partition]
            assert order == list(range(6))


HOLDERS = [kind for kind, speaker in GROUP_SPEAKERS.items() if speaker.has_members]
STRANGERS = [
    (holder, stranger)
    for holder in HOLDERS
    for stranger, speaker in GROUP_SPEAKERS.items()
    if speaker.name != GROUP_SPEAKERS[holder].name
]


@pytest.mark.parametrize(("holder_kind", "stranger_kind"), STRANGERS)
def test_a_live_group_is_closed_to_other_protocols(
    broker: EphemeralBroker, topic: str, holder_kind: str, stranger_kind: str
) -> None:
    fill(broker, topic, 3)
    with first_of(broker, holder_kind) as holder, second_of(broker, stranger_kind) as stranger:
        member = holder.join(topic, topic)
        first = member.take()

        def is_foreign(refusal: Exception) -> bool:
            return stranger.is_foreign(refusal, topic, holder.name)

        with pytest.raises(stranger.refusal, check=is_foreign):
            stranger.commit(topic, topic, Place(first.partition, 3))
        if stranger.has_members:
            with pytest.raises(stranger.refusal, check=is_foreign):
                stranger.join(topic, topic)
        # Nothing has happened to the one that was there first.
        second = member.take()
        member.commit()
        member.leave()
        done = {first.partition: first.offset + 1}
        done[second.partition] = second.offset + 1
        joined = stranger.join(topic, topic)
        for place in taken(joined, 3 * PARTITIONS - 2):
            assert place.offset >= done.get(place.partition, 0)
        joined.commit()
        joined.leave()
        stranger.commit(topic, topic, Place(0, 3))


@pytest.mark.parametrize("kind", SPEAKERS)
def test_commits_go_back_except_those_of_cursus(
    broker: EphemeralBroker, topic: str, kind: str
) -> None:
    fill(broker, topic, 3)
    with first_of(broker, "kafka") as other, second_of(broker, kind) as speaker:
        other.commit(topic, topic, Place(1, 2))
        assert speaker.committed(topic, topic, 1) == 2
        if kind == "cursus":
            with pytest.raises(speaker.refusal, match="offset_regression"):
                speaker.commit(topic, topic, Place(1, 1))
            assert other.committed(topic, topic, 1) == 2
        else:
            speaker.commit(topic, topic, Place(1, 1))
            assert other.committed(topic, topic, 1) == 1
