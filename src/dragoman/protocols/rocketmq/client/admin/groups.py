"""Consumer groups and producer groups: their settings, members and subscriptions."""

from __future__ import annotations

from dragoman.protocols.rocketmq import bodies, json
from dragoman.protocols.rocketmq.bodies import (
    ConsumerConnection,
    ConsumerRunningInfo,
    GroupForbidden,
    GroupSubscription,
    ProducerConnection,
    ProducerInfo,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicList,
)
from dragoman.protocols.rocketmq.client.admin.reaching import Reaching, table
from dragoman.protocols.rocketmq.client.errors import (
    GroupOfflineError,
    RocketmqError,
    UnsupportedRequestError,
)
from dragoman.protocols.rocketmq.client.remoting import Fields
from dragoman.protocols.rocketmq.constants import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUPS,
    Request,
    Response,
)


class GroupCalls(Reaching):
    # ---- settings

    async def create_subscription_group(
        self,
        config: SubscriptionGroupConfig,
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """Create or change it at one broker, or at all masters."""
        code, body = Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, bodies.encode(config)
        for each in await self._chosen(broker, cluster):
            await self._ask(each, code, body=body)

    async def delete_subscription_group(
        self, group: str, *, broker: str | None = None, clean_offset: bool = True
    ) -> None:
        fields: Fields = {"groupName": group, "cleanOffset": clean_offset}
        for each in await self._chosen(broker):
            await self._ask(each, Request.DELETE_SUBSCRIPTIONGROUP, fields)

    async def examine_subscription_group_config(
        self, broker: str, group: str
    ) -> SubscriptionGroupConfig:
        """Raises `GroupNotFoundError`."""
        code = Request.GET_SUBSCRIPTIONGROUP_CONFIG
        try:
            return await self._read(broker, SubscriptionGroupConfig, code, {"group": group})
        except UnsupportedRequestError:
            # Brokers before 5.0 tell about all groups only.
            found = (await self.get_all_subscription_group(broker)).get(group)
        if found is None:
            text = f"{broker} has no group {group}"
            raise RocketmqError(Response.SUBSCRIPTION_GROUP_NOT_EXIST, text)
        return found

    async def get_all_subscription_group(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        code = Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return (await self._read(broker, SubscriptionGroupTable, code)).subscription_group_table

    async def get_user_subscription_group(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """Without those of the system."""
        return {
            name: config
            for name, config in (await self.get_all_subscription_group(broker)).items()
            if name not in SYSTEM_GROUPS and not name.startswith("CID_RMQ_SYS_")
        }

    async def list_groups(self) -> list[str]:
        """Of all brokers, without those of the system."""
        brokers = await self._masters()
        found = [await self.get_user_subscription_group(each) for each in brokers]
        return sorted({name for each in found for name in each})

    async def update_and_get_group_read_forbidden(
        self, broker: str, group: str, topic: str, readable: bool | None = None
    ) -> GroupForbidden:
        fields: Fields = {"group": group, "topic": topic, "readable": readable}
        code = Request.UPDATE_AND_GET_GROUP_FORBIDDEN
        return await self._read(broker, GroupForbidden, code, fields)

    # ---- members

    async def examine_consumer_connection_info(self, group: str) -> ConsumerConnection:
        """At the first broker where it has members. Raises `GroupOfflineError`."""
        fields: Fields = {"consumerGroup": group}
        code = Request.GET_CONSUMER_CONNECTION_LIST
        for broker in await self._group_brokers(group):
            try:
                found = await self._read(broker, ConsumerConnection, code, fields)
            except GroupOfflineError:
                continue
            if found.connection_set:
                return found
        raise GroupOfflineError(Response.CONSUMER_NOT_ONLINE, f"group {group} has no members")

    async def examine_producer_connection_info(self, group: str, topic: str) -> ProducerConnection:
        """At the brokers of a topic. Raises `GroupOfflineError`."""
        code = Request.GET_PRODUCER_CONNECTION_LIST
        for broker in await self._topic_brokers(topic):
            try:
                found = await self._read(broker, ProducerConnection, code, {"producerGroup": group})
            except RocketmqError as error:
                if error.number != Response.SYSTEM_ERROR:
                    raise
                continue
            if found.connection_set:
                return found
        raise GroupOfflineError(
            Response.CONSUMER_NOT_ONLINE, f"producer group {group} has no members"
        )

    async def get_all_producer_info(self, broker: str) -> dict[str, list[ProducerInfo]]:
        """By group."""
        answer = await self._ask(broker, Request.GET_ALL_PRODUCER_INFO)
        found = bodies.encode(_Producers(data=table(answer.body, "data")))
        return bodies.decode(found, bodies.ProducerTable).data

    async def get_consumer_running_info(
        self, group: str, client_id: str, *, with_stacks: bool = False
    ) -> ConsumerRunningInfo:
        """The broker asks the member. Raises `GroupOfflineError`."""
        fields: Fields = {
            "consumerGroup": group,
            "clientId": client_id,
            "jstackEnable": with_stacks,
        }
        failure: RocketmqError | None = None
        for broker in await self._group_brokers(group):
            try:
                code = Request.GET_CONSUMER_RUNNING_INFO
                return await self._read(broker, ConsumerRunningInfo, code, fields)
            except RocketmqError as error:
                failure = error
        raise failure or GroupOfflineError(
            Response.CONSUMER_NOT_ONLINE, f"group {group} has no members"
        )

    # ---- subscriptions

    async def query_topics_by_consumer(self, group: str) -> list[str]:
        """Topics of which the group has offsets, without those made for it."""
        code = Request.QUERY_TOPICS_BY_CONSUMER
        topics: set[str] = set()
        for broker in await self._group_brokers(group):
            found = await self._read(broker, TopicList, code, {"group": group})
            topics |= set(found.topic_list)
        return sorted(each for each in topics if not each.startswith((RETRY_PREFIX, DLQ_PREFIX)))

    async def query_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        code = Request.QUERY_SUBSCRIPTION_BY_CONSUMER
        for broker in await self._topic_brokers(topic):
            answer = await self._ask(broker, code, {"group": group, "topic": topic})
            if not answer.body:
                continue
            # The subscription inside, or alone.
            if b'"subscriptionData"' not in bytes(answer.body):
                return bodies.decode(answer.body, SubscriptionData)
            found = bodies.decode(answer.body, GroupSubscription).subscription_data
            if found is not None:
                return found
        return None


class _Producers(bodies.Body):
    data: dict[str, json.Json]
