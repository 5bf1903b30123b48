"""Topics, partitions, configurations and the deletion of records.

Every call names one resource, so its error concerns that resource. After a lost reply the request
is retried, and the first attempt may have succeeded: "exists already" from a retried creation is
success, and so is "does not exist" from a retried deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dragoman.client_core.errors import ClientError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.broker import Broker
from dragoman.protocols.kafka.client.cluster import Calls, Part, from_leaders
from dragoman.protocols.kafka.client.errors import (
    KafkaError,
    LeadershipError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedRequestError,
    kafka_error,
)
from dragoman.protocols.kafka.client.values import (
    ActiveProducer,
    ConfigEntry,
    LogDirectory,
    NewTopic,
    ResourceType,
    TopicInfo,
    TopicPartition,
)
from dragoman.protocols.kafka.errors import ErrorCode

_FIRST_DELETE_VERSION_WITH_IDS = 6
_FIRST_CREATE_VERSION_WITH_DEFAULTS = 4
_SET, _REMOVE = 0, 1
#: Sources of a value without an override: the broker's static or built-in default.
_DEFAULT_SOURCES = frozenset((4, 5))


class _Lost:
    """Whether an earlier attempt of the same call may have succeeded without a reply."""

    def __init__(self) -> None:
        self._is_possible = False

    def note(self, error: ClientError) -> bool:
        """Record the error of an attempt; true when it shows that an earlier attempt succeeded."""
        if isinstance(error, TopicExistsError | UnknownTopicError):
            return self._is_possible
        self._is_possible = self._is_possible or error.is_ambiguous
        return False


class TopicCalls(Calls):
    """Calls about topics, configurations and records."""

    async def create_topic(self, topic: NewTopic) -> TopicInfo:
        """Create a topic. Returns when its partitions have leaders. Raises `TopicExistsError`."""
        lost = _Lost()
        timeout_ms = int(self._cluster.settings.request_timeout_s * 1000)

        def build(version: int) -> m.CreateTopicsRequest:
            has_defaults = topic.partitions == -1 or topic.replication_factor == -1
            if has_defaults and version < _FIRST_CREATE_VERSION_WITH_DEFAULTS:
                raise UnsupportedRequestError(
                    "this broker has no default partition count and replication factor: give both"
                )
            return m.CreateTopicsRequest(topics=[_new_topic(topic)], timeout_ms=timeout_ms)

        async def attempt() -> None:
            broker = await self._cluster.controller()
            try:
                reply = await broker.ask(m.CreateTopicsResponse, build)
                for each in reply.topics:
                    if each.error_code:
                        raise kafka_error(each.error_code, each.error_message, topic=topic.name)
            except ClientError as error:
                if not lost.note(error):
                    raise

        await self._cluster.retry.call(attempt)
        return await self._wait_for_leaders(topic.name, 1)

    async def _wait_for_leaders(self, name: str, partition_count: int) -> TopicInfo:
        """Wait until every partition has a leader: other brokers apply a change only after the
        reply to it.
        """

        async def attempt() -> TopicInfo:
            found = (await self._cluster.metadata([name])).topics.get(name)
            if found is None:
                raise kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=name)
            leaders = [each.leader_id for each in found.partitions.values()]
            if len(leaders) < partition_count or min(leaders) < 0:
                raise LeadershipError(ErrorCode.LEADER_NOT_AVAILABLE, topic=name)
            return found

        return await self._cluster.retry.call(attempt)

    async def delete_topic(self, name: str) -> None:
        lost = _Lost()
        timeout_ms = int(self._cluster.settings.request_timeout_s * 1000)

        def build(version: int) -> m.DeleteTopicsRequest:
            if version >= _FIRST_DELETE_VERSION_WITH_IDS:
                return m.DeleteTopicsRequest(
                    topics=[m.DeleteTopicsRequestTopic(name=name)], timeout_ms=timeout_ms
                )
            return m.DeleteTopicsRequest(topic_names=[name], timeout_ms=timeout_ms)

        async def attempt() -> None:
            broker = await self._cluster.controller()
            try:
                reply = await broker.ask(m.DeleteTopicsResponse, build)
                for each in reply.responses:
                    if each.error_code:
                        raise _deletion_error(name, each.error_code, each.error_message)
            except ClientError as error:
                if not lost.note(error):
                    raise

        await self._cluster.retry.call(attempt)
        self._cluster.forget(kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=name))

    async def create_partitions(self, topic: str, count: int) -> TopicInfo:
        """Increase the number of a topic's partitions to `count`."""
        timeout_ms = int(self._cluster.settings.request_timeout_s * 1000)
        request = m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsRequestTopic(name=topic, count=count, assignments=None)],
            timeout_ms=timeout_ms,
        )

        async def attempt() -> None:
            broker = await self._cluster.controller()
            reply = await broker.ask(m.CreatePartitionsResponse, request)
            for each in reply.results:
                if each.error_code:
                    raise _deletion_error(topic, each.error_code, each.error_message)

        await self._cluster.retry.call(attempt)
        return await self._wait_for_leaders(topic, count)

    async def _owner(self, kind: ResourceType, name: str) -> Broker:
        """The broker to send to. Only a broker itself knows its configuration; any broker knows
        that of a topic.
        """
        if kind is ResourceType.BROKER and name:
            if not name.isdigit():
                raise kafka_error(
                    ErrorCode.INVALID_REQUEST, f"{name!r} is not the number of a broker"
                )
            return await self._cluster.broker(int(name))
        return await self._cluster.controller()

    async def describe_configs(self, kind: ResourceType, name: str) -> list[ConfigEntry]:
        """`name` is a topic, or the number of a broker (empty: the default of all brokers)."""
        resource = m.DescribeConfigsRequestResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )

        async def attempt() -> list[ConfigEntry]:
            broker = await self._owner(kind, name)
            reply = await broker.ask(
                m.DescribeConfigsResponse,
                m.DescribeConfigsRequest(resources=[resource]),
            )
            entries: list[ConfigEntry] = []
            for each in reply.results:
                if each.error_code:
                    raise _config_error(kind, name, each.error_code, each.error_message)
                entries += map(_config_entry, each.configs)
            return sorted(entries, key=lambda entry: entry.name)

        return await self._cluster.retry.call(attempt)

    async def alter_configs(
        self, kind: ResourceType, name: str, changes: Mapping[str, str | None]
    ) -> None:
        """Change these values and no others; None removes an override."""
        resource = m.IncrementalAlterConfigsRequestResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                m.IncrementalAlterConfigsRequestConfig(
                    name=key, config_operation=_REMOVE if value is None else _SET, value=value
                )
                for key, value in changes.items()
            ],
        )
        request = m.IncrementalAlterConfigsRequest(resources=[resource])

        async def attempt() -> None:
            broker = await self._owner(kind, name)
            reply = await broker.ask(m.IncrementalAlterConfigsResponse, request)
            for each in reply.responses:
                if each.error_code:
                    raise _config_error(kind, name, each.error_code, each.error_message)

        await self._cluster.retry.call(attempt)

    async def log_directories(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> list[LogDirectory]:
        """The data directories of all brokers, with the bytes of these partitions in them.

        None requests all partitions, which is expensive in a large cluster.
        """
        topics: dict[str, m.DescribeLogDirsRequestTopic] = {}
        for name, partition in partitions or ():
            topics.setdefault(
                name, m.DescribeLogDirsRequestTopic(topic=name, partitions=[])
            ).partitions.append(partition)
        request = m.DescribeLogDirsRequest(
            topics=None if partitions is None else list(topics.values())
        )

        async def attempt() -> list[LogDirectory]:
            found: list[LogDirectory] = []
            for broker in await self._cluster.all_brokers():
                reply = await broker.ask(m.DescribeLogDirsResponse, request)
                if reply.error_code:
                    raise kafka_error(reply.error_code)
                found += map(_log_directory, reply.results)
            return found

        return await self._cluster.retry.call(attempt)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """The idempotent and transactional producers that each partition remembers."""

        async def ask(
            broker: Broker, parts: Mapping[TopicPartition, Part[None]]
        ) -> dict[TopicPartition, list[ActiveProducer] | KafkaError]:
            topics: dict[str, m.DescribeProducersRequestTopic] = {}
            for name, partition in parts:
                topics.setdefault(
                    name, m.DescribeProducersRequestTopic(name=name, partition_indexes=[])
                ).partition_indexes.append(partition)
            request = m.DescribeProducersRequest(topics=list(topics.values()))
            return _producers(await broker.ask(m.DescribeProducersResponse, request), parts)

        return await from_leaders(self._cluster, dict.fromkeys(partitions), ask)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete records before these offsets (-1: all). Returns the new log start of each
        partition.
        """
        timeout_ms = int(self._cluster.settings.request_timeout_s * 1000)

        async def ask(
            broker: Broker, parts: Mapping[TopicPartition, Part[int]]
        ) -> dict[TopicPartition, int | KafkaError]:
            topics: dict[str, m.DeleteRecordsRequestTopic] = {}
            for (name, partition), part in parts.items():
                topic = topics.setdefault(
                    name, m.DeleteRecordsRequestTopic(name=name, partitions=[])
                )
                topic.partitions.append(
                    m.DeleteRecordsRequestPartition(partition_index=partition, offset=part.wanted)
                )
            request = m.DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=timeout_ms)
            return _low_watermarks(await broker.ask(m.DeleteRecordsResponse, request), parts)

        return await from_leaders(self._cluster, before, ask)


def _new_topic(topic: NewTopic) -> m.CreateTopicsRequestTopic:
    return m.CreateTopicsRequestTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=[
            m.CreateTopicsRequestConfig(name=name, value=value)
            for name, value in topic.config.items()
        ],
    )


def _deletion_error(name: str, code: int, message: str | None) -> KafkaError:
    # The controller knows all topics: a retry would not find this one either.
    is_missing = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return kafka_error(code, message, topic=name, retriable=False if is_missing else None)


def _log_directory(each: m.DescribeLogDirsResponseDir) -> LogDirectory:
    sizes = {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for topic in each.topics
        for partition in topic.partitions
    }
    return LogDirectory(path=each.log_dir, sizes=sizes)


def _config_entry(each: m.DescribeConfigsResponseConfig) -> ConfigEntry:
    return ConfigEntry(
        name=each.name,
        value=each.value,
        is_default=each.config_source in _DEFAULT_SOURCES,
        is_read_only=each.read_only,
        is_sensitive=each.is_sensitive,
    )


def _config_error(kind: ResourceType, name: str, code: int, message: str | None) -> KafkaError:
    if kind is ResourceType.TOPIC:
        return _deletion_error(name, code, message)
    return kafka_error(code, message)


def _producers(
    reply: m.DescribeProducersResponse, parts: Mapping[TopicPartition, Part[None]]
) -> dict[TopicPartition, list[ActiveProducer] | KafkaError]:
    results: dict[TopicPartition, list[ActiveProducer] | KafkaError] = {
        where: kafka_error(-1, "the reply leaves it out", topic=where.topic) for where in parts
    }
    for topic in reply.topics:
        for each in topic.partitions:
            index = each.partition_index
            results[TopicPartition(topic.name, index)] = (
                kafka_error(each.error_code, each.error_message, topic=topic.name, partition=index)
                if each.error_code
                else [_producer(found) for found in each.active_producers]
            )
    return results


def _producer(found: m.DescribeProducersResponseActiveProducer) -> ActiveProducer:
    open_offset = found.current_txn_start_offset
    return ActiveProducer(
        producer_id=found.producer_id,
        epoch=found.producer_epoch,
        last_sequence=found.last_sequence,
        last_timestamp=found.last_timestamp,
        open_offset=open_offset if open_offset >= 0 else None,
    )


def _low_watermarks(
    reply: m.DeleteRecordsResponse, parts: Mapping[TopicPartition, Part[int]]
) -> dict[TopicPartition, int | KafkaError]:
    results: dict[TopicPartition, int | KafkaError] = {
        where: kafka_error(-1, "the reply leaves it out", topic=where.topic) for where in parts
    }
    for topic in reply.topics:
        for each in topic.partitions:
            where = TopicPartition(topic.name, each.partition_index)
            results[where] = each.low_watermark
            if each.error_code:
                results[where] = kafka_error(
                    each.error_code, topic=topic.name, partition=each.partition_index
                )
    return results
