"""What nodes do for each other's Cursus clients: messages for a partition, offsets for a group.

The original forwards PUBLISH and batches to the leader of their partition (spec, section 9), and so
does this: the request goes as it is, and is worked on where it would have been had its client
connected there. So what is known of idempotent producers stays in one place, the leader's log. The
commands of a transaction go to its coordinator, which has the partitions' leaders stage messages,
and the groups' coordinators offsets.

Who asks has seen to it that the client may. Refusals in words travel as words, others as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from dragoman.broker.relaying import Answered, Relay, TakeReply
from dragoman.broker.relaying import Relayed as RelayedReply
from dragoman.broker.replica import Replica
from dragoman.errors import DecodeError, DragomanError
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.service import PROTOCOL, CursusService
from dragoman.protocols.cursus.handlers.session import Call
from dragoman.protocols.cursus.messages import Batch, Command, Message
from dragoman.rpc import Reply
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import Buffer

_ERROR: Final = b"ERROR: "


class RelayedBatch(msgspec.Struct, frozen=True, tag="RelayedBatch"):
    """Answered with the acknowledgement. `is_counted`: its sequence numbers are checked."""

    batch: Batch
    is_counted: bool


class StagedMessage(msgspec.Struct, frozen=True, tag="StagedMessage"):
    """A message of a transaction, which the partition is part of by now. Answered with nothing."""

    topic: str
    partition: int
    message: Message
    transactional_id: str
    producer_id: int
    epoch: int


class StagedOffsets(msgspec.Struct, frozen=True, tag="StagedOffsets"):
    """SEND_OFFSETS_TO_TXN, for a group that is part of the transaction by now."""

    command: Command


Relayed: TypeAlias = RelayedBatch | StagedMessage | StagedOffsets
_decoder: Final[msgspec.msgpack.Decoder[Relayed]] = msgspec.msgpack.Decoder(Relayed)


def decode(body: memoryview) -> Relayed:
    """Raises `DecodeError`."""
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise DecodeError(f"not a request on behalf of a client: {error}") from None


def asked(request: Relayed) -> tuple[Relay, Sequence[Buffer]]:
    return Relay(protocol=PROTOCOL), (msgspec.msgpack.encode(request),)


def in_words(outcome: bytes | DragomanError) -> bytes | DragomanError:
    """As it travels: a refusal of this protocol has no other form than its text."""
    return _ERROR + outcome.text.encode() if isinstance(outcome, Refusal) else outcome


def outcome_of(answer: Reply[RelayedReply] | Answered) -> bytes | DragomanError:
    if isinstance(answer, DragomanError):
        return answer
    text = bytes(answer.body)
    if text.startswith(_ERROR):
        return Refusal(text.removeprefix(_ERROR).decode())
    return text


class Forwarded:
    """A request on its way to whoever leads its partition."""

    def __init__(
        self, request: Relayed, perform: Callable[[Replica, TakeReply], None], told: TakeReply
    ) -> None:
        """`perform` is for the case that this node leads in the end."""
        self._request = request
        self._perform = perform
        self._told = told

    def here(self, replica: Replica) -> None:
        self._perform(replica, self._told)

    def request(self) -> tuple[Relay, Sequence[Buffer]]:
        return asked(self._request)

    def done(self, answer: Answered) -> None:
        self._told(outcome_of(answer))


class RelayedCall(Call):
    """A command that another node sends in the place of its client."""

    __slots__ = ("_told",)

    def __init__(self, service: CursusService, command: Command, told: TakeReply) -> None:
        self.service = service
        self.command = command
        self._told = told

    def is_allowed(self, _operation: Operation, _resource: Resource, _name: str) -> bool:
        return True

    def ok(self, text: str = "") -> None:
        self._told(text.encode())

    def refuse(self, error: DragomanError) -> None:
        self._told(error)
