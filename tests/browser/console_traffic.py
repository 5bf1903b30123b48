"""A node that five protocols write to and read from, with users, groups and a console."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import urllib.request
from contextlib import ExitStack, suppress
from typing import Any, Self

from confluent_kafka import Consumer, Producer

from dragoman.client.cursus import BlockingCursusClient
from dragoman.client.minibroker import BlockingMinibrokerClient
from dragoman.client.mlog import BlockingMlogClient
from dragoman.client.rocketmq import BlockingRocketmqClient, Message
from dragoman.errors import DragomanError
from dragoman.testing import EphemeralBroker

ADMIN, VIEWER, PASSWORD = "alice", "bob", "correct horse battery"
#: Text that would be a script if a page took it as markup.
SCRIPT = "<img src=x onerror=window.hacked=1>"
_OTHERS = ("rocketmq", "rocketmq-broker", "cursus", "minibroker", "mlog")
_PAUSE_S = 0.05


class BusyNode:
    """`url` is the console's; `node` is the URL of the node."""

    def __init__(self) -> None:
        settings = {f"listener.{each}.authentication": "off" for each in _OTHERS}
        settings |= {"super.users": f"User:{ADMIN}", "sasl.insecure.clear.text": "true"}
        self.broker = EphemeralBroker(
            users={ADMIN: PASSWORD, VIEWER: PASSWORD},
            listeners=("kafka", "http", *_OTHERS),
            settings=settings,
        )
        self._open = ExitStack()
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        with self._open as stack:
            stack.enter_context(self.broker)
            self.node = self.broker.http_url
            self._prepare()
            for work in (self._kafka, self._group, self._rocketmq, self._three):
                thread = threading.Thread(target=work, daemon=True)
                thread.start()
                stack.callback(thread.join, 20)
            stack.callback(self._stopped.set)
            self.url = start_console(stack, self.node, self.broker.bootstrap_servers)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        login = base64.b64encode(f"{ADMIN}:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.node + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def _prepare(self) -> None:
        anonymous = {"principal": "User:ANONYMOUS", "operation": "all", "name": "*"}
        viewer = {"principal": f"User:{VIEWER}", "operation": "describe", "name": "*"}
        rules = [{**anonymous, "resource": each} for each in ("topic", "group")]
        rules += [{**viewer, "resource": each} for each in ("topic", "group")]
        self.ask("POST", "/api/v1/security/rules", {"rules": rules})
        for name, partitions in (("orders", 6), ("payments", 3), ("clicks", 3), ("events", 1)):
            self.ask("POST", "/api/v1/topics", {"name": name, "partitions": partitions})
        schema = {"dragoman.value.schema": "id bigint, amount double"}
        self.ask("PATCH", "/api/v1/topics/orders", {"set": {"retention.ms": "86400000", **schema}})
        self.ask("POST", "/api/v1/topics", {"name": "invoices", "partitions": 2})
        records = [{"key": SCRIPT, "value": SCRIPT} for _ in range(20)]
        self.ask("POST", "/api/v1/topics/invoices/records", {"records": records})
        for group in ("reports", SCRIPT):
            path = f"/api/v1/groups/{urllib.request.quote(group, safe='')}/reset"
            self.ask("POST", path, {"to": "earliest", "topics": ["invoices"]})

    # ---- clients

    def _settings(self) -> dict[str, str | int | float | bool]:
        return {
            "bootstrap.servers": self.broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": ADMIN,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }

    def _kafka(self) -> None:
        producer = Producer({**self._settings(), "client.id": "shop"})
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
        consumer = Consumer(
            {**self._settings(), **names, "auto.offset.reset": "earliest"},
        )
        consumer.subscribe(["orders", "payments"])
        while not self._stopped.is_set():
            consumer.consume(20, 0.5)
        consumer.close()

    def _rocketmq(self) -> None:
        with (
            BlockingRocketmqClient(self.broker.address("rocketmq")) as client,
            client.producer("clicks-producer") as producer,
        ):
            while not self._stopped.wait(_PAUSE_S):
                producer.send(Message(topic="clicks", body=b"click"))

    def _three(self) -> None:
        address = self.broker.address
        with (
            BlockingMinibrokerClient(address("minibroker")) as minibroker,
            BlockingCursusClient(address("cursus")) as cursus,
            BlockingMlogClient(address("mlog")) as mlog,
            cursus.producer() as producer,
            suppress(DragomanError),
        ):
            while not self._stopped.wait(_PAUSE_S):
                minibroker.publish("events", b"by minibroker")
                producer.send("events", b"by cursus")
                mlog.produce("events", b"by mlog")


def start_console(stack: ExitStack, node: str, bootstrap: str) -> str:
    """The URL of a console, a process of its own."""
    program = "from dragoman.cli.main import main; main()"
    command = [sys.executable, "-c", program, "console", "--server", node]
    command += ["--bootstrap", bootstrap, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    stack.callback(process.wait, 20)
    stack.callback(process.terminate)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("console at "):
            return line.split()[2].rstrip(",")
    raise AssertionError("the console does not start")
