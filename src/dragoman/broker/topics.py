"""Creating, changing and deleting topics: checks first, then events for the metadata quorum.

Checks are made against the image (`changes.py`); while a change of a topic is under way, a second
one of the same topic is refused, so what was checked still holds when the event is applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

import msgspec

from dragoman.broker.administration import Actor, config_changes, recorded
from dragoman.broker.changes import Changes
from dragoman.broker.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicName,
    Overloaded,
    TooManyPartitions,
    TopicDeletionDisabled,
    TopicExists,
    UnknownTopic,
)
from dragoman.broker.keyed_lock import KeyedLock
from dragoman.cluster.events import (
    Event,
    PartitionPlacement,
    PartitionsAdded,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from dragoman.cluster.metadata import MetadataImage, TopicMetadata
from dragoman.config.overrides import TopicConfig, validate_topic_config
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError, DragomanError
from dragoman.limits import TOPIC_NAME_BYTES_MAX, TOPIC_PARTITIONS_MAX
from dragoman.outcome import Outcome, attempt, ignore, start
from dragoman.plural import plural
from dragoman.security.audit import AuditLog
from dragoman.world import Clock, Random

#: Returns the new overrides for the current ones.
AlterConfig: TypeAlias = Callable[[Mapping[str, str]], dict[str, str]]
#: Stands for the node's default.
DEFAULT = -1
#: The default number of replicas in a cluster with at least as many nodes.
_REPLICAS = 3


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    #: Replicas of each partition, instead of a count and a factor.
    assignment: tuple[tuple[int, ...], ...] = ()
    config: dict[str, str] = {}
    is_internal: bool = False
    #: The first leader of all partitions, for protocols whose clients find a whole topic in one
    #: place; `DEFAULT`: the partitions are spread.
    led_by: int = DEFAULT


class Reservation(NamedTuple):
    """A topic that only the broker itself creates."""

    #: Builds the topic when a client first uses it. None: clients cannot trigger its creation.
    template: Callable[[], NewTopic] | None = None
    #: Prefix of the transactional ids that may write to the topic. Empty: clients cannot write to
    #: it.
    writers: str = ""


class Topics:
    def __init__(
        self,
        image: MetadataImage,
        changes: Changes,
        settings: Settings,
        clock: Clock,
        random: Random,
        audit: AuditLog,
    ) -> None:
        self._image = image
        self._changes = changes
        self._settings = settings
        self._clock = clock
        self._random = random
        self._audit = audit
        self._changing: set[str] = set()
        self._reserved: dict[str, Reservation] = {}
        #: Requests that wait for a topic that is being created on first use.
        self._ensuring: dict[str, list[Outcome[None]]] = {}
        #: The lowest partition id that no pending change of this node uses.
        self._next_partition_id = 0
        #: Replicas that pending changes add to each node: by topic, and in total.
        self._promised: dict[str, Counter[int]] = {}
        self._promised_in_all: Counter[int] = Counter()
        #: Serializes changes of configurations that build on the current one.
        self._lock = KeyedLock()
        #: Called with the name of each topic that this node has created for a client.
        self.on_created: Callable[[str], None] = _ignore

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed settings."""
        self._settings = settings

    def reserve(
        self, name: str, *, template: Callable[[], NewTopic] | None = None, writers: str = ""
    ) -> None:
        """Let only the broker create the topic of this name; see `Reservation`."""
        self._reserved[name] = Reservation(template, writers)

    def accepts_transaction(self, name: str, transactional_id: str | None) -> bool:
        """Whether a client with this transactional id may write to an internal topic."""
        reserved = self._reserved.get(name)
        if reserved is None or not reserved.writers or transactional_id is None:
            return False
        return transactional_id.startswith(reserved.writers)

    # ---- create

    def check_new(self, new: NewTopic) -> tuple[tuple[int, ...], ...]:
        """The replicas of each partition of a new topic. Raises `BrokerError`."""
        check_name(new.name)
        if new.name in self._reserved and not new.is_internal:
            raise InvalidTopicName(f"{new.name!r} is a topic that only the broker creates")
        if new.name in self._image.topics:
            raise TopicExists(f"topic {new.name!r} exists already")
        _check_config(new.config)
        if new.assignment:
            placed = self._check_assignment(new)
        else:
            count = self.count_of(new)
            _check_count(count)
            placed = self._place(count, new.replication_factor, new.led_by)
        if not new.is_internal:
            self._check_room(placed)
        return placed

    def count_of(self, new: NewTopic) -> int:
        """The partition count of a new topic, not validated."""
        if new.assignment:
            return len(new.assignment)
        count = new.partition_count
        return self._settings.num_partitions if count == DEFAULT else count

    def check_request(self, count: int) -> None:
        """Raises `TooManyPartitions` for a request that would create this many, over all topics."""
        most = self._settings.max_partitions_per_request
        if count > most:
            raise TooManyPartitions(
                f"{plural(count, 'partition')} in one request; "
                f"`max.partitions.per.request` is {most}"
            )

    def _check_room(self, placed: Sequence[tuple[int, ...]]) -> None:
        self.check_request(len(placed))
        most = self._settings.max_partitions_per_node
        added = _replicas_by_node(placed)
        for node, count in added.items():
            held = self._image.replica_counts[node] + self._promised_in_all[node]
            if held + count > most:
                raise TooManyPartitions(
                    f"node {node} has {plural(held, 'replica')} and would get {count} more; "
                    f"`max.partitions.per.node` is {most}"
                )

    def _place(self, count: int, factor: int, led_by: int = DEFAULT) -> tuple[tuple[int, ...], ...]:
        nodes = self._nodes_by_rack()
        if factor == DEFAULT:
            factor = self.default_factor(len(nodes))
        if factor > len(nodes) and self._settings.replication_factor_lenient:
            factor = len(nodes)
        if not 1 <= factor <= len(nodes):
            raise InvalidReplicationFactor(
                f"replication factor {factor} with {plural(len(nodes), 'node')}; "
                "`--set replication.factor.lenient=true` accepts it"
            )
        if led_by in nodes:
            first = nodes.index(led_by)
            others = nodes[first + 1 :] + nodes[:first]
            return tuple(
                (led_by, *(others[(index + copy) % len(others)] for copy in range(factor - 1)))
                for index in range(count)
            )
        start = self._random.randrange(len(nodes)) if len(nodes) > 1 else 0
        return tuple(
            tuple(nodes[(start + index + copy) % len(nodes)] for copy in range(factor))
            for index in range(count)
        )

    def default_factor(self, nodes: int) -> int:
        """Replicas of a topic that is created without a number, by the settings and the nodes."""
        return self._settings.default_replication_factor or self.factor_of_nodes(nodes)

    @staticmethod
    def factor_of_nodes(nodes: int) -> int:
        """The number of replicas when the settings give none."""
        return min(_REPLICAS, nodes)

    def _nodes_by_rack(self) -> list[int]:
        """All nodes, ordered so that consecutive ones are in different racks where possible."""
        racks: dict[str, list[int]] = {}
        for node in sorted(self._image.nodes):
            known = self._image.registrations.get(node)
            racks.setdefault(known.rack if known is not None else "", []).append(node)
        rows = zip_longest(*(racks[name] for name in sorted(racks)))
        return [node for row in rows for node in row if node is not None]

    def _check_assignment(self, new: NewTopic) -> tuple[tuple[int, ...], ...]:
        if new.partition_count != DEFAULT or new.replication_factor != DEFAULT:
            raise InvalidReplicaAssignment("an assignment excludes partition count and factor")
        _check_count(len(new.assignment))
        for replicas in new.assignment:
            are_known = all(node in self._image.nodes for node in replicas)
            if not replicas or len(set(replicas)) != len(replicas) or not are_known:
                raise InvalidReplicaAssignment(f"{list(replicas)} is not a list of live nodes")
        return new.assignment

    def _promise(self, name: str, placed: Sequence[tuple[int, ...]]) -> None:
        """Count replicas until the change that adds them is complete."""
        self._forget_promise(name)
        self._promised[name] = _replicas_by_node(placed)
        self._promised_in_all.update(self._promised[name])

    def _forget_promise(self, name: str) -> None:
        self._promised_in_all.subtract(self._promised.pop(name, None) or ())

    def _recorded(
        self, action: str, actor: Actor | None, name: str, details: Sequence[str] = ("",)
    ) -> AbstractContextManager[None]:
        """Without an actor, the change is the broker's own, and no act of administration."""
        if actor is None:
            return nullcontext()
        return recorded(self._audit, action, actor, f"topic:{name}", details)

    async def create(self, new: NewTopic, actor: Actor | None = None) -> None:
        """Returns when the topic is durable and usable."""

        def decide() -> Event:
            # The change may be decided again, on another image.
            self._forget_promise(new.name)
            assignment = self.check_new(new)
            self._promise(new.name, assignment)
            return TopicCreated(
                name=new.name,
                topic_id=self._new_topic_id(),
                partitions=self._placements(assignment),
                config=new.config,
                is_internal=new.is_internal,
                created_ms=self._clock.wall_ms(),
            )

        details = [plural(self.count_of(new), "partition"), *config_changes({}, new.config)]
        with self._recorded("topic.create", actor, new.name, details):
            await self._change(new.name, decide)
        if not new.is_internal:
            self.on_created(new.name)

    async def ensure(self, new: NewTopic) -> None:
        """Create the topic unless it exists; concurrent requests share one creation.

        A topic with a template is created from its template.
        """
        if new.name in self._image.topics:
            return
        reserved = self._reserved.get(new.name)
        if reserved is not None and reserved.template is not None:
            new = reserved.template()
        waiting = self._ensuring.setdefault(new.name, [])
        created: Outcome[None] = Outcome()
        waiting.append(created)
        if len(waiting) == 1:
            start(self._create_for(new, waiting)).then(ignore)
        await created

    async def _create_for(self, new: NewTopic, waiting: list[Outcome[None]]) -> None:
        """Waiters resume in the order of their calls, including the first, which started the
        creation.
        """
        created = await attempt(self.create(new))
        if new.name in self._image.topics:
            # Another node may have created it first.
            created = None
        del self._ensuring[new.name]
        for each in waiting:
            each.acknowledge(created)

    def _placements(self, assignment: Sequence[tuple[int, ...]]) -> tuple[PartitionPlacement, ...]:
        first = max(self._next_partition_id, self._image.next_partition_id)
        self._next_partition_id = first + len(assignment)
        return tuple(
            PartitionPlacement(first + index, replicas) for index, replicas in enumerate(assignment)
        )

    def _new_topic_id(self) -> bytes:
        while True:
            topic_id = self._random.getrandbits(128).to_bytes(16, "big")
            # The all-zero id means "none" on the wire.
            if any(topic_id) and topic_id not in self._image.topics_by_id:
                return topic_id

    # ---- change and delete

    async def delete(self, name: str, actor: Actor | None = None) -> None:
        def decide() -> Event:
            topic = self._existing(name)
            if not self._settings.delete_topic_enable:
                raise TopicDeletionDisabled("delete.topic.enable is false")
            return TopicDeleted(topic_id=topic.topic_id)

        with self._recorded("topic.delete", actor, name):
            await self._change(name, decide)

    async def add_partitions(
        self,
        name: str,
        total: int,
        assignment: tuple[tuple[int, ...], ...],
        actor: Actor | None = None,
    ) -> None:
        """Extend the topic to `total` partitions; existing ones stay unchanged."""

        def decide() -> Event:
            self._forget_promise(name)
            topic = self._existing(name)
            added = self.check_added(topic, total, assignment)
            self._promise(name, added)
            placements = self._placements(added)
            return PartitionsAdded(topic_id=topic.topic_id, partitions=placements)

        with self._recorded("topic.extend", actor, name, [plural(total, "partition")]):
            await self._change(name, decide)

    def check_added(
        self, topic: TopicMetadata, total: int, assignment: tuple[tuple[int, ...], ...]
    ) -> tuple[tuple[int, ...], ...]:
        added = total - len(topic.partitions)
        if added <= 0 or total > TOPIC_PARTITIONS_MAX:
            raise InvalidPartitions(
                f"topic {topic.name!r} has {plural(len(topic.partitions), 'partition')}; "
                f"{total} requested"
            )
        if assignment:
            if len(assignment) != added:
                lists = plural(len(assignment), "list")
                raise InvalidReplicaAssignment(f"{lists} for {plural(added, 'partition')}")
            placed = self._check_assignment(NewTopic(name=topic.name, assignment=assignment))
        else:
            placed = self._place(added, len(topic.partitions[0].replicas))
        self._check_room(placed)
        return placed

    async def change_config(
        self, name: str, config: dict[str, str], actor: Actor | None = None
    ) -> None:
        """Replace all overrides of the topic."""
        details: list[str] = []

        def decide() -> Event:
            topic = self._existing(name)
            _check_config(config)
            details[:] = config_changes(topic.config, config)
            return TopicConfigChanged(topic_id=topic.topic_id, config=config)

        with self._recorded("topic.config", actor, name, details):
            await self._change(name, decide)

    async def alter_config(self, name: str, alter: AlterConfig, actor: Actor | None = None) -> None:
        """Change the topic's overrides, based on those when the queued change runs. `alter` may
        raise `BrokerError`.
        """
        details: list[str] = []

        def decide() -> Event:
            config = self.check_altered(name, alter)
            topic = self._existing(name)
            details[:] = config_changes(topic.config, config)
            return TopicConfigChanged(topic_id=topic.topic_id, config=config)

        async with self._lock.take(name):
            with self._recorded("topic.config", actor, name, details):
                await self._change(name, decide)

    def check_altered(self, name: str, alter: AlterConfig) -> dict[str, str]:
        """The resulting overrides of the topic. Raises `BrokerError`."""
        config = alter(self._existing(name).config)
        _check_config(config)
        return config

    # ---- shared

    def config_of(self, topic: TopicMetadata) -> TopicConfig:
        return TopicConfig.build(self._settings, topic.config)

    def _existing(self, name: str) -> TopicMetadata:
        topic = self._image.topics.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return topic

    async def _change(self, name: str, decide: Callable[[], Event]) -> None:
        """Make one change of a topic at a time; `decide` raises `BrokerError`."""
        if name in self._changing:
            promised = self._promised.get(name)
            refusal = self._refusal(name, decide)
            self._forget_promise(name)
            if promised is not None:
                self._promised[name] = promised
                self._promised_in_all.update(promised)
            raise refusal
        self._changing.add(name)
        try:
            await self._changes.make(lambda: [decide()])
        finally:
            self._changing.discard(name)
            self._forget_promise(name)

    def _refusal(self, name: str, decide: Callable[[], Event]) -> DragomanError:
        """An invalid change is reported as such, rather than as concurrent with another."""
        try:
            decide()
        except DragomanError as error:
            return error.with_traceback(None)
        return Overloaded(f"topic {name!r} is being changed already")


def _ignore(_name: str) -> None:
    """The default of callbacks."""


def _replicas_by_node(placed: Sequence[tuple[int, ...]]) -> Counter[int]:
    return Counter(node for replicas in placed for node in replicas)


def _check_config(config: Mapping[str, str]) -> None:
    try:
        validate_topic_config(config)
    except ConfigError as error:
        raise InvalidConfig(str(error)) from None


def _check_count(count: int) -> None:
    if not 1 <= count <= TOPIC_PARTITIONS_MAX:
        raise InvalidPartitions(f"{count} partitions; 1 to {TOPIC_PARTITIONS_MAX}")


def check_name(name: str) -> None:
    """Apply the core's rule; a protocol may be stricter (`InvalidTopicName`)."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidTopicName("a topic name must be Unicode text") from None
    if not 1 <= size <= TOPIC_NAME_BYTES_MAX:
        raise InvalidTopicName(f"a topic name has 1 to {TOPIC_NAME_BYTES_MAX} bytes, not {size}")
    if name in (".", "..") or "\x00" in name:
        raise InvalidTopicName(f"{name!r} is not a topic name")
