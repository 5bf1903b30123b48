"""A shop that is open while the demo serves: slow traffic, for the console to show.

    five tills, a protocol each ──► sales ──┬──► billing     Kafka, two members
                                            ├──► shipping    RocketMQ, with retries and dead letters
                                            ├──► storeroom   minibroker
                                            ├──► letters     Cursus
                                            ├──► archive     mlog
                                            └──► reports     Kafka, reads in bursts
    vans ──► deliveries, in Avro      reminders, delayed      goods, a captured table

All of it runs on one event loop in a thread. A task that loses the broker or the database begins
again.
"""

from __future__ import annotations

import asyncio
import json
import math
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Final, TypeAlias

import psycopg
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo.broker_process import BrokerProcess
from demo.capture import GOODS
from demo.readings import PARTITIONS as READINGS_PARTITIONS
from demo.readings import TOPIC as READINGS
from demo.story import DemoError, Stage, Step
from dragoman.cli.record_clients import MODULES
from dragoman.client.cursus import CursusClient
from dragoman.client.minibroker import MinibrokerClient
from dragoman.client.mlog import MlogClient
from dragoman.client.rocketmq import Later, Message, ReceivedMessage, RocketmqClient
from dragoman.client_core.blocking_client import LoopThread
from dragoman.errors import DragomanError

SALES: Final = "sales"
UNREADABLE: Final = "sales.dead-letters"
DELIVERIES: Final = "deliveries"
REMINDERS: Final = "reminders"
#: Groups that read `sales`.
GROUPS: Final = ("billing", "shipping", "storeroom", "letters", "archive", "reports")
#: A group without members, in the middle of the readings.
LEFT: Final = "forecast"
TILLS: Final = tuple(MODULES)

_PARTITIONS: Final = 3
_CITIES: Final = ("Lisbon", "Lyon", "Oslo", "Prague", "Turin")
_PRICES: Final = {"lamp": 19.9, "chair": 89.0, "shelf": 55.5, "rug": 120.0, "desk": 240.0}
_DELIVERY: Final = {
    "type": "record",
    "name": "Delivery",
    "fields": [
        {"name": "van", "type": "string"},
        {"name": "parcels", "type": "long"},
        {"name": "km", "type": "double"},
    ],
}
#: One sale in so many has no city, or is cut off before its end.
_HOMELESS, _CUT = 101, 151
#: Seconds between sales of a till, on average; and how long the wave of busy and calm times is.
_PAUSE_S, _WAVE_S = 1.2, 240.0
_LOOK_S: Final = 0.5
_REPORT_S: Final = 60.0
_REPORTED_AT_ONCE: Final = 12
_LEVEL_OF_10_SECONDS, _LEVEL_OF_10_MINUTES = 3, 14
_DEAD_LETTER: Final = -1
_AGAIN_S: Final = 1.0

#: Writes a key and a value to the sales.
Sell: TypeAlias = Callable[[str, bytes], Awaitable[object]]
Work: TypeAlias = Callable[[], Coroutine[None, None, None]]


class Shop:
    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._thread: LoopThread | None = None

    def open(self, goods: tuple[str, str] | None) -> None:
        """`goods` is a database and a table in it whose rows change, if there is one."""
        self._create_topics()
        self._leave_readings()
        work: list[Work] = [partial(self._till, number) for number in range(len(TILLS))]
        work += [partial(self._billing, "billing-1"), partial(self._billing, "billing-2")]
        work += [self._shipping, self._storeroom, self._letters, self._archive, self._reports]
        work += [self._vans, self._reminders]
        if goods is not None:
            work.append(partial(_goods, *goods))
        self._thread = LoopThread("demo-shop")
        for each in work:
            self._thread.begin(partial(_kept_up, each))

    def close(self) -> None:
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    # ---- before it opens

    def _create_topics(self) -> None:
        schema = {"dragoman.value.schema": json.dumps({"avro": _DELIVERY})}
        topics = [
            NewTopic(SALES, _PARTITIONS),
            NewTopic(UNREADABLE, 1),
            NewTopic(DELIVERIES, 1, config=schema),
            NewTopic(REMINDERS, 1),
        ]
        admin = AdminClient(self._kafka())
        for each in admin.create_topics(topics).values():
            each.result()

    def _leave_readings(self) -> None:
        """A group reads some of the readings, and goes."""
        with closing(Consumer(self._kafka(LEFT))) as consumer:
            read = [TopicPartition(READINGS, each) for each in range(READINGS_PARTITIONS)]
            for each in read:
                each.offset = consumer.get_watermark_offsets(each)[1] // 2
            consumer.commit(offsets=read, asynchronous=False)

    def _kafka(self, group: str = "", client: str = "") -> dict[str, str | int | float | bool]:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self._broker.bootstrap_servers,
            "client.id": client or group or "till",
            "log_level": 0,
        }
        if group:
            settings |= {"group.id": group, "auto.offset.reset": "earliest"}
        return settings

    # ---- who writes

    async def _till(self, till: int) -> None:
        openers = {
            "kafka": self._by_kafka,
            "rocketmq": self._by_rocketmq,
            "minibroker": self._by_minibroker,
            "cursus": self._by_cursus,
            "mlog": self._by_mlog,
        }
        async with openers[TILLS[till]]() as sell:
            for turn in _turns():
                await sell(*_sale(till + turn * len(TILLS)))
                wave = math.sin(asyncio.get_running_loop().time() / _WAVE_S * 2 * math.pi)
                await asyncio.sleep(_PAUSE_S * (1 - 0.6 * wave))

    @asynccontextmanager
    async def _by_kafka(self) -> AsyncIterator[Sell]:
        producer = Producer(self._kafka())

        async def sell(key: str, value: bytes) -> None:
            producer.produce(SALES, value, key)
            producer.poll(0)

        yield sell

    @asynccontextmanager
    async def _by_rocketmq(self) -> AsyncIterator[Sell]:
        async with self._rocketmq() as client, client.producer("tills") as producer:
            yield lambda key, value: producer.send(Message(topic=SALES, keys=(key,), body=value))

    @asynccontextmanager
    async def _by_minibroker(self) -> AsyncIterator[Sell]:
        async with MinibrokerClient(self._broker.address("minibroker")) as client:
            yield lambda key, value: client.publish(SALES, value, key.encode())

    @asynccontextmanager
    async def _by_cursus(self) -> AsyncIterator[Sell]:
        async with self._cursus() as client, client.producer() as producer:
            yield lambda key, value: producer.send(SALES, value, key=key.encode())

    @asynccontextmanager
    async def _by_mlog(self) -> AsyncIterator[Sell]:
        async with self._mlog() as client:
            # Its records have no keys.
            yield lambda _key, value: client.produce(_mlog_names()[value[-2] % _PARTITIONS], value)

    async def _vans(self) -> None:
        producer = Producer(self._kafka(client="vans"))
        for turn in _turns():
            producer.produce(DELIVERIES, _delivery(turn))
            producer.poll(0)
            await asyncio.sleep(3)

    async def _reminders(self) -> None:
        """Each is delivered ten minutes later."""
        async with self._rocketmq() as client, client.producer("reminders") as producer:
            for turn in _turns():
                body = f"Is sale {turn} paid?".encode()
                message = Message(topic=REMINDERS, body=body, delay_level=_LEVEL_OF_10_MINUTES)
                await producer.send(message)
                await asyncio.sleep(20)

    # ---- who reads

    async def _billing(self, name: str) -> None:
        with closing(Consumer(self._kafka("billing", name))) as consumer:
            consumer.subscribe([SALES])
            while True:
                consumer.consume(100, timeout=0)
                await asyncio.sleep(_LOOK_S)

    async def _reports(self) -> None:
        """Catches up, and rests for a minute: its lag grows and shrinks."""
        with closing(Consumer(self._kafka("reports"))) as consumer:
            consumer.subscribe([SALES])
            while True:
                read = len(consumer.consume(_REPORTED_AT_ONCE, timeout=0))
                is_done = 0 < read < _REPORTED_AT_ONCE
                await asyncio.sleep(_REPORT_S if is_done else _LOOK_S)

    async def _shipping(self) -> None:
        async with (
            self._rocketmq() as client,
            client.push_consumer("shipping", {SALES: "*"}, _shipped),
        ):
            await asyncio.Event().wait()

    async def _storeroom(self) -> None:
        async with (
            MinibrokerClient(self._broker.address("minibroker")) as client,
            await client.join(SALES, "storeroom") as sales,
        ):
            async for each in sales:
                await sales.commit(each)

    async def _letters(self) -> None:
        async with self._cursus() as client, client.consumer(SALES, "letters") as sales:
            async for _ in sales:
                pass

    async def _archive(self) -> None:
        async with self._mlog() as client:
            partitions = [client.consume(each, id="archive") for each in _mlog_names()]
            while True:
                for each in partitions:
                    if await each.next_entries():
                        await each.commit()
                await asyncio.sleep(2 * _LOOK_S)

    # ---- how they reach the broker

    def _rocketmq(self) -> RocketmqClient:
        return RocketmqClient(self._broker.address("rocketmq"))

    def _cursus(self) -> CursusClient:
        return CursusClient(self._broker.address("cursus"))

    def _mlog(self) -> MlogClient:
        return MlogClient(self._broker.address("mlog"))


async def _kept_up(work: Work) -> None:
    """Again after a failure, such as after a laptop has slept."""
    while True:
        try:
            await work()
        except (DragomanError, OSError, KafkaException, psycopg.Error):
            await asyncio.sleep(_AGAIN_S)


async def _goods(dsn: str, table: str) -> None:
    """Pieces leave the storeroom, and come back by the dozen."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as database:
        for turn in _turns():
            item = list(_PRICES)[turn % len(_PRICES)]
            await database.execute(
                f"update {table} set pieces = case pieces when 0 then 12 else pieces - 1 end"
                f" where item = '{item}'".encode()
            )
            await asyncio.sleep(1)


# ---- what they write


def _turns() -> Iterator[int]:
    turn = 0
    while True:
        yield turn
        turn += 1


def _sale(number: int) -> tuple[str, bytes]:
    """Key and value."""
    item = list(_PRICES)[number * 7 % 11 % len(_PRICES)]
    pieces = 1 + number * 13 % 17 % 4
    city = None if number % _HOMELESS == 7 else _CITIES[number * 3 % 7 % len(_CITIES)]
    sale = {
        "id": number,
        "till": TILLS[number % len(TILLS)],
        "amount": round(pieces * _PRICES[item], 2),
        "city": city,
        "item": item,
        "pieces": pieces,
    }
    value = json.dumps(sale).encode()
    return item, value[:-9] if number % _CUT == 11 else value


def _shipped(message: ReceivedMessage) -> Later | None:
    """Nothing can be delivered without a city; some are delivered at the second try."""
    try:
        sale = json.loads(message.body)
    except ValueError:
        return None
    if sale["city"] is None:
        return Later(_DEAD_LETTER)
    is_first = message.reconsume_times == 0
    return Later(_LEVEL_OF_10_SECONDS) if is_first and sale["id"] % 31 == 0 else None


def _delivery(turn: int) -> bytes:
    """A value of `_DELIVERY`, as Avro has it: short numbers are bytes, doubled."""
    van = f"van {turn % 4 + 1}".encode()
    parcels, km = 3 + turn % 9, 12 + turn * 37 % 200 / 10
    return bytes((2 * len(van), *van, 2 * parcels)) + struct.pack("<d", km)


def _mlog_names() -> Sequence[str]:
    """Partitions of the sales, as mlog names them."""
    return [SALES, *(f"{SALES}@{each}" for each in range(1, _PARTITIONS))]


def _open(stage: Stage) -> str:
    try:
        stage.shop.open((stage.database.dsn, GOODS) if stage.has_database else None)
    except KafkaException as error:
        raise DemoError(f"the shop does not open: {error}") from None
    return f"{len(TILLS)} tills write to topic {SALES}, {len(GROUPS)} groups read it"


OPEN = Step(title="Open a shop", run=_open)
