"""FindTopicLeader (21) and FindRaftLeader (23): the leader, if it is alive.

The metadata names a killed node as leader until its failure is detected, and a client that connects
to it wastes an attempt. So a node is queried before it is named. While it does not answer, or no
leader is known, the request waits for the next leader. After a bounded time the client gets a code
that makes it look up the leader again (spec, section 6): 4 for a topic, 11 for the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dragoman.broker.errors import NotLeader
from dragoman.broker.replica_ends import FindReplicaEnds
from dragoman.cluster.metadata import NO_LEADER
from dragoman.errors import DragomanError
from dragoman.limits import MLOG_LEADER_RETRY_S, MLOG_LEADER_WAIT_S
from dragoman.outcome import attempt, deadline, pause, start
from dragoman.protocols.mlog.errors import ErrorCode
from dragoman.protocols.mlog.handlers.session import MlogSession, Refused
from dragoman.protocols.mlog.handlers.topics import find_partition, require_topic, unknown
from dragoman.protocols.mlog.messages import (
    FindRaftLeader,
    FindRaftLeaderResp,
    FindTopicLeader,
    FindTopicLeaderResp,
)
from dragoman.protocols.session import Place
from dragoman.rpc import Node
from dragoman.security.access import Operation

#: Returns the leader according to the metadata. Raises `Refused` if the topic no longer exists.
FindLeader: TypeAlias = Callable[[], int]


async def handle_find_topic_leader(
    session: MlogSession, request: FindTopicLeader, place: Place
) -> None:
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

    refusal = Refused(
        ErrorCode.NOT_TOPIC_LEADER, f"no node leads topic {request.topic} at the moment"
    )
    address = await _leader_address(session, place, leader, (partition_id,), refusal)
    session.reply(place, FindTopicLeaderResp(leader_addr=address))


async def handle_find_raft_leader(
    session: MlogSession, _request: FindRaftLeader, place: Place
) -> None:
    quorum = session.service.broker.quorum
    refusal = Refused(ErrorCode.RAFT_LEADER_UNAVAILABLE, "no Raft leader at the moment")
    address = await _leader_address(session, place, lambda: quorum.leader, (), refusal)
    session.reply(place, FindRaftLeaderResp(raft_leader_addr=address))


async def _leader_address(
    session: MlogSession,
    place: Place,
    find_leader: FindLeader,
    partition_ids: tuple[int, ...],
    refusal: Refused,
) -> str:
    """Host and port of the leader, once it has confirmed that it leads all of the partitions.

    Later requests of the connection begin when this one has been answered. Raises `Refused`, and
    `refusal` if no leader is found in time or the leader has no listener of this protocol.
    """
    leader = find_leader()
    broker = session.service.broker
    if leader != broker.node_id:
        search = start(_search(session, place, find_leader, partition_ids))
        session.wait(lambda: None)
        try:
            leader = await deadline(search, broker.scheduler, MLOG_LEADER_WAIT_S, lambda: refusal)
        finally:
            session.end_wait()
    address = session.service.address_of(session.channel, leader)
    if address is None:
        raise refusal
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _search(
    session: MlogSession, place: Place, find_leader: FindLeader, partition_ids: tuple[int, ...]
) -> int:
    """The leader, or `NO_LEADER` once the request has been answered without it."""
    broker = session.service.broker
    while not place.is_done:
        leader = find_leader()
        if leader == broker.node_id:
            return leader
        if leader != NO_LEADER:
            request = FindReplicaEnds(partition_ids=partition_ids)
            found = await attempt(broker.rpc.call(request, Node(leader)))
            if not isinstance(found, DragomanError) and found.ends.keys() >= set(partition_ids):
                return leader
        await pause(broker.scheduler, MLOG_LEADER_RETRY_S)
    return NO_LEADER
