"""Transactions: INIT_PRODUCER_ID, BEGIN_TXN, TXN_PUBLISH, SEND_OFFSETS_TO_TXN, END_TXN, TXN_STATUS.

They are the broker's own transactions, those that Kafka clients use. Records go to the log at once
and are hidden until the end; offsets are staged with their group. A commit is one decision, written
down before it is acknowledged, and carried out after a restart if need be. What is only begun lives
in memory. Each epoch serves one transaction: another needs INIT_PRODUCER_ID again.
"""

from __future__ import annotations

from collections.abc import Callable
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
from dragoman.limits import CURSUS_TRANSACTION_TRIES_MAX, CURSUS_TRANSACTION_TRY_INTERVAL_S
from dragoman.log.batch import TRANSACTIONAL
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.groups import open_group
from dragoman.protocols.cursus.handlers.offsets import (
    check_owner,
    commit,
    commit_request,
    parse_offsets,
)
from dragoman.protocols.cursus.handlers.publish import route, writable
from dragoman.protocols.cursus.handlers.records import append_records, record_of
from dragoman.protocols.cursus.handlers.service import authorize
from dragoman.protocols.cursus.handlers.session import Call
from dragoman.protocols.cursus.messages import Message
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import Partition, TopicName

_STATES: Final = {
    TransactionState.EMPTY: "open",
    TransactionState.ONGOING: "open",
    TransactionState.PREPARE_COMMIT: "committing",
    TransactionState.COMPLETE_COMMIT: "committed",
    TransactionState.PREPARE_ABORT: "aborted",
    TransactionState.COMPLETE_ABORT: "aborted",
}
_PREFIX: Final = "txn-"


class _Begun:
    """What this node knows of a transaction since it began, or since the node started."""

    __slots__ = ("identity", "is_over", "last_sequence", "messages", "offsets")

    def __init__(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.messages = 0
        self.offsets = 0
        self.is_over = False
        #: By topic and partition: a repeated TXN_PUBLISH is not staged twice.
        self.last_sequence: dict[tuple[str, int], int] = {}


class Transactions:
    def __init__(self, broker: Broker) -> None:
        self.coordinator = broker.coordination.transactions
        #: By transactional id; only of ids that the coordinator knows.
        self.begun: dict[str, _Begun] = {}

    def open(self, transactional_id: str, identity: ProducerIdentity) -> _Begun:
        """The transaction that this producer has begun. Raises `Refusal`."""
        state = self._state(transactional_id, identity)
        begun = self.begun.get(transactional_id)
        if begun is None or begun.identity != identity:
            if state is not TransactionState.ONGOING:
                raise _not_found(transactional_id)
            # Begun before a restart.
            begun = self.begun[transactional_id] = _Begun(identity)
        if begun.is_over or state not in (TransactionState.EMPTY, TransactionState.ONGOING):
            raise Refusal(f"transaction_not_committing transactional_id={transactional_id}")
        return begun

    def begin(self, transactional_id: str, identity: ProducerIdentity) -> None:
        state = self._state(transactional_id, identity)
        begun = self.begun.get(transactional_id)
        is_used = begun is not None and begun.identity == identity and begun.is_over
        if is_used or state not in (TransactionState.EMPTY, TransactionState.ONGOING):
            raise Refusal(
                f"producer_reinitialization_required transactional_id={transactional_id} "
                f"epoch={identity.epoch}"
            )
        if begun is None or begun.identity != identity:
            self.begun[transactional_id] = _Begun(identity)

    def _state(self, transactional_id: str, identity: ProducerIdentity) -> TransactionState:
        found = self.known(transactional_id)
        if found.identity != identity:
            raise _fenced(transactional_id, identity.epoch)
        return found.state

    def known(self, transactional_id: str) -> TransactionDescription:
        """Raises `Refusal`."""
        try:
            return self.coordinator.describe(transactional_id)
        except TransactionalIdNotFound:
            raise _not_found(transactional_id) from None


def _not_found(transactional_id: str) -> Refusal:
    reason = quoted(f"transaction {transactional_id} not found")
    return Refusal(f"transaction_not_found reason={reason}")


def _fenced(transactional_id: str, epoch: int) -> Refusal:
    return Refusal(f"producer_fenced transactional_id={transactional_id} epoch={epoch}")


def _id(call: Call) -> str:
    word = call.command.word
    transactional_id = call.require("transactional_id", f"missing_transactional_id command={word}")
    authorize(call, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    return transactional_id


def _identity(call: Call) -> ProducerIdentity:
    word = call.command.word
    name = call.require("producerId", f"missing_producer_id command={word}")
    call.require("epoch", f"missing_epoch command={word}")
    epoch = call.number("epoch")
    try:
        return ProducerIdentity(int(name.removeprefix(_PREFIX), 16), epoch)
    except ValueError:
        raise _fenced(call.get("transactional_id"), epoch) from None


def _shown(identity: ProducerIdentity) -> str:
    return f"producerId={_PREFIX}{identity.producer_id:016x} epoch={identity.epoch}"


def handle_init(call: Call) -> None:
    transactional_id = _id(call)
    broker = call.service.broker
    tries = CURSUS_TRANSACTION_TRIES_MAX

    def ask() -> None:
        timeout_ms = broker.settings.transaction_max_timeout_ms
        transactions.coordinator.init_producer_id(transactional_id, timeout_ms, None, reply)

    def reply(result: ProducerIdentity | DragomanError) -> None:
        nonlocal tries
        if isinstance(result, ConcurrentTransactions) and tries > 0:
            # The transaction before is being ended: a matter of milliseconds.
            tries -= 1
            broker.scheduler.call_later(CURSUS_TRANSACTION_TRY_INTERVAL_S, ask)
        elif isinstance(result, DragomanError):
            call.refuse(result)
        else:
            transactions.begun.pop(transactional_id, None)
            call.ok(f"transactional_id={transactional_id} {_shown(result)}")

    transactions = call.service.transactions
    ask()


def handle_begin(call: Call) -> None:
    transactional_id, identity = _id(call), _identity(call)
    call.service.transactions.begin(transactional_id, identity)
    call.ok(f"transactional_id={transactional_id} state=open {_shown(identity)}")


def handle_publish(call: Call) -> None:
    transactional_id, identity = _id(call), _identity(call)
    begun = call.service.transactions.open(transactional_id, identity)
    payload = call.command.message
    if not payload:
        raise Refusal("missing_message command=TXN_PUBLISH")
    seq_num = call.number("seqNum")
    if not seq_num:
        raise Refusal("invalid_seq_num value=0")
    topic = writable(call.session, call.require("topic", "missing_topic command=TXN_PUBLISH"))
    key = call.get("key").encode()
    partition = route(call, topic, key)
    replica = call.service.replica(topic, partition)
    message = Message(
        producer_id=call.get("producerId"),
        epoch=identity.epoch,
        seq_num=seq_num,
        key=key,
        payload=payload,
    )
    place = (topic.name, partition)

    def answer(error: DragomanError | None) -> None:
        if error is not None:
            call.refuse(error)
        else:
            call.ok(
                f"transactional_id={transactional_id} staged_messages={begun.messages} "
                f"topic={topic.name} partition={partition}"
            )

    def enrolled(error: DragomanError | None) -> None:
        if error is not None:
            call.refuse(_translated(error, transactional_id, identity))
            return
        # What was published by text before, in this turn, comes first.
        call.service.broker.gatherer.flush(replica)
        if seq_num <= begun.last_sequence.get(place, 0):
            replica.when_committed(replica.log.log_end_offset, answer)
            return
        try:
            end = _append(call.service.broker, replica, message, identity)
        except DragomanError as refused:
            call.refuse(refused)
            return
        begun.last_sequence[place] = seq_num
        begun.messages += 1
        replica.when_committed(end, answer)

    call.service.transactions.coordinator.enrol_implicitly(
        transactional_id,
        identity,
        [(TopicName(topic.name), Partition(partition))],
        (),
        enrolled,
    )


def _append(broker: Broker, replica: Replica, message: Message, identity: ProducerIdentity) -> int:
    """Where the log ends with the record; hidden until the transaction ends."""
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


def _translated(
    error: DragomanError, transactional_id: str, identity: ProducerIdentity
) -> DragomanError:
    if isinstance(error, ProducerFenced | InvalidProducerIdMapping):
        return _fenced(transactional_id, identity.epoch)
    return error


def handle_offsets(call: Call) -> None:
    transactional_id, identity = _id(call), _identity(call)
    transactions = call.service.transactions
    begun = transactions.open(transactional_id, identity)
    offsets = parse_offsets(call)
    group = open_group(call)
    member_id = check_owner(call, group, offsets)
    request = commit_request(
        call, group, offsets, member_id, group.generation, identity.producer_id
    )

    def staged() -> None:
        begun.offsets += len(offsets)
        call.ok(f"transactional_id={transactional_id} staged_offsets={begun.offsets}")

    def enrolled(error: DragomanError | None) -> None:
        if error is not None:
            call.refuse(_translated(error, transactional_id, identity))
        else:
            commit(call, request, staged)

    transactions.coordinator.enrol_implicitly(
        transactional_id, identity, (), (group.group_id,), enrolled
    )


def handle_end(call: Call) -> None:
    transactional_id, identity = _id(call), _identity(call)
    result = call.get("result")
    if result not in ("commit", "abort"):
        raise Refusal(f"invalid_result value={quoted(result)}")
    transactions = call.service.transactions
    begun = _to_be_ended(transactions, transactional_id, identity, result)
    counts = f" messages={begun.messages} offsets={begun.offsets}"
    state = f"state=committed{counts}" if result == "commit" else "state=aborted"

    def answer() -> None:
        begun.is_over = True
        call.ok(f"transactional_id={transactional_id} {state}")

    def decided(outcome: ProducerIdentity | DragomanError) -> None:
        if isinstance(outcome, DragomanError):
            call.refuse(_translated(outcome, transactional_id, identity))
        else:
            _when_complete(call, transactional_id, answer)

    is_empty = transactions.coordinator.describe(transactional_id).state is TransactionState.EMPTY
    if is_empty:
        answer()
        return
    transactions.coordinator.end(transactional_id, identity, result == "commit", False, decided)


def _to_be_ended(
    transactions: Transactions, transactional_id: str, identity: ProducerIdentity, result: str
) -> _Begun:
    """Also one that has ended the same way: its answer may have been lost. Raises `Refusal`."""
    try:
        return transactions.open(transactional_id, identity)
    except Refusal:
        known = transactions.known(transactional_id)
        if known.identity != identity:
            raise
        match known.state:
            case TransactionState.COMPLETE_COMMIT | TransactionState.COMPLETE_ABORT as state:
                is_commit = state is TransactionState.COMPLETE_COMMIT
                if is_commit != (result == "commit"):
                    code = "already_committed" if is_commit else "aborted"
                    text = f"transaction_{code} transactional_id={transactional_id}"
                    raise Refusal(text) from None
            case _:
                raise
        return transactions.begun.get(transactional_id) or _Begun(identity)


def _when_complete(call: Call, transactional_id: str, then: Callable[[], None]) -> None:
    """The decision stands. Clients expect to read what they committed, so they are answered when
    the markers are there; if these take long, all the same."""
    transactions = call.service.transactions
    tries = CURSUS_TRANSACTION_TRIES_MAX

    def look() -> None:
        nonlocal tries
        tries -= 1
        try:
            state = transactions.coordinator.describe(transactional_id).state
        except DragomanError:
            state = None
        is_under_way = state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
        if is_under_way and tries > 0:
            call.service.scheduler.call_later(CURSUS_TRANSACTION_TRY_INTERVAL_S, look)
        else:
            then()

    look()


def handle_status(call: Call) -> None:
    transactional_id = _id(call)
    transactions = call.service.transactions
    known = transactions.known(transactional_id)
    begun = transactions.begun.get(transactional_id)
    if begun is None or begun.identity != known.identity:
        if known.state is TransactionState.EMPTY:
            raise _not_found(transactional_id)
        begun = _Begun(known.identity)
    state = _STATES.get(known.state, "aborted")
    if begun.is_over and known.state is TransactionState.EMPTY:
        state = "committed"
    call.ok(
        f"transactional_id={transactional_id} state={state} messages={begun.messages} "
        f"offsets={begun.offsets}"
    )
