"""Kafka's command line tools: what an operator types, and what must be in the answer."""

from __future__ import annotations

import json
import subprocess
import tempfile

import java_client
import tools_security
from client import SECONDS_MAX, Client

set_up = java_client.set_up
_PACKAGE = "org.apache.kafka.tools"


class ToolsClient(Client):
    name = "Kafka command line"
    version = java_client.JavaClient.version

    def run(self, tool: str, *arguments: str, given: str = "") -> str:
        program = ["-cp", java_client.CLASS_PATH, f"{_PACKAGE}.{tool}"]
        done = subprocess.run(
            [
                "java",
                *java_client.OPTIONS,
                *program,
                "--bootstrap-server",
                self.servers,
                *arguments,
            ],
            input=given,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
        return done.stdout

    def create(self, topic: str, lines: int = 0) -> None:
        self.run("TopicCommand", "--create", "--topic", topic, "--partitions", "1")
        if lines:
            given = "".join(f"line {number}\n" for number in range(lines))
            self.run("ConsoleProducer", "--topic", topic, given=given)


def topics(tools: ToolsClient, topic: str) -> None:
    tools.create(topic)
    assert topic in tools.run("TopicCommand", "--list")
    assert "Leader: 1" in tools.run("TopicCommand", "--describe", "--topic", topic)
    tools.run("TopicCommand", "--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in tools.run("TopicCommand", "--describe", "--topic", topic)
    tools.run("TopicCommand", "--delete", "--topic", topic)
    assert topic not in tools.run("TopicCommand", "--list")


def console(tools: ToolsClient, topic: str) -> None:
    tools.create(topic, 20)
    read = ("--topic", topic, "--from-beginning", "--max-messages", "20")
    printed = tools.run("consumer.ConsoleConsumer", *read)
    assert printed.split("\n")[:20] == [f"line {number}" for number in range(20)], printed


def groups(tools: ToolsClient, topic: str) -> None:
    """Lag before and after its offsets are set back."""
    tools.create(topic, 5)
    group = ("--group", f"group-{topic}")
    read = ("--topic", topic, "--from-beginning", "--max-messages", "5")
    tools.run("consumer.ConsoleConsumer", *read, *group)

    def lag() -> str:
        shown = tools.run("consumer.group.ConsumerGroupCommand", "--describe", *group)
        (line,) = [line for line in shown.splitlines() if topic in line and "no active" not in line]
        return line.split()[5]

    assert lag() == "0"
    back = ("--reset-offsets", "--to-earliest", "--execute", "--topic", topic)
    tools.run("consumer.group.ConsumerGroupCommand", *back, *group)
    assert lag() == "5"
    assert group[1] in tools.run("GroupsCommand", "--list")
    tools.run("consumer.group.ConsumerGroupCommand", "--delete", *group)
    assert group[1] not in tools.run("GroupsCommand", "--list")


def records(tools: ToolsClient, topic: str) -> None:
    tools.create(topic, 5)
    assert f"{topic}:0:5" in tools.run("GetOffsetShell", "--topic", topic)
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 2}]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(wanted, file)
        file.flush()
        printed = tools.run("DeleteRecordsCommand", "--offset-json-file", file.name)
    assert "low_watermark: 2" in printed
    earliest = tools.run("GetOffsetShell", "--topic", topic, "--time", "earliest")
    assert f"{topic}:0:2" in earliest
    assert f'"{topic}-0"' in tools.run("LogDirsCommand", "--describe", "--topic-list", topic)


def cluster(tools: ToolsClient, topic: str) -> None:
    assert "ConsumerGroupHeartbeat(68)" in tools.run("BrokerApiVersionsCommand")
    tools.create(topic)
    place = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "already elected" in tools.run("LeaderElectionCommand", *place)
    reassignments = tools.run("reassign.ReassignPartitionsCommand", "--list")
    assert "No partition reassignments" in reassignments


def reassignment(tools: ToolsClient, topic: str) -> None:
    """With a throttle, which is a broker setting that is taken away once the move is verified."""
    tools.create(topic)
    wanted = {
        "version": 1,
        "partitions": [{"topic": topic, "partition": 0, "replicas": [1], "log_dirs": ["any"]}],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(wanted, file)
        file.flush()
        plan = ("--reassignment-json-file", file.name)
        tools.run("reassign.ReassignPartitionsCommand", "--execute", "--throttle", "1000000", *plan)
        verified = tools.run("reassign.ReassignPartitionsCommand", "--verify", *plan)
    assert f"Reassignment of partition {topic}-0 is completed" in verified, verified
    assert "Clearing broker-level throttles" in verified, verified


def performance(tools: ToolsClient, topic: str) -> None:
    load = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    printed = tools.run("ProducerPerformance", "--topic", topic, *load)
    assert "20000 records sent" in printed
    read = tools.run("ConsumerPerformance", "--topic", topic, "--num-records", "20000")
    assert read.splitlines()[-1].split(", ")[4] == "20000", read


ToolsClient.sections = {
    "Kafka command line": {
        "topics: create, list, describe, alter, delete": topics,
        "console producer and consumer": console,
        "groups: describe, reset offsets, list, delete": groups,
        "offsets, delete records, log directories": records,
        "API versions, elections, reassignments": cluster,
        "reassignments with a throttle: execute, verify": reassignment,
        "performance of producer and consumer": performance,
    },
    **tools_security.SECTION,
}
