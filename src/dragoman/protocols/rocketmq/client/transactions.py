"""Transactional producers: a message is delivered if a local transaction commits (spec, 5.3).

    half message stored ── local transaction ── commit or rollback, sent one way
                                             ╲─ unknown, or lost: the broker asks, `check` decides

The application supplies `local` and `check`, which return the state of its own transaction. When
one of them raises, the state is unknown.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import TypeAlias, TypeVar, Unpack

from dragoman.client_core.errors import ClientError
from dragoman.errors import DecodeError, EncodeError
from dragoman.protocols.rocketmq.bodies import MessageQueue
from dragoman.protocols.rocketmq.client.messages import (
    Message,
    ReceivedMessage,
    SendStatus,
    Sent,
    received,
)
from dragoman.protocols.rocketmq.client.producer import Producer, ProducerOptions, ProducerPorts
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Property, Request, SysFlag
from dragoman.protocols.rocketmq.messages import read_message_id

log = logging.getLogger("dragoman.client.rocketmq")
Asked = TypeVar("Asked")


class TransactionState(IntEnum):
    """The state of a local transaction."""

    UNKNOWN = 0
    COMMIT = SysFlag.TRANSACTION_COMMIT
    ROLLBACK = SysFlag.TRANSACTION_ROLLBACK


Decision: TypeAlias = TransactionState | Awaitable[TransactionState]
LocalTransaction: TypeAlias = Callable[[Message], Decision]
Check: TypeAlias = Callable[[ReceivedMessage], Decision]


class TransactionProducer(Producer):
    def __init__(
        self,
        ports: ProducerPorts,
        group: str,
        check: Check,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(ports, group, **options)
        self._check = check

    async def send_in_transaction(
        self, message: Message, local: LocalTransaction, *, queue: MessageQueue | None = None
    ) -> tuple[Sent, TransactionState]:
        """Store a half message, run the local transaction, and send its state to the broker.

        Returns where the half message was stored, and the state.
        """
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
            # The broker will ask for the state.
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
        await self._remoting.tell(self._address(sent.queue), Request.END_TRANSACTION, fields)

    async def check_transaction(self, address: str, request: Command) -> None:
        """Answer a broker that asks for the state of a half message."""
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
        await self._remoting.tell(address, Request.END_TRANSACTION, fields)


async def _decided(decide: Callable[[Asked], Decision], message: Asked) -> TransactionState:
    try:
        decision = decide(message)
        return await decision if inspect.isawaitable(decision) else decision
    except Exception:
        log.exception("a local transaction has failed: its message waits for a check")
        return TransactionState.UNKNOWN
