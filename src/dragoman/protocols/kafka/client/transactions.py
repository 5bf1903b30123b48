"""Transactions: records in many partitions of which read-committed readers see all or none.

    initialise ──► write… ──► commit | abort ──► write… ──► …
        ▲             │            │
        └── an error ─┴────────────┘

The first write begins a transaction. After an error of `write` or `commit` the state of the
transaction is unknown. `initialise` resolves it: when it returns, the transaction is committed or
aborted, readers see the outcome, and the next one may begin. It sends the producer's previous id
and epoch (KIP-360), so that a producer whose transactional id was taken over gets
`ProducerFencedError`, and never takes the id back.

The protocol has two generations. From level 2 of `transaction.version` on (KIP-890), a write adds
its partition to the transaction, and each transaction has its own epoch. At lower levels partitions
are added first, and requests use versions of the first generation.

One write is in flight at a time: a request to each leader, with a batch for each partition. The
producer buffers only the batches of that write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from dragoman.client_core.errors import ClientError
from dragoman.log.batch import TRANSACTIONAL, Record, build_batch
from dragoman.log.compression import Codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.broker import Broker
from dragoman.protocols.kafka.client.cluster import TRANSACTION_KEY, Cluster, Part, from_leaders
from dragoman.protocols.kafka.client.errors import (
    KafkaError,
    RecordRefusedError,
    kafka_error,
    raise_first,
)
from dragoman.protocols.kafka.client.produce import (
    ProduceOptions,
    produce_request,
    read_outcome,
    unanswered,
)
from dragoman.protocols.kafka.client.values import Produced, ProducerIdentity, TopicPartition
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.types import Buffer

_SEQUENCE_MASK: Final = 0x7FFFFFFF
#: Level of the feature from which a write adds its partition to the transaction.
_IMPLICIT_LEVEL: Final = 2
#: Newest versions of the first generation.
_EXPLICIT_PRODUCE: Final = 11
_EXPLICIT_END: Final = 4
_FIRST_INIT_WITH_IDENTITY: Final = 3

#: Builds a partition's batch from the producer id, the producer epoch and the first sequence
#: number.
BuildBatch: TypeAlias = Callable[[int, int, int], Buffer]


class TransactionOptions(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: str
    #: The broker aborts a transaction that has been open for longer.
    transaction_timeout_ms: int = 60_000
    #: How long a leader may wait for other replicas.
    produce_timeout_ms: int = 30_000
    codec: Codec = Codec.NONE


class Batch(msgspec.Struct, frozen=True):
    """Records for one partition; encoded once the producer's identity is known."""

    count: int
    build: BuildBatch


class TransactionalProducer:
    """Made by `KafkaClient.transactional_producer`. Owned by one event loop and one task."""

    def __init__(self, cluster: Cluster, options: TransactionOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._produce_options = ProduceOptions(
            timeout_ms=options.produce_timeout_ms, transactional_id=options.transactional_id
        )
        self._identity: ProducerIdentity | None = None
        self._is_implicit = False
        #: Whether `initialise` must be called next.
        self._is_broken = True
        self._sequences: dict[TopicPartition, int] = {}
        self._enrolled: set[TopicPartition] = set()
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether records were written since the last commit or abort."""
        return self._is_open

    async def initialise(self) -> None:
        """End the open transaction, and fence every other producer with this transactional id.

        Raises `ProducerFencedError` when another producer has fenced this one.
        """
        current = self._identity

        async def attempt() -> ProducerIdentity:
            broker = await self._coordinator()
            self._is_implicit = (await broker.served()).level(
                "transaction.version"
            ) >= _IMPLICIT_LEVEL
            reply = await broker.ask(
                m.InitProducerIdResponse, lambda version: self._init_request(version, current)
            )
            if reply.error_code:
                raise kafka_error(reply.error_code)
            return ProducerIdentity(reply.producer_id, reply.producer_epoch)

        self._become(await self._cluster.retry.call(attempt))
        self._is_broken = False

    async def write(self, batches: Mapping[TopicPartition, Batch]) -> None:
        """Write one batch to each partition; returns when all are acknowledged.

        A batch must not be larger than the topic allows. Raises `KafkaError` and connection errors,
        after retrying retriable ones. After an error, only `initialise` may be called.
        """
        identity = self._usable()
        self._is_broken = True
        self._is_open = True
        if not self._is_implicit:
            await self._enrol(identity, batches.keys() - self._enrolled)
        data = {
            where: batch.build(
                identity.producer_id, identity.producer_epoch, self._sequences.get(where, 0)
            )
            for where, batch in batches.items()
        }
        await from_leaders(self._cluster, data, self._ask_leader, may_retry=_may_retry)
        for where, batch in batches.items():
            following = self._sequences.get(where, 0) + batch.count
            self._sequences[where] = following & _SEQUENCE_MASK
        self._is_broken = False

    async def write_records(self, records: Mapping[TopicPartition, Sequence[Record]]) -> None:
        """Like `write`, for records that are not encoded yet."""
        await self.write({where: self.batch(each) for where, each in records.items()})

    def batch(self, records: Sequence[Record], codec: Codec | None = None) -> Batch:
        """Build a batch. `codec` replaces the producer's."""

        def build(producer_id: int, producer_epoch: int, base_sequence: int) -> Buffer:
            return build_batch(
                records,
                codec=self._options.codec if codec is None else codec,
                attributes=TRANSACTIONAL,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
            )

        return Batch(len(records), build)

    async def commit(self) -> None:
        """Returns when the commit is durable; readers see the records a moment later.

        Raises the same errors as `write`. The outcome is then unknown until `initialise` resolves
        it.
        """
        await self._end(is_commit=True)

    async def abort(self) -> None:
        await self._end(is_commit=False)

    # ---- identity

    def _usable(self) -> ProducerIdentity:
        assert not self._is_broken, "initialise first"
        assert self._identity is not None
        return self._identity

    def _become(self, identity: ProducerIdentity) -> None:
        if identity != self._identity:
            self._identity = identity
            self._sequences.clear()
        self._enrolled.clear()
        self._is_open = False

    def _init_request(
        self, version: int, current: ProducerIdentity | None
    ) -> m.InitProducerIdRequest:
        request = m.InitProducerIdRequest(
            transactional_id=self._options.transactional_id,
            transaction_timeout_ms=self._options.transaction_timeout_ms,
        )
        if current is None or version < _FIRST_INIT_WITH_IDENTITY:
            return request
        return msgspec.structs.replace(
            request, producer_id=current.producer_id, producer_epoch=current.producer_epoch
        )

    # ---- requests

    async def _coordinator(self) -> Broker:
        return await self._cluster.coordinator(self._options.transactional_id, TRANSACTION_KEY)

    async def _enrol(self, identity: ProducerIdentity, new: set[TopicPartition]) -> None:
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(new):
            topics.setdefault(topic, []).append(partition)
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._options.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[
                m.AddPartitionsToTxnRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

        async def attempt() -> None:
            broker = await self._coordinator()
            reply = await broker.ask(m.AddPartitionsToTxnResponse, request)
            raise_first(
                # Partitions that were not attempted because of another one have no error of their
                # own.
                kafka_error(part.partition_error_code, topic=topic.name)
                for topic in reply.results_by_topic_v3_and_below
                for part in topic.results_by_partition
                if part.partition_error_code
                and part.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED
            )

        await self._cluster.retry.call(attempt)
        self._enrolled |= new

    async def _ask_leader(
        self, broker: Broker, parts: Mapping[TopicPartition, Part[Buffer]]
    ) -> Mapping[TopicPartition, Produced | KafkaError]:
        options = self._produce_options
        reply = await broker.ask(
            m.ProduceResponse,
            produce_request(parts, options),
            wait_s=options.timeout_ms / 1000,
            with_topic_ids=all(part.topic_id != m.NO_ID for part in parts.values()),
            newest=None if self._is_implicit else _EXPLICIT_PRODUCE,
        )
        names = {part.topic_id: where.topic for where, part in parts.items()}
        outcomes: dict[TopicPartition, Produced | KafkaError] = {
            where: unanswered(where) for where in parts
        }
        for topic in reply.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for each in topic.partition_responses:
                where = TopicPartition(name, each.index)
                if where in parts:
                    outcomes[where] = read_outcome(where, each)
        return outcomes

    async def _end(self, *, is_commit: bool) -> None:
        identity = self._usable()
        if not self._is_open:
            return
        self._is_broken = True

        async def attempt() -> m.EndTxnResponse:
            broker = await self._coordinator()
            reply = await broker.ask(
                m.EndTxnResponse,
                m.EndTxnRequest(
                    transactional_id=self._options.transactional_id,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    committed=is_commit,
                ),
                newest=None if self._is_implicit else _EXPLICIT_END,
            )
            if reply.error_code:
                raise kafka_error(reply.error_code)
            return reply

        reply = await self._cluster.retry.call(attempt)
        has_next = self._is_implicit and reply.producer_id >= 0
        self._become(
            ProducerIdentity(reply.producer_id, reply.producer_epoch) if has_next else identity
        )
        self._is_broken = False


def _may_retry(error: ClientError) -> bool:
    # The same bytes would be refused again.
    return error.retriable and not isinstance(error, RecordRefusedError)
