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

from functools import partial
from typing import Final

from dragoman.broker.broker import Broker
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
from dragoman.broker.kinds import Kind
from dragoman.broker.relaying import Told
from dragoman.broker.replica import Acknowledge, Replica
from dragoman.broker.transactions import (
    ProducerIdentity,
    TransactionDescription,
    TransactionState,
)
from dragoman.errors import ClusterError, DragomanError, NotSentError
from dragoman.log.batch import TRANSACTIONAL
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.groups import open_group
from dragoman.protocols.cursus.handlers.offsets import commit, commit_request, parse_offsets
from dragoman.protocols.cursus.handlers.publish import named_partition, route
from dragoman.protocols.cursus.handlers.records import append_records, record_of
from dragoman.protocols.cursus.handlers.relayed import (
    Forwarded,
    RelayedCall,
    StagedMessage,
    StagedOffsets,
    asked,
    outcome_of,
)
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
        self.offsets = 0
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

    def open(
        self, transactional_id: str, identity: ProducerIdentity, result: str = "commit"
    ) -> _Begun:
        """The transaction that this producer has begun and means to end so. Raises `Refusal`."""
        state, begun = self.own(transactional_id, identity)
        if begun is None:
            raise _not_found(transactional_id)
        if begun.result or state not in _OPEN:
            raise Refusal(f"transaction_not_committing transactional_id={transactional_id}")
        if begun.is_in_doubt and result != "abort":
            raise Refusal(f"transaction_aborted transactional_id={transactional_id}")
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
            begun = self.open(transactional_id, identity, result)
        elif begun.result != result:
            code = "already_committed" if begun.result == "commit" else "aborted"
            raise Refusal(f"transaction_{code} transactional_id={transactional_id}")
        return state, begun

    def forget(self, transactional_id: str) -> None:
        self._begun.pop(transactional_id, None)

    # ---- on the nodes that write

    def stage_message(self, request: StagedMessage, replica: Replica, told: Told) -> None:
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
        self._broker.coordination.transacting.enrol(
            request.transactional_id, identity, place, append, is_check=True
        )

    def stage_offsets(self, call: Call) -> None:
        """On the coordinator of the group. Raises `DragomanError`."""
        transactional_id, identity = _named(call)
        group = open_group(call)
        request = commit_request(call, group, parse_offsets(call), producer_id=identity.producer_id)
        self._broker.coordination.transacting.enrol(
            transactional_id,
            identity,
            group.group_id,
            call.after(lambda: commit(call, request, call.ok)),
            is_check=True,
        )


def _is_outcome_unknown(error: DragomanError) -> bool:
    is_lost = isinstance(error, ClusterError) and not isinstance(error, NotSentError)
    return is_lost or isinstance(error, RequestTimedOut | ShuttingDown)


def _from_elsewhere(outcome: bytes | DragomanError) -> bytes | DragomanError:
    """The client is where it has to be: it is not sent to those who could not be asked."""
    if isinstance(outcome, NotLeader | NotCoordinator | NotSentError):
        return CoordinatorNotAvailable(str(outcome))
    return outcome


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
    _id(call)
    return _named(call)


def _named(call: Call) -> tuple[str, ProducerIdentity]:
    transactional_id, name = call.require("transactional_id"), call.require("producerId")
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
    metadata = call.service.partition(topic, partition)
    place = (TopicName(topic.name), Partition(partition))
    message = Message(
        producer_id=call.get("producerId"),
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
            _refuse(call, transactional_id, identity, error)
        else:
            call.ok(
                f"transactional_id={transactional_id} staged_messages={begun.messages} "
                f"topic={topic.name} partition={partition}"
            )

    def staged(outcome: bytes | DragomanError) -> None:
        begun.staged(place, seq_num, outcome if isinstance(outcome, DragomanError) else None)

    def written(outcome: bytes | DragomanError) -> None:
        staged(_from_elsewhere(outcome))

    def enrolled(error: DragomanError | None) -> None:
        if error is not None:
            staged(error)
            return
        perform = partial(call.service.transactions.stage_message, request)
        call.service.broker.relaying.run(metadata, Forwarded(request, perform, written))

    waiting = begun.staging.get((*place, seq_num))
    if waiting is not None:
        waiting.append(answer)
    elif seq_num <= begun.last_sequence.get(place, 0):
        answer(None)
    else:
        begun.staging[*place, seq_num] = [answer]
        call.service.transactions.coordinator.enrol_implicitly(
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


def handle_send_offsets_to_txn(call: Call) -> None:
    transactional_id, identity = _producer(call)
    transactions, broker = call.service.transactions, call.service.broker
    begun = transactions.open(transactional_id, identity)
    count, group = len(parse_offsets(call)), call.require("group")
    call.authorize(Operation.READ, Resource.GROUP, group)

    def staged(outcome: bytes | DragomanError) -> None:
        if isinstance(outcome, DragomanError):
            _refuse(call, transactional_id, identity, outcome)
            return
        begun.offsets += count
        call.ok(f"transactional_id={transactional_id} staged_offsets={begun.offsets}")

    def written(outcome: bytes | DragomanError) -> None:
        staged(_from_elsewhere(outcome))

    def stage(node: int | DragomanError) -> None:
        if isinstance(node, DragomanError):
            written(node)
        elif node == broker.node_id:
            here = RelayedCall(call.service, call.command, written)
            here.attempt(lambda: transactions.stage_offsets(here))
        else:
            request = asked(StagedOffsets(call.command))
            broker.neighbours.ask(node, *request, lambda answer: written(outcome_of(answer)))

    def enrolled(error: DragomanError | None) -> None:
        if error is not None:
            staged(error)
        else:
            broker.coordination.find_coordinator(Kind.GROUP, group, stage)

    transactions.coordinator.enrol_implicitly(transactional_id, identity, (), (group,), enrolled)


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
