"""What all Kafka connections of a node share, and the table of requests they may send."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.broker.broker import Broker
from dragoman.errors import RemoteProtocolError
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.protocols.kafka.connection import Request
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.framing import Scratch
from dragoman.protocols.kafka.handlers import (
    api_versions,
    coordinators,
    fetch,
    groups,
    list_offsets,
    metadata,
    offsets,
    produce,
    producer_ids,
    topics,
    transactions,
)
from dragoman.protocols.kafka.handlers.fetch_sessions import FetchSessions
from dragoman.protocols.kafka.handlers.session import Handler, KafkaSession

HANDLERS: dict[int, Handler] = {
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.METADATA: metadata.handle,
    ApiKey.OFFSET_COMMIT: offsets.handle_commit,
    ApiKey.OFFSET_FETCH: offsets.handle_fetch,
    ApiKey.FIND_COORDINATOR: coordinators.handle,
    ApiKey.JOIN_GROUP: groups.handle_join,
    ApiKey.HEARTBEAT: groups.handle_heartbeat,
    ApiKey.LEAVE_GROUP: groups.handle_leave,
    ApiKey.SYNC_GROUP: groups.handle_sync,
    ApiKey.API_VERSIONS: api_versions.handle,
    ApiKey.CREATE_TOPICS: topics.handle_create,
    ApiKey.DELETE_TOPICS: topics.handle_delete,
    ApiKey.INIT_PRODUCER_ID: producer_ids.handle,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.handle_add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.handle_add_offsets,
    ApiKey.END_TXN: transactions.handle_end,
    ApiKey.TXN_OFFSET_COMMIT: transactions.handle_commit_offsets,
}


class KafkaService:
    def __init__(
        self,
        broker: Broker,
        budget: MemoryBudget,
        advertised: Callable[[Channel], tuple[str, int]],
    ) -> None:
        self.broker = broker
        self.budget = budget
        #: Host and port that a client on this channel is told to connect to.
        self.advertised = advertised
        self.requests = 0
        slots = broker.settings.max_incremental_fetch_session_cache_slots
        self.fetch_sessions = FetchSessions(slots, broker.clock, broker.random)
        self._scratch = Scratch()

    def session(self, channel: Channel) -> KafkaSession:
        return KafkaSession(channel, self, HANDLERS, self._scratch)

    def refuse_version(self, request: Request) -> Handler:
        """Only ApiVersions has an answer for versions that are not served; else close."""
        if request.api_key == ApiKey.API_VERSIONS:
            return api_versions.handle_unsupported
        raise RemoteProtocolError(
            f"api key {request.api_key} version {request.version} is not served"
        )
