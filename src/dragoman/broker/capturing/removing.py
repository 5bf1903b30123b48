"""The end of a capture, once its process is gone: what it has left is taken away.

First what it made in the database, which may not be there to be asked: then nothing is removed and
the capture goes on. Then its position, so that another one of the same name begins anew, and last
the capture itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.broker.capturing.ports import CaptureRunner
from dragoman.broker.errors import CaptureRefused
from dragoman.broker.placement import coordinator_partition
from dragoman.broker.replica import Acknowledge
from dragoman.captures.control import Finding
from dragoman.captures.definition import POSITIONS_TOPIC, TRANSACTIONAL_PREFIX, Definition
from dragoman.cluster.events import CaptureRemoved, Event
from dragoman.errors import DragomanError
from dragoman.log.batch import Record, build_batch, read_header

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

_TIMEOUT_MS = 60_000


class Removal:
    def __init__(
        self,
        broker: Broker,
        runner: CaptureRunner,
        name: str,
        definition: Definition | None,
        done: Acknowledge,
    ) -> None:
        """Without a definition nothing is touched in the database."""
        self._broker = broker
        self._runner = runner
        self._name = name
        self._definition = definition
        self._done = done

    def run(self) -> None:
        if self._definition is None:
            self._settle()
        else:
            self._runner.clean_up(self._definition, self._cleaned_up)

    def _cleaned_up(self, findings: tuple[Finding, ...] | DragomanError) -> None:
        if isinstance(findings, DragomanError):
            problem = str(findings)
        else:
            problem = "; ".join(each.what for each in findings if each.level == "problem")
        if not problem:
            self._settle()
            return
        assert self._definition is not None
        slot, publication = self._definition.slot_name, self._definition.publication_name
        self._done(
            CaptureRefused(
                f"capture {self._name} is not removed: {problem}; with --keep-slot it is, and then "
                f"`SELECT pg_drop_replication_slot('{slot}')` and `DROP PUBLICATION {publication}` "
                "are to be run by hand: until then the database keeps its log"
            )
        )

    def _settle(self) -> None:
        """A process that was killed has left a transaction open, and readers wait for its end.
        Where another node coordinates it, its time limit ends it.
        """
        transactions = self._broker.coordination.transactions.coordinator
        transactional_id = TRANSACTIONAL_PREFIX + self._name
        try:
            transactions.describe(transactional_id)
        except DragomanError:
            self._forget_position()
        else:
            transactions.init_producer_id(
                transactional_id, _TIMEOUT_MS, None, lambda _outcome: self._forget_position()
            )

    def _forget_position(self) -> None:
        topic = self._broker.image.topics.get(POSITIONS_TOPIC)
        if topic is None:
            self._remove(None)
            return
        index = coordinator_partition(self._name, len(topic.partitions))
        now_ms = self._broker.clock.wall_ms()
        batch = build_batch([Record(key=self._name.encode(), value=None, timestamp=now_ms)])
        try:
            replica = self._broker.find(POSITIONS_TOPIC, index)
            replica.check_in_sync()
            appended = replica.log.append(batch, read_header(batch), replica.leader_epoch)
        except DragomanError as error:
            self._done(error)
            return
        replica.when_committed(appended.next_offset, self._remove)

    def _remove(self, error: DragomanError | None) -> None:
        if error is not None:
            self._done(error)
            return

        def decide() -> list[Event]:
            known = self._name in self._broker.image.captures
            return [CaptureRemoved(name=self._name)] if known else []

        self._broker.changes.make(decide).then(self._done)
