"""Scenarios: what is proposed where and what happens to nodes, as values; and the play of one.

A scenario says nothing about how nodes agree. `play` drives a `Stage`, which does, and returns what
was answered and what became of the metadata. Clients are as real ones: they ask any node, go where
they are sent, and after an answer that leaves it open they look whether their change has happened.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import Protocol, TypeAlias

import msgspec

from dragoman.cluster.codec import encode_image
from dragoman.cluster.events import (
    ClientQuotaChanged,
    ClusterCreated,
    Event,
    FeatureLevelChanged,
    GroupConfigChanged,
    LeaderChanged,
    NodeConfigChanged,
    NodeRegistered,
    PartitionPlacement,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import (
    DragomanError,
    LogStoppedError,
    NotControllerError,
    OutcomeUnknownError,
    VersionConflictError,
)

NODES = (1, 2, 3)


# ---- steps


class Proposal(msgspec.Struct, frozen=True):
    #: The node that the client asks first.
    at: int
    events: tuple[Event, ...]
    #: Which version the client says that the metadata has, counted from what it has at the
    #: beginning of the step; None: it does not say.
    expected: int | None = None


class Propose(msgspec.Struct, frozen=True):
    """All at once, in this order."""

    proposals: tuple[Proposal, ...]


class Depose(msgspec.Struct, frozen=True):
    """The leader goes while a change is under way, and comes back when there is another."""

    #: Without a word, or after giving back what it holds.
    is_crash: bool
    proposal: Proposal


class Restart(msgspec.Struct, frozen=True):
    node: int


class Leave(msgspec.Struct, frozen=True):
    """The node is away until it returns."""

    node: int


class Return(msgspec.Struct, frozen=True):
    node: int


Step: TypeAlias = Propose | Depose | Restart | Leave | Return


class History(msgspec.Struct, frozen=True):
    """What is compared."""

    outcomes: tuple[str, ...]
    events: tuple[Event, ...]
    image: str


def digest(image: MetadataImage, version: int) -> str:
    return hashlib.sha256(encode_image(image, version)).hexdigest()


# ---- playing


class Stage(Protocol):
    """Nodes that agree somehow."""

    async def lead(self) -> int:
        """The version of the node that leads, once one does and has everything."""
        ...

    def propose(self, proposal: Proposal, expected: int | None) -> Pending: ...

    async def settle(self, pending: list[Pending]) -> None:
        """Until these are answered."""
        ...

    async def depose(self, *, is_crash: bool) -> None: ...

    async def leave(self, node: int) -> None: ...

    async def come_back(self, node: int) -> None: ...

    async def end(self) -> tuple[tuple[Event, ...], set[str]]:
        """All events in order, as the nodes applied them, and the digests of their images."""
        ...


class Pending:
    """A proposal that waits for its outcome."""

    def __init__(self) -> None:
        self.outcomes: list[DragomanError | None] = []

    def __call__(self, error: DragomanError | None) -> None:
        self.outcomes.append(error)

    @property
    def is_known(self) -> bool:
        return bool(self.outcomes)

    @property
    def error(self) -> DragomanError | None:
        [only] = self.outcomes
        return only


async def play(steps: list[Step], stage: Stage) -> History:
    outcomes: list[str] = []
    for step in steps:
        version = await stage.lead()
        match step:
            case Propose():
                pending = [
                    stage.propose(each, None if each.expected is None else version + each.expected)
                    for each in step.proposals
                ]
                await stage.settle(pending)
                outcomes += [_name(each.error) for each in pending]
            case Depose():
                outcomes.append(await _through(step, stage, version))
            case Restart():
                await stage.leave(step.node)
                await stage.come_back(step.node)
            case Leave():
                await stage.leave(step.node)
            case Return():
                await stage.come_back(step.node)
    await stage.lead()
    events, images = await stage.end()
    assert len(images) == 1, "nodes differ"
    return History(tuple(outcomes), events, images.pop())


async def _through(step: Depose, stage: Stage, version: int) -> str:
    """A change that has to happen once although the leader goes."""
    pending = stage.propose(step.proposal, version)
    await stage.depose(is_crash=step.is_crash)
    await stage.settle([pending])
    while pending.error is not None:
        assert isinstance(
            pending.error, OutcomeUnknownError | NotControllerError | LogStoppedError
        ), pending.error
        now = await stage.lead()
        if now != version:
            assert now == version + len(step.proposal.events)
            assert not isinstance(pending.error, NotControllerError), "refused, and happened"
            break
        pending = stage.propose(step.proposal, version)
        await stage.settle([pending])
    return "agreed"


def _name(error: DragomanError | None) -> str:
    if error is None:
        return "agreed"
    assert isinstance(error, VersionConflictError), error
    return "conflict"


class Model:
    """What ought to come of a scenario, without any agreement at all."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.events: list[Event] = []
        self.outcomes: list[str] = []

    def take(self, step: Step) -> None:
        match step:
            case Propose():
                version = len(self.events)
                for each in step.proposals:
                    self._propose(each, version)
            case Depose():
                self._propose(msgspec.structs.replace(step.proposal, expected=0), len(self.events))

    def _propose(self, proposal: Proposal, version: int) -> None:
        if proposal.expected is not None and version + proposal.expected != len(self.events):
            self.outcomes.append("conflict")
            return
        self.outcomes.append("agreed")
        for event in proposal.events:
            self.image.apply(event)
            self.events.append(event)

    def history(self) -> History:
        image = digest(self.image, len(self.events))
        return History(tuple(self.outcomes), tuple(self.events), image)


# ---- random scenarios


def draw(seed: int, steps: int = 25) -> list[Step]:
    """Steps that any metadata quorum must take alike. Events always fit the image they come to."""
    random = Random(seed)
    model = Model()
    drawn: list[Step] = []
    away: int | None = None
    for number in range(steps):
        choice = random.random()
        step: Step
        if choice < 0.7:
            step = Propose(_proposals(random, model, number))
        elif choice < 0.8 and away is None:
            away = random.choice(NODES)
            step = Leave(away)
        elif choice < 0.88 and away is not None:
            step, away = Return(away), None
        elif choice < 0.95 and away is None:
            step = Restart(random.choice(NODES))
        elif away is None:
            proposal = Proposal(random.choice(NODES), _events(random, model.image, number))
            step = Depose(random.random() < 0.5, proposal)
        else:
            step = Propose(_proposals(random, model, number))
        model.take(step)
        drawn.append(step)
    if away is not None:
        drawn.append(Return(away))
    return drawn


def _proposals(random: Random, model: Model, number: int) -> tuple[Proposal, ...]:
    """Some that conflict with each other or with what there is already."""
    made: list[Proposal] = []
    # Played on a copy, so that the later ones fit what the earlier ones leave.
    trial = Model()
    for event in model.events:
        trial.image.apply(event)
    version = 0
    for part in range(random.choice((1, 1, 1, 2, 2, 5))):
        events = _events(random, trial.image, number * 10 + part)
        expected = random.choice((None, version, version, 0, -1, 1))
        made.append(Proposal(random.choice(NODES), events, expected))
        if expected is None or expected == version:
            version += len(events)
            for event in events:
                trial.image.apply(event)
    return tuple(made)


def _events(random: Random, image: MetadataImage, number: int) -> tuple[Event, ...]:
    """A few that need nothing of each other."""
    return tuple(
        _event(random, image, f"{number}-{part}", 100 * number + part)
        for part in range(random.choice((1, 1, 2, 3)))
    )[: 1 if image.topics and random.random() < 0.5 else 3]


def _event(random: Random, image: MetadataImage, name: str, number: int) -> Event:
    config = {"retention.ms": str(number)}
    kinds: list[Event] = [
        ClusterCreated(cluster_id=name),
        TopicCreated(
            name=f"topic-{name}",
            topic_id=name.encode(),
            partitions=_placements(random, 10 * number + 1),
            config=config,
        ),
        ProducerIdsReserved(next_id=number),
        NodeRegistered(node_id=random.choice(NODES), incarnation=number),
        NodeConfigChanged(node_id=random.choice((-1, *NODES)), config=config),
        GroupConfigChanged(group_id=f"g{number % 3}", config=random.choice((config, {}))),
        ClientQuotaChanged(
            entity=(("user", random.choice(("a", "b", None))),),
            quotas=random.choice(({"producer_byte_rate": float(number)}, {})),
        ),
        FeatureLevelChanged(feature=f"f{number % 3}", level=number),
    ]
    # What needs a topic needs one that no other event of the same proposal deletes.
    if image.topics and name.endswith("-0"):
        topic = random.choice(list(image.topics.values()))
        partition = random.choice(topic.partitions)
        kinds += [
            TopicDeleted(topic_id=topic.topic_id),
            TopicConfigChanged(topic_id=topic.topic_id, config=config),
            PartitionsAdded(
                topic_id=topic.topic_id, partitions=_placements(random, 10 * number + 5)
            ),
            LeaderChanged(
                partition_id=partition.partition_id,
                leader=random.choice(NODES),
                leader_epoch=partition.leader_epoch + random.choice((0, 1)),
                in_sync=NODES,
                partition_epoch=partition.partition_epoch + 1,
            ),
        ]
    return random.choice(kinds)


def _placements(random: Random, first: int) -> tuple[PartitionPlacement, ...]:
    count = random.choice((1, 2, 3))
    return tuple(PartitionPlacement(first + n, tuple(NODES)) for n in range(count))
