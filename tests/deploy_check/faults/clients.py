"""Faults of clients, and of what a node has for them: a node on its own with small limits."""

from __future__ import annotations

import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from deploy_check.faults.prometheus import Prometheus
from deploy_check.faults.served import SingleNode, dragoman
from deploy_check.faults.trial import Fault, Raised

_DESCRIPTORS = 1024
_BUDGET_BYTES = 16 << 20
_GROUP = "shop"
#: Of a Kafka frame: an ApiVersions request, version 0, by a client without a name.
_API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
_LARGE_FRAME_BYTES = 1_000_000


@contextmanager
def stage(home: Path, prometheus: Prometheus) -> Iterator[tuple[Fault, ...]]:
    options = (
        *("--set", f"memory.budget.bytes={_BUDGET_BYTES}"),
        *("--set", f"socket.request.max.bytes={_BUDGET_BYTES}"),
    )
    with SingleNode(home / "node", *options) as served:
        prometheus.scrape(served.http)
        for topic in ("orders", "fruit"):
            dragoman("topic", "create", topic, "--partitions", "1", "--server", served.url)
        faults = _Faults(served)
        yield (
            Fault(
                "DragomanRequestErrors", "a client that repeats a refused request", faults.errors
            ),
            Fault("DragomanConnectionsRefused", "20 connections, 1 allowed", faults.refused),
            Fault("DragomanMemoryBudget", "requests sent by halves", faults.memory),
            Fault("DragomanLoopLag", "the process runs half of the time", faults.loop_lag),
            Fault("DragomanGroupLags", "consumers that are stopped", faults.group_lags),
            Fault("DragomanGroupLagGrows", "producers without consumers", faults.group_lag_grows),
            Fault(
                "DragomanDescriptors",
                "more connections than 1,024 descriptors allow",
                faults.descriptors,
            ),
        )


@contextmanager
def _repeated(work: Callable[[], None], pause_s: float) -> Iterator[Callable[[], None]]:
    """Work that a thread repeats until the end, or until it is stopped."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(pause_s):
            with suppress(OSError, KafkaException, BufferError):
                work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def stop() -> None:
        is_over.set()
        thread.join()

    try:
        yield stop
    finally:
        stop()


class _Faults:
    def __init__(self, served: SingleNode) -> None:
        self._served = served

    def _raised(self, labels: dict[str, str] | None = None, **more: str) -> Raised:
        about = {"instance": self._served.http} if labels is None else labels
        return Raised(about, self._served.variables(**more), [self._served.service])

    def _connect(self) -> socket.socket:
        host, _, port = self._served.kafka.partition(":")
        return socket.create_connection((host, int(port)), timeout=10)

    def errors(self) -> Iterator[Raised]:
        admin = AdminClient({"bootstrap.servers": self._served.kafka})

        def create() -> None:
            for each in admin.create_topics([NewTopic("orders", 1, 1)]).values():
                each.result()

        with _repeated(create, 0.05) as stop:
            yield self._raised()
            stop()
            yield self._raised()

    def refused(self) -> Iterator[Raised]:
        change = ("--node", "1", "--server", self._served.url)
        dragoman("config", "set", "max.connections=1", *change)

        def connect() -> None:
            with ExitStack() as stack:
                for _ in range(20):
                    stack.enter_context(self._connect())

        with self._connect(), _repeated(connect, 0.2):
            yield self._raised()
            yield self._raised()
        dragoman("config", "unset", "max.connections", *change)

    def memory(self) -> Iterator[Raised]:
        with ExitStack() as stack:
            clients = [stack.enter_context(self._connect()) for _ in range(15)]
            for client in clients:
                client.sendall(_API_VERSIONS)
                assert client.recv(4096)
                client.sendall(_LARGE_FRAME_BYTES.to_bytes(4, "big"))
                client.sendall(bytes(_LARGE_FRAME_BYTES - 60_000))
            yield self._raised()
        yield self._raised()

    def loop_lag(self) -> Iterator[Raised]:
        service = self._served.service
        producer = Producer({"bootstrap.servers": self._served.kafka, "linger.ms": 1})

        def produce() -> None:
            producer.produce("orders", b"x")
            producer.poll(0)

        random = Random(1)

        def pause() -> None:
            # Of irregular length: regular pauses would fall between two ticks of the timer.
            service.signal(signal.SIGSTOP)
            threading.Event().wait(random.uniform(0.2, 0.7))
            service.signal(signal.SIGCONT)

        with _repeated(produce, 0.02), _repeated(pause, 0.3) as stop:
            yield self._raised()
            stop()
            yield self._raised()

    def _of_group(self, topic: str) -> Raised:
        return self._raised({"group": _GROUP, "topic": topic}, GROUP=_GROUP, TOPIC=topic)

    def _commit_first(self, topic: str) -> None:
        to = ("--bootstrap", self._served.kafka)
        dragoman("produce", topic, *to, standard_input="1\n2\n")
        dragoman("consume", topic, *to, "--group", _GROUP, "--max", "1")

    def group_lags(self) -> Iterator[Raised]:
        self._commit_first("orders")
        yield self._of_group("orders")

    def group_lag_grows(self) -> Iterator[Raised]:
        self._commit_first("fruit")
        producer = Producer({"bootstrap.servers": self._served.kafka, "linger.ms": 5})

        def produce(count: int = 100) -> None:
            for _ in range(count):
                producer.produce("fruit", b"x")
            producer.poll(0)

        produce(11_000)
        producer.flush(30)
        with _repeated(produce, 0.1) as stop:
            yield self._of_group("fruit")
            stop()
            yield self._of_group("fruit")
        skip = ("group", "reset", _GROUP, "--topic", "fruit", "--to", "end", "--yes")
        dragoman(*skip, "--server", self._served.url)

    def descriptors(self) -> Iterator[Raised]:
        # A limit that the system's own allows to raise again.
        pid, kind = self._served.service.pid, resource.RLIMIT_NOFILE
        resource.prlimit(pid, kind, (_DESCRIPTORS, resource.prlimit(pid, kind)[1]))
        with ExitStack() as stack:
            for _ in range(850):
                stack.enter_context(self._connect())
            yield self._raised()
