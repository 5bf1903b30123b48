"""Goal: the Cursus client that PyPI has, unmodified, does its work against the broker.

Method: `cursus-client` over loopback: create, produce (plain, idempotent, compressed, every kind of
acks), consume with one and with two members of a group, by stream and by polling, commit, resume,
leave; and its event store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import cursus
import pytest
from cursus.connection.sync_conn import SyncConnection
from cursus.protocol.encoder import encode_batch
from cursus.protocol.encoder import encode_message as in_envelope
from cursus.types import Acks, ConsumerMode, Event, Message

from dragoman.testing import EphemeralBroker

TIMEOUT_S = 60.0


@pytest.fixture
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(listeners=("kafka", "cursus")) as started:
        yield started


def ask(broker: EphemeralBroker, command: str) -> str:
    connection = SyncConnection(broker.address("cursus"))
    connection.connect()
    connection.write_frame(in_envelope("", command))
    reply = connection.read_frame().decode()
    connection.close()
    return str(reply)


def produce(broker: EphemeralBroker, values: list[str], **options: object) -> None:
    config = cursus.ProducerConfig(
        topic="orders",
        brokers=[broker.address("cursus")],
        partitions=4,
        linger_ms=1,
        **options,  # type: ignore[arg-type]
    )
    with cursus.Producer(config) as producer:
        for index, value in enumerate(values):
            producer.send(value, key=f"k{index % 7}" if index % 2 else "")
        producer.flush()
        assert producer.unique_ack_count == len(values)


def committed(broker: EphemeralBroker) -> list[int]:
    """The group's offset on each partition; 0 before there is a group."""
    replies = [
        ask(broker, f"FETCH_OFFSET topic=orders partition={index} group=g") for index in range(4)
    ]
    return [int(each.removeprefix("OK offset=")) for each in replies if each.startswith("OK")]


class Reader:
    """A consumer on a thread of its own, and all it was given."""

    def __init__(self, broker: EphemeralBroker, name: str, **options: object) -> None:
        settings: dict[str, object] = {
            "heartbeat_interval_ms": 100,
            "auto_commit_interval_s": 0.1,
            **options,
        }
        self.consumer = cursus.Consumer(
            cursus.ConsumerConfig(
                topic="orders",
                brokers=[broker.address("cursus")],
                group_id="g",
                consumer_id=name,
                **settings,  # type: ignore[arg-type]
            )
        )
        self.messages: list[Message] = []
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_closing:
            # The client gives up when it commits while its group is being shared anew; a program
            # starts it again. It also commits what it was just given although `close` has left.
            with suppress(cursus.CursusError):
                self.consumer.start(self._take)

    def _take(self, message: Message) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= count, TIMEOUT_S)

    def close(self) -> None:
        self._is_closing = True
        # Its loop may join the group again that `close` has just left: it looks for a heartbeat
        # that was refused before it looks whether it is done.
        self.consumer._restart_assignment = lambda: None
        self.consumer.close()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    @property
    def values(self) -> list[str]:
        return [each.payload for each in self.messages]


def wait_until(is_reached: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.02)):
        if is_reached():
            return
        pause.wait(0.02)
    raise AssertionError("not reached in time")


EVERYTHING = {"idempotent": True, "compression_type": "gzip", "acks": Acks.ALL}


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, ConsumerMode.STREAMING),
        (EVERYTHING, ConsumerMode.STREAMING),
        ({}, ConsumerMode.POLLING),
        ({"idempotent": True}, ConsumerMode.POLLING),
        ({"compression_type": "gzip"}, ConsumerMode.POLLING),
        ({"acks": Acks.NONE}, ConsumerMode.POLLING),
    ],
    ids=str,
)
def test_what_is_produced_is_consumed(
    broker: EphemeralBroker, options: dict[str, object], mode: ConsumerMode
) -> None:
    values = [f"value {number} ü" for number in range(100)]
    produce(broker, values, **options)
    reader = Reader(broker, "c1", mode=mode)
    reader.wait_for(len(values))
    reader.close()
    assert sorted(reader.values) == sorted(values)
    by_key: dict[str, list[str]] = {}
    for each in reader.messages:
        by_key.setdefault(each.key, []).append(each.payload)
    for key in (f"k{number}" for number in range(7)):
        sent = [value for index, value in enumerate(values) if index % 2 and f"k{index % 7}" == key]
        assert by_key[key] == sent, "one key's messages keep their order"


def test_a_repeated_batch_of_an_idempotent_producer_is_there_once(broker: EphemeralBroker) -> None:
    ask(broker, "CREATE topic=orders partitions=1")
    sent = [
        Message(offset=0, seq_num=number, payload=f"m{number}", producer_id="p", epoch=5)
        for number in (1, 2)
    ]
    connection = SyncConnection(broker.address("cursus"))
    connection.connect()
    for _ in range(3):
        connection.write_frame(encode_batch("orders", 0, "1", True, sent))
        assert b'"status":"OK","last_offset":1,' in connection.read_frame()
    connection.close()
    offsets = ask(broker, "LIST_OFFSETS topic=orders")
    assert offsets.endswith("offsets=P0:earliest=0:latest=2:leo=2:hwm=2")


def test_a_group_resumes_where_it_committed(broker: EphemeralBroker) -> None:
    produce(broker, [f"a{number}" for number in range(50)])
    first = Reader(broker, "c1", immediate_commit=True)
    wait_until(lambda: sum(committed(broker)) == 50)
    first.close()
    produce(broker, [f"b{number}" for number in range(50)])
    second = Reader(broker, "c2")
    second.wait_for(50)
    second.close()
    assert sorted(second.values) == sorted(f"b{number}" for number in range(50))


def test_two_members_share_the_partitions_and_one_takes_over(broker: EphemeralBroker) -> None:
    produce(broker, ["before"] * 8)
    one = Reader(broker, "c1")
    one.wait_for(8)
    other = Reader(broker, "c2")

    def assigned() -> list[list[int]]:
        return [sorted(each.consumer._assignments) for each in (one, other)]

    wait_until(lambda: assigned() == [[0, 1], [2, 3]])
    generation = other.consumer._generation
    wait_until(lambda: one.consumer._generation == generation)
    produce(broker, [f"both {number}" for number in range(80)])
    wait_until(lambda: len(set(one.values + other.values)) >= 81)
    assert {each.partition for each in other.messages} == {2, 3}
    assert '"member_count":2' in ask(broker, "GROUP_STATUS group=g")
    one.close()
    wait_until(lambda: sorted(other.consumer._assignments) == [0, 1, 2, 3])
    assert '"member_count":1' in ask(broker, "GROUP_STATUS group=g")
    produce(broker, [f"alone {number}" for number in range(20)])
    wait_until(lambda: len([each for each in set(other.values) if each.startswith("alone")]) == 20)
    other.close()
    assert '"member_count":0' in ask(broker, "GROUP_STATUS group=g")


def test_the_event_store(broker: EphemeralBroker) -> None:
    with cursus.EventStore(broker.address("cursus"), "events", "p") as store:
        store.create_topic(2)
        for version in (1, 2, 3):
            event = Event(type="Changed", payload=f'{{"v": {version}}}', schema_version=2)
            assert store.append("o-1", version, event).version == version
        with pytest.raises(cursus.CursusError, match="version_conflict current=3 expected=3"):
            store.append("o-1", 3, Event(type="Changed", payload="late"))
        assert store.stream_version("o-1") == 3
        read = store.read_stream("o-1")
        assert [(each.version, each.type, each.payload) for each in read.events] == [
            (version, "Changed", f'{{"v": {version}}}') for version in (1, 2, 3)
        ]
        store.save_snapshot("o-1", 2, "state at 2")
        snapshot = store.read_snapshot("o-1")
        assert snapshot is not None
        assert (snapshot.version, snapshot.payload) == (2, "state at 2")
        since = store.read_stream("o-1")
        assert since.snapshot == snapshot
        assert [each.version for each in since.events] == [3]
