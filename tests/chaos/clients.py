"""The load: clients that write numbered records and note what they were promised, or read.

Each runs in a thread of its own until it is stopped. A writer notes the place at which each record
was acknowledged, a reader the records that it found there. Nothing here knows the broker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from dragoman.client.cursus import BlockingCursusClient, CursusSettings, Login
from dragoman.client.minibroker import BlockingMinibrokerClient, ClientSettings
from dragoman.client.mlog import AckMode, BlockingMlogClient, TlsSettings
from dragoman.client.mlog import ClientSettings as MlogSettings
from dragoman.errors import DragomanError

KAFKA_TOPIC = "chaos"
MLOG_TOPIC = "chaos-mlog"
MINIBROKER_TOPIC = "chaos-minibroker"
CURSUS_TOPIC = "chaos-cursus"
PARTITIONS = 3
GROUP = "chaos"
#: Longer than any fault lasts: a record of an idempotent producer is delivered in the end.
_PATIENCE_MS = 300_000
_PAUSE_S = 0.01
_RETRY_S = 0.1
#: How a stock client connects without TLS and without a login.
OPENLY: Final[Mapping[str, str]] = {}
#: What a stock client reports when a node goes away, and gets over by itself.
_PASSING = frozenset(
    (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
    )
)


class Complaints:
    """What a stock client reports beside the answers to its requests."""

    def __init__(self) -> None:
        #: Nodes that went away.
        self.interruptions: list[str] = []
        self.errors: list[str] = []

    def note(self, error: KafkaError) -> None:
        found = self.interruptions if error.code() in _PASSING else self.errors
        found.append(f"{error.name()}: {error.str()}")


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


class Worker:
    """A thread that runs until stopped and keeps its error."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self._thread.join(_PATIENCE_MS / 1000)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self.failure is not None:
            raise self.failure

    @property
    def goes_on(self) -> bool:
        return not self._stopping.is_set()

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 (raised again by `join`)
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError


class Writer(Worker):
    """Writes `name:0`, `name:1`, ..."""

    #: Numbered by the producer: each record that was written shall be there once, and in order.
    is_exact = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.acknowledged: dict[Place, bytes] = {}
        self.written = 0
        #: Records that the client gave up although it never should.
        self.errors: list[str] = []

    def next_value(self) -> bytes:
        value = f"{self.name}:{self.written}".encode()
        self.written += 1
        return value


class KafkaWriter(Writer):
    """Idempotent, acks=all, all records to one partition."""

    is_exact = True

    def __init__(
        self, name: str, bootstrap: str, partition: int, security: Mapping[str, str] = OPENLY
    ) -> None:
        super().__init__(name)
        self._bootstrap = bootstrap
        self._partition = partition
        self._security = security
        self.complaints = Complaints()

    def move(self, security: Mapping[str, str]) -> None:
        """Continue with another producer, which connects like this, after all is acknowledged."""
        self._security = security

    def work(self) -> None:
        while self.goes_on:
            self._write_with(self._security)

    def _write_with(self, security: Mapping[str, str]) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": _PATIENCE_MS,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 5_000,
                "log_level": 0,
                "error_cb": self.complaints.note,
                **security,
            }
        )
        while self.goes_on and security is self._security:
            value = self.next_value()
            producer.produce(
                KAFKA_TOPIC, value, partition=self._partition, on_delivery=self._delivered
            )
            producer.poll(_PAUSE_S)
        left = producer.flush(_PATIENCE_MS / 1000)
        assert not left, f"{self.name}: {left} records were never answered"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert value is not None
        if error is not None:
            self.errors.append(f"{value!r}: {error}")
        else:
            place = Place(KAFKA_TOPIC, message.partition(), message.offset())
            self.acknowledged[place] = value


def cursus_settings(tls: TlsSettings | None = None, login: Login | None = None) -> CursusSettings:
    return CursusSettings(
        request_timeout_s=5.0, operation_timeout_s=_PATIENCE_MS / 1000, tls=tls, login=login
    )


class CursusWriter(Writer):
    """A producer with an identity. It is the only writer of its partition, because the answer to a
    repeated write contains the end of the partition.
    """

    is_exact = True

    def __init__(self, name: str, bootstrap: str, partition: int) -> None:
        super().__init__(name)
        self._bootstrap = bootstrap
        self._partition = partition
        self._settings = cursus_settings()

    def move(self, settings: CursusSettings) -> None:
        """Continue with another producer, which connects like this."""
        self._settings = settings

    def work(self) -> None:
        while self.goes_on and not self.errors:
            self._write_with(self._settings)

    def _write_with(self, settings: CursusSettings) -> None:
        with (
            BlockingCursusClient(self._bootstrap, settings) as client,
            client.producer() as producer,
        ):
            while self.goes_on and settings is self._settings:
                value = self.next_value()
                try:
                    offset = producer.send(CURSUS_TOPIC, value, partition=self._partition)
                except DragomanError as error:
                    self.errors.append(f"{value!r}: {error}")
                    return
                self.acknowledged[Place(CURSUS_TOPIC, self._partition, offset)] = value
                time.sleep(_PAUSE_S)


class Publisher(Writer):
    """Through a client of ours, one record at a time. What failed may be there or not, so it is
    never written again under the same number.
    """

    def __init__(self, name: str, connect: Callable[[], Publishing]) -> None:
        super().__init__(name)
        self._connect = connect
        self.interruptions: list[str] = []

    def move(self, connect: Callable[[], Publishing]) -> None:
        """Continue with another client."""
        self._connect = connect

    def work(self) -> None:
        while self.goes_on:
            connect = self._connect
            try:
                publishing = connect()
            except (DragomanError, OSError) as error:
                self._interrupted(error)
                continue
            try:
                while self.goes_on and connect is self._connect:
                    value = self.next_value()
                    self.acknowledged[publishing.publish(value)] = value
                    time.sleep(_PAUSE_S)
            except (DragomanError, OSError) as error:
                self._interrupted(error)
            finally:
                publishing.close()

    def _interrupted(self, error: Exception) -> None:
        self.interruptions.append(f"{type(error).__name__}: {error}")
        time.sleep(_RETRY_S)


class Publishing:
    def publish(self, value: bytes) -> Place:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class MlogPublishing(Publishing):
    def __init__(self, bootstrap: str, tls: TlsSettings | None = None) -> None:
        # As below.
        settings = MlogSettings(repeats_produce=False, tls=tls)
        self._client = BlockingMlogClient(bootstrap, settings=settings)

    def publish(self, value: bytes) -> Place:
        offset = self._client.produce(MLOG_TOPIC, value, acks=AckMode.ALL)
        return Place(MLOG_TOPIC, 0, offset)

    def close(self) -> None:
        self._client.close()


class MinibrokerPublishing(Publishing):
    def __init__(self, bootstrap: str, tls: TlsSettings | None = None) -> None:
        # A record that is sent again may be there twice.
        settings = ClientSettings(repeats_publish=False, tls=tls)
        self._client = BlockingMinibrokerClient(bootstrap, settings).open()

    def publish(self, value: bytes) -> Place:
        published = self._client.publish(MINIBROKER_TOPIC, value)
        return Place(MINIBROKER_TOPIC, published.partition, published.offset)

    def close(self) -> None:
        self._client.close()


class GroupReader(Worker):
    """A member of a group of a stock client; commits what it has read."""

    def __init__(self, name: str, bootstrap: str, security: Mapping[str, str] = OPENLY) -> None:
        super().__init__(name)
        #: What was seen first at each place, and places where that was not all that was seen.
        self.seen: dict[Place, bytes] = {}
        self.changed: list[str] = []
        self.complaints = Complaints()
        self._bootstrap = bootstrap
        self._security = security

    def move(self, security: Mapping[str, str]) -> None:
        """Leave the group and join it with another consumer, which connects like this."""
        self._security = security

    def work(self) -> None:
        while self.goes_on:
            self._read_with(self._security)

    def _read_with(self, security: Mapping[str, str]) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "session.timeout.ms": 6_000,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": self.complaints.note,
                **security,
            }
        )
        consumer.subscribe([KAFKA_TOPIC])
        while self.goes_on and security is self._security:
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self._note(message)
            elif not error.retriable():
                self.complaints.note(error)
        try:
            consumer.close()
        except KafkaException:
            return

    def _note(self, message: Message) -> None:
        place = Place(message.topic() or "", message.partition() or 0, message.offset() or 0)
        value = message.value() or b""
        if self.seen.setdefault(place, value) != value:
            self.changed.append(f"{place}: {self.seen[place]!r}, then {value!r}")
