"""Commands to the brokers of a list: what producers, consumers and transactions are built on.

Commands go to one broker of the list, over one connection, and to the next when it cannot be
reached. What may be repeated is repeated while brokers cannot be reached; what may not (a publish
without an identity) raises an error that says whether the outcome is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from dragoman.client_core.addresses import Address, Rotation, parse_address, parse_addresses
from dragoman.client_core.errors import ClientClosedError, ClientError, ConnectionLostError
from dragoman.client_core.retry import Retry
from dragoman.errors import ConfigError, DecodeError
from dragoman.protocols.cursus import codec, compression
from dragoman.protocols.cursus.client.connection import Broker, broker_address
from dragoman.protocols.cursus.client.errors import CursusError, server_error
from dragoman.protocols.cursus.client.settings import DEFAULT_PORT, CursusSettings
from dragoman.protocols.cursus.client.values import OffsetRange, TopicInfo
from dragoman.protocols.cursus.constants import ERROR, ERROR_PREFIX
from dragoman.protocols.cursus.messages import Ack, Batch, Command, Text

#: Of a command; those that are empty are left out.
Arguments: TypeAlias = Mapping[str, str | int]
_FIELD: Final = re.compile(r"(\w+)=(\[[^\]]*\]|\S*)")
_OFFSETS: Final = re.compile(r"P\d+:earliest=(\d+):latest=(\d+)")


def encoded(
    word: str, arguments: Arguments, *, message: bytes | None = None, last: str = ""
) -> bytes:
    """The payload of a command. Raises `EncodeError`."""
    given = {name: _shown(value) for name, value in arguments.items() if value != ""}
    return codec.encode_command(Command(word=word, arguments=given, message=message, last=last))


def _shown(value: str | int) -> str:
    """The wire's words for what is true and false are not Python's."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def checked(ack: Ack) -> Ack:
    if ack.status == ERROR:
        raise server_error(ack.error or "broker_error")
    return ack


class Commands:
    """Owned by one event loop."""

    def __init__(self, addresses: str, settings: CursusSettings | None = None) -> None:
        self.settings = settings or CursusSettings()
        self._addresses = Rotation(parse_addresses((addresses,), default_port=DEFAULT_PORT))
        self._brokers: dict[Address, Broker] = {}
        self.retry = Retry(self.settings.retry_policy, on_failure=self._turn)

    async def close(self) -> None:
        for broker in self._brokers.values():
            broker.close(ClientClosedError("the client is closed"))

    @property
    def address(self) -> str:
        """Of the broker that is asked first."""
        return str(self._addresses.first)

    def _broker(self, address: Address) -> Broker:
        found = self._brokers.get(address)
        if found is None:
            found = self._brokers[address] = Broker(address, self.settings)
        return found

    def _turn(self, error: ClientError) -> None:
        """Prefer the leader that the error names; move on from a broker that was not reached."""
        if not error.retriable:
            return
        if not isinstance(error, CursusError):
            self._addresses.move_on()
        elif error.leader:
            with suppress(ConfigError):
                self._addresses.prefer(parse_address(error.leader))

    async def ask(
        self, payload: bytes, broker: Broker | None = None, wait_s: float = 0.0
    ) -> str | Batch:
        """One try. Raises `CursusError` for a reply that is an error."""
        answer = await (broker or self._broker(self._addresses.first)).ask(payload, wait_s)
        match codec.decode_reply(answer):
            case Batch() as batch:
                return batch
            case Text(text=text) if text.startswith(ERROR_PREFIX):
                raise server_error(text)
            case Text(text=text):
                return text
        raise DecodeError("a keep-alive is no reply")

    async def command(
        self,
        word: str,
        arguments: Arguments | None = None,
        *,
        message: bytes | None = None,
        last: str = "",
        repeat: bool = True,
    ) -> str:
        """Any text command; the reply without its `OK`. Raises `CursusError`.

        Without `repeat`, for what must not be done twice, only a broker that was not reached is
        gone past.
        """
        payload = encoded(word, arguments or {}, message=message, last=last)

        async def attempt() -> str:
            try:
                reply = await self.ask(payload)
            except ClientError as error:
                error.retriable = error.retriable and (repeat or not error.is_ambiguous)
                raise
            assert isinstance(reply, str)
            return reply.removeprefix("OK").strip()

        return await self.retry.call(attempt)

    async def fields(
        self,
        word: str,
        arguments: Arguments | None = None,
        *,
        message: bytes | None = None,
        repeat: bool = True,
    ) -> dict[str, str]:
        """The same for a reply of `name=value`."""
        reply = await self.command(word, arguments, message=message, repeat=repeat)
        return dict(_FIELD.findall(reply))

    # ---- topics

    async def topic(self, topic: str) -> TopicInfo:
        found = await self.fields("METADATA", {"topic": topic})
        if not found.keys() >= {"partitions", "leaders"}:
            raise ConnectionLostError(f"{self.address} does not speak Cursus")
        return TopicInfo(
            topic=topic,
            partitions=int(found["partitions"]),
            leaders=tuple(each or self.address for each in found["leaders"].split(",")),
            is_hashed=found.get("partitioner", "hash_key") == "hash_key",
        )

    async def offsets(self, topic: str) -> list[OffsetRange]:
        """Earliest and latest offset of each partition."""
        found = _OFFSETS.findall(await self.command("LIST_OFFSETS", {"topic": topic}))
        return [OffsetRange(int(earliest), int(latest)) for earliest, latest in found]

    # ---- records

    async def publish_batch(self, batch: Batch, *, address: str = "") -> Ack:
        """One try. Raises `CursusError`; an acknowledgement of a part is returned."""
        payload = compression.compress(self.settings.compression, codec.encode_batch(batch))
        where = broker_address(address) if address else self._addresses.first
        reply = await self.ask(payload, self._broker(where))
        assert isinstance(reply, str)
        return checked(codec.decode_ack(reply))

    async def committed(self, group: str, topic: str, partition: int) -> int:
        """0 when nothing was committed."""
        where: Arguments = {"topic": topic, "partition": partition, "group": group}
        return int((await self.fields("FETCH_OFFSET", where))["offset"])
