"""Controllers, which elect masters in clusters of the original's 5.x. Dragoman has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dragoman.protocols.rocketmq import bodies, json
from dragoman.protocols.rocketmq.client.admin.codes import RareRequest
from dragoman.protocols.rocketmq.client.admin.reaching import Reaching
from dragoman.protocols.rocketmq.client.remoting import Fields


class ControllerCalls(Reaching):
    async def get_controller_metadata(self, controller: str) -> dict[str, str]:
        answer = await self._client.remoting.call(
            controller, RareRequest.CONTROLLER_GET_METADATA_INFO
        )
        return answer.fields

    async def get_in_sync_state_data(
        self, controller: str, broker_names: Iterable[str]
    ) -> json.Json:
        body = msgspec.json.encode(list(broker_names))
        code = RareRequest.CONTROLLER_GET_SYNC_STATE_DATA
        answer = await self._client.remoting.call(controller, code, body=body)
        return json.read(answer.body, dict) if answer.body else None

    async def elect_master(
        self, controller: str, cluster: str, broker_name: str, broker_id: int
    ) -> dict[str, str]:
        fields: Fields = {
            "clusterName": cluster,
            "brokerName": broker_name,
            "brokerId": broker_id,
            "designateElect": True,
        }
        return (
            await self._client.remoting.call(
                controller, RareRequest.CONTROLLER_ELECT_MASTER, fields
            )
        ).fields

    async def get_controller_config(self, controller: str) -> dict[str, str]:
        answer = await self._client.remoting.call(controller, RareRequest.GET_CONTROLLER_CONFIG)
        return bodies.read_lines(answer.body)

    async def update_controller_config(self, controller: str, settings: Mapping[str, str]) -> None:
        lines = bodies.write_lines(settings)
        code = RareRequest.UPDATE_CONTROLLER_CONFIG
        await self._client.remoting.call(controller, code, body=lines)

    async def clean_controller_broker_data(
        self, controller: str, cluster: str, broker_name: str, *, is_living: bool = False
    ) -> None:
        fields: Fields = {
            "clusterName": cluster,
            "brokerName": broker_name,
            "isCleanLivingBroker": is_living,
        }
        await self._client.remoting.call(controller, RareRequest.CLEAN_BROKER_DATA, fields)
