"""Kafka brokers whose answers a test scripts, on real loopback sockets.

`ScriptedCluster` keeps who leads what and answers ApiVersions, Metadata and FindCoordinator from
that; a test sets a function for every other request, and may replace these three too. What brokers
were asked is kept in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from dragoman.errors import DecodeError
from dragoman.framing import Scratch
from dragoman.net.listener import ACCEPT_TURNS
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka.connection import (
    Request,
    ServerConnection,
    encode_api_versions_fallback,
)
from dragoman.protocols.kafka.constants import ADVERTISED_VERSIONS, ApiKey
from dragoman.protocols.kafka.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiKey,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
    Message,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

AnyMessage = TypeVar("AnyMessage", bound=Message)
#: Gets the request and its version. None: no answer. `CLOSE`: the connection is cut.
Answer = Callable[[Message, int], "Message | bytes | None"]
CLOSE = b""


class ScriptedBroker(asyncio.Protocol):
    def __init__(self, cluster: ScriptedCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.port = 0
        self.seen: list[tuple[Message, int]] = []
        self.answers: dict[type[Message], Answer] = {}
        self.transports: list[asyncio.Transport] = []
        self.accepted = 0
        self.versions: dict[int, tuple[int, int]] = {
            int(key): (each.low, each.high) for key, each in ADVERTISED_VERSIONS.items()
        }
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Session(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def pause(self) -> None:
        """No more connections. What was accepted is known within `ACCEPT_TURNS`, as in `net`."""
        assert self._server is not None
        for each in self._server.sockets:
            asyncio.get_running_loop().remove_reader(each)

    def stop(self) -> None:
        """No more connections, and the present ones are cut."""
        assert self._server is not None
        self._server.close()
        for transport in self.transports:
            transport.abort()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def asked(self, kind: type[AnyMessage]) -> list[AnyMessage]:
        return [message for message, _ in self.seen if isinstance(message, kind)]

    def asked_versions(self, kind: type[Message]) -> list[int]:
        return [version for message, version in self.seen if isinstance(message, kind)]

    def reply(self, request: Request) -> list[bytes] | None:
        """Buffers to send, or None when there is no answer. Raises `ConnectionAbortedError`."""
        low, high = self.versions.get(request.api_key, (0, -1))
        if request.api_key == ApiKey.API_VERSIONS and not low <= request.version <= high:
            only = [
                ApiVersionsResponseApiKey(
                    api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high
                )
            ]
            return encode_api_versions_fallback(request.correlation_id, only)
        assert low <= request.version <= high, f"version {request.version} was not advertised"
        message = request.decode()
        self.seen.append((message, request.version))
        answer = self.answers.get(type(message)) or self.cluster.answers.get(type(message))
        if answer is None:
            answer = self.cluster.standard(self, message)
        made = answer(message, request.version)
        if isinstance(made, bytes):
            if made == CLOSE:
                raise ConnectionAbortedError
            return [made]
        return made and codec.encode_response(made, request.version, request.correlation_id)


class _Session(asyncio.Protocol):
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._connection = ServerConnection(1 << 27, Scratch())
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._broker.accepted += 1
        self._broker.transports.append(transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        try:
            for request in self._connection.receive_data(data):
                buffers = self._broker.reply(request)
                if buffers:
                    self._transport.writelines(buffers)
        except (ConnectionAbortedError, DecodeError):
            self._transport.abort()


class ScriptedCluster:
    """`topics` names a leader per partition; -1 is none."""

    def __init__(self, node_count: int = 1) -> None:
        self.brokers = [ScriptedBroker(self, index + 1) for index in range(node_count)]
        self.topics: dict[str, list[int]] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.answers: dict[type[Message], Answer] = {}
        self.coordinator = 1

    async def __aenter__(self) -> Self:
        for broker in self.brokers:
            await broker.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for broker in self.brokers:
            broker.pause()
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        for broker in self.brokers:
            broker.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def answer(self, kind: type[Message], *replies: Message | bytes | None) -> None:
        """One reply after the other; the last one stays."""
        left = list(replies)

        def take(_message: Message, _version: int) -> Message | bytes | None:
            return left.pop(0) if len(left) > 1 else left[0]

        self.answers[kind] = take

    def standard(self, broker: ScriptedBroker, message: Message) -> Answer:
        match message:
            case ApiVersionsRequest():
                return lambda _message, _version: self._api_versions(broker)
            case MetadataRequest():
                return lambda _message, version: self._metadata(message, version)
            case FindCoordinatorRequest():
                return lambda _message, version: self._find_coordinator(message, version)
            case _:
                raise AssertionError(f"no answer to {type(message).__name__}")

    def _api_versions(self, broker: ScriptedBroker) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponseApiKey(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in broker.versions.items()
            ]
        )

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        everything = request.topics is None or (version == 0 and not request.topics)
        names = list(self.topics) if everything else [each.name for each in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=each.node_id, host="127.0.0.1", port=each.port)
                for each in self.brokers
            ],
            cluster_id="scripted" if version >= 2 else None,
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(error_code=3, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=self.topic_ids.get(name, name.encode().ljust(16, b"\1")),
            partitions=[
                MetadataResponsePartition(
                    error_code=0 if leader > 0 else 5,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=7,
                    replica_nodes=[leader],
                    isr_nodes=[leader],
                )
                for index, leader in enumerate(self.topics[name])
            ],
        )

    def _find_coordinator(
        self, request: FindCoordinatorRequest, version: int
    ) -> FindCoordinatorResponse:
        node = self.brokers[self.coordinator - 1]
        if version < 4:
            return FindCoordinatorResponse(node_id=node.node_id, host="127.0.0.1", port=node.port)
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponseCoordinator(
                    key=key, node_id=node.node_id, host="127.0.0.1", port=node.port
                )
                for key in request.coordinator_keys
            ]
        )
