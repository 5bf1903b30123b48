"""Steps with five protocols: one topic, written over each in turn, read over each as a whole.

Readers are compared with each other and with what was written, offset by offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from confluent_kafka import Producer

from demo.kafka import client_settings, messages, produce_one
from demo.spark_job import WritersCounted
from demo.story import DemoError, Stage, Step
from dragoman.cli.record_clients import MODULES, ProtocolName, record_client
from dragoman.cli.record_clients.session import Plan
from dragoman.client.cursus import BlockingCursusClient
from dragoman.client.minibroker import BlockingMinibrokerClient
from dragoman.client.mlog import BlockingMlogClient
from dragoman.client.rocketmq import BlockingRocketmqClient, Message

ORDERS_TOPIC: Final = "orders"
#: In the order in which they write.
PROTOCOLS: Final[tuple[ProtocolName, ...]] = tuple(MODULES)
_ROUNDS: Final = 2
_COUNT: Final = _ROUNDS * len(PROTOCOLS)

#: Writes a value and returns its offset.
Write: TypeAlias = Callable[[str], int]
#: Offset and value of each record, as a reader got them.
Records: TypeAlias = Sequence[tuple[int, str]]


def order(number: int) -> str:
    """The value of a record: who wrote it, and which one it is."""
    return f"{PROTOCOLS[number % len(PROTOCOLS)]} {number}"


# ---- writing


def _write(stage: Stage) -> str:
    address = stage.broker.address
    with (
        BlockingMinibrokerClient(address("minibroker")) as minibroker,
        BlockingCursusClient(address("cursus")) as cursus,
        BlockingMlogClient(address("mlog")) as mlog,
        BlockingRocketmqClient(address("rocketmq")) as rocketmq,
    ):
        mlog.create_topic(ORDERS_TOPIC)
        with cursus.producer() as cursus_producer, rocketmq.producer("demo") as rocketmq_producer:
            writers: Mapping[ProtocolName, Write] = {
                "kafka": partial(_write_by_kafka, Producer(client_settings(stage))),
                "minibroker": lambda value: minibroker.publish(ORDERS_TOPIC, value.encode()).offset,
                "cursus": lambda value: cursus_producer.send(ORDERS_TOPIC, value.encode()),
                "mlog": lambda value: mlog.produce(ORDERS_TOPIC, value.encode()),
                "rocketmq": lambda value: (
                    rocketmq_producer.send(
                        Message(topic=ORDERS_TOPIC, body=value.encode())
                    ).queue_offset
                ),
            }
            for number in range(_COUNT):
                protocol = PROTOCOLS[number % len(PROTOCOLS)]
                offset = writers[protocol](order(number))
                if offset != number:
                    raise DemoError(f"{protocol} wrote record {number} at offset {offset}")
    return f"{_COUNT} records in one topic, taking turns"


def _write_by_kafka(producer: Producer, value: str) -> int:
    offsets: list[int | None] = []
    produce_one(
        producer, ORDERS_TOPIC, None, value.encode(), lambda _, m: offsets.append(m.offset())
    )
    producer.flush()
    (offset,) = offsets
    return -1 if offset is None else offset


# ---- reading


def _read(stage: Stage) -> str:
    found = {protocol: _read_over(stage, protocol) for protocol in PROTOCOLS}
    stage.screen.table(
        f"topic {ORDERS_TOPIC}, as each protocol reads it; records say who wrote them",
        ("offset", *PROTOCOLS),
        rows_of(found),
    )
    stage.screen.say("")
    check_records(found)
    return f"{_COUNT} records at {_COUNT} offsets, the same to all"


def _read_over(stage: Stage, protocol: ProtocolName) -> Records:
    if protocol == "kafka":
        # Over a client that others wrote.
        read = messages(stage, ORDERS_TOPIC, partitions=1)
        return [(each.offset() or 0, (each.value() or b"").decode()) for each in read]
    records: list[tuple[int, str]] = []
    plan = Plan(bootstrap=stage.broker.address(protocol), topic=ORDERS_TOPIC, max_records=_COUNT)
    with record_client(protocol).read(plan) as reader:
        while len(records) < _COUNT and (batch := reader.next_records()):
            records += [(each.offset, (each.value or b"").decode()) for each in batch]
    return records


def rows_of(found: Mapping[ProtocolName, Records]) -> list[list[str]]:
    """By offset, what each reader found there; a dash for nothing."""
    columns = [dict(found[protocol]) for protocol in PROTOCOLS]
    offsets = sorted(set().union(*columns))
    return [[str(offset), *(each.get(offset, "-") for each in columns)] for offset in offsets]


def check_records(found: Mapping[ProtocolName, Records]) -> None:
    """All have read what was written, in order, each record once. Raises `DemoError`."""
    written = [(number, order(number)) for number in range(_COUNT)]
    for protocol, records in found.items():
        if list(records) != written:
            raise DemoError(f"{protocol} read {list(records)} where {written} was written")


# ---- Spark


def _count(stage: Stage) -> str:
    counts = stage.spark.hear(WritersCounted).records
    stage.screen.table(
        f"topic {ORDERS_TOPIC}, records by writer, with Spark SQL",
        ("writer", "records"),
        [(writer, str(count)) for writer, count in counts.items()],
    )
    stage.screen.say("")
    expected = dict.fromkeys(PROTOCOLS, _ROUNDS)
    if counts != expected:
        raise DemoError(f"Spark counted {counts} where {expected} were written")
    return f"{sum(counts.values())} records of {len(counts)} writers"


WRITE = Step(title="Write over five protocols", run=_write)
READ = Step(title="Read over five protocols", run=_read)
COUNT = Step(title="Count them by writer", run=_count)
