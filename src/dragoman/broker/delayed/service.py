"""Delayed and held records as protocols use them, on any node.

The leader of the internal partition that stores a record serves it (`store`). Other nodes send it
requests; it appends due records through the leader of their target (`targets`).
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence

from dragoman.broker.context import NodeContext
from dragoman.broker.delayed.held_records import Check, GiveUp
from dragoman.broker.delayed.records import TOPIC
from dragoman.broker.delayed.state import Content, Target, Token
from dragoman.broker.delayed.store import DecideDelayed, DelayRecord, ReadDelayed, RecordStore
from dragoman.broker.delayed.targets import Targets
from dragoman.broker.errors import CoordinatorNotAvailable, NotLeader, RequestTimedOut
from dragoman.broker.partitions import Partitions
from dragoman.broker.produce import check_produced
from dragoman.broker.topics import Topics
from dragoman.broker.transactions import ProducerIds
from dragoman.errors import ClusterError, NotSentError
from dragoman.log.batch import Record, build_batch, records
from dragoman.rpc import A, Coordinator, Leader, Registry, Reply, Request, Rpc, Where
from dragoman.security.access import Caller
from dragoman.types import Buffer


class DelayedRecords:
    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        topics: Topics,
        producer_ids: ProducerIds,
        rpc: Rpc,
    ) -> None:
        self._context = context
        self._rpc = rpc
        self.targets = Targets(context, partitions, rpc)
        self.store = RecordStore(context, partitions, topics, producer_ids, self.targets)

    def serve(self, registry: Registry) -> None:
        self.store.serve(registry)
        self.targets.serve(registry)

    @property
    def on_check(self) -> list[Check]:
        """Called on the node that stores a held record, when its owner has not decided in time."""
        return self.store.held_records.on_check

    @property
    def on_given_up(self) -> list[GiveUp]:
        """Called before a held record is dropped for lack of a decision."""
        return self.store.held_records.on_given_up

    def delay(
        self,
        topic: str,
        partition: int,
        record: Record,
        due_ms: int,
        caller: Caller,
    ) -> Coroutine[object, None, Token]:
        """Append the record to the partition at `due_ms` or soon after, exactly once. The right of
        the caller to write is checked now, and not when the record is due.

        Returns when that is certain. Records for one partition that are due in the same millisecond
        keep their order. In the log they have the time of their delivery.
        """
        request = DelayRecord(topic=topic, partition=partition, when_ms=due_ms, caller=caller)
        return self._delay(request, record)

    def hold(
        self,
        topic: str,
        partition: int,
        record: Record,
        labels: dict[str, str],
        check_after_ms: int | None,
        caller: Caller,
    ) -> Coroutine[object, None, Token]:
        """Hold the record until `release` or `drop`. `on_check` is called from `check_after_ms` on,
        by default after the time in the settings.
        """
        if check_after_ms is None:
            check_after_ms = self._context.settings.held_record_check_after_ms
        request = DelayRecord(
            topic=topic,
            partition=partition,
            when_ms=self._context.clock.wall_ms() + check_after_ms,
            is_held=True,
            labels=labels,
            caller=caller,
        )
        return self._delay(request, record)

    async def release(self, token: Token, expected_labels: dict[str, str], caller: Caller) -> None:
        """Deliver a held record. Returns when its delivery is certain.

        Raises `UnknownDelayedRecord` and `LabelsDiffer`, and `NotAuthorized` for a caller that may
        not write to the record's topic. Repeating a decision is no error while it
        is remembered.
        """
        await self._decide(token, expected_labels, caller, is_release=True)

    async def drop(self, token: Token, expected_labels: dict[str, str], caller: Caller) -> None:
        """Drop a held record, or a delayed one that is not due yet. Otherwise like `release`."""
        await self._decide(token, expected_labels, caller, is_release=False)

    async def read(self, token: Token) -> Content:
        """A delayed or held record. Raises `UnknownDelayedRecord` once it is gone."""
        request = ReadDelayed(partition_id=token.partition_id, offset=token.offset)
        reply = await self._ask(request, self._home(token))
        (record,) = records(reply.body, check_produced(reply.body))
        found = reply.answer
        return Content(Target(found.topic, found.partition), record, found.labels)

    def _delay(self, request: DelayRecord, record: Record) -> Coroutine[object, None, Token]:
        name = Target(request.topic, request.partition).name
        if self.store.serves_target(name):
            # The usual case at half the cost: no request is built, and the record is not encoded.
            return self.store.delay(request, record)
        return self._delay_remotely(name, request, record)

    async def _delay_remotely(self, name: str, request: DelayRecord, record: Record) -> Token:
        found = await self._ask(request, Coordinator(TOPIC, name), (build_batch([record]),))
        return Token(found.answer.partition_id, found.answer.offset)

    async def _decide(
        self, token: Token, labels: dict[str, str], caller: Caller, *, is_release: bool
    ) -> None:
        if self.store.serves(token):
            await self.store.decide(token, labels, caller, is_release=is_release)
            return
        request = DecideDelayed(
            partition_id=token.partition_id,
            offset=token.offset,
            labels=labels,
            is_release=is_release,
            caller=caller,
        )
        await self._ask(request, self._home(token))

    def _home(self, token: Token) -> Leader:
        return Leader(self.store.home(token).partition_id)

    async def _ask(self, request: Request[A], at: Where, body: Sequence[Buffer] = ()) -> Reply[A]:
        try:
            return await self._rpc.exchange(request, at, body)
        except (NotLeader, NotSentError) as error:
            raise CoordinatorNotAvailable(str(error)) from None
        except ClusterError as error:
            raise RequestTimedOut(f"{error}; the outcome is unknown") from None

    # ---- for the broker

    @property
    def record_count(self) -> int:
        """Delayed and held records that are stored on this node."""
        return self.store.record_count

    def is_delivering_to(self, partition_id: int) -> bool:
        """Whether a batch is, or may be, in flight from here to the partition."""
        return self.store.is_delivering_to(partition_id)

    def targets_deleted(self) -> None:
        """Topics were deleted: drop the records for them."""
        self.store.targets_deleted()

    def close(self) -> None:
        self.store.close()
