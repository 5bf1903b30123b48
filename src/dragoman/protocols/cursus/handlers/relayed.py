"""Requests that nodes send each other on behalf of Cursus clients.

The original forwards PUBLISH and batches to the leader of their partition (spec, section 9). So
does Dragoman: the request is forwarded unchanged, and the leader handles it as if the client were
connected there. So the state of idempotent producers exists only in the leader's log. Commands of a
transaction go to its coordinator, which sends messages to the partition leaders and offsets to the
group coordinators for staging (`participants.py`).

A request is the body of a `Relay`. Both nodes authorize the client, the performing one with the
rules that it knows. A refusal of this protocol is returned as its text, any other error unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec

from dragoman.broker.caller_rights import caller_of
from dragoman.broker.leader_queues import Answered, Relay
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import MALFORMED, DecodeError, DragomanError
from dragoman.outcome import Callback, called_back, start
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import no_access
from dragoman.protocols.cursus.handlers.service import PROTOCOL, CursusService
from dragoman.protocols.cursus.messages import Batch, Command, Message
from dragoman.replication.replica import Replica
from dragoman.rpc import Node
from dragoman.security.access import Caller, Operation, Resource
from dragoman.types import Buffer

_ERROR: Final = b"ERROR: "
_RELAY: Final = Relay(protocol=PROTOCOL)


class RelayedBatch(msgspec.Struct, frozen=True, omit_defaults=True, tag="RelayedBatch"):
    """The answer is the acknowledgement. With `is_counted`, sequence numbers are checked."""

    batch: Batch
    is_counted: bool
    #: None only from nodes below `SECURITY_LEVEL`; see `caller_of`.
    caller: Caller | None = None


class StagedMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="StagedMessage"):
    """A message of a transaction in which its partition is enrolled. The answer is empty."""

    topic: str
    partition: int
    message: Message
    transactional_id: str
    producer_id: int
    epoch: int
    #: None only from nodes below `SECURITY_LEVEL`; see `caller_of`.
    caller: Caller | None = None


class StagedOffsets(msgspec.Struct, frozen=True, omit_defaults=True, tag="StagedOffsets"):
    """SEND_OFFSETS_TO_TXN for a group that is enrolled in the transaction. The answer is empty."""

    command: Command
    #: None only from nodes below `SECURITY_LEVEL`; see `caller_of`.
    caller: Caller | None = None


#: Requests that the leader of a partition handles.
ForLeader: TypeAlias = RelayedBatch | StagedMessage
Relayed: TypeAlias = ForLeader | StagedOffsets
_decoder: Final[msgspec.msgpack.Decoder[Relayed]] = msgspec.msgpack.Decoder(Relayed)


# ---- on the client's node


async def ask(service: CursusService, node_id: int, request: Relayed) -> bytes:
    """Call a node, which may be this one. Raises its `Refusal` or other error."""
    body = msgspec.msgpack.encode(request)
    reply = await service.broker.rpc.exchange(_RELAY, Node(node_id), (body,))
    result = _result_of(reply.body)
    if isinstance(result, Refusal):
        raise result
    return result


def ask_leader(
    service: CursusService,
    partition: PartitionMetadata,
    request: ForLeader,
    reply: Callback[bytes],
    *,
    in_leader_queue: bool = False,
) -> None:
    """Call the leader of a partition, which may be this node, after the earlier requests in the
    queue.
    """
    operation = _Operation(service, request, reply)
    service.broker.leader_queues.run(partition, operation, in_leader_queue=in_leader_queue)


class _Operation:
    """A request for the leader of a partition."""

    def __init__(self, service: CursusService, request: ForLeader, reply: Callback[bytes]) -> None:
        self._service = service
        self._request = request
        self._reply = reply

    def here(self, replica: Replica) -> None:
        _perform_as_leader(self._service, self._request, replica, self._reply)

    def request(self) -> tuple[Relay, Sequence[Buffer]]:
        return _RELAY, (msgspec.msgpack.encode(self._request),)

    def done(self, answer: Answered) -> None:
        self._reply(answer if isinstance(answer, DragomanError) else _result_of(answer.body))


def _result_of(body: memoryview) -> bytes | Refusal:
    text = bytes(body)
    return Refusal(text.removeprefix(_ERROR).decode()) if text.startswith(_ERROR) else text


# ---- on the leader or coordinator


async def perform(service: CursusService, body: memoryview) -> bytes:
    """Perform the request of another node. Raises `DecodeError`."""
    request = decode(body)
    caller = caller_of(service.broker.image, request.caller)
    try:
        if isinstance(request, StagedOffsets):
            from dragoman.protocols.cursus.handlers.participants import stage_offsets

            return await stage_offsets(service, request.command, caller)
        place = request.batch if isinstance(request, RelayedBatch) else request
        if not service.is_allowed(caller, Operation.WRITE, Resource.TOPIC, place.topic):
            raise no_access(Operation.WRITE, place.topic)
        replica = service.broker.partitions.find(place.topic, place.partition)
        return await called_back(partial(_perform_as_leader, service, request, replica))
    except Refusal as refusal:
        return _ERROR + refusal.text.encode()


def _perform_as_leader(
    service: CursusService, request: ForLeader, replica: Replica, reply: Callback[bytes]
) -> None:
    """Raises `DragomanError`."""
    # Both modules send requests to other nodes as well, so they import this one.
    if isinstance(request, RelayedBatch):
        from dragoman.protocols.cursus.handlers.publish import append_batch

        append_batch(service, request, replica, reply)
    else:
        from dragoman.protocols.cursus.handlers.participants import stage_message

        start(stage_message(service, request, replica)).then(reply)


def decode(body: memoryview) -> Relayed:
    """Raises `DecodeError`."""
    try:
        return _decoder.decode(body)
    except MALFORMED as error:
        raise DecodeError(f"not a request on behalf of a client: {error}") from None
