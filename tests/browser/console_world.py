"""A node that enforces rules, with a database that it captures, a pipeline, dead letters and a
console: what scenarios of the console's operations look at.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import psycopg

from demo.postgres import LocalPostgres
from dragoman.client.kafka import BlockingKafkaClient, ClientSettings, NewRecord, SaslLogin
from dragoman.client.rocketmq import BlockingRocketmqClient, Message
from dragoman.testing import EphemeralBroker

USER, PASSWORD = "alice", "correct horse"
_LISTENERS = ("kafka", "http", "rocketmq", "rocketmq-broker")
_PATIENCE_S = 60.0
DEAD = "%DLQ%billing"
RETRY = "%RETRY%billing"
SPARK_DEAD = "orders.deadletters"


class World:
    """`url` is the console's, `node` the URL of the node."""

    def __init__(self, *, has_capture: bool = True) -> None:
        self._has_capture = has_capture
        self._open = ExitStack()
        self.dsn = ""

    def __enter__(self) -> Self:
        with self._open as stack:
            settings = {
                "super.users": f"User:{USER}",
                "sasl.insecure.clear.text": "true",
                "listener.rocketmq.authentication": "off",
                "listener.rocketmq-broker.authentication": "off",
            }
            self.broker = stack.enter_context(
                EphemeralBroker(users={USER: PASSWORD}, listeners=_LISTENERS, settings=settings)
            )
            self.node = self.broker.http_url
            self._fill_topics()
            self._delay_records()
            self._report_pipeline()
            if self._has_capture:
                self._capture(stack.enter_context(LocalPostgres()))
            self.url = _start_console(stack, self.broker, "SCRAM-SHA-256")
            # A node without users, whose console only reads.
            open_node = stack.enter_context(EphemeralBroker())
            self.open_url = _start_console(stack, open_node, "")
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    # ---- the node

    def ask(self, method: str, path: str, body: object = None) -> Any:
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.node + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def records(self, topic: str) -> list[dict[str, Any]]:
        """Of its partition 0."""
        path = f"/api/v1/topics/{urllib.request.quote(topic, safe='')}/partitions/0/records"
        return list(self.ask("GET", path)["items"])

    def _fill_topics(self) -> None:
        for name, partitions in (("orders", 3), (DEAD, 1), (RETRY, 1), (SPARK_DEAD, 1)):
            self.ask("POST", "/api/v1/topics", {"name": name, "partitions": partitions})
        # Anonymous RocketMQ clients are not of interest here: the topics are filled as they would.
        login = SaslLogin(mechanism="SCRAM-SHA-256", name=USER, password=PASSWORD)
        with BlockingKafkaClient(
            self.broker.bootstrap_servers, ClientSettings(login=login)
        ) as client:
            client.produce_records(
                "orders",
                [
                    NewRecord(
                        key=f"customer-{number % 7}".encode(),
                        value=json.dumps({"id": number, "amount": number * 1.25}).encode(),
                        partition=number % 3,
                    )
                    for number in range(600)
                ],
            )
        letters = [
            {
                "key": f"order-{number}",
                "value": json.dumps({"order": number, "state": "unpaid"}),
                "headers": [
                    {"name": "rocketmq.RETRY_TOPIC", "value": "orders"},
                    {"name": "rocketmq.ORIGIN_MESSAGE_ID", "value": f"AC11000100{number:02}"},
                    {"name": "rocketmq.TAGS", "value": "unpaid"},
                ],
            }
            for number in range(5)
        ]
        letters.append({"key": "<b>bold</b>", "value": "<script>window.hacked = 1</script>"})
        self._write(DEAD, letters)
        self._write(
            SPARK_DEAD,
            [
                {
                    "value": "{not json",
                    "headers": [
                        {"name": "dragoman.topic", "value": "orders"},
                        {"name": "dragoman.partition", "value": "1"},
                        {"name": "dragoman.offset", "value": "17"},
                        {"name": "dragoman.error", "value": "malformed JSON at byte 1"},
                        {"name": "trace", "value": "a-1"},
                    ],
                }
            ],
        )

    def _write(self, topic: str, records: list[dict[str, Any]]) -> None:
        path = f"/api/v1/topics/{urllib.request.quote(topic, safe='')}/records"
        self.ask("POST", path, {"records": records})

    def _delay_records(self) -> None:
        anyone = {"principal": "User:ANONYMOUS", "resource": "topic", "name": "reminders"}
        rules = [{**anyone, "operation": each} for each in ("write", "create", "describe")]
        self.ask("POST", "/api/v1/security/rules", {"rules": rules})
        self.ask("POST", "/api/v1/topics", {"name": "reminders"})
        with (
            BlockingRocketmqClient(self.broker.address("rocketmq")) as client,
            client.producer("reminders") as producer,
        ):
            for number in range(4):
                body = f"remind {number}".encode()
                producer.send(Message(topic="reminders", body=body, delay_level=18))

    def _report_pipeline(self) -> None:
        now = time.time_ns() // 1_000_000
        part = {"state": "running", "batches": 42, "batch_ms": 180, "at_ms": now}
        self.ask(
            "POST",
            "/api/v1/pipelines",
            {
                "name": "orders-by-shop",
                "file": "orders/pipeline.toml",
                "state": "running",
                "host": "worker-1",
                "master": "local[2]",
                "pid": 4711,
                "started_ms": now - 3_600_000,
                "updated_ms": now,
                "parts": [
                    {
                        **part,
                        "part": "table",
                        "rows": 91_200,
                        "rows_per_s": 25.4,
                        "lag_records": 12,
                    },
                    {
                        **part,
                        "part": "totals",
                        "rows": 880,
                        "rows_per_s": 0.2,
                        "lag_records": 3,
                        "state_rows": 5200,
                        "state_bytes": 1 << 20,
                    },
                ],
            },
        )

    def _capture(self, postgres: LocalPostgres) -> None:
        self.dsn = postgres.dsn()
        self.database_address = ("127.0.0.1", str(postgres.port))
        self.database_password = postgres.password
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("create table purchases (id int primary key, item text)")
            connection.execute("create table notes (text text)")
            connection.execute("create table customers (id int primary key, name text)")
            connection.execute(
                "insert into purchases select n, 'item ' || n from generate_series(1, 500) n"
            )
        definition = {"name": "shop", "dsn": self.dsn, "tables": ["purchases"]}
        self.ask("POST", "/api/v1/captures", definition)
        self.wait(lambda: self._status()["state"] == "streaming", "the snapshot")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("update purchases set item = 'desk' where id <= 20")

    def _status(self) -> dict[str, Any]:
        return dict(self.capture("shop")["status"])

    def capture(self, name: str) -> dict[str, Any]:
        return dict(self.ask("GET", f"/api/v1/captures/{name}"))

    def captures(self) -> set[str]:
        return {each["name"] for each in self.ask("GET", "/api/v1/captures")["items"]}

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not holds():
            if time.monotonic() > until:
                raise TimeoutError(f"{what} does not come")
            time.sleep(0.05)


def _start_console(stack: ExitStack, node: EphemeralBroker, mechanism: str) -> str:
    command = (sys.executable, "-c", _CONSOLE, node.http_url, node.bootstrap_servers, mechanism)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdout is not None
    return f"http://127.0.0.1:{int(process.stdout.readline())}/"


#: A console as a node starts it, which logs in to Kafka's listener.
_CONSOLE = """
import asyncio, socket, sys
from dragoman.console.serve import serve
from dragoman.config.console import ConsoleSettings, KafkaTarget
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
kafka = KafkaTarget(bootstrap=sys.argv[2], mechanism=sys.argv[3])
settings = ConsoleSettings(server=sys.argv[1], kafka=kafka)
async def run():
    await serve(settings, listener, asyncio.Event())
asyncio.run(run())
"""
