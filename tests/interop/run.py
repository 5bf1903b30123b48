"""`make interop`: clients that others wrote, operation by operation, against a real broker.

    PYTHONPATH=tests python tests/interop/run.py [--only WORDS] [CLIENT ...]

Prints what came of every operation; ends with status 1 when one failed. Without `--only`, what
was found replaces the client's columns of docs/reference/compatibility.md and of the JSON beside
it. A client that cannot be set up here is named and left as it was.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import page
from admin_operations import ADMIN
from client import NotDone, Operations, Unsupported
from group_operations import GROUPS
from record_operations import RECORDS
from transaction_operations import TRANSACTIONS

from dragoman import __version__

#: Module and class of each, in the order of the page.
CLIENTS = {
    "java": ("java_client", "JavaClient"),
    "confluent-kafka": ("confluent_client", "ConfluentClient"),
    "kafka-python": ("kafka_python_client", "KafkaPythonClient"),
    "aiokafka": ("aiokafka_client", "AiokafkaClient"),
    "kafkajs": ("kafkajs_client", "KafkaJSClient"),
    "kcat": ("kcat_client", "KcatClient"),
    "quix": ("quix_client", "QuixClient"),
    "tools": ("tools_client", "ToolsClient"),
    "streams": ("streams_client", "StreamsClient"),
    "connect": ("connect_client", "ConnectClient"),
    "spark-kafka": ("spark_kafka_client", "SparkKafkaClient"),
    "rocketmq-java-4.4": ("rocketmq_java_client", "RocketmqJava44"),
    "rocketmq-java-4.9": ("rocketmq_java_client", "RocketmqJava49"),
    "rocketmq-java-5.3": ("rocketmq_java_client", "RocketmqJava53"),
    "rocketmq-binary": ("rocketmq_java_client", "RocketmqBinary"),
    "mqadmin-4.9": ("rocketmq_mqadmin_client", "Mqadmin49"),
    "mqadmin-5.3": ("rocketmq_mqadmin_client", "Mqadmin53"),
    "rocketmq-go": ("rocketmq_go_client", "RocketmqGoClient"),
    "rocketmq-python": ("rocketmq_python_client", "RocketmqPythonClient"),
    "rocketmq-original": ("rocketmq_own_client", "OwnClient"),
    "ali-ons": ("rocketmq_node_client", "AliOnsClient"),
    "rocketmq-nodejs": ("rocketmq_node_client", "RocketmqNodejsClient"),
}
SECTIONS: dict[str, Operations] = {
    "Records": RECORDS,
    "Transactions": TRANSACTIONS,
    "Groups": GROUPS,
    "Administration": ADMIN,
}
#: Heartbeats in fractions of a second, so that groups settle while one watches.
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="interop")
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join(CLIENTS))
    parser.add_argument("--only", metavar="WORDS", help="operations with these words in the title")
    options = parser.parse_args()
    unknown = set(options.clients) - CLIENTS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    columns: list[page.Column] = []
    for name in options.clients or CLIENTS:
        client, reason = _load(name)
        if client is None:
            print(f"not run: {name} ({reason})")
            continue
        found = _try_all(client, options.only or "")
        columns.append({"name": client.name, "version": client.version, "sections": found})
    if options.only is None:
        _keep(columns)
    cells = [
        cell for each in columns for found in each["sections"].values() for cell in found.values()
    ]
    return 0 if cells and all(cell in page.SHOWN for cell in cells) else 1


def _load(name: str) -> tuple[Any, str]:
    """The client's class, or why there is none here."""
    module, class_name = CLIENTS[name]
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        return None, str(error)
    reason = loaded.set_up()
    return (None, reason) if reason else (getattr(loaded, class_name), "")


def _try_all(client: Any, words: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    with client.open_broker(SETTINGS) as broker:
        running = client(broker.address(client.listeners[0]))
        running.broker = broker
        try:
            for section, operations in (client.sections or SECTIONS).items():
                cells = found[section] = {}
                for title in operations:
                    if words in title:
                        begun = time.monotonic()
                        topic = re.sub(r"\W+", "-", f"{section} {title}")
                        cells[title] = cell = _try(operations[title], running, topic)
                        spent = time.monotonic() - begun
                        print(f"{client.name}: {title}: {cell or 'not done'} ({spent:.1f} s)")
        finally:
            running.close()
    return found


def _try(operation: Callable[[Any, str], None], client: Any, topic: str) -> str:
    """`pass`, `none` when the library has no such thing, nothing when its adapter does not ask
    for it, or what went wrong.
    """
    try:
        operation(client, topic)
    except Unsupported:
        return "none"
    except NotDone:
        return ""
    except Exception as error:  # noqa: BLE001 - whatever a client raises is its result
        return " ".join(f"{type(error).__name__}: {error}".split())
    return "pass"


def _keep(columns: list[page.Column]) -> None:
    results = page.read()
    kept = {each["name"]: each for each in [*results["clients"], *columns]}
    page.write({**results, "dragoman": __version__, "clients": list(kept.values())})


if __name__ == "__main__":
    sys.exit(main())
