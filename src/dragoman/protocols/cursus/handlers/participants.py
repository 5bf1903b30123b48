"""Participants of a Cursus transaction: they stage changes that take effect when it commits.

Partition leaders stage messages, which stay hidden until the transaction ends, and group
coordinators stage offsets. Before they write, both confirm with the transaction coordinator that
the transaction is still open.
"""

from __future__ import annotations

from functools import partial

from dragoman.broker.transactions import ProducerIdentity
from dragoman.log.batch import TRANSACTIONAL
from dragoman.outcome import acknowledged
from dragoman.protocols.cursus.handlers.groups import commit, commit_request, open_group
from dragoman.protocols.cursus.handlers.records import append_records, record_of
from dragoman.protocols.cursus.handlers.relayed import StagedMessage
from dragoman.protocols.cursus.handlers.service import Core, CursusService
from dragoman.protocols.cursus.handlers.session import Arguments
from dragoman.protocols.cursus.handlers.transactions import named_producer, staged_offsets
from dragoman.protocols.cursus.messages import Command, Message
from dragoman.replication.replica import Replica
from dragoman.security.access import Caller, Operation, Resource
from dragoman.types import Partition, TopicName


async def stage_message(service: CursusService, request: StagedMessage, replica: Replica) -> bytes:
    """Append a message on the leader of its partition, hidden until the transaction ends."""
    identity = ProducerIdentity(request.producer_id, request.epoch)
    states = replica.log.producers
    if states is None or not states.has_open_transaction(identity.producer_id, identity.epoch):
        place = (TopicName(request.topic), Partition(request.partition))
        enrol = service.broker.coordination.transactions.participants.enrol
        await enrol(request.transactional_id, identity, place, is_check=True)
    # Messages published by text earlier in this turn come first.
    service.broker.accumulator.flush(replica)
    next_offset = _append(service.broker, replica, request.message, identity)
    await acknowledged(partial(replica.when_committed, next_offset))
    return b""


def _append(broker: Core, replica: Replica, message: Message, identity: ProducerIdentity) -> int:
    """Append a message and return the offset after it."""
    states = replica.log.producers
    known = None if states is None else states.producers().get(identity.producer_id)
    sequence = 0
    if known is not None and known.epoch == identity.epoch:
        sequence = max(0, known.next_sequence)
    now_ms = broker.clock.wall_ms()
    appended = append_records(
        replica,
        [record_of(message, now_ms)],
        now_ms,
        attributes=TRANSACTIONAL,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        sequence=sequence,
    )
    if appended.error is not None:
        raise appended.error
    return appended.next_offset


class _RelayedArguments(Arguments):
    """A command from another node for its client."""

    __slots__ = ("_caller",)

    def __init__(self, service: CursusService, command: Command, caller: Caller) -> None:
        super().__init__(service, command)
        self._caller = caller

    def is_allowed(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self.service.is_allowed(self._caller, operation, resource, name)

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self.service.may(self._caller, operation, resource, name)


async def stage_offsets(service: CursusService, command: Command, caller: Caller) -> bytes:
    """Stage offsets on the coordinator of their group."""
    relayed = _RelayedArguments(service, command, caller)
    transactional_id, identity, _ = named_producer(relayed)
    group = open_group(relayed)
    offsets = staged_offsets(relayed)
    request = commit_request(relayed, group, offsets, producer_id=identity.producer_id)
    enrol = service.broker.coordination.transactions.participants.enrol
    await enrol(transactional_id, identity, group.group_id, is_check=True)
    await acknowledged(partial(commit, service, request))
    return b""
