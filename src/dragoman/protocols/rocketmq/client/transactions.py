"""Messages that become visible with a local transaction, or not at all (spec, section 5.3).

    half message stored ── local transaction ── commit or rollback told, one way
                                             ╲─ unknown, or lost: the broker asks, `check` decides

`local` and `check` belong to the application and say what became of its own transaction; when one
raises, that is not known.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias, TypeVar, Unpack

from dragoman.client_core.errors import ClientError
from dragoman.errors import DecodeError, EncodeError
from dragoman.protocols.rocketmq.bodies import MessageQueue
from dragoman.protocols.rocketmq.client.producer import Producer, ProducerOptions
from dragoman.protocols.rocketmq.client.values import (
    Message,
    ReceivedMessage,
    SendStatus,
    Sent,
    received,
)
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Property, Request, SysFlag
from dragoman.protocols.rocketmq.messages import read_message_id

if TYPE_CHECKING:
    from dragoman.protocols.rocketmq.client.facade import RocketmqClient

log = logging.getLogger("dragoman.client.rocketmq")
Asked = TypeVar("Asked")


class TransactionState(IntEnum):
    UNKNOWN = 0
    COMMIT = SysFlag.TRANSACTION_COMMIT
    ROLLBACK = SysFlag.TRANSACTION_ROLLBACK


Decision: TypeAlias = TransactionState | Awaitable[TransactionState]
LocalTransaction: TypeAlias = Callable[[Message], Decision]
Check: TypeAlias = Callable[[ReceivedMessage], Decision]


class TransactionProducer(Producer):
    def __init__(
        self,
        client: RocketmqClient,
        group: str,
        check: Check,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(client, group, **options)
        self._check = check

    async def send_in_transaction(
        self, message: Message, local: LocalTransaction, *, queue: MessageQueue | None = None
    ) -> tuple[Sent, TransactionState]:
        """Where the half message is, and what became of it as far as this end knows."""
        if message.delay_level or message.deliver_at_ms is not None:
            raise EncodeError("a message in a transaction cannot be delayed")
        outgoing = self._outgoing(message, SysFlag.TRANSACTION_PREPARED)
        outgoing.properties |= {
            Property.TRANSACTION_PREPARED: "true",
            Property.PRODUCER_GROUP: self.group,
        }
        sent = await self.deliver(outgoing, queue=queue)
        state = TransactionState.ROLLBACK
        if sent.status is SendStatus.OK:
            state = await _decided(local, message)
        try:
            await self._end(sent, state)
        except (ClientError, DecodeError) as error:
            # The broker will ask.
            log.warning("transaction of %s was not ended: %s", sent.unique_id, error)
        return sent, state

    async def _end(self, sent: Sent, state: TransactionState) -> None:
        _, physical_offset = read_message_id(sent.message_id)
        fields: dict[str, str | int | bool | None] = {
            "topic": sent.queue.topic,
            "producerGroup": self.group,
            "tranStateTableOffset": sent.queue_offset,
            "commitLogOffset": physical_offset,
            "commitOrRollback": int(state),
            "fromTransactionCheck": False,
            "msgId": sent.unique_id,
            "transactionId": sent.transaction_id or sent.unique_id,
            "bname": sent.queue.broker_name,
        }
        await self._client.remoting.tell(self._address(sent.queue), Request.END_TRANSACTION, fields)

    async def check_transaction(self, address: str, request: Command) -> None:
        """A broker asks what became of a half message."""
        messages = received(request.body)
        if not messages or messages[0].properties.get(Property.PRODUCER_GROUP) != self.group:
            return
        state = await _decided(self._check, messages[0])
        given = request.fields
        fields: dict[str, str | int | bool | None] = {
            "topic": given.get("topic", messages[0].topic),
            "producerGroup": self.group,
            "tranStateTableOffset": given.get("tranStateTableOffset"),
            "commitLogOffset": given.get("commitLogOffset"),
            "commitOrRollback": int(state),
            "fromTransactionCheck": True,
            "msgId": given.get("msgId") or messages[0].unique_id,
            "transactionId": given.get("transactionId") or messages[0].unique_id,
            "bname": given.get("bname"),
        }
        await self._client.remoting.tell(address, Request.END_TRANSACTION, fields)


async def _decided(decide: Callable[[Asked], Decision], message: Asked) -> TransactionState:
    try:
        decision = decide(message)
        return await decision if inspect.isawaitable(decision) else decision
    except Exception:
        log.exception("a local transaction has failed: its message waits for a check")
        return TransactionState.UNKNOWN
