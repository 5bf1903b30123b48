"""Requests between nodes for their Cursus clients: messages for a partition, offsets for a group.

The original forwards PUBLISH and batches to the leader of their partition (spec, section 9), and so
does this: the request travels as it is, and is worked on where it would have been had its client
connected there. So what is known of idempotent producers stays in one place, the leader's log. The
commands of a transaction go to its coordinator, which has messages staged by the leaders of the
partitions, and offsets by the coordinators of the groups.

A request is the body of a `Relay`. The node that asks has checked what its client may do. A refusal
of this protocol travels as its text, any other error as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias, assert_never

import msgspec

from dragoman.broker.leader_queues import Answered, Relay, TakeReply
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DecodeError, DragomanError
from dragoman.outcome import start
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.service import PROTOCOL, CursusService
from dragoman.protocols.cursus.messages import Batch, Command, Message
from dragoman.replication.replica import Replica
from dragoman.rpc import Node
from dragoman.types import Buffer

_ERROR: Final = b"ERROR: "
_RELAY: Final = Relay(protocol=PROTOCOL)


class RelayedBatch(msgspec.Struct, frozen=True, tag="RelayedBatch"):
    """Answered with the acknowledgement. `is_counted`: its sequence numbers are checked."""

    batch: Batch
    is_counted: bool


class StagedMessage(msgspec.Struct, frozen=True, tag="StagedMessage"):
    """A message of a transaction, in which its partition is enrolled. Answered with nothing."""

    topic: str
    partition: int
    message: Message
    transactional_id: str
    producer_id: int
    epoch: int


class StagedOffsets(msgspec.Struct, frozen=True, tag="StagedOffsets"):
    """SEND_OFFSETS_TO_TXN, for a group that is enrolled in the transaction. Answered with
    nothing.
    """

    command: Command


Relayed: TypeAlias = RelayedBatch | StagedMessage | StagedOffsets
_decoder: Final[msgspec.msgpack.Decoder[Relayed]] = msgspec.msgpack.Decoder(Relayed)


# ---- on the node that asks


async def ask(service: CursusService, node_id: int, request: Relayed) -> bytes:
    """Have a request performed by a node, which may be this one. Raises `Refusal` in the words of
    that node, and its other errors.
    """
    body = msgspec.msgpack.encode(request)
    reply = await service.broker.rpc.exchange(_RELAY, Node(node_id), (body,))
    result = _result_of(reply.body)
    if isinstance(result, Refusal):
        raise result
    return result


def ask_leader(
    service: CursusService,
    partition: PartitionMetadata,
    request: Relayed,
    append: Callable[[Replica, TakeReply], None],
    reply: TakeReply,
    *,
    in_leader_queue: bool = False,
) -> None:
    """Have a request performed where a partition is led, after those before it. `append` performs
    it on this node, if this node leads the partition by then.
    """
    operation = _Operation(request, append, reply)
    service.broker.leader_queues.run(partition, operation, in_leader_queue=in_leader_queue)


class _Operation:
    """A request for the leader of a partition."""

    def __init__(
        self, request: Relayed, append: Callable[[Replica, TakeReply], None], reply: TakeReply
    ) -> None:
        self._request = request
        self._append = append
        self._reply = reply

    def here(self, replica: Replica) -> None:
        self._append(replica, self._reply)

    def request(self) -> tuple[Relay, Sequence[Buffer]]:
        return _RELAY, (msgspec.msgpack.encode(self._request),)

    def done(self, answer: Answered) -> None:
        self._reply(answer if isinstance(answer, DragomanError) else _result_of(answer.body))


def _result_of(body: memoryview) -> bytes | Refusal:
    text = bytes(body)
    return Refusal(text.removeprefix(_ERROR).decode()) if text.startswith(_ERROR) else text


# ---- on the node that is asked


def perform(service: CursusService, body: memoryview, reply: TakeReply) -> None:
    """Perform what another node asks for. Raises `DecodeError`."""
    # Both ask other nodes, too.
    from dragoman.protocols.cursus.handlers.publish import append_batch
    from dragoman.protocols.cursus.handlers.transactions import stage_message, stage_offsets

    request, find = decode(body), service.broker.partitions.find
    send = partial(_send, reply)
    try:
        match request:
            case RelayedBatch(batch=batch):
                append_batch(service, request, find(batch.topic, batch.partition), send)
            case StagedMessage():
                replica = find(request.topic, request.partition)
                start(stage_message(service, request, replica)).then(send)
            case StagedOffsets():
                start(stage_offsets(service, request.command)).then(send)
            case _:
                assert_never(request)
    except DragomanError as error:
        send(error)


def decode(body: memoryview) -> Relayed:
    """Raises `DecodeError`."""
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise DecodeError(f"not a request on behalf of a client: {error}") from None


def _send(reply: TakeReply, result: bytes | DragomanError) -> None:
    reply(_ERROR + result.text.encode() if isinstance(result, Refusal) else result)
