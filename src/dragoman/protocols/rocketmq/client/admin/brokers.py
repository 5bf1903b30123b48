"""Brokers: what they tell about themselves, their settings, and their cleaning."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.protocols.rocketmq import bodies, json
from dragoman.protocols.rocketmq.bodies import BrokerStats, KvTable
from dragoman.protocols.rocketmq.client.admin.codes import RareRequest
from dragoman.protocols.rocketmq.client.admin.reaching import Reaching
from dragoman.protocols.rocketmq.client.remoting import Fields
from dragoman.protocols.rocketmq.constants import Request


class BrokerCalls(Reaching):
    async def fetch_broker_runtime_stats(self, broker: str) -> dict[str, str]:
        return (await self._read(broker, KvTable, Request.GET_BROKER_RUNTIME_INFO)).table

    async def get_broker_config(self, broker: str) -> dict[str, str]:
        return bodies.read_lines((await self._ask(broker, Request.GET_BROKER_CONFIG)).body)

    async def update_broker_config(self, broker: str, settings: Mapping[str, str]) -> None:
        lines = bodies.write_lines(settings)
        await self._ask(broker, Request.UPDATE_BROKER_CONFIG, body=lines)

    async def view_broker_stats_data(self, broker: str, name: str, key: str) -> BrokerStats:
        """`TOPIC_PUT_NUMS` of a topic, `GROUP_GET_NUMS` of `topic@group`, and their like."""
        fields: Fields = {"statsName": name, "statsKey": key}
        return await self._read(broker, BrokerStats, Request.VIEW_BROKER_STATS_DATA, fields)

    # ---- cleaning

    async def clean_expired_consumer_queue(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        await self._clean(Request.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster)

    async def delete_expired_commit_log(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        await self._clean(Request.DELETE_EXPIRED_COMMITLOG, broker, cluster)

    async def clean_unused_topic(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        await self._clean(Request.CLEAN_UNUSED_TOPIC, broker, cluster)

    async def _clean(self, code: Request, broker: str | None, cluster: str | None) -> None:
        for each in await self._chosen(broker, cluster):
            await self._ask(each, code)

    # ---- what only the original has

    async def get_broker_ha_status(self, broker: str) -> json.Json:
        return await self._json(broker, RareRequest.GET_BROKER_HA_STATUS)

    async def get_broker_epoch_cache(self, broker: str) -> json.Json:
        return await self._json(broker, RareRequest.GET_BROKER_EPOCH_CACHE)

    async def add_broker_to_container(self, container: str, settings: Mapping[str, str]) -> None:
        await self._ask(container, RareRequest.ADD_BROKER, body=bodies.write_lines(settings))

    async def remove_broker_from_container(
        self, container: str, cluster: str, broker_name: str, broker_id: int
    ) -> None:
        identity = f"{cluster}#{broker_name}#{broker_id}"
        await self._ask(container, RareRequest.REMOVE_BROKER, {"brokerIdentity": identity})

    async def update_cold_data_flow_control(self, broker: str, limits: Mapping[str, str]) -> None:
        """Bytes a second by group."""
        code = RareRequest.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
        await self._ask(broker, code, body=bodies.write_lines(limits))

    async def remove_cold_data_flow_control(self, broker: str, group: str) -> None:
        code = RareRequest.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
        await self._ask(broker, code, body=group.encode())

    async def get_cold_data_flow_control(self, broker: str) -> json.Json:
        return await self._json(broker, RareRequest.GET_COLD_DATA_FLOW_CTR_INFO)

    async def set_commit_log_read_ahead_mode(self, broker: str, mode: int) -> None:
        fields: Fields = {"READ_AHEAD_MODE": mode}
        await self._ask(broker, RareRequest.SET_COMMITLOG_READ_MODE, fields)

    async def export_rocksdb_config(self, broker: str, config_type: str) -> None:
        fields: Fields = {"configType": config_type}
        await self._ask(broker, RareRequest.EXPORT_ROCKSDB_CONFIG_TO_JSON, fields)

    async def check_rocksdb_write_progress(
        self, broker: str, topic: str = "", store_time_from_ms: int = 0
    ) -> json.Json:
        fields: Fields = {"topic": topic or None, "checkStoreTime": store_time_from_ms}
        return await self._json(broker, RareRequest.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, fields)

    async def _json(self, broker: str, code: int, fields: Fields | None = None) -> json.Json:
        answer = await self._ask(broker, code, fields)
        return json.read(answer.body, dict) if answer.body else None
