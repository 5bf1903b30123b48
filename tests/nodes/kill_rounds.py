"""Rounds of `kill -9` under load: what was acknowledged is there once, in order, byte for byte.

Every value names its producer and its number in that producer's series, and is otherwise made from
these two; so a value found in the log proves by itself whether it is right, in the right partition
(number modulo partitions) and in order, and nothing has to be kept but which offset was
acknowledged for which number. Numbers that only ever rise within a partition cannot come twice.

Load: two plain clients that send one batch at a time with acks=all and never again, and one
idempotent librdkafka producer that lives through all rounds and repeats what was not answered.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from dragoman.log.batch import Record, batches, build_batch, records
from dragoman.log.compression import Codec
from nodes.process import ServedNode, serve
from protocols.kafka_socket import KafkaSocket

TOPIC = "load"
PARTITIONS = 4
PLAIN_CLIENTS = 2
#: Messages that the idempotent producer may have unanswered.
OUTSTANDING_MAX = 400
WAIT_S = 60.0


def value_of(series: str, number: int) -> bytes:
    name = b"%s:%d:" % (series.encode(), number)
    size = 20_000 if number % 97 == 0 else number * 7919 % 300
    return name + hashlib.shake_128(name).digest(size)


class Figures(msgspec.Struct):
    rounds: int = 0
    acknowledged: int = 0
    found: int = 0
    sent: int = 0

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.sent} records sent, {self.acknowledged} acknowledged, "
            f"{self.found} found, every acknowledged one once, in order, byte-identical"
        )


class Ledger:
    """Which number of which series was acknowledged at which offset."""

    def __init__(self) -> None:
        self.at: list[dict[int, tuple[str, int]]] = [{} for _ in range(PARTITIONS)]
        self.count = 0
        self.sent = 0
        self.failures: list[str] = []
        self._changed = threading.Condition()

    def note_sent(self, count: int) -> None:
        with self._changed:
            self.sent += count

    def acknowledge(self, series: str, number: int, offset: int) -> None:
        with self._changed:
            taken = self.at[number % PARTITIONS]
            if offset in taken:
                self.failures.append(f"offset {offset} was acknowledged twice: {taken[offset]}")
            taken[offset] = (series, number)
            self.count += 1
            self._changed.notify_all()

    def fail(self, reason: str) -> None:
        with self._changed:
            self.failures.append(reason)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            reached = self._changed.wait_for(
                lambda: self.count >= count or bool(self.failures), WAIT_S
            )
        assert not self.failures, self.failures
        assert reached, f"{self.count} acknowledgements, {count} were expected by now"


class PlainClient:
    """Sends one batch at a time until the connection breaks."""

    def __init__(self, series: str, ledger: Ledger) -> None:
        self._series = series
        self._ledger = ledger
        self._random = random.Random(series)
        self._number = 0

    def run(self, address: str) -> None:
        try:
            with KafkaSocket(address) as client:
                while True:
                    self.send(client)
        except (ConnectionError, TimeoutError):
            return
        except BaseException as error:
            self._ledger.fail(f"{self._series}: {error!r}")
            raise

    def send(self, client: KafkaSocket) -> None:
        count = self._random.randint(1, 20)
        # One batch goes to one partition: take the next numbers that belong there.
        partition = self._random.randrange(PARTITIONS)
        first = self._number + (partition - self._number) % PARTITIONS
        numbers = [first + index * PARTITIONS for index in range(count)]
        self._number = numbers[-1] + 1
        batch = build_batch(
            [Record(value=value_of(self._series, each), timestamp=0) for each in numbers],
            codec=self._random.choice(list(Codec)),
        )
        self._ledger.note_sent(count)
        answer = client.produce(TOPIC, batch, partition)
        if answer.error_code:
            raise AssertionError(f"error {answer.error_code}: {answer.error_message}")
        for index, number in enumerate(numbers):
            self._ledger.acknowledge(self._series, number, answer.base_offset + index)


class IdempotentClient:
    """Keeps messages outstanding in the background, over all restarts of the broker."""

    def __init__(self, address: str, ledger: Ledger) -> None:
        self._ledger = ledger
        self._number = 0
        self._outstanding = 0
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 1,
                "batch.num.messages": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            while self._outstanding < OUTSTANDING_MAX:
                self._send(self._number)
                self._number += 1
            self._producer.poll(0.1)

    def _send(self, number: int) -> None:
        self._outstanding += 1
        self._ledger.note_sent(1)

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._outstanding -= 1
            if error is not None:
                self._ledger.fail(f"idempotent message {number}: {error}")
                return
            offset = message.offset()
            assert offset is not None
            self._ledger.acknowledge("idempotent", number, offset)

        value = value_of("idempotent", number)
        self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=delivered)

    def stop_sending(self) -> None:
        self._ending.set()
        self._thread.join()

    def finish(self) -> None:
        """Everything sent is delivered when this returns."""
        self.stop_sending()
        assert self._producer.flush(WAIT_S) == 0, "messages are left over"


def records_between(
    client: KafkaSocket, topic: str, partition: int, start: int, end: int
) -> Iterator[tuple[int, bytes | None]]:
    """Offsets and values, in order."""
    while start < end:
        part = client.fetch(topic, start, partition)
        assert part.error_code == 0, part.error_code
        assert isinstance(part.records, bytes | bytearray | memoryview)
        before = start
        for header, batch in batches(memoryview(part.records)):
            for record in records(batch, header):
                # A batch may begin before the offset asked for.
                if before <= record.offset < end:
                    start = record.offset + 1
                    yield record.offset, record.value
        assert start > before, "a fetch made no progress"


class Verifier:
    """Reads partitions from where it stopped and judges every record."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.found = 0
        self._next = [0] * PARTITIONS
        self._last: dict[tuple[int, str], int] = {}

    def read_on(self, address: str) -> None:
        with KafkaSocket(address) as client:
            for partition in range(PARTITIONS):
                # In this order: more is acknowledged while this reads.
                last = max(list(self._ledger.at[partition]), default=-1)
                end = client.fetch(TOPIC, self._next[partition], partition).high_watermark
                assert last < end, f"acknowledged up to {last} of {partition}, ends at {end}"
                start = self._next[partition]
                for offset, value in records_between(client, TOPIC, partition, start, end):
                    self._judge(partition, offset, value)
                assert self._next[partition] == end

    def _judge(self, partition: int, offset: int, value: bytes | None) -> None:
        assert offset == self._next[partition], f"gap: {offset} after {self._next[partition] - 1}"
        self._next[partition] += 1
        assert value is not None
        series, number = value.split(b":", 2)[0].decode(), int(value.split(b":", 2)[1])
        assert value == value_of(series, number), f"{series} {number}: other bytes than were sent"
        assert number % PARTITIONS == partition, f"{series} {number} in partition {partition}"
        last = self._last.get((partition, series), -1)
        assert number > last, f"{series}: {number} after {last}, repeated or out of order"
        self._last[partition, series] = number
        expected = self._ledger.at[partition].get(offset)
        assert expected in (None, (series, number)), f"{expected} was acknowledged, not {number}"
        self.found += 1


def run(data: Path, durability: str, rounds: int, seed: int) -> Figures:
    """Kill and restart that many times; raises `AssertionError` at the first thing amiss."""
    rng = random.Random(seed)
    ledger = Ledger()
    plain = [PlainClient(f"plain{index}", ledger) for index in range(PLAIN_CLIENTS)]
    verifier = Verifier(ledger)
    node = serve(data, "--durability", durability)
    address = node.bootstrap_servers
    port = int(address.rpartition(":")[2])
    with KafkaSocket(address) as client:
        client.create_topic(TOPIC, PARTITIONS, segment_bytes="300000")
    idempotent = IdempotentClient(address, ledger)
    try:
        for _ in range(rounds):
            one_round(node, address, plain, ledger, rng)
            node = serve(data, "--durability", durability, port=port)
            verifier.read_on(address)
        idempotent.finish()
        everything = Verifier(ledger)
        everything.read_on(address)
        assert node.stop() == 0, node.log
    finally:
        idempotent.stop_sending()
        node.kill()
    assert not ledger.failures, ledger.failures
    return Figures(rounds, ledger.count, everything.found, ledger.sent)


def one_round(
    node: ServedNode,
    address: str,
    plain: list[PlainClient],
    ledger: Ledger,
    rng: random.Random,
) -> None:
    threads = [threading.Thread(target=each.run, args=(address,)) for each in plain]
    for thread in threads:
        thread.start()
    try:
        # A moment that has nothing to do with what the broker is doing then.
        ledger.wait_for(ledger.count + rng.randint(1, 1500))
    finally:
        node.kill()
        for thread in threads:
            thread.join()
