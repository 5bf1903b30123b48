"""Goal: no interleaving of joins, leaves, crashes, lost replies, time-outs, changes of topics and
subscriptions, slow or failed records, changes of protocol and restarts breaks a consumer group.
Method: a hypothesis state machine drives model clients of both of Kafka's protocols against one
group, with virtual time and a log that answers on request.

The promises: no partition is read by two clients that the coordinator takes for members; what a
client was answered survives a restart at any moment; epochs only grow; once all clients proceed,
every partition of a subscribed topic is read by exactly one client, and partitions are divided
evenly where all subscriptions are the same.
"""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dragoman.broker.groups import ConsumerGroup, Groups, GroupSettings, State
from dragoman.broker.groups.classic import ClassicGroup
from worlds.consumer_clients import DIALECT, ClassicClient, ConsumerClient, FakeCatalog
from worlds.group_script import FakeLog, VirtualTime

GROUP = "g"
TOPICS = ("a", "b")
SUBSCRIPTIONS = st.sampled_from([("a",), ("b",), ("a", "b")])
SESSION_S = 45
#: Four of the second protocol, two of them static with one instance id between them, and two of
#: the first.
CLIENTS = st.integers(0, 5)


class ConsumerGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.time = VirtualTime()
        self.log = FakeLog()
        self.catalog = FakeCatalog()
        self.random = random.Random(7)
        self.clients: list[ConsumerClient | ClassicClient] = [
            ConsumerClient("c0", GROUP),
            ConsumerClient("c1", GROUP),
            ConsumerClient("s0", GROUP, "instance"),
            ConsumerClient("s1", GROUP, "instance"),
            ClassicClient("k0", GROUP),
            ClassicClient("k1", GROUP),
        ]
        self.told_epoch = 0
        self.groups = self._new_groups(self.time)

    def _new_groups(self, time: VirtualTime) -> Groups:
        return Groups(
            scheduler=time,
            clock=time,
            random=self.random,
            persist=self.log.persist,
            settings=GroupSettings(group_initial_rebalance_delay_ms=0),
            catalog=self.catalog,
            dialect=DIALECT,
        )

    @initialize(a=st.integers(1, 4), b=st.integers(1, 4))
    def topics(self, a: int, b: int) -> None:
        self.catalog.create("a", a)
        self.catalog.create("b", b)

    # ---- clients

    @rule(index=CLIENTS, topics=SUBSCRIPTIONS, by_pattern=st.booleans())
    def start(self, index: int, topics: tuple[str, ...], by_pattern: bool) -> None:
        client = self.clients[index]
        if client.is_running:
            return
        if by_pattern and isinstance(client, ConsumerClient):
            client.start((), "|".join(topics))
        else:
            client.start(topics)
        client.heartbeat(self.groups)

    @rule(index=CLIENTS, lose_reply=st.booleans())
    def heartbeat(self, index: int, lose_reply: bool) -> None:
        self.clients[index].heartbeat(self.groups, lose_reply=lose_reply)

    @rule(index=CLIENTS)
    def several_heartbeats(self, index: int) -> None:
        for _ in range(4):
            self.clients[index].heartbeat(self.groups)
            self.clients[index].give_up()

    @rule(index=CLIENTS)
    def give_up(self, index: int) -> None:
        self.clients[index].give_up()

    @rule(index=CLIENTS, topics=SUBSCRIPTIONS)
    def subscribe(self, index: int, topics: tuple[str, ...]) -> None:
        client = self.clients[index]
        if client.is_running and getattr(client, "pattern", None) is None:
            client.subscribe(topics)

    @rule(index=CLIENTS)
    def crash(self, index: int) -> None:
        self.clients[index].crash()

    @rule(index=CLIENTS, for_now=st.booleans())
    def leave(self, index: int, for_now: bool) -> None:
        self.clients[index].leave(self.groups, for_now=for_now)

    # ---- the world

    @rule(seconds=st.sampled_from([1, 10, 31, 46]))
    def wait(self, seconds: int) -> None:
        self.time.advance(seconds)

    @rule(seconds=st.sampled_from([5, 20]))
    def time_passes_with_heartbeats(self, seconds: int) -> None:
        for _ in range(seconds // 5):
            self.time.advance(5)
            for client in self.clients:
                client.heartbeat(self.groups)

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 6))
    def change_topic(self, name: str, count: int) -> None:
        facts = self.catalog.find(name)
        if facts is None:
            self.catalog.create(name, count)
        elif count > facts.partition_count:
            self.catalog.grow(name, count)
        else:
            self.catalog.delete(name)

    @rule()
    def hold_log(self) -> None:
        self.log.is_holding = True

    @rule()
    def release_log(self) -> None:
        self.log.is_holding = False
        self.log.release()

    @precondition(lambda self: self.log.held)
    @rule()
    def fail_log(self) -> None:
        self.log.fail()

    @precondition(lambda self: self.log.held)
    @rule()
    def release_first(self) -> None:
        records, done = self.log.held.popleft()
        self.log.durable.extend(records)
        done(None)

    @precondition(lambda self: self.log.held)
    @rule()
    def fail_first(self) -> None:
        from dragoman.broker.errors import CoordinatorNotAvailable

        self.log.held.popleft()[1](CoordinatorNotAvailable("the log refuses"))

    @rule()
    def restart(self) -> None:
        self.log.held.clear()
        now = self.time.now
        self.time = VirtualTime()
        self.time.now = now
        self.groups = self._replayed(self.time)
        for client in self.clients:
            client.forget_reply()

    def _replayed(self, time: VirtualTime) -> Groups:
        groups = self._new_groups(time)
        for each in self.log.durable:
            groups.load(each.key, each.value)
        groups.resume()
        return groups

    # ---- promises

    def _members(self, groups: Groups) -> dict[str, frozenset[tuple[bytes, int]]]:
        """Members by id, with what the coordinator takes them to have."""
        group = groups.get(GROUP)
        membership = None if group is None else group.membership
        if isinstance(membership, ConsumerGroup):
            return {member.member_id: member.holds for member in membership.roster}
        if isinstance(membership, ClassicGroup):
            return {each.member_id: frozenset() for each in membership.describe().members}
        return {}

    def _readable(self, client: ConsumerClient | ClassicClient) -> frozenset[tuple[bytes, int]]:
        """No member is assigned what is left of a deleted topic."""
        return client.owned & self.catalog.partitions(*TOPICS)

    def _is_consumer_group(self, groups: Groups) -> bool:
        return groups.consumer_group(GROUP) is not None

    @invariant()
    def no_partition_is_read_twice(self) -> None:
        members = self._members(self.groups)
        readers: dict[tuple[bytes, int], str] = {}
        for client in self.clients:
            if client.member_id not in members:
                continue
            for partition in client.owned:
                assert partition not in readers, (partition, readers[partition], client.name)
                readers[partition] = client.name

    @invariant()
    def members_have_no_more_than_the_coordinator_knows(self) -> None:
        if not self._is_consumer_group(self.groups):
            return
        members = self._members(self.groups)
        for client in self.clients:
            if client.member_id in members:
                assert self._readable(client) <= members[client.member_id], client.name

    @invariant()
    def what_was_told_is_durable(self) -> None:
        replayed = self._replayed(VirtualTime())
        if not self._is_consumer_group(replayed) or not self._is_consumer_group(self.groups):
            return
        group = replayed.consumer_group(GROUP)
        assert group is not None
        known = self._members(replayed)
        alive = self._members(self.groups)
        for client in self.clients:
            if not isinstance(client, ConsumerClient) or client.member_id not in alive:
                continue
            if client.epoch > 0:
                assert client.member_id in known, client.name
                assert self._readable(client) <= known[client.member_id], client.name
                assert group.epoch >= client.epoch

    @invariant()
    def replay_gives_the_same_group(self) -> None:
        group = self.groups.consumer_group(GROUP)
        if group is None or not group._unstored.is_empty:
            return
        replayed = self._replayed(VirtualTime()).consumer_group(GROUP)
        assert replayed is not None
        now, then = group.describe_members(), replayed.describe_members()
        by_id = {member.member_id: member for member in then.members}
        assert {member.member_id: member for member in now.members} == by_id
        assert (now.state, now.epoch, now.assignment_epoch, now.assignor) == (
            then.state,
            then.epoch,
            then.assignment_epoch,
            then.assignor,
        )

    @rule(indexes=st.lists(CLIENTS, min_size=2, max_size=6))
    def crowd_meets_a_failing_disk(self, indexes: list[int]) -> None:
        """Several writes on their way when the first of them fails and the others do not."""
        from dragoman.broker.errors import CoordinatorNotAvailable

        self.log.is_holding = True
        for index in indexes:
            self.clients[index].heartbeat(self.groups)
            self.clients[index].give_up()
        if self.log.held:
            self.log.held.popleft()[1](CoordinatorNotAvailable("the log refuses"))
        self.release_log()

    @invariant()
    def epochs_only_grow(self) -> None:
        for client in self.clients:
            if isinstance(client, ConsumerClient):
                self.told_epoch = max(self.told_epoch, client.epoch)
        group = self.groups.get(GROUP)
        if group is not None and group.membership is not None:
            assert group.membership.generation >= self.told_epoch

    # ---- once everybody gets on

    def teardown(self) -> None:
        self.release_log()
        for client in self.clients:
            client.forget_reply()
        self._get_on(rounds=30)
        self.no_partition_is_read_twice()
        self.members_have_no_more_than_the_coordinator_knows()
        running = [client for client in self.clients if client.is_running]
        group = self.groups.get(GROUP)
        if not running:
            assert group is None or group.owner is None
            return
        assert group is not None
        assert group.membership is not None
        assert group.membership.state is State.STABLE
        if self._is_consumer_group(self.groups):
            self._check_shares(running)
        before = {client.name: client.owned for client in running}
        self.restart()
        self._get_on(rounds=3)
        assert {client.name: client.owned for client in running} == before

    def _get_on(self, rounds: int) -> None:
        # A static client whose instance is taken waits for the other's end.
        for _ in range(rounds):
            self.time.advance(5)
            for client in self.clients:
                client.heartbeat(self.groups)
                client.give_up()

    def _check_shares(self, running: list[ConsumerClient | ClassicClient]) -> None:
        in_group = [client for client in running if client.member_id in self._members(self.groups)]
        waiting = [client for client in running if client not in in_group]
        assert all(getattr(client, "instance_id", None) for client in waiting)
        wanted: dict[tuple[bytes, int], list[str]] = {}
        for client in in_group:
            pattern = getattr(client, "pattern", None)
            names = pattern.split("|") if pattern else client.topics
            for partition in self.catalog.partitions(*names):
                wanted.setdefault(partition, []).append(client.name)
        had = [partition for client in in_group for partition in client.owned]
        assert sorted(had) == sorted(wanted)
        for client in in_group:
            assert all(client.name in wanted[partition] for partition in client.owned)
        if all(len(names) == len(in_group) for names in wanted.values()):
            counts = [len(client.owned) for client in in_group]
            assert max(counts) - min(counts) <= 1


TestConsumerGroupMachine = ConsumerGroupMachine.TestCase
TestConsumerGroupMachine.settings = settings(
    max_examples=300, stateful_step_count=60, deadline=None
)
