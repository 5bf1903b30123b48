"""Topics: created and deleted at brokers, known to name servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import (
    GroupList,
    MessageQueue,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    TopicStats,
)
from dragoman.protocols.rocketmq.client.admin.codes import RareRequest
from dragoman.protocols.rocketmq.client.admin.reaching import Reaching, gathered
from dragoman.protocols.rocketmq.client.remoting import Fields
from dragoman.protocols.rocketmq.constants import TEMPLATE_TOPIC, Request


class TopicCalls(Reaching):
    async def create_topic(
        self, config: TopicConfig, *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        """Create or change it at one broker, or at all masters."""
        for each in await self._chosen(broker, cluster):
            await self._ask(each, Request.UPDATE_AND_CREATE_TOPIC, _config_fields(config))
        self._client.routes.forget(config.topic_name)

    async def create_and_update_topic_config_list(
        self, configs: Iterable[TopicConfig], *, broker: str | None = None
    ) -> None:
        for each in configs:
            await self.create_topic(each, broker=broker)

    async def create_static_topic(
        self, broker: str, config: TopicConfig, mapping: Mapping[str, object]
    ) -> None:
        """`mapping` is the broker's part of the mapping of queues, as the original names it."""
        body = msgspec.json.encode(mapping)
        fields = _config_fields(config)
        await self._ask(broker, RareRequest.UPDATE_AND_CREATE_STATIC_TOPIC, fields, body)

    async def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """At all masters, then at the name servers."""
        for each in await self._masters(cluster):
            await self.delete_topic_in_broker(each, topic)
        await self.delete_topic_in_name_server(topic, cluster)

    async def delete_topic_in_broker(self, broker: str, topic: str) -> None:
        await self._ask(broker, Request.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        self._client.routes.forget(topic)

    async def delete_topic_in_name_server(self, topic: str, cluster: str | None = None) -> None:
        fields: Fields = {"topic": topic, "clusterName": cluster}
        await self._client.routes.name_servers.call_all(Request.DELETE_TOPIC_IN_NAMESRV, fields)
        self._client.routes.forget(topic)

    async def examine_topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Of all brokers that have it. Raises `TopicNotFoundError`."""

        async def ask(broker: str) -> dict[MessageQueue, TopicOffset]:
            fields: Fields = {"topic": topic}
            found = await self._read(broker, TopicStats, Request.GET_TOPIC_STATS_INFO, fields)
            return bodies.by_queue(found.offset_table)

        merged: dict[MessageQueue, TopicOffset] = {}
        for each in await gathered(ask, await self._topic_brokers(topic)):
            merged |= each
        return dict(sorted(merged.items()))

    #: The original asks brokers one after the other without this.
    examine_topic_stats_concurrent = examine_topic_stats

    async def examine_topic_config(self, broker: str, topic: str) -> TopicConfig:
        """Raises `TopicNotFoundError`."""
        return await self._read(broker, TopicConfig, Request.GET_TOPIC_CONFIG, {"topic": topic})

    async def get_all_topic_config(self, broker: str) -> dict[str, TopicConfig]:
        found = await self._read(broker, TopicConfigTable, Request.GET_ALL_TOPIC_CONFIG)
        return found.topic_config_table

    async def get_system_topic_list_from_broker(self, broker: str) -> list[str]:
        found = await self._read(broker, TopicList, Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        return sorted(found.topic_list)

    async def query_topic_consume_by_who(self, topic: str) -> list[str]:
        """The groups that consume it."""

        async def ask(broker: str) -> list[str]:
            code = Request.QUERY_TOPIC_CONSUME_BY_WHO
            return (await self._read(broker, GroupList, code, {"topic": topic})).group_list

        found = await gathered(ask, await self._topic_brokers(topic))
        return sorted({group for each in found for group in each})


def _config_fields(config: TopicConfig) -> dict[str, str | int | bool | None]:
    attributes = ",".join(f"+{name}={value}" for name, value in config.attributes.items())
    return {
        "topic": config.topic_name,
        "defaultTopic": TEMPLATE_TOPIC,
        "readQueueNums": config.read_queue_nums,
        "writeQueueNums": config.write_queue_nums,
        "perm": config.perm,
        "topicFilterType": config.topic_filter_type,
        "topicSysFlag": config.topic_sys_flag,
        "order": config.order,
        "attributes": attributes or None,
    }
