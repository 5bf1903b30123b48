"""Clients of five protocols, which write to and read from a node or a cluster meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final, Self

from confluent_kafka import Consumer, Producer

from dragoman.client.cursus import BlockingCursusClient
from dragoman.client.minibroker import BlockingMinibrokerClient
from dragoman.client.mlog import BlockingMlogClient
from dragoman.client.rocketmq import BlockingRocketmqClient, Message
from dragoman.errors import DragomanError

PROTOCOLS: Final = ("kafka", "rocketmq", "cursus", "minibroker", "mlog")
#: Listeners of the protocols but Kafka's, which take clients without a login here.
OPEN_LISTENERS: Final = ("rocketmq", "rocketmq-broker", "cursus", "minibroker", "mlog")
#: Topics that are written to, with their partitions.
TOPICS: Final = {"orders": 6, "payments": 3, "clicks": 3, "events": 1}
_PAUSE_S: Final = 0.05


class Traffic:
    """`address` gives the address of a listener; Kafka's clients log in as `user`."""

    def __init__(self, address: Callable[[str], str], user: str, password: str) -> None:
        self._address = address
        self._kafka_settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": address("kafka"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
        self._stopped = threading.Event()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for work in (self._kafka, self._group, self._rocketmq, self._three):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            self._open.callback(thread.join, 20)
        self._open.callback(self._stopped.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _kafka(self) -> None:
        producer = Producer({**self._kafka_settings, "client.id": "shop"})
        number = 0
        while not self._stopped.wait(_PAUSE_S):
            for topic in ("orders", "payments"):
                number += 1
                value = json.dumps({"id": number, "amount": number % 90})
                producer.produce(topic, value, f"customer-{number % 50}")
            producer.poll(0)
        producer.flush(5)

    def _group(self) -> None:
        names = {"client.id": "billing-1", "group.id": "billing"}
        settings = {**self._kafka_settings, **names, "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe(["orders", "payments"])
        while not self._stopped.is_set():
            consumer.consume(20, 0.5)
        consumer.close()

    def _rocketmq(self) -> None:
        with (
            suppress(DragomanError),
            BlockingRocketmqClient(self._address("rocketmq")) as client,
            client.producer("clicks-producer") as producer,
        ):
            while not self._stopped.wait(_PAUSE_S):
                producer.send(Message(topic="clicks", body=b"click"))

    def _three(self) -> None:
        address = self._address
        with (
            suppress(DragomanError),
            BlockingMinibrokerClient(address("minibroker")) as minibroker,
            BlockingCursusClient(address("cursus")) as cursus,
            BlockingMlogClient(address("mlog")) as mlog,
            cursus.producer() as producer,
        ):
            while not self._stopped.wait(_PAUSE_S):
                minibroker.publish("events", b"by minibroker")
                producer.send("events", b"by cursus")
                mlog.produce("events", b"by mlog")
