"""Writers, attempts and drivers of the publishing core, on a simulated world.

`stage` is what a task attempt does, `publish` the driver's one call. `PublishingScenario` plays a
query that is killed: it knows what every batch holds, runs batches again that were not
acknowledged, as Spark does, and compares the topics with what they must hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from unittest import mock

from dragoman.broker.staged_writes import (
    STAGING_TOPIC,
    Destination,
    Piece,
    Publication,
    StagingPlace,
)
from dragoman.broker.topics import NewTopic
from dragoman.checksum import crc32c
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.log.partition import Appended
from dragoman.outcome import Outcome, start
from dragoman.testing.sim.disk import SimDisk
from worlds.broker import World, batch_of, values_in

TOPIC = "out"
PARTITIONS = 2
#: Fewer internal partitions than by default: each costs operations of the disk.
SETTINGS = Settings(transaction_state_log_num_partitions=1, offsets_topic_num_partitions=1)


@contextmanager
def small_slices(size: int = 400) -> Iterator[None]:
    """Copying takes several slices even for a few records, and there is one staging partition."""
    with ExitStack() as stack:
        package = "dragoman.broker.staged_writes"
        stack.enter_context(mock.patch(f"{package}.destinations.PUBLISH_SLICE_BYTES", size))
        stack.enter_context(mock.patch(f"{package}.staging_topic.STAGING_PARTITIONS", 1))
        yield


async def never(*_: object) -> None:
    """Stands for work that does not end."""
    await Outcome[None]()


def opened(world: World) -> StagingPlace:
    opening = start(world.broker.staged_writes.staging_topic.open())
    world.settle()
    return opening.result()


def stage(world: World, *batches: Sequence[bytes], place: StagingPlace | None = None) -> Piece:
    """Stage batches of values, as one attempt that nothing comes between."""
    place = place if place is not None else opened(world)
    replica = world.broker.partitions.find(STAGING_TOPIC, place.partition)
    sequence = checksum = 0
    appended: list[Appended] = []
    for values in batches:
        batch = batch_of(
            *values,
            timestamp=world.clock.wall_ms(),
            producer_id=place.producer_id,
            producer_epoch=place.epoch,
            base_sequence=sequence,
        )
        checksum = crc32c(batch[17:21], checksum)
        appended.append(world.append(replica, batch))
        sequence += len(values)
    return Piece(
        place.partition, appended[0].base_offset, appended[-1].next_offset, sequence, checksum
    )


def publication(
    batch_id: int,
    *destinations: Destination,
    writer: str = "writer",
    query: str = "query",
    is_single: bool = False,
) -> Publication:
    return Publication(
        writer_id=writer,
        query_id=query,
        batch_id=batch_id,
        is_single=is_single,
        destinations=destinations,
    )


class Published:
    """Remembers what a publisher replied."""

    def __init__(self) -> None:
        self.answers: list[bool | DragomanError] = []

    def __call__(self, outcome: bool | DragomanError) -> None:
        self.answers.append(outcome)

    @property
    def outcome(self) -> bool | DragomanError:
        (answer,) = self.answers
        return answer


def publish(world: World, request: Publication) -> bool | DragomanError:
    reply = Published()
    start(world.broker.staged_writes.publisher.publish(request)).then(reply)
    world.settle()
    return reply.outcome


def values_of(world: World, topic: str = TOPIC, partition: int = 0) -> list[bytes | None]:
    """Every record that a reader of uncommitted records can see."""
    log = world.broker.partitions.find(topic, partition).log
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        result = log.read(offset, 1 << 20, log.high_watermark)
        found += values_in(result.buffers)
        offset = result.next_offset
    return found


class PublishingScenario:
    """One query that writes batches 0, 1, 2, … and must not lose, double or reorder a record."""

    def __init__(self) -> None:
        self.world: World
        self.random: Random
        #: What each batch holds, by partition, as batches of values. Fixed when it is first tried.
        self.batches: list[list[list[list[bytes]]]] = []
        #: Batches that the driver knows to be published.
        self.acknowledged = 0
        self.told_before = 0
        self._attempts = 0

    def start(self, disk: SimDisk, random: Random) -> None:
        self.random = random
        self._boot(disk)

    def _boot(self, disk: SimDisk) -> None:
        self.world = World(SETTINGS, disk=disk)
        answers: list[DragomanError | None] = []
        new = NewTopic(name=TOPIC, partition_count=PARTITIONS)
        start(self.world.broker.topics.ensure(new)).then(answers.append)
        self.world.settle()
        assert answers == [None]

    def step(self) -> None:
        """Try the next batch; now and then the driver dies somewhere on the way."""
        dies = self.random.choice(("never", "never", "before", "after"))
        destinations = self._stage_batch(self.acknowledged)
        if dies == "before":
            return
        outcome = publish(self.world, publication(self.acknowledged, *destinations))
        assert isinstance(outcome, bool), outcome
        self.told_before += outcome
        if dies != "after":
            self.acknowledged += 1
        self.world.advance(1.5)
        self._check()

    def verify_after_crash(self, disk: SimDisk) -> None:
        self._boot(disk)
        self._check()
        destinations = self._stage_batch(self.acknowledged)
        outcome = publish(self.world, publication(self.acknowledged, *destinations))
        assert isinstance(outcome, bool), outcome
        self.acknowledged += 1
        self._check()

    def _stage_batch(self, batch_id: int) -> list[Destination]:
        """New attempts stage the batch; a loser and a twin stage too, and are not named."""
        if batch_id == len(self.batches):
            self.batches.append([self._contents(batch_id, each) for each in range(PARTITIONS)])
        self._attempts += 1
        loser = [f"loser {batch_id}.{self._attempts}".encode()] * 2
        destinations = []
        for partition, contents in enumerate(self.batches[batch_id]):
            if self.random.random() < 0.5:
                stage(self.world, loser)
            middle = self.random.randint(0, len(contents))
            parts = [part for part in (contents[:middle], contents[middle:]) if part]
            pieces = tuple(stage(self.world, *part) for part in parts)
            destinations.append(Destination(TOPIC, partition, pieces))
        return destinations

    def _contents(self, batch_id: int, partition: int) -> list[list[bytes]]:
        counts = [self.random.randint(1, 3) for _ in range(self.random.randint(1, 4))]
        return [
            [b"%d/%d/%d/%d" % (batch_id, partition, at, each) for each in range(count)]
            for at, count in enumerate(counts)
        ]

    def _check(self) -> None:
        """Each partition holds the acknowledged batches, in order, once; perhaps one more."""
        for partition in range(PARTITIONS):
            found = values_of(self.world, TOPIC, partition)
            contents = [
                [value for values in batch[partition] for value in values] for batch in self.batches
            ]
            surely = [value for batch in contents[: self.acknowledged] for value in batch]
            possibly = [value for batch in contents[: self.acknowledged + 1] for value in batch]
            assert found[: len(surely)] == surely, (partition, found, surely)
            rest = found[len(surely) :]
            # After a restart a decided batch is published unasked: all or nothing.
            assert not rest or found == possibly, (partition, found, possibly)
