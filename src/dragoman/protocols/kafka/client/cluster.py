"""Addresses, leaders and coordinators of a cluster, from the metadata of its brokers.

Theory of operation. The bootstrap addresses are for the first request: a metadata reply names all
brokers, and from then on those are used, with the bootstrap addresses as the last resort. The
metadata of a topic is fetched when the topic is first used, and cached until it is old or until an
error shows that it is outdated: the retry loop calls `forget` for every error. Callers that meet
the same error at once share one metadata request.

`from_leaders` makes one call to the leaders of many partitions: each leader gets one request for
its partitions, concurrently. Partitions whose leader failed or refused are retried at the leader
that is known by then, until each has a result or the operation times out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec

from dragoman.client_core.addresses import Address
from dragoman.client_core.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    UnreachableError,
)
from dragoman.client_core.retry import Result, Retry, is_retriable
from dragoman.framing import Scratch
from dragoman.limits import (
    KAFKA_CLIENT_AUTO_CREATE_TRIES,
    KAFKA_CLIENT_COORDINATORS_MAX,
    KAFKA_CLIENT_TOPICS_MAX,
)
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.broker import Broker, ServedVersions
from dragoman.protocols.kafka.client.errors import (
    CoordinatorError,
    KafkaError,
    UnknownTopicError,
    UnsupportedRequestError,
    kafka_error,
)
from dragoman.protocols.kafka.client.values import (
    BrokerAddress,
    ClientSettings,
    ClusterInfo,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.world import Random

_BuildMetadata: TypeAlias = Callable[[int], m.MetadataRequest]
_Entry = TypeVar("_Entry")
_Key = TypeVar("_Key")
#: Key types of FindCoordinator.
GROUP_KEY, TRANSACTION_KEY = 0, 1


class Located(msgspec.Struct, frozen=True):
    """A partition's leader, and the fields that a request to it needs."""

    broker: Broker
    topic_id: bytes
    leader_epoch: int


class _Known(msgspec.Struct, frozen=True):
    topic: TopicInfo
    learnt_at: float


class Cluster:
    """Owned by one event loop."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: ClientSettings, random: Random
    ) -> None:
        self.settings = settings
        #: Calls `forget` for every error, which drops outdated metadata.
        self.retry = Retry(settings.retry_policy, random=random, on_failure=self.forget)
        self._random = random
        self._scratch = Scratch()
        self._bootstrap = [self._new_broker(address) for address in bootstrap]
        self._addresses: dict[int, BrokerAddress] = {}
        self._brokers: dict[Address, Broker] = {}
        self._controller_id = -1
        self._topics: dict[str, _Known] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._learning = asyncio.Lock()
        self._is_closed = False

    async def bootstrap(self) -> None:
        """Connect to a broker and fetch metadata. Raises `UnreachableError` after trying each
        address.
        """
        await self.metadata([])

    def close(self) -> None:
        self._is_closed = True
        for broker in (*self._bootstrap, *self._brokers.values()):
            broker.close(ClientClosedError("the client is closed"))

    # ---- metadata

    async def metadata(
        self, topics: Sequence[str] | None, *, auto_create: bool = False
    ) -> ClusterInfo:
        """Fetch metadata from the first broker that answers. None: all topics.

        Topics that do not exist are missing from the result. A topic's error is raised; if all
        topics were requested, the topic is left out instead.
        """
        wanted = None if topics is None else list(dict.fromkeys(topics))

        def build(version: int) -> m.MetadataRequest:
            if wanted is None:
                # Version 0 has no null list: an empty one means all topics.
                return m.MetadataRequest(topics=[] if version == 0 else None)
            if version == 0 and not wanted:
                raise UnsupportedRequestError("the broker is older than Kafka 0.10")
            named = [m.MetadataRequestTopic(name=name) for name in wanted]
            # Versions before 4 lack the flag and always allow the creation.
            flag = auto_create or version < 4
            return m.MetadataRequest(topics=named, allow_auto_topic_creation=flag)

        reply = await self._ask_any(build)
        if reply.error_code:
            raise kafka_error(reply.error_code)
        self._learn_brokers(reply)
        found = {}
        for topic in reply.topics:
            info = self._learn_topic(topic, is_asked_for=wanted is not None)
            if info is not None:
                found[info.name] = info
        return ClusterInfo(
            cluster_id=reply.cluster_id,
            controller_id=reply.controller_id,
            brokers=dict(self._addresses),
            topics=found,
        )

    def known_topic(self, name: str) -> TopicInfo | None:
        """The topic, if its metadata is cached and not too old."""
        known = self._topics.get(name)
        if known is None:
            return None
        age_s = asyncio.get_running_loop().time() - known.learnt_at
        return known.topic if age_s < self.settings.metadata_age_max_s else None

    async def topic(self, name: str, *, auto_create: bool = False) -> TopicInfo:
        """The topic, from the cache or a broker. Raises `UnknownTopicError`, not retriable."""
        known = self.known_topic(name)
        if known is not None:
            return known
        async with self._learning:
            # Another caller may have fetched it while this one waited.
            known = self.known_topic(name)
            if known is not None:
                return known
            tries = KAFKA_CLIENT_AUTO_CREATE_TRIES if auto_create else 1
            for failures in range(1, tries + 1):
                found = (await self.metadata([name], auto_create=auto_create)).topics.get(name)
                if found is not None:
                    return found
                if failures < tries:
                    await asyncio.sleep(self.retry.pause_s(failures))
        raise _no_topic(name)

    def forget(self, error: ClientError) -> None:
        """Drop the metadata that an error shows to be outdated. The next call fetches it again."""
        if isinstance(error, KafkaError):
            if error.topic is not None:
                self._topics.pop(error.topic, None)
            if error.group is not None:
                self._coordinators.pop((GROUP_KEY, error.group), None)
            elif isinstance(error, CoordinatorError):
                # A transaction's coordinator. A client has few, and looking them up again is cheap.
                self._coordinators.clear()
        if error.is_ambiguous or not isinstance(error, KafkaError):
            # The broker may be down, and its partitions may have other leaders.
            self._topics.clear()
            self._coordinators.clear()

    async def served(self) -> ServedVersions:
        """The versions of one of the brokers."""
        return await self._in_order()[0].served()

    # ---- leaders and coordinators

    async def leader(self, where: TopicPartition, *, auto_create: bool = False) -> Located:
        """Raises `UnknownTopicError`, and `LeadershipError` while there is no leader."""
        topic = await self.topic(where.topic, auto_create=auto_create)
        info = topic.partitions.get(where.partition)
        if info is None:
            count = len(topic.partitions)
            raise UnknownTopicError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no such partition; the topic has {count}",
                topic=where.topic,
                partition=where.partition,
                retriable=False,
            )
        if info.leader_id not in self._addresses:
            code = info.error_code or ErrorCode.LEADER_NOT_AVAILABLE
            raise kafka_error(code, topic=where.topic, partition=where.partition)
        return Located(self._node(info.leader_id), topic.topic_id, info.leader_epoch)

    async def coordinator(self, name: str, kind: int = GROUP_KEY) -> Broker:
        """The coordinator of a group or, with `TRANSACTION_KEY`, of a transactional id."""
        node_id = self._coordinators.get((kind, name))
        if node_id is None or node_id not in self._addresses:
            node_id = await self._find_coordinator(name, kind)
            _bound(self._coordinators, KAFKA_CLIENT_COORDINATORS_MAX)
            self._coordinators[kind, name] = node_id
        return self._node(node_id)

    async def controller(self) -> Broker:
        if not self._addresses:
            await self.metadata([])
        if self._controller_id in self._addresses:
            return self._node(self._controller_id)
        return self._node(min(self._addresses))

    async def all_brokers(self) -> list[Broker]:
        await self.metadata([])
        return [self._node(node_id) for node_id in sorted(self._addresses)]

    async def broker(self, node_id: int) -> Broker:
        if node_id not in self._addresses:
            await self.metadata([])
        if node_id not in self._addresses:
            raise kafka_error(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {node_id}")
        return self._node(node_id)

    async def _find_coordinator(self, name: str, kind: int) -> int:
        group = name if kind == GROUP_KEY else None

        def build(version: int) -> m.FindCoordinatorRequest:
            if version >= 4:
                return m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
            if version == 0 and kind != GROUP_KEY:
                raise UnsupportedRequestError("the broker is older than Kafka 0.11")
            return m.FindCoordinatorRequest(key=name, key_type=kind)

        brokers = self._in_order()
        reply = await brokers[0].ask(m.FindCoordinatorResponse, build)
        found = reply.coordinators[0] if reply.coordinators else reply
        if found.error_code:
            raise kafka_error(found.error_code, found.error_message, group=group)
        if found.node_id not in self._addresses:
            await self.metadata([])
        if found.node_id not in self._addresses:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, group=group)
        return found.node_id

    # ---- connections

    def _in_order(self) -> list[Broker]:
        """All known brokers: connected ones first, the bootstrap addresses last."""
        if self._is_closed:
            raise ClientClosedError("the client is closed")
        known = [self._node(node_id) for node_id in self._addresses]
        self._random.shuffle(known)
        known.sort(key=lambda broker: not broker.is_connected)
        return [*known, *self._bootstrap]

    async def _ask_any(self, build: _BuildMetadata) -> m.MetadataResponse:
        failures: list[ClientError] = []
        for broker in self._in_order():
            try:
                return await broker.ask(m.MetadataResponse, build)
            except ClientClosedError:
                raise
            except ClientError as error:
                if not error.retriable:
                    raise
                failures.append(error)
        texts = dict.fromkeys(str(failure) for failure in failures)
        raise UnreachableError("; ".join(texts) or "no broker is known")

    def _node(self, node_id: int) -> Broker:
        known = self._addresses[node_id]
        address = Address(known.host, known.port)
        broker = self._brokers.get(address)
        if broker is None:
            broker = self._brokers[address] = self._new_broker(address)
        return broker

    def _new_broker(self, address: Address) -> Broker:
        return Broker(address, self.settings, self._scratch, self._random)

    def _learn_brokers(self, reply: m.MetadataResponse) -> None:
        self._controller_id = reply.controller_id
        if not reply.brokers:
            return
        self._addresses = {
            each.node_id: BrokerAddress(each.node_id, each.host, each.port, each.rack)
            for each in reply.brokers
        }
        kept = {Address(each.host, each.port) for each in self._addresses.values()}
        for address in self._brokers.keys() - kept:
            gone = self._brokers.pop(address)
            # Callers get a retriable error, and their retries find the new leader.
            gone.close(ConnectionLostError(f"{gone.address} has left the cluster"))

    def _learn_topic(
        self, topic: m.MetadataResponseTopic, *, is_asked_for: bool
    ) -> TopicInfo | None:
        assert topic.name is not None, "only topics that are requested by id may lack a name"
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._topics.pop(topic.name, None)
            return None
        if topic.error_code:
            if is_asked_for:
                raise kafka_error(topic.error_code, topic=topic.name)
            return None
        info = TopicInfo(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions={each.partition_index: _partition(each) for each in topic.partitions},
        )
        self._topics.pop(topic.name, None)
        _bound(self._topics, KAFKA_CLIENT_TOPICS_MAX)
        self._topics[topic.name] = _Known(info, asyncio.get_running_loop().time())
        return info


class Calls:
    """Base class of groups of calls to the brokers of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster


def _partition(reply: m.MetadataResponsePartition) -> PartitionInfo:
    return PartitionInfo(
        partition=reply.partition_index,
        leader_id=reply.leader_id,
        leader_epoch=reply.leader_epoch,
        replicas=tuple(reply.replica_nodes),
        in_sync=tuple(reply.isr_nodes),
        offline=tuple(reply.offline_replicas),
        error_code=reply.error_code,
    )


def _no_topic(name: str) -> UnknownTopicError:
    return UnknownTopicError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "there is no such topic",
        topic=name,
        retriable=False,
    )


def _bound(cache: dict[_Key, _Entry], count_max: int) -> None:
    """Make room for one more entry."""
    while len(cache) >= count_max:
        del cache[next(iter(cache))]


Wanted = TypeVar("Wanted")


class Part(msgspec.Struct, Generic[Wanted], frozen=True):
    """The request about one partition, and the fields that a request to its leader needs."""

    wanted: Wanted
    topic_id: bytes
    leader_epoch: int


Outcome: TypeAlias = Result | KafkaError
AskLeader: TypeAlias = Callable[
    [Broker, Mapping[TopicPartition, Part[Wanted]]],
    Awaitable[Mapping[TopicPartition, Outcome[Result]]],
]


async def from_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, Wanted],
    ask: AskLeader[Wanted, Result],
    *,
    may_retry: Callable[[ClientError], bool] = is_retriable,
) -> dict[TopicPartition, Result]:
    """Call every leader for its partitions, concurrently, until each partition has a result.

    `ask` receives the partitions of one leader and returns a result or an error for each. Raises
    the first error that is not retriable, and drops the results of the other partitions.
    """
    results: dict[TopicPartition, Result] = {}

    async def attempt() -> None:
        missing = {where: each for where, each in wanted.items() if where not in results}
        for outcome in await asyncio.gather(
            *(ask(broker, parts) for broker, parts in (await _by_leader(cluster, missing)).items()),
            return_exceptions=True,
        ):
            if isinstance(outcome, BaseException):
                failed.append(outcome)
                continue
            for where, each in outcome.items():
                if isinstance(each, KafkaError):
                    failed.append(each)
                else:
                    results[where] = each
        _raise_worst(failed, cluster)

    failed: list[BaseException] = []
    await cluster.retry.call(attempt, may_retry=may_retry)
    assert results.keys() == wanted.keys()
    return results


def _raise_worst(failed: list[BaseException], cluster: Cluster) -> None:
    """Raise one of the errors, preferably one that is not retriable."""
    errors, failed[:] = list(failed), []
    for error in errors:
        if not isinstance(error, ClientError):
            raise error
        cluster.forget(error)
    errors.sort(key=lambda error: getattr(error, "retriable", False))
    if errors:
        raise errors[0]


async def _by_leader(
    cluster: Cluster, wanted: Mapping[TopicPartition, Wanted]
) -> dict[Broker, dict[TopicPartition, Part[Wanted]]]:
    groups: dict[Broker, dict[TopicPartition, Part[Wanted]]] = {}
    for where, each in wanted.items():
        located: Located = await cluster.leader(where)
        part = Part(each, located.topic_id, located.leader_epoch)
        groups.setdefault(located.broker, {})[where] = part
    return groups
