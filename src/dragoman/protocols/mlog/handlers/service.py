"""What all mlog connections of a node share, and the table of requests they may send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.broker.addresses import address_of
from dragoman.broker.broker import Broker
from dragoman.framing import Scratch
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.handlers import (
    fetch,
    leaders,
    offsets,
    produce,
    replicas,
    topics,
)
from dragoman.protocols.mlog.handlers.session import Handler, MlogSession

HANDLERS: Final[dict[type[m.Message], Handler]] = {
    m.Produce: produce.handle_produce,
    m.ProduceBatch: produce.handle_produce_batch,
    m.Fetch: fetch.handle_fetch,
    m.FetchBatch: fetch.handle_fetch_batch,
    m.FetchStream: fetch.handle_fetch_stream,
    m.CommitOffset: offsets.handle_commit,
    m.FetchOffset: offsets.handle_fetch_offset,
    m.CreateTopic: topics.handle_create,
    m.DeleteTopic: topics.handle_delete,
    m.ListTopics: topics.handle_list,
    m.FindTopicLeader: leaders.handle_find_topic_leader,
    m.FindRaftLeader: leaders.handle_find_raft_leader,
    m.ReplicateStream: replicas.handle_replicate,
    m.ApplyIsrUpdateEvent: replicas.handle_isr_update,
}


class MlogService:
    def __init__(
        self,
        broker: Broker,
        budget: MemoryBudget,
        advertised: Callable[[Channel], tuple[str, int]],
    ) -> None:
        self.broker = broker
        self.budget = budget
        #: What other nodes call the listener that this service is for.
        self.listener = "mlog"
        #: Host and port that a client on this channel is told to connect to.
        self.advertised = advertised
        self.handlers = HANDLERS
        self.scratch = Scratch()
        self.catching_up = produce.CatchingUp(
            broker.scheduler,
            broker.clock,
            lambda: broker.settings.mlog_acks_all_timeout_ms / 1000,
        )

    def address_of(self, channel: Channel, node: int) -> tuple[str, int] | None:
        """Host and port under which a client on this channel finds a node of the cluster."""
        if node == self.broker.node_id:
            return self.advertised(channel)
        return address_of(self.broker.image, node, self.listener)

    def session(self, channel: Channel) -> MlogSession:
        return MlogSession(channel, self)
