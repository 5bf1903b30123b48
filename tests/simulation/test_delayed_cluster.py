"""Goal: in a cluster whose nodes die, a deferred record is delivered exactly once and not early.

Method: three whole nodes in simulation, with replication as it is. The one that keeps the records
dies between the decision and the append, or between the append and the note that it is done; the
one that leads the target dies; and any of them at seeded moments. In the end, with all of them
back, the target is read. The mutants show that the runs would notice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from unittest import mock

import pytest

from dragoman.broker.broker import Broker
from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.delayed import DELAYED_TOPIC, Token
from dragoman.broker.delayed.targets import Targets
from dragoman.broker.topics import NewTopic
from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.log.batch import Record, build_batch
from dragoman.outcome import attempt, start
from dragoman.testing.sim.background import SyncDelays
from dragoman.testing.sim.loop import SimWorld
from dragoman.testing.sim.node import SimNode
from worlds.delayed_records import LABELS, never, record_of

TOPIC = "out"
#: One partition for each node to lead first.
PARTITIONS = 3
_DELAYS = SyncDelays(usual_seconds_max=0.005, slow_seconds_max=0.2, slow_rate=0.01)


@pytest.fixture(autouse=True)
def _one_keeper() -> Iterator[None]:
    logger = logging.getLogger("dragoman")
    before, logger.disabled = logger.disabled, True
    with mock.patch("dragoman.broker.delayed.store.DELAYED_PARTITIONS", 1):
        yield
    logger.disabled = before


def _settings(node_id: int) -> Settings:
    listeners = tuple(
        Listener(name=name, bind=Address(f"n{node_id}", port))
        for name, port in (("kafka", 9092), ("peer", 9190))
    )
    return Settings(
        node_id=node_id,
        listeners=listeners,
        cluster=tuple(f"{each}@n{each}:9190" for each in (1, 2, 3)),
        replica_lag_time_max_ms=1500,
        held_record_check_max=1_000_000,
    )


class _Sent:
    """A record, and what its client knows of it."""

    def __init__(self, value: bytes, partition: int, due_ms: int) -> None:
        self.value = value
        self.partition = partition
        #: 0: held.
        self.due_ms = due_ms
        self.token: Token | None = None
        self.is_wanted = due_ms > 0
        self.is_drop = False
        self.is_certain = False

    def taken(self, outcome: Token | DragomanError) -> None:
        if isinstance(outcome, Token):
            self.token, self.is_certain = outcome, self.is_wanted

    def decided(self, error: DragomanError | None) -> None:
        self.is_certain = error is None


class Cluster:
    def __init__(self, seed: int) -> None:
        self.world = SimWorld(seed)
        self.random = self.world.random
        self.nodes = {
            each: SimNode(self.world, f"n{each}", _settings(each), sync_delays=_DELAYS)
            for each in (1, 2, 3)
        }
        self.sent: list[_Sent] = []
        self.deaths = 0
        for node in self.nodes.values():
            node.begin()
        self._wait(lambda: len(self._ready()) == len(self.nodes))
        self._create()
        self._wait(lambda: all(self.leader(TOPIC, each) > 0 for each in range(PARTITIONS)))

    def _create(self) -> None:
        """A node that has just come may not know the others, or who leads, yet: it asks again."""
        assignment = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
        new = NewTopic(name=TOPIC, assignment=assignment, config={"min.insync.replicas": "2"})
        broker = self.broker(1)

        def attempt(_error: DragomanError | None = None) -> None:
            if TOPIC not in broker.image.topics:
                broker.scheduler.call_later(
                    0.2, lambda: start(broker.topics.create(new)).then(attempt)
                )

        attempt()
        self._wait(lambda: all(TOPIC in self.broker(each).image.topics for each in self.nodes))

    def _wait(self, is_done: Callable[[], bool], seconds: float = 60) -> None:
        assert self.world.run_until(is_done, seconds)

    def _ready(self) -> list[int]:
        return [
            number
            for number, each in self.nodes.items()
            if each.node is not None and each.node.broker.is_ready
        ]

    def broker(self, number: int) -> Broker:
        node = self.nodes[number].node
        assert node is not None
        return node.broker

    def run(self, broker: Broker, action: Callable[[Broker], None]) -> None:
        broker.scheduler.call_soon(action, broker)

    def leader(self, topic: str, index: int = 0) -> int:
        found = self.broker(self._ready()[0]).image.topics.get(topic)
        return -1 if found is None else found.partitions[index].leader

    def advance(self, seconds: float) -> None:
        self.world.run_until(lambda: False, seconds)
        for node in self.nodes.values():
            assert node.loop is None or not node.loop.failures, node.loop.failures

    # ---- faults

    def kill(self, number: int, *, is_power_cut: bool = False, back_s: float = 3.0) -> None:
        """It comes back by itself."""
        node = self.nodes[number]
        if not node.is_running:
            return
        assert node.loop is not None
        assert not node.loop.failures, node.loop.failures
        (node.cut_power if is_power_cut else node.kill)()
        self.deaths += 1
        self.world.after(back_s, lambda: None if node.is_running else _begin(node))

    def fault(self) -> None:
        """A node that matters dies, if all others are well."""
        if len(self._ready()) < len(self.nodes):
            return
        places = [(DELAYED_TOPIC, 0), *((TOPIC, each) for each in range(PARTITIONS))]
        victim = self.leader(*self.random.choice(places))
        if victim > 0:
            self.kill(
                victim,
                is_power_cut=self.random.random() < 0.5,
                back_s=self.random.choice((0.5, 3.0, 15.0)),
            )

    # ---- clients

    def delay(self, seconds: float, partition: int, number: int) -> None:
        broker = self.broker(number)
        due_ms = broker.clock.wall_ms() + int(seconds * 1000)
        sent = self._new(partition, due_ms)
        self.run(
            broker,
            lambda broker: start(
                broker.delayed.delay(TOPIC, partition, record_of(sent.value), due_ms, NODE_ITSELF)
            ).then(sent.taken),
        )

    def hold(self, partition: int, number: int) -> None:
        sent = self._new(partition, 0)
        self.run(
            self.broker(number),
            lambda broker: start(
                broker.delayed.hold(
                    TOPIC, partition, record_of(sent.value), dict(LABELS), None, NODE_ITSELF
                )
            ).then(sent.taken),
        )

    def decide(self, number: int) -> None:
        open_ = [
            each
            for each in self.sent
            if each.token is not None and not each.is_wanted and not each.is_drop
        ]
        if not open_:
            return
        sent = self.random.choice(open_)
        sent.is_drop = self.random.random() < 0.4
        sent.is_wanted = not sent.is_drop
        token = sent.token
        assert token is not None

        def decide(broker: Broker) -> None:
            delayed = broker.delayed
            decide = delayed.drop if sent.is_drop else delayed.release
            start(decide(token, LABELS, NODE_ITSELF)).then(sent.decided)

        self.run(self.broker(number), decide)

    def _new(self, partition: int, due_ms: int) -> _Sent:
        sent = _Sent(b"%d" % len(self.sent), partition, due_ms)
        self.sent.append(sent)
        return sent

    def act(self) -> None:
        number, partition = self.random.choice(self._ready()), self.random.randrange(PARTITIONS)
        match self.random.choice(("delay", "delay", "hold", "decide")):
            case "delay":
                self.delay(self.random.choice((0.2, 1.0, 4.0)), partition, number)
            case "hold":
                self.hold(partition, number)
            case _:
                self.decide(number)

    # ---- the end

    def finish(self) -> None:
        """Everybody is back, and has had time for all that is due."""
        self._wait(lambda: len(self._ready()) == len(self.nodes))
        self.advance(15)
        for partition in range(PARTITIONS):
            self._check(partition)

    def _check(self, partition: int) -> None:
        log = self.broker(self.leader(TOPIC, partition)).partitions.find(TOPIC, partition).log
        found: dict[bytes, Record] = {}
        for record in log.iterate(0, log.high_watermark):
            assert record.value is not None
            assert record.value not in found, f"{record.value!r} is there twice"
            found[record.value] = record
        for sent in self.sent:
            if sent.value in found:
                assert sent.partition == partition
                assert sent.is_wanted, f"{sent.value!r} was not released"
                assert found[sent.value].timestamp >= sent.due_ms, f"{sent.value!r} is early"
            elif sent.partition == partition:
                assert sent.is_drop or not sent.is_certain, f"{sent.value!r} is lost"


def _begin(node: SimNode) -> None:
    node.begin()


# ---- at the worst moments


class _Moment:
    """Has something done when a batch is to be delivered for the first time."""

    def __init__(self, cluster: Cluster, when: str, is_power_cut: bool) -> None:
        self._cluster = cluster
        self._when = when
        self._is_power_cut = is_power_cut
        self.is_over = False

    async def deliver(self, targets: Targets, target_id: int, batch: bytearray) -> None:
        if self.is_over:
            await _deliver(targets, target_id, batch)
            return
        self.is_over = True
        context = targets._context
        if self._when == "keeper dies before the append":
            self._kill(context.node_id)
            await never()
        elif self._when == "keeper dies after the append":
            await attempt(_deliver(targets, target_id, batch))
            self._kill(context.node_id)
            await never()
        else:
            delivering = start(_deliver(targets, target_id, batch))
            self._kill(context.image.partitions[target_id].leader)
            await delivering

    def _kill(self, number: int) -> None:
        # Not from its own turn.
        kill = self._cluster.kill
        self._cluster.world.after(0, lambda: kill(number, is_power_cut=self._is_power_cut))


def _through(moment: _Moment) -> Callable[..., Coroutine[object, None, None]]:
    return lambda *each: moment.deliver(*each)


def _run_moment(seed: int, when: str, is_power_cut: bool) -> None:
    cluster = Cluster(seed)
    moment = _Moment(cluster, when, is_power_cut)
    with mock.patch.object(Targets, "deliver", _through(moment)):
        for number in (1, 2, 3):
            cluster.delay(1.0, seed % PARTITIONS, number)
        cluster.advance(0.8)
        assert all(each.is_certain for each in cluster.sent)
        cluster.advance(10)
    assert moment.is_over
    assert cluster.deaths == 1
    cluster.finish()


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize(
    "when",
    ["keeper dies before the append", "keeper dies after the append", "target's leader dies"],
)
def test_a_node_that_dies_at_the_worst_moment(when: str, is_power_cut: bool) -> None:
    for seed in (1, 2):
        _run_moment(seed, when, is_power_cut)


# ---- at any moment


def _run(seed: int) -> Cluster:
    cluster = Cluster(seed)
    for _ in range(12):
        for _ in range(8):
            cluster.act()
            cluster.advance(cluster.random.choice((0.0, 0.05, 0.3)))
        if cluster.random.random() < 0.7:
            cluster.fault()
        cluster.advance(cluster.random.choice((0.1, 1.0, 4.0)))
    cluster.finish()
    return cluster


def test_nodes_that_die_at_any_moment() -> None:
    runs = [_run(seed) for seed in range(6)]
    assert sum(each.deaths for each in runs) > 15
    assert sum(each.is_certain for run in runs for each in run.sent) > 200


# ---- mutants


def _without_producer(found: Sequence[Record], **_: int) -> bytearray:
    return build_batch(found)


async def _done_before_delivered(self: Targets, target_id: int, batch: bytearray) -> None:
    """It is done whether the target has it or not."""
    start(_deliver(self, target_id, batch))


_deliver = Targets.deliver


def test_without_a_sequence_records_are_doubled() -> None:
    build = mock.patch("dragoman.broker.delayed.delivery.build_batch", _without_producer)
    with build, pytest.raises(AssertionError, match="twice"):
        _run_moment(1, "keeper dies after the append", True)


def test_removed_before_they_are_appended_records_are_lost() -> None:
    deliver = mock.patch.object(Targets, "deliver", _done_before_delivered)
    with deliver, pytest.raises(AssertionError, match="lost"):
        # The first one shows it.
        _run_seeds(5, 20)


def _run_seeds(first: int, count: int) -> None:
    for seed in range(first, first + count):
        _run(seed)
