"""What both tortures are played on: a node that can be killed, client processes, a producer."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from confluent_kafka import KafkaError, Message, Producer

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from nodes.process import ServedNode, serve
from protocols.kafka_socket import KafkaSocket
from torture.diary import Reader
from torture.member import HEARTBEAT_MS, SESSION_MS

_TESTS = str(Path(__file__).parents[1])

Answer = TypeVar("Answer")
WAIT_S = 90.0
SETTINGS = {
    "group.min.session.timeout.ms": SESSION_MS,
    "group.initial.rebalance.delay.ms": 200,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}


class Node:
    """A served node on one directory and one port, however often it is killed."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._served = self._serve(0)
        self.servers = self._served.bootstrap_servers
        self.kills = 0

    def _serve(self, port: int) -> ServedNode:
        flags = [flag for key, value in SETTINGS.items() for flag in ("--set", f"{key}={value}")]
        return serve(self._data, *flags, port=port)

    def kill(self) -> None:
        """`kill -9`, and at once a new process in its place."""
        self._served.kill()
        self._expect_quiet_log()
        self._served = self._serve(int(self.servers.rpartition(":")[2]))
        self.kills += 1

    def stop(self) -> None:
        assert self._served.stop() == 0, self._served.log
        self._expect_quiet_log()

    def abandon(self) -> None:
        self._served.kill()

    def _expect_quiet_log(self) -> None:
        loud = [line for line in self._served.log if "ERROR" in line or "Traceback" in line]
        assert not loud, self._served.log

    def create_topic(self, name: str, partitions: int) -> None:
        with KafkaSocket(self.servers) as client:
            client.create_topic(name, partitions)

    def ask(self, question: Callable[[KafkaSocket], tuple[int, Answer]]) -> Answer:
        """Asks again while a coordinator reads its records back. A question is answered with an
        error code and what came."""
        deadline = time.monotonic() + WAIT_S
        while True:
            with KafkaSocket(self.servers) as client:
                error, answer = question(client)
            if error != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                assert error == 0, (error, answer)
                return answer
            assert time.monotonic() < deadline, "the coordinator never gets ready"

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        asked = m.OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(partitions)))
        request = m.OffsetFetchRequest(group_id=group, topics=[asked])

        def question(client: KafkaSocket) -> tuple[int, dict[int, int]]:
            answer = client.ask(request, 7, m.OffsetFetchResponse)
            parts = answer.topics[0].partitions if answer.topics else []
            return answer.error_code, {
                each.partition_index: each.committed_offset for each in parts
            }

        return self.ask(question)

    def ends(self, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
        """High watermark and last stable offset of each partition."""
        found = {}
        with KafkaSocket(self.servers) as client:
            for partition in range(partitions):
                answer = client.fetch(topic, 0, partition, bytes_max=1)
                assert answer.error_code == 0, answer
                found[partition] = (answer.high_watermark, answer.last_stable_offset)
        return found


class ClientProcess:
    """A module of this package with a diary, in a process that may be killed or frozen."""

    def __init__(self, module: str, arguments: Sequence[str], diary: Path) -> None:
        self.name = diary.stem
        self.diary = Reader(diary)
        self._errors = open(diary.with_suffix(".stderr"), "wb")  # noqa: SIM115 - until it ends
        inherited = os.environ.get("PYTHONPATH", "")
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, *arguments, str(diary)],
            env={**os.environ, "PYTHONPATH": f"{_TESTS}:{inherited}".rstrip(":")},
            stdout=self._errors,
            stderr=self._errors,
        )
        self.thaws_at: float | None = None
        #: When it stood still, from and to.
        self.frozen: list[tuple[float, float]] = []
        self._frozen_at = 0.0
        self.was_killed = False

    def freeze(self, seconds: float) -> None:
        self._frozen_at = time.monotonic()
        self.process.send_signal(signal.SIGSTOP)
        self.thaws_at = self._frozen_at + seconds

    def thaw_when_due(self, *, now: bool = False) -> None:
        if self.thaws_at is not None and (now or self.thaws_at < time.monotonic()):
            self.process.send_signal(signal.SIGCONT)
            self.thaws_at = None
            self.frozen.append((self._frozen_at, time.monotonic()))

    def crash(self) -> None:
        self.was_killed = True
        self.process.kill()
        self.finish()

    def leave(self) -> None:
        """In good order, and whenever it gets round to it."""
        self.process.terminate()

    @property
    def ended_well(self) -> bool:
        """As planned: killed, or asked to leave, perhaps before it had begun."""
        return self.was_killed or self.process.returncode in (0, -signal.SIGTERM)

    def finish(self) -> int:
        try:
            return self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            # It says where it hangs, if it can.
            self.process.send_signal(signal.SIGUSR1)
            raise
        finally:
            self._errors.close()


class Feeder:
    """An idempotent producer that writes numbers evenly, as keys, until stopped."""

    def __init__(self, servers: str, topic: str, partitions: int, per_second: int) -> None:
        self.delivered = 0
        self._failures: list[str] = []
        self._topic, self._partitions, self._per_second = topic, partitions, per_second
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 200,
                "linger.ms": 20,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failures.append(str(error))
        self.delivered += 1

    def _run(self) -> None:
        for number in itertools.count():
            if number % 20 == 0 and self._ending.wait(20 / self._per_second):
                return
            self._producer.produce(
                self._topic,
                b"value",
                b"%d" % number,
                partition=number % self._partitions,
                on_delivery=self._delivered,
            )
            self._producer.poll(0)

    def stop(self) -> None:
        """Everything is delivered when this returns."""
        self.abandon()
        assert self._producer.flush(WAIT_S) == 0, "records are left over"
        assert not self._failures, self._failures

    def abandon(self) -> None:
        self._ending.set()
        self._thread.join()


def moments(rng: random.Random, seconds: float, count: int) -> list[float]:
    """So many moments from now on, spread over the time that there is."""
    begin, share = time.monotonic(), seconds / max(count, 1)
    return [begin + share * (index + rng.uniform(0.3, 0.9)) for index in range(count)]
