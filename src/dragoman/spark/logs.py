"""The log that provides topics and offsets to a read, and the directory that provides its files.

The log is a cluster, over Kafka's protocol, or a data directory. If a broker's data directory is
visible on this machine, the broker provides the offsets and the directory the files.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from dragoman.client.kafka import (
    EARLIEST,
    LATEST,
    BlockingKafkaClient,
    ClientError,
    ClientSettings,
    Isolation,
    LogDirectory,
    TopicPartition,
)
from dragoman.errors import ConfigError, LogError
from dragoman.operating_system import platforms
from dragoman.spark import planner
from dragoman.spark.offsets import Offsets, Topic
from dragoman.spark.options import SourceOptions
from dragoman.spark.storage import StoredLog

_NO_ID = bytes(16)


def open_client(options: SourceOptions) -> BlockingKafkaClient:
    """A client that connects on first use."""
    pause = max(0.001, options.retry_pause_s)
    settings = ClientSettings(
        client_id=options.client_id,
        request_timeout_s=options.request_timeout_s,
        operation_timeout_s=options.poll_timeout_s,
        tls=options.tls,
        login=options.login,
        backoff_first_s=pause,
        backoff_max_s=max(pause, 1.0),
    )
    return BlockingKafkaClient(options.bootstrap, settings)


def isolation_of(options: SourceOptions) -> Isolation:
    return Isolation.READ_COMMITTED if options.committed_only else Isolation.READ_UNCOMMITTED


def id_text(topic_id: bytes) -> str:
    """The id as in manifests; empty for a broker without topic ids."""
    return topic_id.hex() if topic_id != _NO_ID else ""


class BrokerLog:
    """The `Log` of a cluster, over Kafka's protocol."""

    def __init__(self, options: SourceOptions) -> None:
        self._isolation = isolation_of(options)
        self.client = open_client(options)

    def topics(self, names: Sequence[str] = ()) -> dict[str, Topic]:
        return {
            each.name: Topic(each.name, id_text(each.topic_id), tuple(sorted(each.partitions)))
            for each in self.client.cluster(names or None).topics.values()
            if names or not each.is_internal
        }

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._list(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._list(dict.fromkeys(partitions, LATEST))

    def at_times(self, times: Mapping[TopicPartition, int]) -> Offsets:
        found = self._list(times)
        return {where: offset for where, offset in found.items() if offset >= 0}

    def directories(self, partitions: Iterable[TopicPartition] = ()) -> list[LogDirectory]:
        return self.client.log_directories(partitions)

    def close(self) -> None:
        self.client.close()

    def _list(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        if not wanted:
            return {}
        found = self.client.list_offsets(wanted, isolation=self._isolation)
        return {where: each.offset for where, each in found.items()}


log = logging.getLogger("dragoman.spark")

#: Partitions that a warning about missing offsets lists.
_PARTITIONS_NAMED_MAX = 50


class IncompleteError(LogError):
    """A directory that may hold acknowledged records outside its stable segments."""


AnyLog: TypeAlias = BrokerLog | StoredLog


def open_logs(options: SourceOptions) -> tuple[AnyLog, StoredLog | None]:
    """The log that provides topics and offsets, and the directory of stable files if one is
    visible.

    Raises `ConfigError` when `readMode=segments` and no directory is visible.
    """
    if options.read_mode == "broker":
        return BrokerLog(options), None
    if not options.bootstrap:
        return _directory_only(options, options.path)
    served = BrokerLog(options)
    path = options.path or _visible_directory(served)
    if options.read_mode == "segments":
        served.close()
        if not path:
            raise ConfigError("readMode=segments: no data directory of a broker is visible here")
        return _directory_only(options, path)
    if not path:
        return served, None
    return served, StoredLog(path, committed_only=options.committed_only)


def _directory_only(options: SourceOptions, path: str) -> tuple[StoredLog, StoredLog]:
    stored = StoredLog(path, committed_only=options.committed_only)
    if not stored.is_complete():
        problem = _incomplete(stored, options)
        if options.fail_on_incomplete:
            raise IncompleteError(problem)
        log.warning("%s", problem)
    return stored, stored


def _incomplete(stored: StoredLog, options: SourceOptions) -> str:
    """The message about offsets that a read leaves out.

    A partition without stable segments may not have a directory yet, so it cannot be named. Raises
    `ConfigError` when a whole topic is missing.
    """
    state = f"{stored.root} is in use or was not stopped cleanly"
    try:
        topics = planner.chosen_topics(stored, options.topics)
    except ConfigError as error:
        raise ConfigError(f"{error} in the stable segments; {state}") from None
    ends = sorted(stored.latest(planner.partitions_of(topics)).items())
    missing = [f"{where} from offset {end} on" for where, end in ends[:_PARTITIONS_NAMED_MAX]]
    if len(ends) > len(missing):
        missing.append(f"the ends of {len(ends) - len(missing)} more partitions")
    missing.append("partitions without a stable segment")
    return (
        f"{state}: the read leaves out {', '.join(missing)}; "
        "name a broker with kafka.bootstrap.servers to read them"
    )


def _visible_directory(served: BrokerLog) -> str:
    """A data directory that the brokers report and that exists on this machine; empty if there is
    none.

    Files are planned only for topics whose id in the directory equals the id from the brokers.
    """
    if platforms.IS_WINDOWS:
        return ""
    try:
        directories = served.directories()
    except ClientError as error:
        log.debug("the brokers do not report their directories: %s", error)
        return ""
    for each in directories:
        if os.path.isabs(each.path) and StoredLog.is_at(each.path):
            return each.path
    return ""
