"""kcat: the command line over librdkafka, when it is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from client import LARGE_BYTES_MAX, SECONDS_MAX, Client, NotDone, Record, Row

TOOL = "kcat"


def set_up() -> str:
    return "" if shutil.which(TOOL) else "needs kcat"


def librdkafka_version() -> tuple[int, ...]:
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", _kcat("-V"))
    assert found is not None
    return tuple(map(int, found.groups()))


def _kcat(*arguments: str, given: bytes = b"") -> str:
    result = subprocess.run(
        [TOOL, *arguments], input=given, capture_output=True, timeout=SECONDS_MAX, check=False
    )
    assert result.returncode == 0, result.stderr.decode(errors="replace")
    return result.stdout.decode()


class KcatClient(Client):
    name = TOOL
    version = _kcat("-V").partition("Version ")[2].partition(" ")[0] if not set_up() else ""
    #: Its groups and transactions end with its input or when it is stopped: not tried.
    lacks = frozenset(
        {
            "delete_topic",
            "create_partitions",
            "topic_config",
            "alter_topic_config",
            "broker_config",
            "delete_records",
            "list_groups",
            "describe_group",
            "delete_group",
            "group_offsets",
            "alter_group_offset",
            "delete_group_offset",
            "list_transactions",
            "producer_states",
            "elect_leader",
            "list_reassignments",
            "features",
            "quota",
            "alter_quota",
            "log_directory_bytes",
        }
    )

    def create_topic(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> None:
        """It has no such command: the topic is made by the first record, as the broker likes."""
        if config:
            raise NotDone("it cannot configure a topic")

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        if any(each.headers or each.timestamp or each.value is None for each in records):
            raise NotDone("one set of headers for all records, and a flag for null values")
        lines = b"".join(b"%s:%s\n" % (each.key or b"", each.value or b"") for each in records)
        settings = {
            "enable.idempotence": str(idempotent).lower(),
            "message.max.bytes": LARGE_BYTES_MAX,
            "acks": acks,
        }
        options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        _kcat("-P", "-b", self.servers, "-t", topic, "-K", ":", "-z", codec, *options, given=lines)

    def consume(self, topic: str, count: int, committed_only: bool = False) -> list[Row]:
        if committed_only:
            raise NotDone("without transactions there is nothing to tell apart")
        printed = _kcat("-C", "-J", "-b", self.servers, "-t", topic, "-c", str(count))
        return [_row(line) for line in printed.splitlines()]

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int:
        asked = f"{topic}:{partition}:{timestamp}"
        (line,) = _kcat("-Q", "-b", self.servers, "-t", asked).splitlines()
        return int(line.rpartition("offset ")[2])

    def list_offsets(self, topic: str, partition: int) -> list[int]:
        return [self.offset_for_time(topic, partition, which) for which in (-2, -1)]

    def _metadata(self, *options: str) -> dict[str, list[dict[str, object]]]:
        listed: dict[str, list[dict[str, object]]] = json.loads(
            _kcat("-L", "-J", "-b", self.servers, *options)
        )
        return listed

    def list_topics(self) -> set[str]:
        return {str(each["topic"]) for each in self._metadata()["topics"]}

    def describe_topic(self, topic: str) -> int:
        (found,) = self._metadata("-t", topic)["topics"]
        return len(found["partitions"])  # type: ignore[arg-type]

    def describe_cluster(self) -> list[int]:
        return [int(each["id"]) for each in self._metadata()["brokers"]]  # type: ignore[call-overload]


def _row(line: str) -> Row:
    read = json.loads(line)
    value, key = read["payload"].encode(), (read["key"] or "").encode()
    return Row(read["topic"], read["partition"], read["offset"], key, value, [], read["ts"])
