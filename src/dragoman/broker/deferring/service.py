"""Deferred records as protocols use them, on any node.

Whoever leads the partition of the internal topic that a record waits in keeps it (`keeping`). Other
nodes ask that one; it asks the leader of the target to append what has come due (`targets`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dragoman.broker.deferring.holding import TellCheck, TellGivenUp
from dragoman.broker.deferring.keeping import Keeping
from dragoman.broker.deferring.reaching import Errand, TakeNode
from dragoman.broker.deferring.records import TOPIC
from dragoman.broker.deferring.state import Content, TakeContent, TakeToken, Target, Token
from dragoman.broker.deferring.targets import Targets, name_of
from dragoman.broker.errors import UnknownDeferredRecord
from dragoman.broker.neighbours import (
    Answer,
    DecideDeferred,
    DeferRecord,
    Deferred,
    DeferredContent,
    ReadDeferred,
)
from dragoman.broker.produce import check_produced
from dragoman.broker.replica import Acknowledge
from dragoman.broker.transactions import ProducerIds
from dragoman.errors import DragomanError
from dragoman.log.batch import Record, build_batch, records
from dragoman.outcome import start

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker


class Deferring:
    def __init__(self, broker: Broker, producer_ids: ProducerIds) -> None:
        self._broker = broker
        self.targets = Targets(broker)
        self.keeping = Keeping(broker, producer_ids, self.targets)

    @property
    def on_check(self) -> list[TellCheck]:
        """Told, where a held record is kept, that nobody has decided about it for too long."""
        return self.keeping.holding.on_check

    @property
    def on_given_up(self) -> list[TellGivenUp]:
        """Told that nobody did, however often they were asked; then the record is dropped."""
        return self.keeping.holding.on_given_up

    def defer(
        self, topic: str, partition: int, record: Record, due_ms: int, done: TakeToken
    ) -> None:
        """Append the record to the partition at `due_ms` or soon after, exactly once.

        `done` comes when that is certain. Records for one partition that are due at the same
        millisecond keep their order. In the log they have the time of their delivery.
        """
        request = DeferRecord(topic=topic, partition=partition, when_ms=due_ms)
        self._defer(request, record, done)

    def hold(
        self,
        topic: str,
        partition: int,
        record: Record,
        labels: dict[str, str],
        check_after_ms: int | None,
        done: TakeToken,
    ) -> None:
        """Keep the record until `release` or `drop`. Who does not say after which time `on_check`
        is to be told gets that of the settings.
        """
        if check_after_ms is None:
            check_after_ms = self._broker.settings.held_record_check_after_ms
        request = DeferRecord(
            topic=topic,
            partition=partition,
            when_ms=self._broker.clock.wall_ms() + check_after_ms,
            is_held=True,
            labels=labels,
        )
        self._defer(request, record, done)

    def release(self, token: Token, expected_labels: dict[str, str], done: Acknowledge) -> None:
        """Deliver a held record. `done` comes when it is certain that it will be.

        `UnknownDeferredRecord`, `LabelsDiffer`: not this one. To say it again is no error, as long
        as it is remembered.
        """
        self._decide(token, expected_labels, is_release=True, done=done)

    def drop(self, token: Token, expected_labels: dict[str, str], done: Acknowledge) -> None:
        """Forget a record that is held, or one that is not due yet. Like `release` otherwise."""
        self._decide(token, expected_labels, is_release=False, done=done)

    def read(self, token: Token, done: TakeContent) -> None:
        """A record that is kept aside. `UnknownDeferredRecord`: not any more."""
        request = ReadDeferred(partition_id=token.partition_id, offset=token.offset)
        find, here = partial(self._leader_of, token), partial(self.keeping.read_here, token)
        Errand(self._broker, find, here, lambda: (request, ()), _content, done).run()

    def _defer(self, request: DeferRecord, record: Record, done: TakeToken) -> None:
        find = partial(self._leader_for, name_of(request))
        here = partial(self.keeping.defer_here, request, record)

        def message() -> tuple[DeferRecord, tuple[bytearray]]:
            return request, (build_batch([record]),)

        Errand(self._broker, find, here, message, _token, done).run()

    def _decide(
        self, token: Token, labels: dict[str, str], *, is_release: bool, done: Acknowledge
    ) -> None:
        request = DecideDeferred(
            partition_id=token.partition_id,
            offset=token.offset,
            labels=labels,
            is_release=is_release,
        )
        find, here = partial(self._leader_of, token), partial(self.keeping.decide_here, request)
        Errand(self._broker, find, here, lambda: (request, ()), _nothing, done).run()

    def _leader_for(self, name: str, done: TakeNode) -> None:
        """The node that keeps the records for a partition; the topic is made if need be."""

        def made(error: DragomanError | None) -> None:
            done(self.keeping.log.leader_of(name) if error is None else error)

        if self.keeping.log.leader_of(name) < 0 and TOPIC not in self._broker.image.topics:
            start(self.keeping.log.ensure()).then(made)
        else:
            made(None)

    def _leader_of(self, token: Token, done: TakeNode) -> None:
        try:
            node = self.keeping.home(token).leader
        except UnknownDeferredRecord as error:
            done(error)
        else:
            done(node)

    # ---- what is asked by the rest of the broker

    @property
    def record_count(self) -> int:
        """Records that are kept aside on this node."""
        return self.keeping.record_count

    def is_delivering_to(self, partition_id: int) -> bool:
        """Whether a batch is, or may be, on its way from here to the partition."""
        return self.keeping.is_delivering_to(partition_id)

    def targets_deleted(self) -> None:
        """Topics are gone: nobody will get what waits for them."""
        self.keeping.targets_deleted()

    def topics(self) -> dict[str, int]:
        """Partitions of the internal topic whose leaders keep records."""
        return {TOPIC: self.keeping.log.partition_count}

    def led(self, topic: str, index: int, leader_epoch: int) -> None:
        """This node leads a partition of an internal topic, ours or not."""
        if topic == TOPIC:
            self.keeping.log.lead(index, leader_epoch)

    def resigned(self, topic: str, index: int) -> None:
        if topic == TOPIC:
            self.keeping.log.resign(index)

    def close(self) -> None:
        self.keeping.close()


def _token(answer: Answer) -> Token:
    reply = answer.reply
    assert isinstance(reply, Deferred)
    return Token(reply.partition_id, reply.offset)


def _content(answer: Answer) -> Content:
    reply = answer.reply
    assert isinstance(reply, DeferredContent)
    (record,) = records(answer.body, check_produced(answer.body))
    return Content(Target(reply.topic, reply.partition), record, reply.labels)


def _nothing(_answer: Answer) -> None:
    return None
