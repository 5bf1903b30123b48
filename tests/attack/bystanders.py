"""Good clients beside an attack: each does its work again and again and notes how long it takes."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from attack.target import BYSTANDER_TOPIC, Target

TOPIC = BYSTANDER_TOPIC
PARTITIONS = 3
#: A good client gives an operation up after that.
PATIENCE_S = 5.0
_PAUSE_S = 0.02


class Bystander:
    """One client in a thread of its own. A failed operation counts as a failure, not as a time."""

    def __init__(self, name: str, operate: Callable[[], None]) -> None:
        self.name = name
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self._operate = operate
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return 1000 * ordered[int(share * (len(ordered) - 1))] if ordered else float("nan")

    def _work(self) -> None:
        while not self._stopping.wait(_PAUSE_S):
            began = time.monotonic()
            try:
                self._operate()
            except (OSError, KafkaException, http.client.HTTPException, RuntimeError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
            else:
                self.seconds.append(time.monotonic() - began)


class KafkaProducing:
    """One acks=all record at a time, to the partitions in turn, over all nodes."""

    def __init__(self, target: Target) -> None:
        bootstrap = target.cluster.bootstrap()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, replication_factor=target.count)
        admin.create_topics([topic])[TOPIC].result()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 0,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "log_level": 0,
            }
        )
        self._written = 0

    def __call__(self) -> None:
        outcome: list[object] = []
        self._producer.produce(
            TOPIC,
            b"still here",
            partition=self._written % PARTITIONS,
            on_delivery=lambda error, _: outcome.append(error),
        )
        self._written += 1
        deadline = time.monotonic() + 2 * PATIENCE_S
        while not outcome and time.monotonic() < deadline:
            self._producer.poll(0.01)
        if not outcome or outcome[0] is not None:
            raise RuntimeError(str(outcome[0]) if outcome else "no answer")


class Health:
    """A liveness probe as an orchestrator makes it: a connection of its own each time."""

    def __init__(self, target: Target) -> None:
        self._address = target.address("http")

    def __call__(self) -> None:
        connection = http.client.HTTPConnection(*self._address, timeout=PATIENCE_S)
        try:
            connection.request("GET", "/livez")
            status = connection.getresponse().status
        finally:
            with suppress(OSError):
                connection.close()
        if status != 200:
            raise RuntimeError(f"/livez answered {status}")
