"""A node that enforces rules, with clients of five protocols, a database that it captures, a
pipeline, dead letters, names and values that are hard to show, and a console.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final, Self
from urllib.parse import quote

import psycopg

from browser.console_pipeline import ReportedPipeline
from browser.console_process import start_console
from browser.console_traffic import OPEN_LISTENERS, TOPICS, Traffic
from demo.postgres import LocalPostgres
from dragoman.client.kafka import BlockingKafkaClient, ClientSettings, NewRecord, SaslLogin
from dragoman.client.rocketmq import BlockingRocketmqClient, Message
from dragoman.testing import EphemeralBroker

#: An administrator, and a user who may describe topics and groups only.
ADMIN, VIEWER, PASSWORD = "alice", "bob", "correct horse battery"
#: Text that would be a script if a page took it as markup.
SCRIPT: Final = "<img src=x onerror=window.hacked=1>"
DEAD: Final = "%DLQ%billing"
RETRY: Final = "%RETRY%billing"
SPARK_DEAD: Final = "sales.deadletters"
LONG: Final = "-".join(["a.very.long.name"] * 15)[:249]
#: What is hard to show: other scripts and directions, signs of several code points, large numbers.
VALUES: Final = (
    {"name": "متجر القاهرة", "note": "\u202eright to left\u202c", "at": "שלום"},
    {"name": "👩‍👩‍👧‍👦 🏳️‍🌈 🇨🇭", "note": "e\u0301 ﷽ 龘"},
    {"id": 12345678901234567890123, "ratio": 1.7976931348623157e308, "least": -9007199254740993},
    {"text": "word " * 500, "unbroken": "x" * 3000},
)
_PATIENCE_S = 60.0


class World:
    """`url` is the console's, `node` the URL of the node."""

    def __init__(self) -> None:
        settings = {f"listener.{each}.authentication": "off" for each in OPEN_LISTENERS}
        settings |= {"super.users": f"User:{ADMIN}", "sasl.insecure.clear.text": "true"}
        self.broker = EphemeralBroker(
            users={ADMIN: PASSWORD, VIEWER: PASSWORD},
            storage="directory",
            listeners=("kafka", "http", "console", *OPEN_LISTENERS),
            settings=settings,
        )
        self._open = ExitStack()
        self.dsn = ""

    def __enter__(self) -> Self:
        with self._open as stack:
            stack.enter_context(self.broker)
            self.node = self.broker.http_url
            self.url = f"http://{self.broker.address('console')}/"
            allow(self.ask, "ANONYMOUS", "all", "topic", "group")
            allow(self.ask, VIEWER, "describe", "topic", "group")
            self._fill_topics()
            self._fill_letters()
            self._fill_values()
            self._delay_records()
            stack.enter_context(ReportedPipeline(self.ask))
            stack.enter_context(Traffic(self.broker.address, ADMIN, PASSWORD))
            self._capture(stack.enter_context(LocalPostgres()))
            # A node without users, whose console only reads.
            open_node = stack.enter_context(EphemeralBroker())
            self.open_url = start_console(stack, open_node)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    # ---- the node

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return ask_as_admin(self.node, method, path, body)

    def records(self, topic: str) -> list[dict[str, Any]]:
        """Of its partition 0."""
        path = f"/api/v1/topics/{quote(topic, safe='')}/partitions/0/records"
        return list(self.ask("GET", path)["items"])

    def client(self) -> BlockingKafkaClient:
        login = SaslLogin(mechanism="SCRAM-SHA-256", name=ADMIN, password=PASSWORD)
        return BlockingKafkaClient(self.broker.bootstrap_servers, ClientSettings(login=login))

    def _fill_topics(self) -> None:
        others = {"sales": 3, "invoices": 2, DEAD: 1, RETRY: 1, SPARK_DEAD: 1}
        for name, partitions in {**TOPICS, **others, LONG: 1, "wide": 60, "values": 1}.items():
            self.ask("POST", "/api/v1/topics", {"name": name, "partitions": partitions})
        schema = {"dragoman.value.schema": "id bigint, amount double"}
        self.ask("PATCH", "/api/v1/topics/orders", {"set": {"retention.ms": "86400000", **schema}})
        self._write("invoices", [{"key": SCRIPT, "value": SCRIPT} for _ in range(20)])
        for group in ("reports", SCRIPT):
            path = f"/api/v1/groups/{quote(group, safe='')}/reset"
            self.ask("POST", path, {"to": "earliest", "topics": ["invoices"]})
        with self.client() as client:
            client.produce_records(
                "sales",
                [
                    NewRecord(
                        key=f"customer-{number % 7}".encode(),
                        value=json.dumps({"id": number, "amount": number * 1.25}).encode(),
                        partition=number % 3,
                    )
                    for number in range(600)
                ],
            )

    def _fill_values(self) -> None:
        values = [json.dumps(each, ensure_ascii=False) for each in VALUES]
        self._write("values", [{"key": f"مفتاح {LONG}", "value": each} for each in values])
        with self.client() as client:
            records = [NewRecord(key=None, value=None), NewRecord(key=b"", value=bytes(range(256)))]
            client.produce_records("values", records)
        self._write(LONG, [{"value": "1"}])
        self.ask("POST", f"/api/v1/groups/{LONG}/reset", {"to": "earliest", "topics": [LONG]})

    def _fill_letters(self) -> None:
        letters = [
            {
                "key": f"order-{number}",
                "value": json.dumps({"order": number, "state": "unpaid"}),
                "headers": [
                    {"name": "rocketmq.RETRY_TOPIC", "value": "sales"},
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
                        {"name": "dragoman.topic", "value": "sales"},
                        {"name": "dragoman.partition", "value": "1"},
                        {"name": "dragoman.offset", "value": "17"},
                        {"name": "dragoman.error", "value": "malformed JSON at byte 1"},
                        {"name": "trace", "value": "a-1"},
                    ],
                }
            ],
        )

    def _write(self, topic: str, records: list[dict[str, Any]]) -> None:
        path = f"/api/v1/topics/{quote(topic, safe='')}/records"
        self.ask("POST", path, {"records": records})

    def _delay_records(self) -> None:
        self.ask("POST", "/api/v1/topics", {"name": "reminders"})
        with (
            BlockingRocketmqClient(self.broker.address("rocketmq")) as client,
            client.producer("reminders") as producer,
        ):
            for number in range(4):
                body = f"remind {number}".encode()
                message = Message(topic="reminders", body=body, tags="later", delay_level=18)
                producer.send(message)

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

    def quotas(self) -> list[dict[str, Any]]:
        return list(self.ask("GET", "/api/v1/security/quotas")["items"])

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not holds():
            if time.monotonic() > until:
                raise TimeoutError(f"{what} does not come")
            time.sleep(0.05)


def ask_as_admin(node: str, method: str, path: str, body: object = None) -> Any:
    """What the API of a node, by its URL, answers to the administrator."""
    login = base64.b64encode(f"{ADMIN}:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(node + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def allow(ask: Callable[[str, str, object], Any], user: str, operation: str, *kinds: str) -> None:
    """Rules for all resources of these kinds."""
    rule = {"principal": f"User:{user}", "operation": operation}
    rules = [
        {**rule, "resource": kind, "name": "kafka-cluster" if kind == "cluster" else "*"}
        for kind in kinds
    ]
    ask("POST", "/api/v1/security/rules", {"rules": rules})
