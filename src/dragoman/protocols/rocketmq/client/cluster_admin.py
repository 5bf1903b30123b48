"""Administration of clusters: name servers, brokers, topics, groups, users.

Each operation is a row of the table in `operations`. The methods provide its field values and
servers, and merge the results of several servers. The file is longer than most because it has a
short method for each operation of RocketMQ's own administration client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from dragoman.client_core.errors import ConnectionLostError, UnreachableError
from dragoman.errors import DecodeError
from dragoman.protocols.rocketmq import bodies, json
from dragoman.protocols.rocketmq.bodies import (
    AclInfo,
    MessageQueue,
    ProducerConnection,
    SubscriptionGroupConfig,
    TopicConfig,
    UserInfo,
)
from dragoman.protocols.rocketmq.client import operations as table
from dragoman.protocols.rocketmq.client.errors import (
    GroupOfflineError,
    RocketmqError,
    TopicNotFoundError,
    UnsupportedRequestError,
)
from dragoman.protocols.rocketmq.client.operations import (
    Operation,
    PlainAccess,
    Retry,
    Upload,
    Value,
)
from dragoman.protocols.rocketmq.client.producer import Producer
from dragoman.protocols.rocketmq.client.remoting import Remoting
from dragoman.protocols.rocketmq.client.routes import MASTER_ID, Routes
from dragoman.protocols.rocketmq.constants import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUPS,
    TEMPLATE_TOPIC,
    Response,
)

Result = TypeVar("Result")
Content = TypeVar("Content")

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


class Administered(Protocol):
    """What administration uses of a client."""

    @property
    def remoting(self) -> Remoting: ...

    @property
    def routes(self) -> Routes: ...

    @property
    def own_producer(self) -> Producer: ...

    async def close(self) -> None: ...


class Calls:
    """Sends operations to servers, and finds the servers."""

    def __init__(self, client: Administered) -> None:
        self._client = client
        self._remoting = client.remoting
        self._routes = client.routes

    async def _call(self, row: Operation[Result], server: str, *values: Value) -> Result:
        """Call an operation at one server with these field values."""
        return await self._send(row, server, values)

    async def _upload(
        self, row: Upload[Content, Result], server: str, content: Content, *values: Value
    ) -> Result:
        """Call an operation with a body at one server."""
        return await self._send(row, server, values, row.body.encode(content))

    async def _call_any(self, row: Operation[Result], *values: Value) -> Result:
        """Call an operation at the first name server that answers."""
        return await self._send(row, "a name server", values)

    async def _call_name_servers(self, row: Operation[Result], *values: Value) -> dict[str, Result]:
        """Call an operation at every name server. Returns the results by address."""
        addresses = self._routes.name_servers.addresses
        return {each: await self._call(row, each, *values) for each in addresses}

    async def _call_each(
        self, row: Operation[Result], servers: Iterable[str], *values: Value
    ) -> list[Result]:
        """Call an operation at several servers, sequentially."""
        return [await self._call(row, each, *values) for each in servers]

    async def _call_all(
        self, row: Operation[Result], servers: Iterable[str], *values: Value
    ) -> list[Result]:
        """Call an operation at several servers, concurrently."""
        return list(await asyncio.gather(*(self._call(row, each, *values) for each in servers)))

    async def _send(
        self, row: Operation[Result], server: str, values: Iterable[Value], body: bytes = b""
    ) -> Result:
        """Send a request, and read the response. Brokers close idle connections, hence `ONCE`."""
        fields = dict(zip(row.fields, values, strict=True))
        remoting = self._remoting
        match row.to.retry:
            case Retry.UNTIL_TIMEOUT:
                response = await self._routes.name_servers.call(row.code, fields, body)
            case Retry.NEVER:
                response = await remoting.call(server, row.code, fields, body)
            case Retry.ONCE:
                address = remoting.broker(server)
                try:
                    response = await remoting.call(address, row.code, fields, body)
                except ConnectionLostError:
                    response = await remoting.call(address, row.code, fields, body)
        try:
            return row.answer.read(response)
        except (KeyError, ValueError):
            raise DecodeError(f"{server} answered {row.code:d} with {response.fields}") from None

    # ---- servers

    async def _masters(self, cluster: str | None = None) -> list[str]:
        """The masters of a cluster, or of all. Raises `UnreachableError` when there is none."""
        info = await self._call_any(table.EXAMINE_BROKER_CLUSTER_INFO)
        names = set(info.cluster_addr_table.get(cluster, ())) if cluster is not None else None
        found = [
            each.broker_addrs[MASTER_ID]
            for name, each in sorted(info.broker_addr_table.items())
            if MASTER_ID in each.broker_addrs and (names is None or name in names)
        ]
        if not found:
            raise UnreachableError(
                f"no broker of cluster {cluster} is known" if cluster else "no broker is known"
            )
        return found

    async def _chosen(self, broker: str | None, cluster: str | None = None) -> list[str]:
        return [broker] if broker is not None else await self._masters(cluster)

    async def _topic_brokers(self, topic: str) -> list[str]:
        """The brokers that have queues of a topic. Raises `TopicNotFoundError`."""
        route = await self._routes.refreshed(topic)
        return [
            self._routes.any_of(name)
            for name in dict.fromkeys(each.broker_name for each in route.data.queue_datas)
        ]

    async def _group_brokers(self, group: str) -> list[str]:
        """The brokers of the retry topic of a group, or all masters when there is no such topic."""
        try:
            return await self._topic_brokers(RETRY_PREFIX + group)
        except TopicNotFoundError:
            return await self._masters()

    async def _broker_of(self, queue: MessageQueue) -> str:
        if queue.broker_name not in self._routes.brokers:
            await self._routes.refreshed(queue.topic)
        return self._routes.any_of(queue.broker_name)


class ClusterAdmin(Calls):
    # ---- name servers

    async def examine_broker_cluster_info(self) -> bodies.ClusterInfo:
        return await self._call_any(table.EXAMINE_BROKER_CLUSTER_INFO)

    async def fetch_all_topic_list(self) -> list[str]:
        return await self._call_any(table.FETCH_ALL_TOPIC_LIST)

    async def fetch_topics_by_cluster(self, cluster: str) -> list[str]:
        return await self._call_any(table.FETCH_TOPICS_BY_CLUSTER, cluster)

    async def fetch_system_topic_list(self) -> list[str]:
        return await self._call_any(table.FETCH_SYSTEM_TOPIC_LIST)

    async def examine_topic_route_info(self, topic: str) -> bodies.TopicRouteData:
        """Raises `TopicNotFoundError`."""
        return (await self._routes.refreshed(topic)).data

    async def get_topic_cluster_list(self, topic: str) -> set[str]:
        route = await self.examine_topic_route_info(topic)
        return {each.cluster for each in route.broker_datas}

    async def wipe_write_perm_of_broker(self, broker_name: str) -> int:
        """Revoke the permission at every name server. Returns the number of topics that it was
        revoked for.
        """
        counts = await self._call_name_servers(table.WIPE_WRITE_PERM_OF_BROKER, broker_name)
        return list(counts.values())[-1]

    async def add_write_perm_of_broker(self, broker_name: str) -> int:
        """Grant the permission at every name server. Returns the number of topics that it was
        granted for.
        """
        counts = await self._call_name_servers(table.ADD_WRITE_PERM_OF_BROKER, broker_name)
        return list(counts.values())[-1]

    async def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        await self._call_name_servers(table.PUT_KV_CONFIG, namespace, key, value)

    async def get_kv_config(self, namespace: str, key: str) -> str:
        """Raises `NotFoundError`."""
        return await self._call_any(table.GET_KV_CONFIG, namespace, key)

    async def delete_kv_config(self, namespace: str, key: str) -> None:
        await self._call_name_servers(table.DELETE_KV_CONFIG, namespace, key)

    async def get_kv_list_by_namespace(self, namespace: str) -> dict[str, str]:
        """Raises `NotFoundError`."""
        return await self._call_any(table.GET_KV_LIST_BY_NAMESPACE, namespace)

    async def create_or_update_order_conf(self, topic: str, conf: str) -> None:
        """`conf` is `broker:queues;...`, or one entry that replaces that of its broker."""
        await self.put_kv_config(ORDER_NAMESPACE, topic, conf)

    async def get_name_server_config(self) -> dict[str, dict[str, str]]:
        """The configuration of each name server, by address."""
        return await self._call_name_servers(table.GET_NAME_SERVER_CONFIG)

    async def update_name_server_config(self, settings: Mapping[str, str]) -> None:
        for each in self._routes.name_servers.addresses:
            await self._upload(table.UPDATE_NAME_SERVER_CONFIG, each, settings)

    # ---- brokers

    async def fetch_broker_runtime_stats(self, broker: str) -> dict[str, str]:
        return await self._call(table.FETCH_BROKER_RUNTIME_STATS, broker)

    async def get_broker_config(self, broker: str) -> dict[str, str]:
        return await self._call(table.GET_BROKER_CONFIG, broker)

    async def update_broker_config(self, broker: str, settings: Mapping[str, str]) -> None:
        await self._upload(table.UPDATE_BROKER_CONFIG, broker, settings)

    async def view_broker_stats_data(self, broker: str, name: str, key: str) -> bodies.BrokerStats:
        """Statistics by name and key: `TOPIC_PUT_NUMS` of a topic, `GROUP_GET_NUMS` of
        `topic@group`, and others.
        """
        return await self._call(table.VIEW_BROKER_STATS_DATA, broker, name, key)

    async def clean_expired_consumer_queue(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        brokers = await self._chosen(broker, cluster)
        await self._call_each(table.CLEAN_EXPIRED_CONSUMER_QUEUE, brokers)

    async def delete_expired_commit_log(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        brokers = await self._chosen(broker, cluster)
        await self._call_each(table.DELETE_EXPIRED_COMMIT_LOG, brokers)

    async def clean_unused_topic(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        await self._call_each(table.CLEAN_UNUSED_TOPIC, await self._chosen(broker, cluster))

    # ---- topics

    async def create_topic(
        self, config: TopicConfig, *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        """Create or change a topic at one broker, or at all masters."""
        brokers = await self._chosen(broker, cluster)
        await self._call_each(table.CREATE_TOPIC, brokers, *_values(config))
        self._routes.forget(config.topic_name)

    async def create_and_update_topic_config_list(
        self, configs: Iterable[TopicConfig], *, broker: str | None = None
    ) -> None:
        for each in configs:
            await self.create_topic(each, broker=broker)

    async def create_static_topic(
        self, broker: str, config: TopicConfig, mapping: Mapping[str, object]
    ) -> None:
        """`mapping` is the broker's part of the queue mapping, in the original's JSON."""
        await self._upload(table.CREATE_STATIC_TOPIC, broker, mapping, *_values(config))

    async def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic at all masters, then at the name servers."""
        for each in await self._masters(cluster):
            await self.delete_topic_in_broker(each, topic)
        await self.delete_topic_in_name_server(topic, cluster)

    async def delete_topic_in_broker(self, broker: str, topic: str) -> None:
        await self._call(table.DELETE_TOPIC_IN_BROKER, broker, topic)
        self._routes.forget(topic)

    async def delete_topic_in_name_server(self, topic: str, cluster: str | None = None) -> None:
        await self._call_name_servers(table.DELETE_TOPIC_IN_NAME_SERVER, topic, cluster)
        self._routes.forget(topic)

    async def examine_topic_stats(self, topic: str) -> dict[MessageQueue, bodies.TopicOffset]:
        """The ends of the queues at all brokers. Raises `TopicNotFoundError`."""
        brokers = await self._topic_brokers(topic)
        merged: dict[MessageQueue, bodies.TopicOffset] = {}
        for each in await self._call_all(table.EXAMINE_TOPIC_STATS, brokers, topic):
            merged |= each
        return dict(sorted(merged.items()))

    #: An alias: in RocketMQ's tools only the concurrent variant has this name.
    examine_topic_stats_concurrent = examine_topic_stats

    async def examine_topic_config(self, broker: str, topic: str) -> TopicConfig:
        """Raises `TopicNotFoundError`."""
        return await self._call(table.EXAMINE_TOPIC_CONFIG, broker, topic)

    async def get_all_topic_config(self, broker: str) -> dict[str, TopicConfig]:
        return await self._call(table.GET_ALL_TOPIC_CONFIG, broker)

    async def get_system_topic_list_from_broker(self, broker: str) -> list[str]:
        return await self._call(table.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, broker)

    async def query_topic_consume_by_who(self, topic: str) -> list[str]:
        """The groups that consume a topic."""
        brokers = await self._topic_brokers(topic)
        found = await self._call_all(table.QUERY_TOPIC_CONSUME_BY_WHO, brokers, topic)
        return sorted({group for each in found for group in each})

    # ---- groups

    async def create_subscription_group(
        self,
        config: SubscriptionGroupConfig,
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """Create or change a group at one broker, or at all masters."""
        for each in await self._chosen(broker, cluster):
            await self._upload(table.CREATE_SUBSCRIPTION_GROUP, each, config)

    async def delete_subscription_group(
        self, group: str, *, broker: str | None = None, clean_offset: bool = True
    ) -> None:
        brokers = await self._chosen(broker)
        await self._call_each(table.DELETE_SUBSCRIPTION_GROUP, brokers, group, clean_offset)

    async def examine_subscription_group_config(
        self, broker: str, group: str
    ) -> SubscriptionGroupConfig:
        """Raises `GroupNotFoundError`."""
        try:
            return await self._call(table.EXAMINE_SUBSCRIPTION_GROUP_CONFIG, broker, group)
        except UnsupportedRequestError:
            # Brokers before 5.0 can only describe all groups at once.
            found = (await self.get_all_subscription_group(broker)).get(group)
        if found is None:
            text = f"{broker} has no group {group}"
            raise RocketmqError(Response.SUBSCRIPTION_GROUP_NOT_EXIST, text)
        return found

    async def get_all_subscription_group(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        return await self._call(table.GET_ALL_SUBSCRIPTION_GROUP, broker)

    async def get_user_subscription_group(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """The groups of a broker, without those of the system."""
        return {
            name: config
            for name, config in (await self.get_all_subscription_group(broker)).items()
            if name not in SYSTEM_GROUPS and not name.startswith("CID_RMQ_SYS_")
        }

    async def list_groups(self) -> list[str]:
        """The groups of all brokers, without those of the system."""
        brokers = await self._masters()
        found = [await self.get_user_subscription_group(each) for each in brokers]
        return sorted({name for each in found for name in each})

    async def update_and_get_group_read_forbidden(
        self, broker: str, group: str, topic: str, readable: bool | None = None
    ) -> bodies.GroupForbidden:
        row = table.UPDATE_AND_GET_GROUP_READ_FORBIDDEN
        return await self._call(row, broker, group, topic, readable)

    async def set_message_request_mode(self, broker: str, mode: bodies.RequestMode) -> None:
        await self._upload(table.SET_MESSAGE_REQUEST_MODE, broker, mode)

    async def examine_consumer_connection_info(self, group: str) -> bodies.ConsumerConnection:
        """The members connected to the first broker that has any. Raises `GroupOfflineError`."""
        for broker in await self._group_brokers(group):
            try:
                found = await self._call(table.EXAMINE_CONSUMER_CONNECTION_INFO, broker, group)
            except GroupOfflineError:
                continue
            if found.connection_set:
                return found
        raise _offline(f"group {group}")

    async def examine_producer_connection_info(self, group: str, topic: str) -> ProducerConnection:
        """The members connected to the first broker of the topic that has any. Raises
        `GroupOfflineError`.
        """
        for broker in await self._topic_brokers(topic):
            try:
                found = await self._call(table.EXAMINE_PRODUCER_CONNECTION_INFO, broker, group)
            except RocketmqError as error:
                if error.number != Response.SYSTEM_ERROR:
                    raise
                continue
            if found.connection_set:
                return found
        raise _offline(f"producer group {group}")

    async def get_all_producer_info(self, broker: str) -> dict[str, list[bodies.ProducerInfo]]:
        """The producers of a broker by group."""
        return await self._call(table.GET_ALL_PRODUCER_INFO, broker)

    async def get_consumer_running_info(
        self, group: str, client_id: str, *, with_stacks: bool = False
    ) -> bodies.ConsumerRunningInfo:
        """The state of a member, which a broker requests from it. Raises `GroupOfflineError`."""
        failure: RocketmqError = _offline(f"group {group}")
        for broker in await self._group_brokers(group):
            try:
                return await self._call(
                    table.GET_CONSUMER_RUNNING_INFO, broker, group, client_id, with_stacks
                )
            except RocketmqError as error:
                failure = error
        raise failure

    async def query_topics_by_consumer(self, group: str) -> list[str]:
        """The topics in which the group has offsets, without its retry and dead-letter topics."""
        brokers = await self._group_brokers(group)
        found = await self._call_each(table.QUERY_TOPICS_BY_CONSUMER, brokers, group)
        topics = {topic for each in found for topic in each}
        return sorted(each for each in topics if not each.startswith((RETRY_PREFIX, DLQ_PREFIX)))

    async def query_subscription(self, group: str, topic: str) -> bodies.SubscriptionData | None:
        for broker in await self._topic_brokers(topic):
            found = await self._call(table.QUERY_SUBSCRIPTION, broker, group, topic)
            if found is not None:
                return found
        return None

    # ---- users and rules of 5.x

    async def create_user(self, broker: str, user: UserInfo) -> None:
        await self._upload(table.CREATE_USER, broker, user, user.username)

    async def update_user(self, broker: str, user: UserInfo) -> None:
        await self._upload(table.UPDATE_USER, broker, user, user.username)

    async def delete_user(self, broker: str, username: str) -> None:
        await self._call(table.DELETE_USER, broker, username)

    async def get_user(self, broker: str, username: str) -> UserInfo | None:
        return await self._found(table.GET_USER, broker, username)

    async def list_users(self, broker: str, containing: str = "") -> list[UserInfo]:
        return await self._call(table.LIST_USERS, broker, containing)

    async def create_acl(self, broker: str, acl: AclInfo) -> None:
        await self._upload(table.CREATE_ACL, broker, acl, acl.subject)

    async def update_acl(self, broker: str, acl: AclInfo) -> None:
        await self._upload(table.UPDATE_ACL, broker, acl, acl.subject)

    async def delete_acl(
        self, broker: str, subject: str, resource: str = "", policy_type: str = ""
    ) -> None:
        """Delete all rules of a subject, or only those about one resource."""
        values = (subject, resource or None, policy_type or None)
        await self._call(table.DELETE_ACL, broker, *values)

    async def get_acl(self, broker: str, subject: str) -> AclInfo | None:
        return await self._found(table.GET_ACL, broker, subject)

    async def list_acls(self, broker: str, subject: str = "", resource: str = "") -> list[AclInfo]:
        return await self._call(table.LIST_ACLS, broker, subject, resource)

    async def _found(
        self, row: Operation[Result | None], broker: str, *values: Value
    ) -> Result | None:
        """The result, or None when the broker refuses or answers without a body."""
        try:
            return await self._call(row, broker, *values)
        except RocketmqError as error:
            if error.number in (Response.USER_NOT_EXIST, Response.POLICY_NOT_EXIST):
                return None
            raise

    # ---- accounts of 4.x

    async def create_and_update_plain_access(self, broker: str, access: PlainAccess) -> None:
        await self._call(
            table.CREATE_AND_UPDATE_PLAIN_ACCESS,
            broker,
            access.access_key,
            access.secret_key,
            access.white_remote_address,
            access.is_admin,
            access.default_topic_perm,
            access.default_group_perm,
            ",".join(access.topic_perms),
            ",".join(access.group_perms),
        )

    async def delete_plain_access(self, broker: str, access_key: str) -> None:
        await self._call(table.DELETE_PLAIN_ACCESS, broker, access_key)

    async def update_global_white_addresses(self, broker: str, addresses: Iterable[str]) -> None:
        await self._call(table.UPDATE_GLOBAL_WHITE_ADDRESSES, broker, ",".join(addresses))

    async def examine_plain_access_version(self, broker: str) -> dict[str, str]:
        return await self._call(table.EXAMINE_PLAIN_ACCESS_VERSION, broker)

    # ---- operations that only RocketMQ has

    async def get_broker_ha_status(self, broker: str) -> json.Json:
        return await self._call(table.GET_BROKER_HA_STATUS, broker)

    async def get_broker_epoch_cache(self, broker: str) -> json.Json:
        return await self._call(table.GET_BROKER_EPOCH_CACHE, broker)

    async def add_broker_to_container(self, container: str, settings: Mapping[str, str]) -> None:
        await self._upload(table.ADD_BROKER_TO_CONTAINER, container, settings)

    async def remove_broker_from_container(
        self, container: str, cluster: str, broker_name: str, broker_id: int
    ) -> None:
        identity = f"{cluster}#{broker_name}#{broker_id}"
        await self._call(table.REMOVE_BROKER_FROM_CONTAINER, container, identity)

    async def update_cold_data_flow_control(self, broker: str, limits: Mapping[str, str]) -> None:
        """Set the limits of groups in bytes per second."""
        await self._upload(table.UPDATE_COLD_DATA_FLOW_CONTROL, broker, limits)

    async def remove_cold_data_flow_control(self, broker: str, group: str) -> None:
        await self._upload(table.REMOVE_COLD_DATA_FLOW_CONTROL, broker, group)

    async def get_cold_data_flow_control(self, broker: str) -> json.Json:
        return await self._call(table.GET_COLD_DATA_FLOW_CONTROL, broker)

    async def set_commit_log_read_ahead_mode(self, broker: str, mode: int) -> None:
        await self._call(table.SET_COMMIT_LOG_READ_AHEAD_MODE, broker, mode)

    async def export_rocksdb_config(self, broker: str, config_type: str) -> None:
        await self._call(table.EXPORT_ROCKSDB_CONFIG, broker, config_type)

    async def check_rocksdb_write_progress(
        self, broker: str, topic: str = "", store_time_from_ms: int = 0
    ) -> json.Json:
        row = table.CHECK_ROCKSDB_WRITE_PROGRESS
        return await self._call(row, broker, topic or None, store_time_from_ms)

    # ---- controllers

    async def get_controller_metadata(self, controller: str) -> dict[str, str]:
        return await self._call(table.GET_CONTROLLER_METADATA, controller)

    async def get_in_sync_state_data(
        self, controller: str, broker_names: Iterable[str]
    ) -> json.Json:
        return await self._upload(table.GET_IN_SYNC_STATE_DATA, controller, list(broker_names))

    async def elect_master(
        self, controller: str, cluster: str, broker_name: str, broker_id: int
    ) -> dict[str, str]:
        values = (cluster, broker_name, broker_id, True)
        return await self._call(table.ELECT_MASTER, controller, *values)

    async def get_controller_config(self, controller: str) -> dict[str, str]:
        return await self._call(table.GET_CONTROLLER_CONFIG, controller)

    async def update_controller_config(self, controller: str, settings: Mapping[str, str]) -> None:
        await self._upload(table.UPDATE_CONTROLLER_CONFIG, controller, settings)

    async def clean_controller_broker_data(
        self, controller: str, cluster: str, broker_name: str, *, is_living: bool = False
    ) -> None:
        row = table.CLEAN_CONTROLLER_BROKER_DATA
        await self._call(row, controller, cluster, broker_name, is_living)


def _values(config: TopicConfig) -> tuple[Value, ...]:
    """The field values of `_TOPIC_CONFIG`."""
    attributes = ",".join(f"+{name}={value}" for name, value in config.attributes.items())
    return (
        config.topic_name,
        TEMPLATE_TOPIC,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.topic_filter_type,
        config.topic_sys_flag,
        config.order,
        attributes or None,
    )


def _offline(group: str) -> GroupOfflineError:
    return GroupOfflineError(Response.CONSUMER_NOT_ONLINE, f"{group} has no members")
