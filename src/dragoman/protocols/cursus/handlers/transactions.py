"""Transactions: INIT_PRODUCER_ID, BEGIN_TXN, TXN_PUBLISH, SEND_OFFSETS_TO_TXN, END_TXN, TXN_STATUS.

They are the broker's own transactions, those that Kafka clients use. Records go to the log at once
and are hidden until the end; offsets are staged with their group. A commit is one decision, written
down before it is acknowledged, and carried out after a restart if need be. What is only begun lives
in memory. Each epoch serves one transaction: another needs INIT_PRODUCER_ID again.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from dragoman.broker.broker import Broker
from dragoman.broker.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    ProducerFenced,
    TransactionalIdNotFound,
)
from dragoman.broker.replica import Replica
from dragoman.broker.transactions import (
    ProducerIdentity,
    TransactionDescription,
    TransactionState,
)
from dragoman.errors import DragomanError
from dragoman.log.batch import TRANSACTIONAL
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.groups import open_group
from dragoman.protocols.cursus.handlers.offsets import commit, commit_request, parse_offsets
from dragoman.protocols.cursus.handlers.publish import named_partition, route
from dragoman.protocols.cursus.handlers.records import append_records, record_of
from dragoman.protocols.cursus.handlers.session import Call
from dragoman.protocols.cursus.messages import Message
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import Partition, TopicName

_OPEN: Final = (TransactionState.EMPTY, TransactionState.ONGOING)
#: How a transaction ended, and what its state is called then.
_SHOWN: Final = {"": "open", "commit": "committed", "abort": "aborted"}
_RESULTS: Final = {
    TransactionState.COMPLETE_COMMIT: "commit",
    TransactionState.COMPLETE_ABORT: "abort",
}
_PREFIX: Final = "txn-"
#: How often the end of an earlier transaction is waited for; each time it comes by itself.
_INIT_TRIES: Final = 5


class _Begun:
    """What this node knows of a transaction since it began, or since the node started."""

    __slots__ = ("identity", "last_sequence", "messages", "offsets", "result")

    def __init__(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.messages = 0
        self.offsets = 0
        #: How it was ended: "commit" or "abort".
        self.result = ""
        #: By topic and partition: a repeated TXN_PUBLISH is not staged twice.
        self.last_sequence: dict[tuple[str, int], int] = {}


class Transactions:
    def __init__(self, broker: Broker) -> None:
        self.coordinator = broker.coordination.transactions
        #: By transactional id; only of ids that the coordinator knows.
        self._begun: dict[str, _Begun] = {}

    def known(self, transactional_id: str) -> tuple[TransactionDescription, _Begun | None]:
        """A transactional id, and what was begun under its present identity. Raises `Refusal`."""
        try:
            found = self.coordinator.describe(transactional_id)
        except TransactionalIdNotFound:
            raise _not_found(transactional_id) from None
        begun = self._begun.get(transactional_id)
        result = _RESULTS.get(found.state, "")
        if begun is None or begun.identity != found.identity:
            if not result and found.state is not TransactionState.ONGOING:
                return found, None
            # Begun before a restart.
            begun = self._begun[transactional_id] = _Begun(found.identity)
        begun.result = result or begun.result
        return found, begun

    def own(
        self, transactional_id: str, identity: ProducerIdentity
    ) -> tuple[TransactionState, _Begun | None]:
        """The same for its producer. Raises `Refusal`."""
        found, begun = self.known(transactional_id)
        if found.identity != identity:
            raise _fenced(transactional_id, identity)
        return found.state, begun

    def open(self, transactional_id: str, identity: ProducerIdentity) -> _Begun:
        """The transaction that this producer has begun. Raises `Refusal`."""
        state, begun = self.own(transactional_id, identity)
        if begun is None:
            raise _not_found(transactional_id)
        if begun.result or state not in _OPEN:
            raise Refusal(f"transaction_not_committing transactional_id={transactional_id}")
        return begun

    def begin(self, transactional_id: str, identity: ProducerIdentity) -> None:
        state, begun = self.own(transactional_id, identity)
        if state not in _OPEN or (begun is not None and begun.result):
            who = f"transactional_id={transactional_id} epoch={identity.epoch}"
            raise Refusal(f"producer_reinitialization_required {who}")
        if begun is None:
            self._begun[transactional_id] = _Begun(identity)

    def to_be_ended(
        self, transactional_id: str, identity: ProducerIdentity, result: str
    ) -> tuple[TransactionState, _Begun]:
        """Also one that has ended the same way: its answer may have been lost. Raises `Refusal`."""
        state, begun = self.own(transactional_id, identity)
        if begun is None or not begun.result:
            begun = self.open(transactional_id, identity)
        elif begun.result != result:
            code = "already_committed" if begun.result == "commit" else "aborted"
            raise Refusal(f"transaction_{code} transactional_id={transactional_id}")
        return state, begun

    def forget(self, transactional_id: str) -> None:
        self._begun.pop(transactional_id, None)


def _not_found(transactional_id: str) -> Refusal:
    reason = quoted(f"transaction {transactional_id} not found")
    return Refusal(f"transaction_not_found reason={reason}")


def _fenced(transactional_id: str, identity: ProducerIdentity) -> Refusal:
    return Refusal(f"producer_fenced transactional_id={transactional_id} epoch={identity.epoch}")


def _id(call: Call) -> str:
    transactional_id = call.require("transactional_id")
    call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    call.service.broker.coordination.require_transaction(transactional_id)
    return transactional_id


def _producer(call: Call) -> tuple[str, ProducerIdentity]:
    """Transactional id and identity that a command names. Raises `Refusal`."""
    transactional_id, name = _id(call), call.require("producerId")
    call.require("epoch")
    epoch = call.number("epoch")
    try:
        return transactional_id, ProducerIdentity(int(name.removeprefix(_PREFIX), 16), epoch)
    except ValueError:
        raise _fenced(transactional_id, ProducerIdentity(-1, epoch)) from None


def _shown(identity: ProducerIdentity) -> str:
    return f"producerId={_PREFIX}{identity.producer_id:016x} epoch={identity.epoch}"


def _refuse(
    call: Call, transactional_id: str, identity: ProducerIdentity, error: DragomanError
) -> None:
    if isinstance(error, ProducerFenced | InvalidProducerIdMapping):
        error = _fenced(transactional_id, identity)
    call.refuse(error)


def handle_init_producer_id(call: Call) -> None:
    transactional_id = _id(call)
    transactions, settings = call.service.transactions, call.service.broker.settings
    timeout_ms = min(settings.cursus_transaction_timeout_ms, settings.transaction_max_timeout_ms)
    tries = _INIT_TRIES

    def ask() -> None:
        transactions.coordinator.init_producer_id(transactional_id, timeout_ms, None, reply)

    def reply(result: ProducerIdentity | DragomanError) -> None:
        nonlocal tries
        tries -= 1
        if isinstance(result, ConcurrentTransactions) and tries > 0:
            # The transaction before is being ended.
            transactions.coordinator.when_idle(transactional_id, call.after(ask))
        elif isinstance(result, DragomanError):
            call.refuse(result)
        else:
            transactions.forget(transactional_id)
            call.ok(f"transactional_id={transactional_id} {_shown(result)}")

    ask()


def handle_begin_txn(call: Call) -> None:
    transactional_id, identity = _producer(call)
    call.service.transactions.begin(transactional_id, identity)
    call.ok(f"transactional_id={transactional_id} state=open {_shown(identity)}")


def handle_txn_publish(call: Call) -> None:
    transactional_id, identity = _producer(call)
    begun = call.service.transactions.open(transactional_id, identity)
    payload, seq_num, key = call.message(), call.number("seqNum"), call.get("key").encode()
    if not payload:
        raise Refusal("missing_message command=TXN_PUBLISH")
    if not seq_num:
        raise Refusal("invalid_seq_num value=0")
    topic = call.session.topic_to_write(call.require("topic"))
    partition = named_partition(call)
    if partition is None:
        partition = route(call.session, topic, key)
    replica = call.service.replica(topic, partition)
    message = Message(
        producer_id=call.get("producerId"),
        epoch=identity.epoch,
        seq_num=seq_num,
        key=key,
        payload=payload,
    )
    place = (TopicName(topic.name), Partition(partition))

    def answer() -> None:
        call.ok(
            f"transactional_id={transactional_id} staged_messages={begun.messages} "
            f"topic={topic.name} partition={partition}"
        )

    def append() -> None:
        # What was published by text before, in this turn, comes first.
        call.service.broker.gatherer.flush(replica)
        if seq_num > begun.last_sequence.get(place, 0):
            _append(call.service.broker, replica, message, identity)
            begun.last_sequence[place] = seq_num
            begun.messages += 1
        replica.when_committed(replica.log.log_end_offset, call.after(answer))

    def enrolled(error: DragomanError | None) -> None:
        if error is not None:
            _refuse(call, transactional_id, identity, error)
        else:
            call.attempt(append)

    call.service.transactions.coordinator.enrol_implicitly(
        transactional_id, identity, [place], (), enrolled
    )


def _append(broker: Broker, replica: Replica, message: Message, identity: ProducerIdentity) -> None:
    """Hidden until the transaction ends."""
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


def handle_send_offsets_to_txn(call: Call) -> None:
    transactional_id, identity = _producer(call)
    transactions = call.service.transactions
    begun = transactions.open(transactional_id, identity)
    offsets = parse_offsets(call)
    group = open_group(call)
    request = commit_request(call, group, offsets, producer_id=identity.producer_id)

    def staged() -> None:
        begun.offsets += len(offsets)
        call.ok(f"transactional_id={transactional_id} staged_offsets={begun.offsets}")

    def enrolled(error: DragomanError | None) -> None:
        if error is not None:
            _refuse(call, transactional_id, identity, error)
        else:
            commit(call, request, staged)

    transactions.coordinator.enrol_implicitly(
        transactional_id, identity, (), (group.group_id,), enrolled
    )


def handle_end_txn(call: Call) -> None:
    transactional_id, identity = _producer(call)
    result = call.get("result")
    if result not in ("commit", "abort"):
        raise Refusal(f"invalid_result value={quoted(result)}")
    # It may be a repeat of one that is under way.
    end = partial(_end, call, transactional_id, identity, result)
    call.service.transactions.coordinator.when_idle(transactional_id, call.after(end))


def _end(call: Call, transactional_id: str, identity: ProducerIdentity, result: str) -> None:
    transactions = call.service.transactions
    coordinator = transactions.coordinator
    state, begun = transactions.to_be_ended(transactional_id, identity, result)

    def answer(_error: DragomanError | None = None) -> None:
        # The decision stands, whatever becomes of the markers.
        begun.result = result
        counts = f" messages={begun.messages} offsets={begun.offsets}"
        shown = _SHOWN[result] + (counts if result == "commit" else "")
        call.ok(f"transactional_id={transactional_id} state={shown}")

    def decided(outcome: ProducerIdentity | DragomanError) -> None:
        if isinstance(outcome, DragomanError):
            _refuse(call, transactional_id, identity, outcome)
        else:
            # Clients expect to read what they committed: the markers are waited for.
            coordinator.when_idle(transactional_id, answer)

    if state is TransactionState.EMPTY:
        answer()
    else:
        coordinator.end(transactional_id, identity, result == "commit", False, decided)


def handle_txn_status(call: Call) -> None:
    transactional_id = _id(call)
    found, begun = call.service.transactions.known(transactional_id)
    if begun is None and found.state is TransactionState.EMPTY:
        raise _not_found(transactional_id)
    messages, offsets = (0, 0) if begun is None else (begun.messages, begun.offsets)
    state = "aborted" if begun is None else _SHOWN[begun.result]
    if found.state is TransactionState.PREPARE_COMMIT:
        state = "committing"
    call.ok(
        f"transactional_id={transactional_id} state={state} messages={messages} offsets={offsets}"
    )
