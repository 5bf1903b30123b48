"""Goal: a stock RocketMQ client does its work: PyPI's `rocketmq`, the official client
for C++ behind Python.

Method: the operations of `make interop` that do not take half a minute, against a broker in this
process; the client is in another, because its threads do not end. Groups have committed where they
begin, so nothing depends on who is faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

pytest.importorskip("rocketmq.client", reason="it has wheels for Linux on x86-64 only")

import rocketmq_signatures
from rocketmq_operations import CONSUMERS, MESSAGES
from rocketmq_python_client import RocketmqPythonClient

from dragoman.testing import EphemeralBroker

OPERATIONS = {**MESSAGES, **CONSUMERS}
LACKING = {title for title in OPERATIONS if title.startswith(("transaction", "SQL92"))}
#: The client connects again when it refreshes its routes, every 30 seconds; retries are part of how
#: a message becomes a dead letter.
SLOW = {"broker restarts", "refused and retried"}


@pytest.fixture(scope="module")
def client() -> Iterator[RocketmqPythonClient]:
    with EphemeralBroker(listeners=RocketmqPythonClient.listeners) as broker:
        client = RocketmqPythonClient(broker.address("rocketmq"))
        client.broker = broker
        try:
            yield client
        finally:
            client.close()


@pytest.mark.parametrize("title", sorted(OPERATIONS.keys() - LACKING - SLOW))
def test_operation(client: RocketmqPythonClient, title: str) -> None:
    OPERATIONS[title](client, re.sub(r"\W+", "-", title))


@pytest.mark.parametrize("title", sorted(rocketmq_signatures.OPERATIONS))
def test_signatures(client: RocketmqPythonClient, title: str) -> None:
    rocketmq_signatures.OPERATIONS[title](client, re.sub(r"\W+", "-", title))
