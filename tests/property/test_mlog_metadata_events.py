"""Goal: mlog's events, applied by mlog's rules, always lead to what the cluster's metadata is.

Method: random histories of our own events, and random states of mlog with nothing behind them.
After every step the events that are shown travel as text and are applied to a second state, which
has to agree with the image.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from dragoman.cluster.events import (
    Event,
    Member,
    NodeAdded,
    NodeFenced,
    NodeRegistered,
    NodeRemoved,
    PartitionChanged,
    PartitionPlacement,
    TopicCreated,
    TopicDeleted,
)
from dragoman.cluster.metadata import MetadataImage
from dragoman.protocols.mlog.handlers import metadata_events as mlog
from dragoman.protocols.mlog.handlers.metadata_events import (
    Node,
    State,
    Topic,
    decode_event,
    difference,
    encode_event,
    events_of,
    shown,
)

NODES = st.integers(1, 4)
NAMES = st.sampled_from(["a", "b", "a@1", "__own", "<&>"])


def check(state: State, wanted: State) -> None:
    """Everything but replicas that mlog cannot forget: these are out of sync at least."""
    assert state.nodes == wanted.nodes
    assert state.unhealthy == wanted.unhealthy
    assert state.topics.keys() == wanted.topics.keys()
    for name, topic in wanted.topics.items():
        found = state.topics[name]
        assert (found.leader_id, found.leader_epoch) == (topic.leader_id, topic.leader_epoch)
        assert found.in_sync == topic.in_sync
        assert found.replicas.keys() >= topic.replicas.keys()
        assert found.leader_id not in found.replicas


def replay(state: State, events: Sequence[mlog.MetadataEvent]) -> None:
    for event in events:
        state.apply(decode_event(encode_event(event)))


class History:
    """Events that the quorum could agree on next."""

    def __init__(self, data: st.DataObject) -> None:
        self.image = MetadataImage()
        self._draw = data.draw
        self._topics = 0

    def next(self) -> Event:
        kinds = [self._registered, self._added]
        if self.image.nodes:
            kinds += [self._fenced, self._removed, self._created]
        if self.image.topics:
            kinds += [self._deleted, self._changed, self._changed, self._changed]
        return self._draw(st.sampled_from(kinds))()

    def _registered(self) -> Event:
        node = self._draw(NODES)
        port = self._draw(st.integers(1, 3))
        addresses = {"peer": f"h{node}:{port}", "mlog": f"h{node}:9094"}
        incarnation = self.image.nodes.get(node, 0) + 1
        return NodeRegistered(node_id=node, incarnation=incarnation, addresses=addresses)

    def _added(self) -> Event:
        return NodeAdded(node_id=self._draw(NODES), address="h:1")

    def _node(self) -> int:
        return self._draw(st.sampled_from(sorted(self.image.nodes)))

    def _fenced(self) -> Event:
        node = self._node()
        return NodeFenced(node_id=node, incarnation=self.image.nodes[node])

    def _removed(self) -> Event:
        return NodeRemoved(node_id=self._node())

    def _created(self) -> Event:
        name = self._draw(NAMES)
        if name in self.image.topics:
            return TopicDeleted(topic_id=self.image.topics[name].topic_id)
        self._topics += 1
        placements = tuple(
            PartitionPlacement(self.image.next_partition_id + index, tuple(self._some_nodes()))
            for index in range(self._draw(st.integers(1, 2)))
        )
        return TopicCreated(
            name=name,
            topic_id=self._topics.to_bytes(16, "big"),
            partitions=placements,
            is_internal=name == "__own",
        )

    def _some_nodes(self) -> list[int]:
        nodes = st.sampled_from(sorted(self.image.nodes))
        return self._draw(st.lists(nodes, min_size=1, max_size=3, unique=True))

    def _deleted(self) -> Event:
        name = self._draw(st.sampled_from(sorted(self.image.topics)))
        return TopicDeleted(topic_id=self.image.topics[name].topic_id)

    def _changed(self) -> Event:
        partition = self._draw(
            st.sampled_from([self.image.partitions[each] for each in sorted(self.image.partitions)])
        )
        replicas = self._some_nodes() if self.image.nodes else list(partition.replicas)
        in_sync = self._draw(st.lists(st.sampled_from(replicas), unique=True))
        return PartitionChanged(
            partition_id=partition.partition_id,
            leader=self._draw(st.sampled_from([-1, *replicas])),
            leader_epoch=partition.leader_epoch + self._draw(st.integers(0, 2)),
            partition_epoch=partition.partition_epoch + 1,
            replicas=tuple(replicas),
            in_sync=tuple(Member(node, 1) for node in in_sync),
        )


@given(st.data())
def test_a_history_of_ours_is_one_of_theirs(data: st.DataObject) -> None:
    history = History(data)
    told, replayed = State(), State()
    for _ in range(data.draw(st.integers(1, 25))):
        history.image.apply(history.next())
        wanted = shown(history.image)
        replay(replayed, difference(told, wanted))
        check(replayed, wanted)
        assert difference(told, wanted) == [], "no event is repeated"
        alone = State()
        replay(alone, events_of(history.image))
        check(alone, wanted)


names = st.sampled_from(["n1", "n2", "n3", "n4", ""])


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    created = mlog.TopicCreated(
        replica_count=draw(st.integers(0, 4)),
        leader_id=draw(names),
        leader_epoch=draw(st.integers(1, 5)),
    )
    topic = Topic(created)
    replicas = draw(st.dictionaries(names, st.booleans()))
    topic.replicas = {node: each for node, each in replicas.items() if node != topic.leader_id}
    return topic


@st.composite
def states(draw: st.DrawFn) -> State:
    state = State()
    state.topics = draw(st.dictionaries(st.sampled_from("abc"), topics()))
    where = st.builds(Node, st.sampled_from(["x", "y"]), st.sampled_from(["", "z"]))
    state.nodes = draw(st.dictionaries(names, where))
    state.unhealthy = draw(st.sets(st.sampled_from(sorted(state.nodes)))) if state.nodes else set()
    return state


@given(states(), states())
def test_events_lead_from_any_state_to_any_other(first: State, wanted: State) -> None:
    difference(first, wanted)
    check(first, wanted)


def test_a_new_topic_looks_as_it_does_in_the_original() -> None:
    image = MetadataImage()
    for node in (1, 2, 3):
        addresses = {"peer": f"127.0.0.1:919{node}", "mlog": f"127.0.0.1:909{node}"}
        image.apply(NodeRegistered(node_id=node, incarnation=1, addresses=addresses))
    placement = PartitionPlacement(1, (1, 2, 3))
    image.apply(TopicCreated(name="orders", topic_id=b"o" * 16, partitions=(placement,)))
    *_, last = map(encode_event, events_of(image))
    # The vector of the protocol's page, section 11.
    assert last == (
        b'{"event_type":0,"data":{"topic":"orders","replica_count":2,"leader_id":"node-1",'
        b'"leader_epoch":1,"replicas":["node-2","node-3"]}}'
    )
