"""The cluster's metadata as mlog's metadata events, the entries of mlog's Raft log.

No request of mlog's protocol carries these events: the original's nodes exchange them on a separate
port, as JSON with other names. Programs use requests for changes (CreateTopic, DeleteTopic,
ApplyIsrUpdateEvent). So `dragoman cluster mlog-events` and the HTTP API show the events to
operators, in the original's text.

`shown` is the image as an mlog node would have it in memory: first partitions, as in ListTopics.
`difference` returns the events that turn another such state into it, by the original's rules for
applying them (`apply`; spec, section 9). These rules cannot remove a replica from a topic: such a
replica stays listed, out of sync.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from dragoman.errors import MALFORMED, DecodeError
from dragoman.protocols.mlog.codec import decode_json, encode_json
from dragoman.protocols.mlog.handlers.topics import is_expressible, node_name
from dragoman.protocols.mlog.messages import Int32, Int64, UInt32
from dragoman.types import Buffer


class MetadataEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Root of all events."""


class TopicCreated(MetadataEvent, frozen=True, kw_only=True):
    topic: str = ""
    replica_count: UInt32 = 0
    leader_id: str = ""
    leader_epoch: Int64 = 0
    replicas: list[str] | None = None


class TopicDeleted(MetadataEvent, frozen=True, kw_only=True):
    topic: str = ""


class LeaderChanged(MetadataEvent, frozen=True, kw_only=True):
    topic: str = ""
    leader_id: str = ""
    leader_epoch: Int64 = 0


class IsrUpdated(MetadataEvent, frozen=True, kw_only=True):
    topic: str = ""
    replica_id: str = ""
    isr: bool = False


class NodeAdded(MetadataEvent, frozen=True, kw_only=True):
    node_id: str = ""
    addr: str = ""
    rpc_addr: str = ""


class NodeRemoved(MetadataEvent, frozen=True, kw_only=True):
    node_id: str = ""


class NodeUpdated(MetadataEvent, frozen=True, kw_only=True):
    node_id: str = ""
    is_healthy: bool = False


#: The index of each type is its number.
EVENTS: Final[tuple[type[MetadataEvent], ...]] = (
    TopicCreated,
    TopicDeleted,
    LeaderChanged,
    IsrUpdated,
    NodeAdded,
    NodeRemoved,
    NodeUpdated,
)


class _Envelope(msgspec.Struct, frozen=True):
    event_type: Int32 = 0
    data: msgspec.Raw = msgspec.Raw(b"{}")


def encode_event(event: MetadataEvent) -> bytes:
    number = EVENTS.index(type(event))
    return b'{"event_type":%d,"data":%b}' % (number, encode_json(event))


def decode_event(data: Buffer) -> MetadataEvent:
    """Raises `DecodeError`, also for an unknown type."""
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
    except MALFORMED as error:
        raise DecodeError(f"not a metadata event: {error}") from None
    if not 0 <= envelope.event_type < len(EVENTS):
        raise DecodeError(f"metadata event type {envelope.event_type} is unknown")
    return decode_json(EVENTS[envelope.event_type], bytes(envelope.data))


class Topic:
    def __init__(self, event: TopicCreated) -> None:
        self.replica_count = event.replica_count
        self.leader_id = event.leader_id
        self.leader_epoch = event.leader_epoch
        #: Whether each follower is in sync.
        self.replicas = dict.fromkeys(event.replicas or (), True)

    @property
    def in_sync(self) -> set[str]:
        return {node for node, is_in_sync in self.replicas.items() if is_in_sync}


class Node(NamedTuple):
    addr: str
    rpc_addr: str


class State:
    """The state that the events build on an mlog node, and the health that they report."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.nodes: dict[str, Node] = {}
        self.unhealthy: set[str] = set()

    def apply(self, event: MetadataEvent) -> None:
        """Apply an event. An event that does not fit the state changes nothing."""
        match event:
            case TopicCreated():
                self.topics.setdefault(event.topic, Topic(event))
            case TopicDeleted():
                self.topics.pop(event.topic, None)
            case LeaderChanged() if event.topic in self.topics:
                self._change_leader(self.topics[event.topic], event)
            case IsrUpdated() if event.topic in self.topics:
                self.topics[event.topic].replicas[event.replica_id] = event.isr
            case NodeAdded():
                self._add_node(event)
            case NodeRemoved():
                self.nodes.pop(event.node_id, None)
                self.unhealthy.discard(event.node_id)
            case NodeUpdated():
                change = self.unhealthy.discard if event.is_healthy else self.unhealthy.add
                change(event.node_id)
            case _:
                return

    def _change_leader(self, topic: Topic, event: LeaderChanged) -> None:
        if topic.leader_id in self.nodes:
            topic.replicas[topic.leader_id] = False
        topic.leader_id, topic.leader_epoch = event.leader_id, event.leader_epoch
        topic.replicas.pop(event.leader_id, None)

    def _add_node(self, event: NodeAdded) -> None:
        name = event.node_id
        self.nodes[name] = Node(event.addr, event.rpc_addr)
        for topic in self.topics.values():
            if len(topic.replicas) < topic.replica_count and name != topic.leader_id:
                topic.replicas.setdefault(name, True)


def shown(image: MetadataImage) -> State:
    """The image in mlog's terms."""
    state = State()
    for node in sorted(image.nodes.keys() | image.added.keys()):
        known = image.registrations.get(node)
        addresses = {} if known is None else known.addresses
        peer = addresses.get("peer") or image.added.get(node, "")
        state.nodes[node_name(node)] = Node(peer, addresses.get("mlog", ""))
    state.unhealthy = set(map(node_name, image.fenced))
    for name, topic in sorted(image.topics.items()):
        if not topic.is_internal and is_expressible(name):
            state.topics[name] = _topic(topic.partitions[0])
    return state


def _topic(partition: PartitionMetadata) -> Topic:
    followers = [node for node in partition.replicas if node != partition.leader]
    topic = Topic(
        TopicCreated(
            topic=partition.topic.name,
            replica_count=len(followers),
            leader_id=node_name(partition.leader),
            # The original counts from one.
            leader_epoch=partition.leader_epoch + 1,
            replicas=list(map(node_name, followers)),
        )
    )
    for node in followers:
        topic.replicas[node_name(node)] = node in partition.in_sync
    return topic


def difference(state: State, wanted: State) -> list[MetadataEvent]:
    """The events that turn `state` into `wanted`. They are applied to `state`."""
    events = []
    for event in _steps(state, wanted):
        state.apply(event)
        events.append(event)
    return events


def events_of(image: MetadataImage) -> list[MetadataEvent]:
    """The events that turn an empty state into the image."""
    return difference(State(), shown(image))


def _steps(state: State, wanted: State) -> Iterator[MetadataEvent]:
    """Yield the events. The caller applies each one before it takes the next."""
    for name, topic in list(state.topics.items()):
        if name not in wanted.topics or topic.leader_epoch > wanted.topics[name].leader_epoch:
            # Epochs only increase, so this is another topic of the same name.
            yield TopicDeleted(topic=name)
    for node, where in wanted.nodes.items():
        if state.nodes.get(node) != where:
            yield NodeAdded(node_id=node, addr=where.addr, rpc_addr=where.rpc_addr)
    for name, topic in wanted.topics.items():
        yield from _topic_steps(state, name, topic)
    for node in sorted(state.nodes.keys() - wanted.nodes.keys()):
        yield NodeRemoved(node_id=node)
    for node in sorted(state.unhealthy ^ wanted.unhealthy):
        yield NodeUpdated(node_id=node, is_healthy=node in state.unhealthy)


def _topic_steps(state: State, name: str, wanted: Topic) -> Iterator[MetadataEvent]:
    leader_id, leader_epoch = wanted.leader_id, wanted.leader_epoch
    if name not in state.topics:
        yield TopicCreated(
            topic=name,
            replica_count=len(wanted.replicas),
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            replicas=list(wanted.replicas),
        )
    topic = state.topics[name]
    if (topic.leader_id, topic.leader_epoch) != (leader_id, leader_epoch):
        yield LeaderChanged(topic=name, leader_id=leader_id, leader_epoch=leader_epoch)
    for node in sorted(topic.replicas.keys() | wanted.replicas.keys()):
        is_in_sync = wanted.replicas.get(node, False)
        if topic.replicas.get(node) != is_in_sync:
            yield IsrUpdated(topic=name, replica_id=node, isr=is_in_sync)
