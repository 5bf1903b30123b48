"""Records that wait for their time, on a simulated world: short ways to delay, hold and decide.

`DelayedScenario` plays clients of a node whose power goes, and readers who must see each record
once, not early, in order; and what was dropped, or only held, never.
"""

from __future__ import annotations

from random import Random
from unittest import mock

import msgspec

from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.delayed import Content, Token
from dragoman.broker.errors import UnknownDelayedRecord
from dragoman.broker.topics import NewTopic
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.log.batch import Record
from dragoman.outcome import Outcome, start
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.scheduler import SimScheduler
from worlds.broker import World, values_in

TOPIC = "out"
#: Fewer internal partitions than by default: each costs operations of the disk.
SETTINGS = Settings(transaction_state_log_num_partitions=1, offsets_topic_num_partitions=1)
LABELS = {"owner": "me"}
#: No retry gives up while the power fails again and again.
SCENARIO_SETTINGS = msgspec.structs.replace(SETTINGS, held_record_check_max=1_000_000)


async def never(*_: object) -> None:
    """Stands for work that does not end."""
    await Outcome[None]()


class Told:
    """Records the result passed to a callback."""

    def __init__(self) -> None:
        self.calls: list[Token | Content | DragomanError | None] = []

    def __call__(self, outcome: Token | Content | DragomanError | None) -> None:
        self.calls.append(outcome)

    @property
    def outcome(self) -> Token | Content | DragomanError | None:
        (found,) = self.calls
        return found

    @property
    def token(self) -> Token:
        assert isinstance(self.outcome, Token), self.outcome
        return self.outcome


def record_of(value: bytes) -> Record:
    return Record(key=b"k", value=value, headers=(("h", b"1"),), timestamp=5)


def delay(
    world: World, value: bytes, due_ms: int, partition: int = 0, *, settle: bool = True
) -> Told:
    told = Told()
    start(world.broker.delayed.delay(TOPIC, partition, record_of(value), due_ms, NODE_ITSELF)).then(
        told
    )
    if settle:
        world.settle()
    return told


def hold(
    world: World, value: bytes, partition: int = 0, *, check_after_ms: int | None = None
) -> Told:
    told = Told()
    start(
        world.broker.delayed.hold(
            TOPIC, partition, record_of(value), dict(LABELS), check_after_ms, NODE_ITSELF
        )
    ).then(told)
    world.settle()
    return told


def release(world: World, token: Token, labels: dict[str, str] = LABELS) -> DragomanError | None:
    return _decided(world, token, labels, is_release=True)


def drop(world: World, token: Token, labels: dict[str, str] = LABELS) -> DragomanError | None:
    return _decided(world, token, labels, is_release=False)


def _decided(
    world: World, token: Token, labels: dict[str, str], *, is_release: bool
) -> DragomanError | None:
    told: list[DragomanError | None] = []
    delayed = world.broker.delayed
    decide = delayed.release if is_release else delayed.drop
    start(decide(token, labels, NODE_ITSELF)).then(told.append)
    world.settle()
    (outcome,) = told
    return outcome


def delivered(world: World, partition: int = 0, topic: str = TOPIC) -> list[bytes]:
    """Every record that a reader of the topic can see."""
    log = world.broker.partitions.find(topic, partition).log
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        result = log.read(offset, 1 << 20, log.high_watermark)
        found += [value for value in values_in(result.buffers) if value is not None]
        offset = result.next_offset
    return found


class _Sent:
    """One record that was deferred or held, and what is known of it."""

    def __init__(self, value: bytes, partition: int, due_ms: int | None) -> None:
        self.value = value
        self.partition = partition
        #: None: undecided.
        self.due_ms = due_ms
        self.token: Token | None = None
        #: Whether it was said, and whether it was heard, that it is to be delivered, or dropped.
        self.is_wanted = due_ms is not None
        self.is_certain = False
        self.is_drop = False

    # Noted at once: the power may go before the call returns.

    def taken(self, outcome: Token | DragomanError) -> None:
        assert isinstance(outcome, Token), outcome
        self.token, self.is_certain = outcome, self.is_wanted

    def decided(self, error: DragomanError | None) -> None:
        # What was decided before the power went may be done by now.
        assert error is None or isinstance(error, UnknownDelayedRecord), error
        self.is_certain = True


class DelayedScenario:
    """Records wait, are released and dropped while the power goes: each appears once or never."""

    def __init__(self) -> None:
        self.world: World
        self.random: Random
        self.sent: dict[bytes, _Sent] = {}
        self._now_s = 0.0
        self._seen: dict[int, int] = {}

    def start(self, disk: SimDisk, random: Random) -> None:
        self.random = random
        self._boot(disk)

    def _boot(self, disk: SimDisk) -> None:
        scheduler = SimScheduler()
        scheduler.advance(self._now_s)
        with mock.patch("dragoman.broker.delayed.store.DELAYED_PARTITIONS", 1):
            self.world = World(SCENARIO_SETTINGS, disk=disk, scheduler=scheduler)
        answers: list[DragomanError | None] = []
        start(self.world.broker.topics.ensure(NewTopic(name=TOPIC, partition_count=2))).then(
            answers.append
        )
        self.world.settle()
        assert answers == [None]

    def step(self) -> None:
        action = self.random.choice((self._delay_some, self._delay_some, self._hold, self._decide))
        action()
        self._pass(self.random.choice((0.0, 0.3, 1.0)))
        self._check()

    def verify_after_crash(self, disk: SimDisk) -> None:
        """What was certain before has happened, or happens, when all times are over."""
        self._boot(disk)
        self._check()
        self._pass(5.0)
        found = self._check()
        for sent in self.sent.values():
            if sent.is_certain:
                assert (sent.value in found) is not sent.is_drop, (sent.value, found)

    def _pass(self, seconds: float) -> None:
        """In steps, so that what is early is seen."""
        for _ in range(int(seconds * 10)):
            self._now_s += 0.1
            self.world.advance(0.1)
            self._check_times()

    # ---- what clients do

    def _new(self, due_ms: int | None) -> _Sent:
        value = b"%d" % len(self.sent)
        sent = self.sent[value] = _Sent(value, self.random.randrange(2), due_ms)
        return sent

    def _delay_some(self) -> None:
        # Whole seconds: many are due at the same time.
        second = self.world.clock.wall_ms() // 1000 + self.random.randint(1, 3)
        for _ in range(self.random.randint(1, 4)):
            sent = self._new(second * 1000)
            delayed, record = self.world.broker.delayed, record_of(sent.value)
            start(delayed.delay(TOPIC, sent.partition, record, second * 1000, NODE_ITSELF)).then(
                sent.taken
            )
        self.world.settle()

    def _hold(self) -> None:
        sent = self._new(None)
        delayed, record = self.world.broker.delayed, record_of(sent.value)
        start(delayed.hold(TOPIC, sent.partition, record, dict(LABELS), None, NODE_ITSELF)).then(
            sent.taken
        )
        self.world.settle()

    def _decide(self) -> None:
        held = [
            each
            for each in self.sent.values()
            if each.token is not None and each.due_ms is None and not each.is_certain
        ]
        if not held:
            return
        sent = self.random.choice(held)
        if not sent.is_wanted:
            # Who has decided once sticks to it.
            sent.is_wanted, sent.is_drop = True, self.random.random() < 0.5
        assert sent.token is not None
        delayed = self.world.broker.delayed
        decide = delayed.drop if sent.is_drop else delayed.release
        start(decide(sent.token, LABELS, NODE_ITSELF)).then(sent.decided)
        self.world.settle()

    # ---- what readers see

    def _check_times(self) -> None:
        """Of what is new since the last look."""
        now_ms = self.world.clock.wall_ms()
        for partition in range(2):
            log = self.world.broker.partitions.find(TOPIC, partition).log
            if self._seen.get(partition) == log.high_watermark:
                continue
            self._seen[partition] = log.high_watermark
            for value in delivered(self.world, partition):
                assert (self.sent[value].due_ms or 0) <= now_ms, (value, "is early")

    def _check(self) -> set[bytes]:
        self._check_times()
        found: set[bytes] = set()
        for partition in range(2):
            values = delivered(self.world, partition)
            assert len(set(values)) == len(values), values
            found.update(values)
            by_time: dict[int, list[int]] = {}
            for value in values:
                sent = self.sent[value]
                assert sent.partition == partition, value
                assert sent.is_wanted, (value, "was only held")
                assert not sent.is_drop, (value, "was dropped")
                if sent.due_ms is not None:
                    by_time.setdefault(sent.due_ms, []).append(int(value))
            for numbers in by_time.values():
                assert numbers == sorted(numbers), numbers
        return found
