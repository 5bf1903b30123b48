"""Transactions: INIT_PRODUCER_ID, BEGIN_TXN, TXN_PUBLISH, SEND_OFFSETS_TO_TXN, END_TXN, TXN_STATUS.

They are the broker's own transactions, those that Kafka clients use. Records go to the log at once
and are hidden until the end; offsets are staged with their group. A commit is one decision, written
down before it is acknowledged, and carried out after a restart if need be. What is only begun lives
in memory. Each epoch serves one transaction: another needs INIT_PRODUCER_ID again.

Every command is for the transaction's coordinator, and other nodes name it. The coordinator has
messages staged by the leaders of their partitions, and offsets by the coordinators of their groups
(`relayed.py`): no client could find a node that is all of these. Those ask back whether the
transaction still goes on before they write.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final, NamedTuple

from dragoman.broker.broker import Broker
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
from dragoman.broker.relaying import TakeReply
from dragoman.broker.replica import Acknowledge, Replica
from dragoman.broker.transactions import (
    ProducerIdentity,
    TransactionDescription,
    TransactionState,
)
from dragoman.errors import ClusterError, DragomanError, NotSentError
from dragoman.log.batch import TRANSACTIONAL
from dragoman.outcome import start
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.coordinator import when_coordinated
from dragoman.protocols.cursus.handlers.groups import open_group
from dragoman.protocols.cursus.handlers.offsets import commit, commit_request, parse_offsets
from dragoman.protocols.cursus.handlers.publish import route
from dragoman.protocols.cursus.handlers.records import append_records, record_of
from dragoman.protocols.cursus.handlers.relayed import (
    Forwarded,
    RelayedCall,
    StagedMessage,
    StagedOffsets,
    asked,
    outcome_of,
)
from dragoman.protocols.cursus.handlers.service import CursusService
from dragoman.protocols.cursus.handlers.session import Call
from dragoman.protocols.cursus.messages import Message
from dragoman.rpc import Node
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
_PRODUCER_NAME: Final = re.compile("txn-([0-7][0-9a-f]{15})")
#: The code of a command that names a transaction which is not the producer's to use.
_BEGIN_FAILED: Final = "transaction_begin_failed"
_PUBLISH_FAILED: Final = "transaction_publish_failed"
_OFFSETS_FAILED: Final = "transaction_offsets_failed"
_NOT_FOUND: Final = "transaction_not_found"
#: Characters of an unreadable argument that a refusal repeats.
_QUOTED_MAX: Final = 256
#: How often the end of an earlier transaction is waited for; each time it comes by itself.
_INIT_TRIES: Final = 5


class _Producer(NamedTuple):
    """Who sends a command, in which transaction."""

    transactional_id: str
    identity: ProducerIdentity
    #: What the client calls it: for a refusal, which quotes it.
    name: str


class _Begun:
    """What this node knows of a transaction since it began, or since the node started."""

    __slots__ = (
        "identity",
        "is_in_doubt",
        "last_sequence",
        "messages",
        "offsets",
        "result",
        "staging",
    )

    def __init__(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.messages = 0
        #: Group, topic and partition of each offset that was staged.
        self.offsets: set[tuple[str, str, int]] = set()
        #: How it was ended: "commit" or "abort".
        self.result = ""
        #: By topic and partition: a repeated TXN_PUBLISH is not staged twice.
        self.last_sequence: dict[tuple[str, int], int] = {}
        #: By topic, partition and sequence number: who waits for a message that is being staged.
        self.staging: dict[tuple[str, int, int], list[Acknowledge]] = {}
        #: It is not known whether a message was staged: it can only be aborted.
        self.is_in_doubt = False

    def staged(self, place: TopicPartition, seq_num: int, error: DragomanError | None) -> None:
        """What has become of a message."""
        if error is None:
            self.last_sequence[place] = seq_num
            self.messages += 1
        elif _is_outcome_unknown(error):
            self.is_in_doubt = True
        for each in self.staging.pop((*place, seq_num)):
            each(error)


class Transactions:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.coordinator = broker.coordination.transactions.coordinator
        #: By transactional id; only of ids that the coordinator knows.
        self._begun: dict[str, _Begun] = {}

    def known(self, transactional_id: str) -> tuple[TransactionDescription, _Begun | None] | None:
        """A transactional id, and what was begun under its present identity."""
        try:
            found = self.coordinator.describe(transactional_id)
        except TransactionalIdNotFound:
            return None
        begun = self._begun.get(transactional_id)
        result = _RESULTS.get(found.state, "")
        if begun is None or begun.identity != found.identity:
            if not result and found.state is not TransactionState.ONGOING:
                return found, None
            # Begun before a restart.
            begun = self._begun[transactional_id] = _Begun(found.identity)
        begun.result = result or begun.result
        return found, begun

    def open(self, who: _Producer, code: str) -> _Begun:
        """The transaction that this producer has begun. Raises `Refusal` with that code."""
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
        """Also one that has ended the same way: its answer may have been lost. Without anything
        begun there is nothing to abort. Raises `Refusal`.
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

    # ---- on the nodes that write

    def stage_message(self, request: StagedMessage, replica: Replica, told: TakeReply) -> None:
        """On the leader of the partition: hidden until the transaction ends."""
        identity = ProducerIdentity(request.producer_id, request.epoch)

        def append(error: DragomanError | None) -> None:
            try:
                if error is not None:
                    raise error
                # What was published by text before, in this turn, comes first.
                self._broker.gatherer.flush(replica)
                next_offset = _append(self._broker, replica, request.message, identity)
            except DragomanError as refused:
                told(refused)
                return
            replica.when_committed(next_offset, lambda error: told(b"" if error is None else error))

        states = replica.log.producers
        if states is not None and states.has_open_transaction(identity.producer_id, identity.epoch):
            append(None)
            return
        place = (TopicName(request.topic), Partition(request.partition))
        participants = self._broker.coordination.transactions.participants
        enrolment = participants.enrol(request.transactional_id, identity, place, is_check=True)
        start(enrolment).then(append)

    def stage_offsets(self, call: Call) -> None:
        """On the coordinator of the group. Raises `DragomanError`."""
        transactional_id, identity, _ = _named(call)
        group = open_group(call)
        offsets = _staged_offsets(call)
        request = commit_request(call, group, offsets, producer_id=identity.producer_id)
        participants = self._broker.coordination.transactions.participants
        enrolment = participants.enrol(transactional_id, identity, group.group_id, is_check=True)
        start(enrolment).then(call.after(lambda: commit(call, request, call.ok)))


def transactions_of(service: CursusService) -> Transactions:
    return service.part(Transactions, lambda: Transactions(service.broker))


def _is_outcome_unknown(error: DragomanError) -> bool:
    is_lost = isinstance(error, ClusterError) and not isinstance(error, NotSentError)
    return is_lost or isinstance(error, RequestTimedOut | ShuttingDown)


def _from_elsewhere(outcome: bytes | DragomanError) -> bytes | DragomanError:
    """The client is where it has to be: it is not sent to those who could not be asked."""
    if isinstance(outcome, NotLeader | NotCoordinator | NotSentError):
        return CoordinatorNotAvailable(str(outcome))
    return outcome


def _failed(code: str, reason: str) -> Refusal:
    return Refusal(f"{code} reason={quoted(reason)}")


def _unknown(transactional_id: str, code: str) -> Refusal:
    return _failed(code, f"transaction {transactional_id} not found")


def _check_owner(who: _Producer, present: ProducerIdentity, code: str) -> None:
    """Raises `Refusal` with that code unless the transactional id is this producer's."""
    transactional_id, asked = who.transactional_id, who.identity
    epochs = (
        f"transactional_id={transactional_id} current_epoch={present.epoch} "
        f"requested_epoch={asked.epoch}"
    )
    if asked.producer_id != present.producer_id:
        names = f"producer={_name(present)} requested={who.name}"
        reason = f"transaction owner mismatch transactional_id={transactional_id} {names}"
        raise _failed(code, reason)
    if asked.epoch > present.epoch and code == _BEGIN_FAILED:
        raise _failed(code, f"producer epoch not initialized {epochs}")
    if asked.epoch != present.epoch:
        raise _failed(code, f"producer fenced {epochs}")


def _shown_state(found: TransactionDescription, begun: _Begun | None) -> str:
    """The original's word for it. Before anything is begun there it counts as aborted."""
    if found.state is TransactionState.PREPARE_COMMIT:
        return "committing"
    if begun is None or found.state not in (*_OPEN, *_RESULTS):
        return "aborted"
    return _SHOWN[begun.result]


def _argument(call: Call, *names: str) -> str:
    """The first of these that is given. Raises `Refusal`."""
    return next((call.get(each) for each in names if call.get(each)), "") or call.require(names[0])


def _transactional_id(call: Call) -> str:
    return _argument(call, "transactional_id", "txn", "transaction")


def _id(call: Call) -> str:
    transactional_id = _transactional_id(call)
    call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    call.service.broker.coordination.transactions.require(transactional_id)
    return transactional_id


def _producer(call: Call) -> _Producer:
    """Transactional id and identity that a command names. Raises `Refusal`."""
    _id(call)
    return _named(call)


def _named(call: Call) -> _Producer:
    transactional_id, name = _transactional_id(call), _argument(call, "producerId", "producer_id")
    epoch = call.number("epoch", 0, refusal=_no_number("invalid_epoch", "ParseInt", call, "epoch"))
    found = _PRODUCER_NAME.fullmatch(name)
    producer_id = -1 if found is None else int(found[1], 16)
    return _Producer(transactional_id, ProducerIdentity(producer_id, epoch), name)


def _no_number(code: str, function: str, call: Call, name: str) -> str:
    """What the original says about an argument that it cannot read."""
    shown = quoted(call.get(name)[:_QUOTED_MAX])
    return f"{code} reason={quoted(f'strconv.{function}: parsing {shown}: invalid syntax')}"


def _name(identity: ProducerIdentity) -> str:
    return f"{_PREFIX}{identity.producer_id:016x}"


def _shown(identity: ProducerIdentity) -> str:
    return f"producerId={_name(identity)} epoch={identity.epoch}"


def _refuse(call: Call, who: _Producer, code: str, error: DragomanError) -> None:
    """What the broker's coordinator refuses, in the words of the command."""
    if isinstance(error, ProducerFenced | InvalidProducerIdMapping):
        call.attempt(lambda: _refuse_fenced(call, who, code))
    else:
        call.refuse(error)


def _refuse_fenced(call: Call, who: _Producer, code: str) -> None:
    """Raises `Refusal`: another producer has taken over, or nothing is known any more."""
    known = transactions_of(call.service).known(who.transactional_id)
    if known is not None:
        _check_owner(who, known[0].identity, code)
    raise _unknown(who.transactional_id, code)


def handle_init_producer_id(call: Call) -> None:
    transactional_id = _transactional_id(call)
    call.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    init = partial(_init_producer_id, call, transactional_id)
    when_coordinated(call, CoordinatorKind.TRANSACTION, transactional_id, init)


def _init_producer_id(call: Call, transactional_id: str) -> None:
    transactions, settings = transactions_of(call.service), call.service.broker.settings
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
        elif isinstance(result, ConcurrentTransactions):
            then = "retry END_TXN before reinitializing producer"
            reason = f"transaction {transactional_id} is committing; {then}"
            call.refuse(_failed("init_producer_failed", reason))
        elif isinstance(result, DragomanError):
            call.refuse(result)
        else:
            transactions.forget(transactional_id)
            call.ok(f"transactional_id={transactional_id} {_shown(result)}")

    ask()


def handle_begin_txn(call: Call) -> None:
    who = _producer(call)
    transactions_of(call.service).begin(who)
    call.ok(f"transactional_id={who.transactional_id} state=open {_shown(who.identity)}")


def _sequence(call: Call) -> int:
    """Of the message. Raises `Refusal`."""
    refused = "invalid_seq_num command=TXN_PUBLISH"
    if not call.get("seqNum"):
        raise _failed(refused, "missing seqNum")
    seq_num = call.number("seqNum", refusal=_no_number(refused, "ParseUint", call, "seqNum"))
    if not seq_num:
        raise _failed(refused, "seqNum must be greater than zero")
    return seq_num


def handle_txn_publish(call: Call) -> None:
    _id(call)
    topic_name, payload = call.require("topic"), call.message()
    if not payload:
        raise Refusal("missing_message command=TXN_PUBLISH")
    who = _named(call)
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
    begun = transactions_of(call.service).open(who, _PUBLISH_FAILED)
    place = (TopicName(topic.name), Partition(partition))
    message = Message(
        producer_id=who.name,
        epoch=identity.epoch,
        seq_num=seq_num,
        key=key,
        payload=payload,
    )
    request = StagedMessage(
        topic.name, partition, message, transactional_id, identity.producer_id, identity.epoch
    )

    def answer(error: DragomanError | None) -> None:
        if error is not None:
            _refuse(call, who, _PUBLISH_FAILED, error)
        else:
            # The original counts this command's messages, not the transaction's.
            where = f"topic={topic.name} partition={partition}"
            call.ok(f"transactional_id={transactional_id} staged_messages=1 {where}")

    def staged(outcome: bytes | DragomanError) -> None:
        begun.staged(place, seq_num, outcome if isinstance(outcome, DragomanError) else None)

    def written(outcome: bytes | DragomanError) -> None:
        staged(_from_elsewhere(outcome))

    def enrolled(error: DragomanError | None) -> None:
        if error is not None:
            staged(error)
            return
        perform = partial(transactions_of(call.service).stage_message, request)
        call.service.broker.relaying.run(metadata, Forwarded(request, perform, written))

    waiting = begun.staging.get((*place, seq_num))
    if waiting is not None:
        waiting.append(answer)
    elif seq_num <= begun.last_sequence.get(place, 0):
        answer(None)
    else:
        begun.staging[*place, seq_num] = [answer]
        transactions_of(call.service).coordinator.enrol_implicitly(
            transactional_id, identity, [place], (), enrolled
        )


def _append(broker: Broker, replica: Replica, message: Message, identity: ProducerIdentity) -> int:
    """The offset behind it."""
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


def _staged_offsets(call: Call) -> dict[int, int]:
    """Offset by partition. Raises `Refusal`."""
    last = call.get("offsets") or call.command.last
    if ":" not in last or "=" in last:
        raise _failed("invalid_txn_offsets", "missing offset pairs")
    return parse_offsets(call)


def handle_send_offsets_to_txn(call: Call) -> None:
    _id(call)
    topic, group = call.require("topic"), call.require("group")
    who = _named(call)
    call.require("member")
    call.number("generation", refusal="invalid_generation command=SEND_OFFSETS_TO_TXN")
    offsets = _staged_offsets(call)
    call.authorize(Operation.READ, Resource.GROUP, group)
    transactions, broker = transactions_of(call.service), call.service.broker
    begun = transactions.open(who, _OFFSETS_FAILED)
    transactional_id = who.transactional_id

    def staged(outcome: bytes | DragomanError) -> None:
        if isinstance(outcome, DragomanError):
            _refuse(call, who, _OFFSETS_FAILED, outcome)
            return
        begun.offsets.update((group, topic, each) for each in offsets)
        call.ok(f"transactional_id={transactional_id} staged_offsets={len(offsets)}")

    def written(outcome: bytes | DragomanError) -> None:
        staged(_from_elsewhere(outcome))

    def stage(node: int | DragomanError) -> None:
        if isinstance(node, DragomanError):
            written(node)
        elif node == broker.node_id:
            here = RelayedCall(call.service, call.command, written)
            here.attempt(lambda: transactions.stage_offsets(here))
        else:
            request, body = asked(StagedOffsets(call.command))
            asking = broker.rpc.begin(request, Node(node), body)
            asking.then(lambda answer: written(outcome_of(answer)))

    def enrolled(error: DragomanError | None) -> None:
        if error is not None:
            staged(error)
        else:
            start(broker.coordination.find_coordinator(CoordinatorKind.GROUP, group)).then(stage)

    transactions.coordinator.enrol_implicitly(
        transactional_id, who.identity, (), (group,), enrolled
    )


def handle_end_txn(call: Call) -> None:
    who = _producer(call)
    result = (call.get("result") or call.get("action") or call.get("state") or "commit").lower()
    if result not in ("commit", "abort"):
        raise Refusal(f"invalid_transaction_result value={result}")
    # It may be a repeat of one that is under way.
    end = partial(_end, call, who, result)
    transactions_of(call.service).coordinator.when_idle(who.transactional_id, call.after(end))


def _end(call: Call, who: _Producer, result: str) -> None:
    transactions, transactional_id = transactions_of(call.service), who.transactional_id
    coordinator = transactions.coordinator
    state, begun = transactions.to_be_ended(who, result)

    def answer(_error: DragomanError | None = None) -> None:
        # The decision stands, whatever becomes of the markers.
        shown = _SHOWN[result]
        if begun is not None:
            begun.result = result
        if begun is not None and result == "commit":
            shown += f" messages={begun.messages} offsets={len(begun.offsets)}"
        call.ok(f"transactional_id={transactional_id} state={shown}")

    def decided(outcome: ProducerIdentity | DragomanError) -> None:
        if isinstance(outcome, DragomanError):
            _refuse(call, who, _NOT_FOUND, outcome)
        else:
            # Clients expect to read what they committed: the markers are waited for.
            coordinator.when_idle(transactional_id, answer)

    if state is TransactionState.EMPTY:
        answer()
    else:
        coordinator.end(transactional_id, who.identity, result == "commit", False, decided)


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
