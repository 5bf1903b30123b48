"""kcat: the command line over librdkafka, when it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence

from operations import SECONDS_MAX, Row, Unsupported

name = "kcat"


def _kcat(*arguments: str, given: bytes = b"") -> str:
    result = subprocess.run(
        [name, *arguments], input=given, capture_output=True, timeout=SECONDS_MAX, check=False
    )
    assert result.returncode == 0, result.stderr.decode(errors="replace")
    return result.stdout.decode()


version = _kcat("-V").partition("Version ")[2].partition(" ")[0] if shutil.which(name) else ""


def create_topic(servers: str, topic: str, partitions: int) -> None:
    """It has no such command: the topic is made by the first record."""


def delete_topic(servers: str, topic: str) -> None:
    raise Unsupported("kcat has no topic commands")


def list_topics(servers: str) -> set[str]:
    raise Unsupported("kcat has no topic commands")


def produce(
    servers: str, topic: str, values: Sequence[bytes], *, codec: str, idempotent: bool
) -> None:
    lines = b"".join(b"%d:%s\n" % pair for pair in enumerate(values))
    options = ("-X", f"enable.idempotence={str(idempotent).lower()}", "-z", codec)
    _kcat("-P", "-b", servers, "-t", topic, "-K", ":", *options, given=lines)


def transact(servers: str, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
    raise Unsupported("kcat has no transactions")


def consume(servers: str, topic: str, count: int, *, committed_only: bool = False) -> list[Row]:
    printed = _kcat("-C", "-J", "-b", servers, "-t", topic, "-c", str(count))
    return [_row(line) for line in printed.splitlines()]


def consume_in_group(servers: str, topic: str, group: str, count: int) -> list[Row]:
    raise Unsupported("kcat commits when it likes")


def _row(line: str) -> Row:
    read = json.loads(line)
    value, key = read["payload"].encode(), (read["key"] or "").encode()
    return Row(read["partition"], read["offset"], key, value, read["ts"])


def offset_for_time(servers: str, topic: str, partition: int, timestamp: int) -> int:
    (line,) = _kcat("-Q", "-b", servers, "-t", f"{topic}:{partition}:{timestamp}").splitlines()
    return int(line.rpartition("offset ")[2])
