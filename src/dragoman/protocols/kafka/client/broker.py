"""A broker as the client sees it: an address, and connections that are opened on demand.

There are two connections. Replies come in order, and the broker may park a fetch for half a second:
on a shared connection, every other request would wait behind it. So fetches have a connection of
their own. Each connection negotiates request versions when it is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, TypedDict, TypeVar, Unpack

from dragoman import __version__
from dragoman.client_core.addresses import Address
from dragoman.client_core.channel import Channel
from dragoman.client_core.connection import KeptConnection, connect
from dragoman.client_core.errors import ClientError, UnreachableError, unreachable
from dragoman.errors import ConfigError, DragomanError
from dragoman.framing import Scratch
from dragoman.limits import KAFKA_CLIENT_REPLY_BYTES_MAX, KAFKA_CLIENT_THROTTLE_MAX_S
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.errors import (
    LoginFailedError,
    UnsupportedRequestError,
    kafka_error,
)
from dragoman.protocols.kafka.client.login import SaslLogin, log_in
from dragoman.protocols.kafka.client.values import ClientSettings
from dragoman.protocols.kafka.connection import ClientConnection
from dragoman.protocols.kafka.constants import ACCEPTED_VERSIONS, ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.notation import message as message_spec
from dragoman.world import Random

#: Newest versions to send, for requests that do not use the newest known version. From version 10
#: on, replies about offsets name topics only by id, so the names of deleted topics could not be
#: resolved.
_CAPS: Final = {ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}

#: First versions that name topics by id. Old brokers do not assign ids.
FIRST_VERSION_WITH_TOPIC_IDS: Final = {ApiKey.PRODUCE: 13, ApiKey.FETCH: 13}


class ServedVersions:
    """The versions and features that a broker has announced."""

    __slots__ = ("_features", "_ranges", "address")

    def __init__(self, address: str, reply: m.ApiVersionsResponse) -> None:
        self.address = address
        self._ranges = {
            each.api_key: (each.min_version, each.max_version) for each in reply.api_keys
        }
        self._features = {each.name: each.max_version_level for each in reply.finalized_features}

    def level(self, feature: str) -> int:
        """The finalized level of a feature; 0 when the cluster does not know the feature."""
        return self._features.get(feature, 0)

    def ranges(self) -> dict[str, tuple[int, int]]:
        """First and last version by a request's name, or by its number if it is unknown here."""
        known = {each.value: _title(each) for each in ApiKey}
        return {known.get(key, str(key)): served for key, served in self._ranges.items()}

    def has(self, api_key: ApiKey) -> bool:
        return api_key in self._ranges

    def pick(
        self, api_key: ApiKey, *, with_topic_ids: bool = True, newest: int | None = None
    ) -> int:
        """The newest version that both sides know. Raises `UnsupportedRequestError`."""
        ours = ACCEPTED_VERSIONS[api_key]
        if newest is None:
            newest = _CAPS.get(api_key, ours.high)
        if not with_topic_ids and api_key in FIRST_VERSION_WITH_TOPIC_IDS:
            newest = min(newest, FIRST_VERSION_WITH_TOPIC_IDS[api_key] - 1)
        served = self._ranges.get(api_key)
        if served is None:
            raise UnsupportedRequestError(f"{self.address} does not serve {_title(api_key)}")
        version = min(newest, served[1])
        if version < max(ours.low, served[0]):
            raise UnsupportedRequestError(
                f"{self.address} serves {_title(api_key)} in versions {served[0]} to {served[1]}, "
                f"this client supports {ours.low} to {newest}"
            )
        return version


def newest_api_versions(reply: m.ApiVersionsResponse) -> int:
    """The version for a second ApiVersions request, after the first was refused (KIP-511)."""
    for each in reply.api_keys:
        if each.api_key == ApiKey.API_VERSIONS:
            return max(0, min(ACCEPTED_VERSIONS[ApiKey.API_VERSIONS].high, each.max_version))
    return 0


def _title(api_key: ApiKey) -> str:
    return "".join(word.capitalize() for word in api_key.name.split("_"))


AnyReply = TypeVar("AnyReply", bound=m.Message)
LaneName: TypeAlias = Literal["control", "fetch"]
#: A request, or a function that builds it for the negotiated version.
Request: TypeAlias = m.Message | Callable[[int], m.Message]

#: The name of this client for KIP-511.
_SOFTWARE: Final = "dragoman"


class RequestOptions(TypedDict, total=False):
    lane: LaneName
    #: How long the broker may park the request before it replies.
    wait_s: float
    with_topic_ids: bool
    #: The newest version to use.
    newest: int | None


class KafkaChannel(Channel[m.Message]):
    """One connection to a broker: messages out, replies by their correlation ids."""

    def __init__(
        self,
        address: object,
        *,
        client_id: str,
        in_flight_max: int,
        scratch: Scratch,
        loop: asyncio.AbstractEventLoop,
        login: SaslLogin | None = None,
    ) -> None:
        super().__init__(address, protocol="Kafka", loop=loop, in_flight_max=in_flight_max)
        self._login = login
        #: When to log in again, before which request; None: never.
        self._login_due: float | None = None
        self._logging_in = asyncio.Lock()
        self._connection = ClientConnection(client_id, KAFKA_CLIENT_REPLY_BYTES_MAX, scratch)
        #: Empty until the versions are negotiated.
        self.served = ServedVersions(self.address, m.ApiVersionsResponse())

    async def request(self, message: m.Message, version: int, timeout_s: float) -> m.Message | None:
        """Send a request and return the reply; None for a produce with acks=0.

        Raises `EncodeError`, `ConnectionLostError`, `RequestTimeoutError`, `LoginFailedError`.
        """
        if self._login_due is not None:
            await self._renew_login(timeout_s)
        return await self._exchange(message, version, timeout_s)

    async def _exchange(
        self, message: m.Message, version: int, timeout_s: float
    ) -> m.Message | None:
        return await self.ask(lambda: self._send(message, version), timeout_s)

    def _send(self, message: m.Message, version: int) -> int | None:
        assert self._transport is not None
        correlation_id, frame = self._connection.send(message, version)
        # An empty last buffer stays in asyncio's transport, which then never closes.
        self._transport.writelines([each for each in frame if each])
        has_reply = not (isinstance(message, m.ProduceRequest) and message.acks == 0)
        return correlation_id if has_reply else None

    async def negotiate(self, timeout_s: float) -> None:
        """Learn which versions the broker serves."""
        request = m.ApiVersionsRequest(
            client_software_name=_SOFTWARE, client_software_version=__version__
        )
        version = ACCEPTED_VERSIONS[ApiKey.API_VERSIONS].high
        reply = await self.request(request, version, timeout_s)
        assert isinstance(reply, m.ApiVersionsResponse)
        if reply.error_code == ErrorCode.UNSUPPORTED_VERSION:
            reply = await self.request(request, newest_api_versions(reply), timeout_s)
            assert isinstance(reply, m.ApiVersionsResponse)
        if reply.error_code:
            raise kafka_error(reply.error_code)
        self.served = ServedVersions(self.address, reply)

    async def log_in(self, timeout_s: float) -> None:
        """Log in, if there are credentials. Raises `LoginFailedError`, `ConfigError`."""
        if self._login is None:
            return

        async def ask(message: m.Message) -> m.Message | None:
            name = type(message).__name__.removesuffix("Request") + "Response"
            api_key = ApiKey(message_spec(name).api_key)
            # Version 0 of the handshake would have tokens follow that are no requests.
            version = 1 if api_key == ApiKey.SASL_HANDSHAKE else self.served.pick(api_key)
            return await self._exchange(message, version, timeout_s)

        renewed_after = await log_in(self._login, ask, is_private=self.is_private)
        self._login_due = None if renewed_after is None else self._loop.time() + renewed_after

    async def _renew_login(self, timeout_s: float) -> None:
        # Requests wait, because a broker may take no others between those of a login.
        async with self._logging_in:
            if self._login_due is not None and self._loop.time() >= self._login_due:
                try:
                    await self.log_in(timeout_s)
                except DragomanError:
                    self.close()
                    raise

    # ---- callbacks of the transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.get_buffer(sizehint)

    def take(self, count: int) -> None:
        for reply in self._connection.buffer_updated(count):
            self.deliver(reply.correlation_id, reply.message)


class _Lane(KeptConnection[KafkaChannel]):
    """A connection that is reopened when it is lost."""

    def __init__(
        self, address: Address, settings: ClientSettings, scratch: Scratch, random: Random
    ) -> None:
        super().__init__(address, settings.retry_policy, random)
        self._settings = settings
        self._scratch = scratch

    def apply_throttle(self, throttle_ms: int) -> None:
        """Pause requests for this long, as KIP-219 requires after a reply with a throttle time."""
        if throttle_ms > 0:
            self.rest(min(throttle_ms / 1000, KAFKA_CLIENT_THROTTLE_MAX_S))

    async def _open(self) -> KafkaChannel:
        timeout_s = self._settings.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                channel = await connect(self.address, self._channel_on, self._settings.tls)
                try:
                    await channel.negotiate(timeout_s)
                    await channel.log_in(timeout_s)
                except BaseException:
                    channel.close()
                    raise
                return channel
        except (LoginFailedError, ConfigError):
            raise
        except DragomanError as error:
            raise UnreachableError(f"cannot reach {self.address}: {error}") from error
        except TimeoutError:
            raise UnreachableError(
                f"cannot reach {self.address}: no answer within {timeout_s:g} s"
            ) from None
        except (OSError, ValueError) as error:
            raise unreachable(self.address, error) from error

    def _channel_on(self, loop: asyncio.AbstractEventLoop) -> KafkaChannel:
        return KafkaChannel(
            self.address,
            client_id=self._settings.client_id,
            in_flight_max=self._settings.in_flight_max,
            scratch=self._scratch,
            loop=loop,
            login=self._settings.login,
        )


class Broker:
    """A broker at one address. Owned by one event loop."""

    def __init__(
        self, address: Address, settings: ClientSettings, scratch: Scratch, random: Random
    ) -> None:
        self.address = address
        self._lanes: dict[LaneName, _Lane] = {
            name: _Lane(address, settings, scratch, random) for name in ("control", "fetch")
        }
        self._settings = settings

    @property
    def is_connected(self) -> bool:
        return any(lane.is_open for lane in self._lanes.values())

    async def served(self) -> ServedVersions:
        """The versions that the broker serves. Connects if there is no connection."""
        return (await self._lanes["control"].connected()).served

    async def ask(
        self, kind: type[AnyReply], request: Request, **options: Unpack[RequestOptions]
    ) -> AnyReply:
        """Send a request in the newest version that both sides know, and return the reply."""
        reply = await self.send(kind, request, **options)
        assert reply is not None
        return reply

    async def send(
        self, kind: type[AnyReply], request: Request, **options: Unpack[RequestOptions]
    ) -> AnyReply | None:
        """Like `ask`, for requests that may have no reply; returns None for those."""
        lane = self._lanes[options.get("lane", "control")]
        channel = await lane.connected()
        version = channel.served.pick(
            ApiKey(message_spec(kind.__name__).api_key),
            with_topic_ids=options.get("with_topic_ids", True),
            newest=options.get("newest"),
        )
        message = request if isinstance(request, m.Message) else request(version)
        timeout_s = self._settings.request_timeout_s + options.get("wait_s", 0.0)
        reply = await channel.request(message, version, timeout_s)
        if reply is None:
            return None
        assert isinstance(reply, kind)
        lane.apply_throttle(getattr(reply, "throttle_time_ms", 0))
        return reply

    def close(self, error: ClientError) -> None:
        """Close for good. Pending and later calls raise this error."""
        for lane in self._lanes.values():
            lane.close(error)
