"""Kafka Streams: an application with state, changelog and repartition topics."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import java_client
from client import SECONDS_MAX, Client
from totals import Totals

set_up = java_client.set_up


@contextmanager
def _instance(servers: str, totals: Totals, guarantee: str, state: str) -> Iterator[None]:
    """Runs as long as the block does, and leaves its group."""
    given = [servers, totals.group, totals.source, totals.target, guarantee, state]
    process = subprocess.Popen(
        ["java", *java_client.OPTIONS, "-cp", java_client.CLASS_PATH, "Totals", *given],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            _, errors = process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
    # 143 is the end by the signal that was sent.
    assert process.returncode == 143, errors[-2000:]


def _restarted(guarantee: str, *, keeps_state: bool = True) -> Callable[[StreamsClient, str], None]:
    def run(client: StreamsClient, topic: str) -> None:
        totals = Totals(client.servers, topic)
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            for count, state in ((20, first), (15, first if keeps_state else second)):
                totals.give(count)
                with _instance(client.servers, totals, guarantee, state):
                    totals.check()

    return run


def two_instances(client: StreamsClient, topic: str) -> None:
    """One joins while the other works, and leaves again."""
    totals = Totals(client.servers, topic)
    with ExitStack() as stack:
        first, second = (stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(2))
        with _instance(client.servers, totals, "exactly_once_v2", first):
            totals.give(20)
            totals.check()
            with _instance(client.servers, totals, "exactly_once_v2", second):
                for _ in range(5):
                    totals.give(20)
                    totals.check()
            totals.give(20)
            totals.check()


class StreamsClient(Client):
    name = "Kafka Streams"
    version = java_client.JavaClient.version
    sections = {
        "Kafka Streams": {
            "read, count, write; a restart goes on": _restarted("at_least_once"),
            "exactly once, with transactions": _restarted("exactly_once_v2"),
            "state from its changelog topic": _restarted("exactly_once_v2", keeps_state=False),
            "two instances, one leaves": two_instances,
        }
    }
