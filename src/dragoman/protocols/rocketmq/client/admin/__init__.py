"""Administration of RocketMQ clusters: one class, with a module for each subject.

Subjects are name servers, brokers, controllers, topics, groups, offsets, messages, dead letters,
and users with their rights. A call goes to the name servers, to one broker, or to all masters.
"""

from __future__ import annotations

from typing import Self

from dragoman.protocols.rocketmq.client.admin.brokers import BrokerCalls
from dragoman.protocols.rocketmq.client.admin.controllers import ControllerCalls
from dragoman.protocols.rocketmq.client.admin.dead_letters import DeadLetterCalls
from dragoman.protocols.rocketmq.client.admin.name_servers import NameServerCalls
from dragoman.protocols.rocketmq.client.admin.security import SecurityCalls


class RocketmqAdmin(
    NameServerCalls,
    BrokerCalls,
    DeadLetterCalls,
    SecurityCalls,
    ControllerCalls,
):
    """Calls name the original's operations. `broker` is the address of one, `HOST:PORT`.

    All raise `ClientError`: `RocketmqError` when a server refuses, `UnsupportedRequestError` when
    it does not know the request.
    """

    async def close(self) -> None:
        """Close the client that it was given."""
        await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
