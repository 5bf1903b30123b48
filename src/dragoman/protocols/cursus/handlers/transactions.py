"""Transactions: INIT_PRODUCER_ID, BEGIN_TXN, TXN_PUBLISH, SEND_OFFSETS_TO_TXN, END_TXN, TXN_STATUS.

These are the broker's own transactions, which Kafka clients use as well. Records are appended at
once and hidden until the transaction ends; offsets are staged with their group. A commit is a
single decision, which is durable before it is acknowledged, and completed after a restart if
necessary. A transaction without staged changes exists only in memory. Each epoch serves one
transaction; the next one needs INIT_PRODUCER_ID again.

The transaction coordinator handles every command; any other node replies with the coordinator's
address. Partition leaders stage the messages and group coordinators the offsets, at the
coordinator's request (`participants.py`), because they may be different nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    NotCoordinator,
    NotLeader,
    ProducerFenced,
    RequestTimedOut,
    ShuttingDown,
    TransactionalIdNotFound,
)
from dragoman.broker.groups import TopicPartition
from dragoman.broker.transactions import ProducerIdentity, TransactionDescription, TransactionState
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import ClusterError, DragomanError, NotSentError
from dragoman.outcome import Outcome, attempt, called_back, start
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.groups import parse_offsets
from dragoman.protocols.cursus.handlers.logins import without_credentials
from dragoman.protocols.cursus.handlers.publish import route
from dragoman.protocols.cursus.handlers.relayed import StagedMessage, StagedOffsets, ask, ask_leader
from dragoman.protocols.cursus.handlers.service import Core, CursusService
from dragoman.protocols.cursus.handlers.session import Arguments, Call
from dragoman.protocols.cursus.messages import Message
from dragoman.security.access import Operation, Resource
from dragoman.types import Partition, TopicName

_OPEN: Final = (TransactionState.EMPTY, TransactionState.ONGOING)
#: Names of states by the transaction's result; a transaction without a result is open.
_SHOWN: Final = {"": "open", "commit": "committed", "abort": "aborted"}
_RESULTS: Final = {
    TransactionState.COMPLETE_COMMIT: "commit",
    TransactionState.COMPLETE_ABORT: "abort",
}
_PREFIX: Final = "txn-"
_PRODUCER_NAME: Final = re.compile("txn-([0-7][0-9a-f]{15})")
#: Error codes of commands that name an unknown transaction, or one of another producer.
_BEGIN_FAILED: Final = "transaction_begin_failed"
_PUBLISH_FAILED: Final = "transaction_publish_failed"
_OFFSETS_FAILED: Final = "transaction_offsets_failed"
_NOT_FOUND: Final = "transaction_not_found"
#: Characters of an invalid argument that a refusal quotes.
_QUOTED_MAX: Final = 256
#: Attempts to get a new identity, each after the current operation has ended.
_INIT_TRIES: Final = 5


class _Producer(NamedTuple):
    """The producer of a command, and its transaction."""

    transactional_id: str
    identity: ProducerIdentity
    #: The client's name for the producer, which refusals quote.
    name: str


class _Begun:
    """The in-memory part of a transaction, since it began or since the node started."""

    __slots__ = (
        "_last_sequence",
        "_staging",
        "identity",
        "is_in_doubt",
        "messages",
        "offsets",
        "result",
    )

    def __init__(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.messages = 0
        #: Group, topic and partition of each staged offset.
        self.offsets: set[tuple[str, str, int]] = set()
        #: The result: "commit" or "abort"; empty while the transaction is open.
        self.result = ""
        #: By topic and partition, so that a repeated TXN_PUBLISH is not staged twice.
        self._last_sequence: dict[tuple[str, int], int] = {}
        #: Commands that wait for a message to be staged, by topic, partition and sequence number.
        self._staging: dict[tuple[str, int, int], list[Outcome[None]]] = {}
        #: Whether the outcome of staging a message is unknown, so that the transaction can only be
        #: aborted.
        self.is_in_doubt = False

    async def stage(
        self,
        place: TopicPartition,
        seq_num: int,
        write: Callable[[], Coroutine[object, None, None]],
    ) -> None:
        """Stage a message with `write`, unless an earlier command has staged it or is staging it.
        Commands that wait for the same message resume in order of arrival.
        """
        waiting = self._staging.get((*place, seq_num))
        if waiting is None:
            if seq_num <= self._last_sequence.get(place, 0):
                return
            waiting = self._staging[*place, seq_num] = []
        staged: Outcome[None] = Outcome()
        waiting.append(staged)
        if len(waiting) == 1:
            start(write()).then(partial(self._staged, place, seq_num))
        await staged

    def _staged(self, place: TopicPartition, seq_num: int, error: DragomanError | None) -> None:
        if error is None:
            self._last_sequence[place] = seq_num
            self.messages += 1
        elif _is_outcome_unknown(error):
            self.is_in_doubt = True
        for each in self._staging.pop((*place, seq_num)):
            each.acknowledge(error)


class Transactions:
    def __init__(self, broker: Core) -> None:
        self.coordinator = broker.coordination.transactions.coordinator
        #: Transactions by transactional id, only for ids that the coordinator knows.
        self._begun: dict[str, _Begun] = {}

    def known(self, transactional_id: str) -> tuple[TransactionDescription, _Begun | None] | None:
        """The coordinator's description of a transactional id, and the transaction that was begun
        under its current identity; None for an unknown id.
        """
        try:
            found = self.coordinator.describe(transactional_id)
        except TransactionalIdNotFound:
            return None
        begun = self._begun.get(transactional_id)
        result = _RESULTS.get(found.state, "")
        if begun is None or begun.identity != found.identity:
            if not result and found.state is not TransactionState.ONGOING:
                return found, None
            # The transaction began before a restart.
            begun = self._begun[transactional_id] = _Begun(found.identity)
        begun.result = result or begun.result
        return found, begun

    def open(self, who: _Producer, code: str) -> _Begun:
        """The open transaction of this producer. Raises `Refusal` with that code."""
        known = self.known(who.transactional_id)
        if known is None:
            raise _unknown(who.transactional_id, code)
        found, begun = known
        if begun is None or begun.result or found.state not in _OPEN:
            state = _shown_state(found, begun)
            raise _failed(code, f"transaction {who.transactional_id} is {state}")
        _check_owner(who, found.identity, code)
        if begun.is_in_doubt:
            raise Refusal(f"transaction_aborted transactional_id={who.transactional_id}")
        return begun

    def begin(self, who: _Producer) -> None:
        """Raises `Refusal`."""
        known = self.known(who.transactional_id)
        if known is None:
            name = who.transactional_id
            reason = f"transaction {name} is not initialized; call INIT_PRODUCER_ID first"
            raise _failed(_BEGIN_FAILED, reason)
        found, begun = known
        _check_owner(who, found.identity, _BEGIN_FAILED)
        if found.state not in _OPEN or (begun is not None and begun.result):
            which = f"transactional_id={who.transactional_id} epoch={who.identity.epoch}"
            raise Refusal(f"producer_reinitialization_required {which}")
        if begun is None:
            self._begun[who.transactional_id] = _Begun(who.identity)

    def to_be_ended(self, who: _Producer, result: str) -> tuple[TransactionState, _Begun | None]:
        """The state of a transaction that may end with this result, or already has (the reply may
        have been lost), and the transaction, if one was begun. Raises `Refusal`.
        """
        known = self.known(who.transactional_id)
        if known is None:
            raise _unknown(who.transactional_id, _NOT_FOUND)
        found, begun = known
        _check_owner(who, found.identity, _NOT_FOUND)
        which = f"transactional_id={who.transactional_id}"
        ended = "abort" if begun is None else begun.result
        if ended and ended != result:
            code = "already_committed" if ended == "commit" else "aborted"
            raise Refusal(f"transaction_{code} {which}")
        if not ended and found.state not in _OPEN:
            state = _shown_state(found, begun)
            raise Refusal(f"transaction_not_abortable {which} state={state}")
        if begun is not None and begun.is_in_doubt and result == "commit":
            raise Refusal(f"transaction_aborted {which}")
        return found.state, begun

    def forget(self, transactional_id: str) -> None:
        self._begun.pop(transactional_id, None)

    @contextmanager
    def translated_errors(self, who: _Producer, code: str) -> Iterator[None]:
        """Translate errors of the broker's coordinator into errors of the command: another producer
        has taken over, or the coordinator no longer knows this one.
        """
        try:
            yield
        except (ProducerFenced, InvalidProducerIdMapping):
            known = self.known(who.transactional_id)
            if known is not None:
                _check_owner(who, known[0].identity, code)
            raise _unknown(who.transactional_id, code) from None


def transactions_of(service: CursusService) -> Transactions:
    return service.part(Transactions, lambda: Transactions(service.broker))


def _is_outcome_unknown(error: DragomanError) -> bool:
    is_lost = isinstance(error, ClusterError) and not isinstance(error, NotSentError)
    return is_lost or isinstance(error, RequestTimedOut | ShuttingDown)


@contextmanager
def _calling_nodes() -> Iterator[None]:
    """Translate redirects: the client is at the right node, and must not be redirected to the nodes
    that this one calls.
    """
    try:
        yield
    except (NotLeader, NotCoordinator, NotSentError) as error:
        raise CoordinatorNotAvailable(str(error)) from None


def _failed(code: str, reason: str) -> Refusal:
    return Refusal(f"{code} reason={quoted(reason)}")


def _unknown(transactional_id: str, code: str) -> Refusal:
    return _failed(code, f"transaction {transactional_id} not found")


def _check_owner(who: _Producer, present: ProducerIdentity, code: str) -> None:
    """Raises `Refusal` with that code unless this producer owns the transactional id."""
    transactional_id, requested = who.transactional_id, who.identity
    epochs = (
        f"transactional_id={transactional_id} current_epoch={present.epoch} "
        f"requested_epoch={requested.epoch}"
    )
    if requested.producer_id != present.producer_id:
        names = f"producer={_name(present)} requested={who.name}"
        reason = f"transaction owner mismatch transactional_id={transactional_id} {names}"
        raise _failed(code, reason)
    if requested.epoch > present.epoch and code == _BEGIN_FAILED:
        raise _failed(code, f"producer epoch not initialized {epochs}")
    if requested.epoch != present.epoch:
        raise _failed(code, f"producer fenced {epochs}")


def _shown_state(found: TransactionDescription, begun: _Begun | None) -> str:
    """The original's name of a state. A transaction that was not begun counts as aborted."""
    if found.state is TransactionState.PREPARE_COMMIT:
        return "committing"
    if begun is None or found.state not in (*_OPEN, *_RESULTS):
        return "aborted"
    return _SHOWN[begun.result]


def _argument(call: Arguments, *names: str) -> str:
    """The first of these arguments that is not empty. Raises `Refusal`."""
    return next((call.get(each) for each in names if call.get(each)), "") or call.require(names[0])


def _transactional_id(call: Arguments) -> str:
    return _argument(call, "transactional_id", "txn", "transaction")


def _id(call: Arguments) -> str:
    transactional_id = _transactional_id(call)
    call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    call.service.broker.coordination.transactions.require(transactional_id)
    return transactional_id


def _producer(call: Arguments) -> _Producer:
    """Transactional id and identity that a command names. Raises `Refusal`."""
    _id(call)
    return named_producer(call)


def named_producer(call: Arguments) -> _Producer:
    transactional_id, name = _transactional_id(call), _argument(call, "producerId", "producer_id")
    epoch = call.number("epoch", 0, refusal=_no_number("invalid_epoch", "ParseInt", call, "epoch"))
    found = _PRODUCER_NAME.fullmatch(name)
    producer_id = -1 if found is None else int(found[1], 16)
    return _Producer(transactional_id, ProducerIdentity(producer_id, epoch), name)


def _no_number(code: str, function: str, call: Arguments, name: str) -> str:
    """The original's error for an invalid number."""
    shown = quoted(call.get(name)[:_QUOTED_MAX])
    return f"{code} reason={quoted(f'strconv.{function}: parsing {shown}: invalid syntax')}"


def _name(identity: ProducerIdentity) -> str:
    return f"{_PREFIX}{identity.producer_id:016x}"


def _shown(identity: ProducerIdentity) -> str:
    return f"producerId={_name(identity)} epoch={identity.epoch}"


async def handle_init_producer_id(call: Call) -> None:
    transactional_id = _transactional_id(call)
    call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    await call.service.coordinated(CoordinatorKind.TRANSACTION, transactional_id)
    identity = await _new_identity(call.service, transactional_id)
    transactions_of(call.service).forget(transactional_id)
    call.ok(f"transactional_id={transactional_id} {_shown(identity)}")


async def _new_identity(service: CursusService, transactional_id: str) -> ProducerIdentity:
    coordinator, settings = transactions_of(service).coordinator, service.broker.settings
    timeout_ms = min(settings.cursus_transaction_timeout_ms, settings.transaction_max_timeout_ms)
    tries = _INIT_TRIES
    while True:
        try:
            return await coordinator.init_producer_id(transactional_id, timeout_ms, None)
        except ConcurrentTransactions:
            tries -= 1
            if not tries:
                then = "retry END_TXN before reinitializing producer"
                reason = f"transaction {transactional_id} is committing; {then}"
                raise _failed("init_producer_failed", reason) from None
        # The previous transaction is being ended.
        await coordinator.idle(transactional_id)


def handle_begin_txn(call: Call) -> None:
    who = _producer(call)
    transactions_of(call.service).begin(who)
    call.ok(f"transactional_id={who.transactional_id} state=open {_shown(who.identity)}")


def _sequence(call: Call) -> int:
    """The sequence number of a message. Raises `Refusal`."""
    refused = "invalid_seq_num command=TXN_PUBLISH"
    if not call.get("seqNum"):
        raise _failed(refused, "missing seqNum")
    seq_num = call.number("seqNum", refusal=_no_number(refused, "ParseUint", call, "seqNum"))
    if not seq_num:
        raise _failed(refused, "seqNum must be greater than zero")
    return seq_num


async def handle_txn_publish(call: Call) -> None:
    _id(call)
    topic_name, payload = call.require("topic"), call.message()
    if not payload:
        raise Refusal("missing_message command=TXN_PUBLISH")
    who = named_producer(call)
    transactional_id, identity, _ = who
    partition = None
    if call.get("partition"):
        refused = _no_number("invalid_partition", "Atoi", call, "partition")
        partition = call.number("partition", refusal=refused)
    seq_num, key = _sequence(call), call.get("key").encode()
    topic = call.session.topic_to_write(topic_name)
    if partition is None:
        partition = route(call.session, topic, key)
    metadata = call.service.partition(topic, partition)
    transactions = transactions_of(call.service)
    begun = transactions.open(who, _PUBLISH_FAILED)
    place = (TopicName(topic.name), Partition(partition))
    message = Message(
        producer_id=who.name,
        epoch=identity.epoch,
        seq_num=seq_num,
        key=key,
        payload=payload,
    )
    request = StagedMessage(
        topic.name,
        partition,
        message,
        transactional_id,
        identity.producer_id,
        identity.epoch,
        call.session.caller,
    )

    stage = partial(_stage_at_leader, call.service, metadata, request)
    with transactions.translated_errors(who, _PUBLISH_FAILED):
        await begun.stage(place, seq_num, stage)
    # As in the original, the count is that of this command, not of the transaction.
    where = f"topic={topic.name} partition={partition}"
    call.ok(f"transactional_id={transactional_id} staged_messages=1 {where}")


async def _stage_at_leader(
    service: CursusService, partition: PartitionMetadata, request: StagedMessage
) -> None:
    coordinator = transactions_of(service).coordinator
    identity = ProducerIdentity(request.producer_id, request.epoch)
    places = [(TopicName(request.topic), Partition(request.partition))]
    await coordinator.enrol_implicitly(request.transactional_id, identity, places, ())
    with _calling_nodes():
        await called_back(partial(ask_leader, service, partition, request))


def staged_offsets(call: Arguments) -> dict[int, int]:
    """Offset by partition. Raises `Refusal`."""
    last = call.get("offsets") or call.command.last
    if ":" not in last or "=" in last:
        raise _failed("invalid_txn_offsets", "missing offset pairs")
    return parse_offsets(call)


async def handle_send_offsets_to_txn(call: Call) -> None:
    _id(call)
    topic, group = call.require("topic"), call.require("group")
    who = named_producer(call)
    call.require("member")
    call.number("generation", refusal="invalid_generation command=SEND_OFFSETS_TO_TXN")
    offsets = staged_offsets(call)
    call.authorize(Operation.READ, Resource.GROUP, group)
    call.authorize(Operation.READ, Resource.TOPIC, topic)
    transactions, coordination = transactions_of(call.service), call.service.broker.coordination
    begun = transactions.open(who, _OFFSETS_FAILED)
    transactional_id = who.transactional_id
    coordinator = transactions.coordinator
    with transactions.translated_errors(who, _OFFSETS_FAILED):
        await coordinator.enrol_implicitly(transactional_id, who.identity, (), (group,))
        with _calling_nodes():
            node = await coordination.find_coordinator(CoordinatorKind.GROUP, group)
            request = StagedOffsets(without_credentials(call.command), call.session.caller)
            await ask(call.service, node, request)
    begun.offsets.update((group, topic, each) for each in offsets)
    call.ok(f"transactional_id={transactional_id} staged_offsets={len(offsets)}")


async def handle_end_txn(call: Call) -> None:
    who = _producer(call)
    result = (call.get("result") or call.get("action") or call.get("state") or "commit").lower()
    if result not in ("commit", "abort"):
        raise Refusal(f"invalid_transaction_result value={result}")
    transactions, transactional_id = transactions_of(call.service), who.transactional_id
    coordinator = transactions.coordinator
    # The command may repeat one that is still running.
    await coordinator.idle(transactional_id)
    state, begun = transactions.to_be_ended(who, result)
    if state is not TransactionState.EMPTY:
        is_commit = result == "commit"
        with transactions.translated_errors(who, _NOT_FOUND):
            await coordinator.end(transactional_id, who.identity, is_commit, False)
        # Wait for the markers, because clients expect to read what they committed. The decision
        # stands even if writing the markers fails.
        await attempt(coordinator.idle(transactional_id))
    shown = _SHOWN[result]
    if begun is not None:
        begun.result = result
        if result == "commit":
            shown += f" messages={begun.messages} offsets={len(begun.offsets)}"
    call.ok(f"transactional_id={transactional_id} state={shown}")


def handle_txn_status(call: Call) -> None:
    transactional_id = _id(call)
    known = transactions_of(call.service).known(transactional_id)
    if known is None:
        raise _unknown(transactional_id, _NOT_FOUND)
    begun = known[1]
    messages, offsets = (0, 0) if begun is None else (begun.messages, len(begun.offsets))
    call.ok(
        f"transactional_id={transactional_id} state={_shown_state(*known)} "
        f"messages={messages} offsets={offsets}"
    )
