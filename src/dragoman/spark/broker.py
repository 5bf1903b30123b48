"""Topics and offsets as brokers serve them, over Kafka's protocol: any cluster that speaks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dragoman.client.kafka import (
    EARLIEST,
    LATEST,
    BlockingKafkaClient,
    ClientSettings,
    Isolation,
    LogDirectory,
    TopicPartition,
)
from dragoman.spark.offsets import Offsets, Topic
from dragoman.spark.options import SourceOptions

_NO_ID = bytes(16)


def open_client(options: SourceOptions) -> BlockingKafkaClient:
    """Connected when first used."""
    pause = max(0.001, options.retry_pause_s)
    settings = ClientSettings(
        client_id=options.client_id,
        request_timeout_s=options.request_timeout_s,
        operation_timeout_s=options.poll_timeout_s,
        backoff_first_s=pause,
        backoff_max_s=max(pause, 1.0),
    )
    return BlockingKafkaClient(options.bootstrap, settings)


def isolation_of(options: SourceOptions) -> Isolation:
    return Isolation.READ_COMMITTED if options.committed_only else Isolation.READ_UNCOMMITTED


def id_text(topic_id: bytes) -> str:
    """As in manifests; empty for a broker that gives no ids."""
    return topic_id.hex() if topic_id != _NO_ID else ""


class BrokerLog:
    """The `Log` of a cluster."""

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
