"""Connections to Cursus brokers, and commands over them.

A command goes to one broker of a list, and to the next one when that broker cannot be reached.
Commands that may be repeated are retried; a command that may not (a publish without a producer's
identity) fails with an error that says whether its outcome is known. Every stream of frames has a
connection of its own. The values and errors that replies become are here too.

Errors of the broker's replies (`client_core.errors` has those of connections):

    ClientError
      CursusError               the broker refused; `server_code` and `text` are from its reply
      LoginFailedError        an unknown user or a wrong password
      NotAuthorizedError      the user lacks the right, or the broker requires a login
        MemberFencedError       no longer a member, or of an older generation
        ProducerFencedError     a newer instance of the producer has taken over
        UnknownTopicError
        VersionConflictError    the event stream has another version
        NotLeaderError          another broker leads the partition: `leader`, if known
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

import msgspec

from dragoman.client_core.addresses import Address, Rotation, parse_address, parse_addresses
from dragoman.client_core.channel import OrderedChannel
from dragoman.client_core.connection import KeptConnection, RetrySettings, dial
from dragoman.client_core.credentials import Login, resolved
from dragoman.client_core.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    unreachable,
)
from dragoman.client_core.retry import Retry
from dragoman.errors import ConfigError, DecodeError, EncodeError
from dragoman.framing import Scratch
from dragoman.protocols.cursus import codec, compression
from dragoman.protocols.cursus.connection import frame_reader
from dragoman.protocols.cursus.constants import ERROR, ERROR_PREFIX
from dragoman.protocols.cursus.errors import UNKNOWN_OUTCOME, is_retryable
from dragoman.protocols.cursus.messages import Ack, Batch, Command, Text
from dragoman.types import Buffer

DEFAULT_PORT = 9000


class CursusSettings(RetrySettings, frozen=True, kw_only=True):
    """Settings of a Cursus client. Times are in seconds."""

    connect_timeout_s: float = 10.0
    #: Compression of batches: `none`, or a name registered by `dragoman.client.cursus.register`.
    compression: str = "none"
    #: The user as which each connection logs in. Its password may be a reference
    #: (`client_core.credentials`).
    login: Login | None = None


_OnPush: TypeAlias = Callable[[bytearray | ClientError], None]


def broker_address(text: str) -> Address:
    """An address received from a broker. Raises `UnreachableError`."""
    try:
        return parse_address(text)
    except ConfigError as error:
        raise unreachable(text, error) from None


async def _open_channel(
    address: Address, settings: CursusSettings, on_push: _OnPush | None = None
) -> OrderedChannel:
    """Connect and log in. `on_push` receives every frame after that, and finally the loss of the
    connection; without it, frames are replies. Raises `UnreachableError`, `LoginFailedError`.
    """
    is_pushed = on_push is not None and settings.login is None

    def make(loop: asyncio.AbstractEventLoop) -> OrderedChannel:
        return OrderedChannel(
            address,
            frame_reader(Scratch()),
            protocol="Cursus",
            loop=loop,
            in_flight_max=settings.in_flight_max,
            is_push=lambda _frame: is_pushed,
            on_push=on_push or _ignore,
            on_lost=on_push or _ignore,
        )

    channel = await dial(address, make, settings.connect_timeout_s, tls=settings.tls)
    if settings.login is not None:
        try:
            await _log_in(channel, settings.login, settings.request_timeout_s)
        except BaseException as error:
            channel.close(error if isinstance(error, ClientError) else None)
            raise
        is_pushed = on_push is not None
    return channel


async def _log_in(channel: OrderedChannel, login: Login, timeout_s: float) -> None:
    if not channel.is_private and not login.allow_clear_text:
        raise LoginFailedError("a login sends the password in clear: use TLS")
    given = {"principal": login.name, "token": resolved(login.password)}
    try:
        payload = encoded("AUTH", given)
    except EncodeError:
        # The error's text has the password.
        text = "login: names and passwords with blanks cannot be part of a command"
        raise ConfigError(text) from None
    reply = bytes(await channel.request(codec.frame(payload), timeout_s)).decode("utf-8", "replace")
    if reply.startswith(ERROR_PREFIX):
        raise server_error(reply)


def _ignore(_pushed: bytearray | ClientError) -> None:
    """Do nothing: callers that wait for replies get the error."""


class Broker(KeptConnection[OrderedChannel]):
    def __init__(self, address: Address, settings: CursusSettings) -> None:
        super().__init__(address)
        self._settings = settings

    async def ask(self, payload: Buffer, wait_s: float = 0.0) -> bytes:
        """Send a request and return the payload of its reply. Raises connection errors."""
        channel = await self.connected()
        timeout_s = self._settings.request_timeout_s + wait_s
        return bytes(await channel.request(codec.frame(payload), timeout_s))

    async def _open(self) -> OrderedChannel:
        return await _open_channel(self.address, self._settings)


class Stream:
    """The frames that a broker pushes on one connection, in order."""

    def __init__(
        self, channel: OrderedChannel, frames: asyncio.Queue[bytearray | ClientError]
    ) -> None:
        self.channel = channel
        self._frames = frames

    async def next(self, timeout_s: float) -> bytearray:
        """The next frame. Raises `ConnectionLostError`, also on a timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                frame = await self._frames.get()
        except TimeoutError:
            raise ConnectionLostError(f"{self.channel.address} is silent") from None
        if isinstance(frame, ClientError):
            raise frame
        return frame


@asynccontextmanager
async def open_stream(
    address: Address, settings: CursusSettings, payload: Buffer
) -> AsyncIterator[Stream]:
    """Open a stream: the frames that answer a command, on their own connection."""
    frames: asyncio.Queue[bytearray | ClientError] = asyncio.Queue()
    channel = await _open_channel(address, settings, frames.put_nowait)
    try:
        channel.send(codec.frame(payload))
        yield Stream(channel, frames)
    finally:
        channel.close()


#: Arguments of a command. Empty ones are omitted.
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
    """An argument as text, with booleans in lower case as on the wire."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def checked(ack: Ack) -> Ack:
    if ack.status == ERROR:
        raise server_error(ack.error or "broker_error")
    return ack


class Commands:
    """Commands to the brokers of a list. Owned by one event loop."""

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
        """The address of the broker that is tried first."""
        return str(self._addresses.first)

    def _broker(self, address: Address) -> Broker:
        found = self._brokers.get(address)
        if found is None:
            found = self._brokers[address] = Broker(address, self.settings)
        return found

    def _turn(self, error: ClientError) -> None:
        """Prefer the leader that the error names, or the next broker after a lost connection."""
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
        """Send a command once. Raises `CursusError` for an error reply."""
        answer = await (broker or self._broker(self._addresses.first)).ask(payload, wait_s)
        match codec.decode_reply(answer):
            case Batch() as batch:
                return batch
            case Text(text=text) if text.startswith(ERROR_PREFIX):
                raise server_error(text)
            case Text(text=text):
                return text
        raise DecodeError("expected a reply, got a keep-alive")

    async def command(
        self,
        word: str,
        arguments: Arguments | None = None,
        *,
        message: bytes | None = None,
        last: str = "",
        repeat: bool = True,
    ) -> str:
        """Send any text command; returns the reply without its `OK`. Raises `CursusError`.

        Without `repeat`, which suits commands that must not be executed twice, the command is
        retried only after failures that certainly had no effect.
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
        """Send a command whose reply consists of `name=value` fields. Raises `CursusError`."""
        reply = await self.command(word, arguments, message=message, repeat=repeat)
        return dict(_FIELD.findall(reply))

    # ---- topics

    async def topic(self, topic: str) -> TopicInfo:
        found = await self.fields("METADATA", {"topic": topic})
        if not found.keys() >= {"partitions", "leaders"}:
            raise ConnectionLostError(f"{self.address} is not a Cursus broker")
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
        """Send a batch once. Returns partial acknowledgements as well. Raises `CursusError`."""
        payload = compression.compress(self.settings.compression, codec.encode_batch(batch))
        where = broker_address(address) if address else self._addresses.first
        reply = await self.ask(payload, self._broker(where))
        assert isinstance(reply, str)
        return checked(codec.decode_ack(reply))

    async def committed(self, group: str, topic: str, partition: int) -> int:
        """The committed offset of a partition; 0 if none was committed."""
        where: Arguments = {"topic": topic, "partition": partition, "group": group}
        return int((await self.fields("FETCH_OFFSET", where))["offset"])


_FENCED: Final = re.compile(r'^transaction_\w+ .*?reason="(producer fenced|transaction owner)')
_LEADER: Final = re.compile(r"LEADER_IS (\S+)|host=(\S+) port=(\d+)")


class CursusError(ClientError):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.server_code = text.partition(" ")[0]
        self.retriable = is_retryable(self.server_code)
        self.is_ambiguous = self.server_code == UNKNOWN_OUTCOME

    @property
    def leader(self) -> str:
        """Address of the broker to use instead; empty when the error names none."""
        found = _LEADER.search(self.text) if self.retriable else None
        return "" if found is None else found[1] or f"{found[2]}:{found[3]}"


class LoginFailedError(CursusError): ...


class NotAuthorizedError(CursusError): ...


class MemberFencedError(CursusError): ...


class ProducerFencedError(CursusError): ...


class UnknownTopicError(CursusError): ...


class VersionConflictError(CursusError): ...


class NotLeaderError(CursusError): ...


_KINDS: dict[str, type[CursusError]] = {
    "GEN_MISMATCH": MemberFencedError,
    "NOT_OWNER": MemberFencedError,
    "REBALANCE_REQUIRED": MemberFencedError,
    "member_not_found": MemberFencedError,
    "group_not_found": MemberFencedError,
    "producer_fenced": ProducerFencedError,
    "stale_producer_epoch": ProducerFencedError,
    "topic_not_found": UnknownTopicError,
    "version_conflict": VersionConflictError,
    "NOT_LEADER": NotLeaderError,
    "authentication_failed": LoginFailedError,
    "authentication_required": NotAuthorizedError,
    "NOT_AUTHORIZED_FOR_OPERATION": NotAuthorizedError,
    "NOT_AUTHORIZED_FOR_TOPIC": NotAuthorizedError,
}


def server_error(text: str) -> CursusError:
    """The error for the text of a reply."""
    plain = text.removeprefix(ERROR_PREFIX)
    if _FENCED.search(plain):
        # Commands of transactions have codes of their own, and give the reason as text.
        return ProducerFencedError(plain)
    return _KINDS.get(plain.partition(" ")[0], CursusError)(plain)


class TopicInfo(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partitions: int
    #: Address of each partition's leader.
    leaders: tuple[str, ...]
    #: Whether keys choose the partition; otherwise messages go to all partitions in turn.
    is_hashed: bool = True


class OffsetRange(msgspec.Struct, frozen=True):
    earliest: int
    latest: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A record that a consumer has received."""

    topic: str
    partition: int
    offset: int
    key: bytes
    payload: bytes


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a stream. `version` is set in events that were read."""

    payload: bytes
    event_type: str = ""
    schema_version: int = 1
    metadata: str = ""
    version: int = 0


class Appended(msgspec.Struct, frozen=True):
    version: int
    offset: int
    partition: int


class Snapshot(msgspec.Struct, frozen=True):
    version: int
    payload: str


class EventStream(msgspec.Struct, frozen=True):
    snapshot: Snapshot | None
    events: Sequence[Event]
