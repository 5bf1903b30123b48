"""RocketMQ's official client for Go, behind the program in `rocketmq/go/`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import rocketmq_operations
import rocketmq_signatures
from rocketmq_client import RocketmqClient

SOURCES = Path(__file__).parent / "rocketmq" / "go"
PROGRAM = Path(__file__).parents[2] / "build" / "interop" / "rocketmq-go" / "agent"


def set_up() -> str:
    """Build it, with what it needs. Why it cannot be run, or nothing."""
    if shutil.which("go") is None:
        return "needs go"
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "build", "-o", PROGRAM, "."], cwd=SOURCES, check=True, timeout=600)
    return ""


class RocketmqGoClient(RocketmqClient):
    name = "RocketMQ Go"
    refusals = {
        "wrong": "CODE: 1, +DESC: Check signature failed for accessKey=",
        "unsigned": "CODE: 1, +DESC: No accessKey is configured",
        "no right": "CODE: 16, +DESC: bob may not write topic",
    }
    version = re.search(r"rocketmq-client-go/v2 v(\S+)", (SOURCES / "go.mod").read_text())[1]  # type: ignore[index]
    has = frozenset(
        {
            "sync",
            "one-way",
            "async",
            "batch",
            "properties",
            "delay",
            "queue",
            "first use",
            "transactions",
            "push",
            "pull",
            "clustering",
            "broadcasting",
            "orderly",
            "TAG",
            "SQL92",
            "attempts max",
        }
    )

    def command(self, servers: str) -> list[str]:
        return ["env", f"HOME={self._home.name}", str(PROGRAM), servers]

    def ask(self, call: str, *words: str) -> object:
        return self._program.ask(call, 0, words)


def administration(client: RocketmqGoClient, topic: str) -> None:
    """Everything that it has."""
    broker = client.broker.address("rocketmq-broker")
    client.ask("create_topic", topic, broker)
    topics = client.ask("topics")
    assert isinstance(topics, list)
    assert topic in topics, topics
    assert client.ask("queues", topic) == 8
    client.set_attempts_max(f"group-{topic}", 3)
    groups = client.ask("groups", broker)
    assert isinstance(groups, list)
    assert f"group-{topic}" in groups, groups
    client.ask("delete_topic", topic, broker)
    topics = client.ask("topics")
    assert isinstance(topics, list)
    assert topic not in topics, topics


RocketmqGoClient.sections = {
    **rocketmq_operations.SECTIONS,
    **rocketmq_signatures.SECTION,
    "RocketMQ: the Go client's administration": {
        "make, list and delete topics, list queues and groups": administration
    },
}
