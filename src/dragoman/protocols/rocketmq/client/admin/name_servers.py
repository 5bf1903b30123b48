"""What name servers know: clusters, routes, their key/value table and settings."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import ClusterInfo, TopicList, TopicRouteData
from dragoman.protocols.rocketmq.client.admin.reaching import Reaching, table
from dragoman.protocols.rocketmq.client.remoting import Fields
from dragoman.protocols.rocketmq.constants import Request

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


class NameServerCalls(Reaching):
    async def examine_broker_cluster_info(self) -> ClusterInfo:
        return await self._cluster()

    async def fetch_all_topic_list(self) -> list[str]:
        return await self._topics(Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})

    async def fetch_topics_by_cluster(self, cluster: str) -> list[str]:
        return await self._topics(Request.GET_TOPICS_BY_CLUSTER, {"cluster": cluster})

    async def fetch_system_topic_list(self) -> list[str]:
        return await self._topics(Request.GET_SYSTEM_TOPIC_LIST_FROM_NS, {})

    async def _topics(self, code: Request, fields: Mapping[str, str]) -> list[str]:
        answer = await self._ask_name_server(code, fields)
        return sorted(bodies.decode(answer.body, TopicList).topic_list)

    async def examine_topic_route_info(self, topic: str) -> TopicRouteData:
        """Raises `TopicNotFoundError`."""
        return (await self._client.routes.refreshed(topic)).data

    async def get_topic_cluster_list(self, topic: str) -> set[str]:
        route = await self.examine_topic_route_info(topic)
        return {each.cluster for each in route.broker_datas}

    # ---- write permission

    async def wipe_write_perm_of_broker(self, broker_name: str) -> int:
        """At every name server; how many topics it had at the last one."""
        fields: Fields = {"brokerName": broker_name}
        return await self._count(Request.WIPE_WRITE_PERM_OF_BROKER, fields, "wipeTopicCount")

    async def add_write_perm_of_broker(self, broker_name: str) -> int:
        fields: Fields = {"brokerName": broker_name}
        return await self._count(Request.ADD_WRITE_PERM_OF_BROKER, fields, "addTopicCount")

    async def _count(self, code: Request, fields: Fields, name: str) -> int:
        count = 0
        for address in self._client.routes.name_servers.addresses:
            answer = await self._client.remoting.call(address, code, fields)
            count = int(answer.fields.get(name, 0))
        return count

    # ---- keys and values

    async def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        fields: Fields = {"namespace": namespace, "key": key, "value": value}
        await self._client.routes.name_servers.call_all(Request.PUT_KV_CONFIG, fields)

    async def get_kv_config(self, namespace: str, key: str) -> str:
        """Raises `NotFoundError`."""
        fields: Fields = {"namespace": namespace, "key": key}
        answer = await self._ask_name_server(Request.GET_KV_CONFIG, fields)
        return answer.fields.get("value", "")

    async def delete_kv_config(self, namespace: str, key: str) -> None:
        fields: Fields = {"namespace": namespace, "key": key}
        await self._client.routes.name_servers.call_all(Request.DELETE_KV_CONFIG, fields)

    async def get_kv_list_by_namespace(self, namespace: str) -> dict[str, str]:
        """Raises `NotFoundError`."""
        fields: Fields = {"namespace": namespace}
        answer = await self._ask_name_server(Request.GET_KVLIST_BY_NAMESPACE, fields)
        return {name: str(value) for name, value in table(answer.body, "table").items()}

    async def create_or_update_order_conf(self, topic: str, conf: str) -> None:
        """`conf` is `broker:queues;...`, or one entry that replaces that of its broker."""
        await self.put_kv_config(ORDER_NAMESPACE, topic, conf)

    # ---- settings

    async def get_name_server_config(self) -> dict[str, dict[str, str]]:
        """By the address of the name server."""
        found = {}
        for address in self._client.routes.name_servers.addresses:
            answer = await self._client.remoting.call(address, Request.GET_NAMESRV_CONFIG)
            found[address] = bodies.read_lines(answer.body)
        return found

    async def update_name_server_config(self, settings: Mapping[str, str]) -> None:
        lines = bodies.write_lines(settings)
        await self._client.routes.name_servers.call_all(Request.UPDATE_NAMESRV_CONFIG, body=lines)
