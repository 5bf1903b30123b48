"""Transactions: messages to several partitions, and a group's offsets, all or nothing.

    async with client.transaction("billing") as transaction:
        await transaction.publish("orders", b"...")

Leaving the block commits, an exception in it aborts. Each transaction asks for a new epoch, which
ends whatever an earlier instance under the same id left open.
"""

from __future__ import annotations

from typing import Self

from dragoman.client_core.errors import ClientError
from dragoman.protocols.cursus.client.commands import Commands
from dragoman.protocols.cursus.client.consumer import Consumer, offsets_text


class Transaction:
    def __init__(self, client: Commands, transactional_id: str) -> None:
        self._client = client
        self._who: dict[str, str | int] = {"transactional_id": transactional_id}
        self._sequence = 0

    async def begin(self) -> None:
        found = await self._client.fields("INIT_PRODUCER_ID", self._who)
        self._who |= {"producerId": found["producerId"], "epoch": found["epoch"]}
        await self._client.command("BEGIN_TXN", self._who)

    async def publish(
        self, topic: str, payload: bytes, *, key: str = "", partition: int | None = None
    ) -> None:
        self._sequence += 1
        where: dict[str, str | int] = {"topic": topic, "key": key, "seqNum": self._sequence}
        if partition is not None:
            where["partition"] = partition
        # Repeated only where the broker can tell: a partition of its choice may change.
        repeat = partition is not None or bool(key)
        sent = self._who | where
        await self._client.command("TXN_PUBLISH", sent, message=payload, repeat=repeat)

    async def send_offsets(self, consumer: Consumer) -> None:
        """Commit what the consumer has handed out together with the messages."""
        offsets = consumer.handed_out()
        if offsets:
            sent = self._who | consumer.identity()
            await self._client.command("SEND_OFFSETS_TO_TXN", sent, last=offsets_text(offsets))

    async def commit(self) -> None:
        await self._client.command("END_TXN", self._who | {"result": "commit"})

    async def abort(self) -> None:
        await self._client.command("END_TXN", self._who | {"result": "abort"})

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.commit()
            return
        try:
            await self.abort()
        except ClientError:
            # The broker aborts it after its time-out; the error of the block matters more.
            return
