"""FindTopicLeader (21) and FindRaftLeader (23): who leads, of those that are there.

The metadata names a node that was killed as a leader until its absence is noticed, and a client
that is sent there has lost a try. So the node is asked before it is named. While it does not
answer, or none is known to lead, the request waits for the next one; then clients get a code upon
which they look for the leader again (spec, section 6): 4 for a topic, 11 for the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dragoman.broker.errors import NotLeader
from dragoman.broker.replica_ends import FindReplicaEnds, ReplicaEnds
from dragoman.cluster.metadata import NO_LEADER
from dragoman.errors import DragomanError
from dragoman.limits import MLOG_LEADER_RETRY_S, MLOG_LEADER_WAIT_S
from dragoman.protocols.mlog.errors import ErrorCode
from dragoman.protocols.mlog.handlers.session import MlogSession, Refused
from dragoman.protocols.mlog.handlers.topics import find_partition, require_topic, unknown
from dragoman.protocols.mlog.messages import (
    FindRaftLeader,
    FindRaftLeaderResp,
    FindTopicLeader,
    FindTopicLeaderResp,
    Message,
)
from dragoman.protocols.session import Place
from dragoman.rpc import Node, Reply
from dragoman.security.authorizer import Operation
from dragoman.world import Handle


def handle_find_topic_leader(session: MlogSession, request: FindTopicLeader, place: Place) -> None:
    require_topic(request.topic)
    broker = session.service.broker
    partition_id = find_partition(session, request.topic, Operation.DESCRIBE).partition_id

    def leader() -> int:
        partition = broker.image.partitions.get(partition_id)
        if partition is None:
            raise unknown(request.topic)
        if partition.leader == broker.node_id:
            try:
                broker.partitions.replica(partition)
            except NotLeader:
                return NO_LEADER
        return partition.leader

    _Search(
        session,
        place,
        leader,
        lambda address: FindTopicLeaderResp(leader_addr=address),
        Refused(ErrorCode.NOT_TOPIC_LEADER, f"no node leads topic {request.topic} at the moment"),
        partition_ids=(partition_id,),
    ).start()


def handle_find_raft_leader(session: MlogSession, _request: FindRaftLeader, place: Place) -> None:
    quorum = session.service.broker.quorum
    _Search(
        session,
        place,
        lambda: quorum.leader,
        lambda address: FindRaftLeaderResp(raft_leader_addr=address),
        Refused(ErrorCode.RAFT_LEADER_UNAVAILABLE, "no Raft leader at the moment"),
    ).start()


class _Search:
    """One request; those behind it on the connection begin when it has been answered."""

    def __init__(
        self,
        session: MlogSession,
        place: Place,
        leader: Callable[[], int],
        reply: Callable[[str], Message],
        refusal: Refused,
        *,
        partition_ids: tuple[int, ...] = (),
    ) -> None:
        """`leader` says who leads by the metadata, and raises `Refused`; the node must say that it
        leads all of the partitions.
        """
        self._session = session
        self._broker = session.service.broker
        self._place = place
        self._leader = leader
        self._reply = reply
        self._refusal = refusal
        self._request = FindReplicaEnds(partition_ids=partition_ids)
        self._timers: list[Handle] = []

    def start(self) -> None:
        """Raises `Refused`."""
        leader = self._leader()
        if leader == self._broker.node_id:
            self._session.reply(self._place, self._reply(self._address(leader)))
            return
        self._session.wait(self._stop)
        call_later = self._broker.scheduler.call_later
        self._timers = [call_later(MLOG_LEADER_WAIT_S, self._finish, self._refusal)]
        self._look()

    def _stop(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _look(self) -> None:
        if self._place.is_done:
            return
        try:
            leader = self._leader()
        except Refused as refused:
            self._finish(refused)
            return
        if leader == self._broker.node_id:
            self._finish(leader)
        elif leader == NO_LEADER:
            self._look_later()
        else:
            answered = partial(self._answered, leader)
            self._broker.rpc.begin(self._request, Node(leader)).then(answered)

    def _answered(self, leader: int, reply: Reply[ReplicaEnds] | DragomanError) -> None:
        if self._place.is_done:
            return
        is_leader = not isinstance(reply, DragomanError) and all(
            each in reply.answer.ends for each in self._request.partition_ids
        )
        if is_leader:
            self._finish(leader)
        else:
            self._look_later()

    def _look_later(self) -> None:
        timer = self._broker.scheduler.call_later(MLOG_LEADER_RETRY_S, self._look)
        self._timers[1:] = [timer]

    def _finish(self, outcome: int | Refused) -> None:
        if self._place.is_done:
            return
        self._stop()
        session = self._session
        session.end_wait()
        try:
            if isinstance(outcome, Refused):
                raise outcome
            session.reply(self._place, self._reply(self._address(outcome)))
        except Refused as refused:
            session.fail(self._place, refused)

    def _address(self, node: int) -> str:
        """Raises `Refused` for a node without a listener of this protocol."""
        found = self._session.service.address_of(self._session.channel, node)
        if found is None:
            raise self._refusal
        host, port = found
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
