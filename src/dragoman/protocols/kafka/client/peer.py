"""One broker as the client sees it: an address, and a connection that is made when it is needed.

Two connections, in fact. A fetch may wait at the broker for half a second, and replies come in
order: on a shared connection every other request would wait behind it. So fetches have a lane of
their own.

A lane connects at its first request and again after a loss. After a failed attempt the next one
waits: twice as long after each failure, with some chance in it, so that the clients of a broker
that restarts do not all come at the same moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, TypeVar

from dragoman import __version__
from dragoman.client_core.errors import ClientError, UnreachableError, before_sending
from dragoman.client_core.errors import unreachable as no_connection
from dragoman.errors import DragomanError
from dragoman.framing import Scratch
from dragoman.limits import KAFKA_CLIENT_THROTTLE_MAX_S
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.errors import kafka_error
from dragoman.protocols.kafka.client.link import Link
from dragoman.protocols.kafka.client.settings import ClientSettings
from dragoman.protocols.kafka.client.versions import ServedVersions, newest_api_versions
from dragoman.protocols.kafka.constants import ACCEPTED_VERSIONS, ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.notation import message as message_spec
from dragoman.world import Random

AnyReply = TypeVar("AnyReply", bound=m.Message)
LaneName: TypeAlias = Literal["control", "fetch"]

#: KIP-511: what this client calls itself.
_SOFTWARE: Final = "dragoman"


class Peer:
    """A broker at one address. Owned by one event loop."""

    def __init__(
        self, host: str, port: int, settings: ClientSettings, scratch: Scratch, random: Random
    ) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._lanes: dict[LaneName, _Lane] = {
            name: _Lane(host, port, self.address, settings, scratch, random)
            for name in ("control", "fetch")
        }
        self._settings = settings

    @property
    def is_connected(self) -> bool:
        return any(lane.is_connected for lane in self._lanes.values())

    async def served(self) -> ServedVersions:
        """What the broker serves; connects when there is no connection."""
        _, served = await self._lanes["control"].connected()
        return served

    async def ask(
        self,
        kind: type[AnyReply],
        build: Callable[[int], m.Message],
        *,
        lane: LaneName = "control",
        wait_s: float = 0.0,
        with_topic_ids: bool = True,
        newest: int | None = None,
    ) -> AnyReply:
        """Send the request that `build` makes for the version agreed on; the reply.

        `wait_s` is how long the broker may hold the reply back on purpose, `newest` the version
        that must not be exceeded.
        """
        reply = await self.send(
            kind,
            build,
            lane=lane,
            wait_s=wait_s,
            with_topic_ids=with_topic_ids,
            newest=newest,
        )
        assert reply is not None
        return reply

    async def send(
        self,
        kind: type[AnyReply],
        build: Callable[[int], m.Message],
        *,
        lane: LaneName = "control",
        wait_s: float = 0.0,
        with_topic_ids: bool = True,
        newest: int | None = None,
    ) -> AnyReply | None:
        """The same for requests that may have no reply."""
        link, served = await self._lanes[lane].connected()
        api_key = ApiKey(message_spec(kind.__name__).api_key)
        version = served.pick(api_key, with_topic_ids=with_topic_ids, newest=newest)
        timeout_s = self._settings.request_timeout_s + wait_s
        reply = await link.request(build(version), version, timeout_s)
        if reply is None:
            return None
        assert isinstance(reply, kind)
        self._lanes[lane].heed_throttle(getattr(reply, "throttle_time_ms", 0))
        return reply

    def close(self, error: ClientError) -> None:
        """For good. Whoever waits for a reply, or asks from now on, gets this error."""
        for lane in self._lanes.values():
            lane.close(error)


class _Lane:
    """One connection and its remaking."""

    def __init__(
        self,
        host: str,
        port: int,
        address: str,
        settings: ClientSettings,
        scratch: Scratch,
        random: Random,
    ) -> None:
        self._host = host
        self._port = port
        self._address = address
        self._settings = settings
        self._scratch = scratch
        self._random = random
        self._connecting = asyncio.Lock()
        self._current: tuple[Link, ServedVersions] | None = None
        self._failures = 0
        #: Loop time before which nothing is tried: back-off after a failure, or a throttle.
        self._not_before = 0.0
        self._closed_by: ClientError | None = None

    @property
    def is_connected(self) -> bool:
        return self._current is not None and self._current[0].is_open

    async def connected(self) -> tuple[Link, ServedVersions]:
        current = self._current
        loop = asyncio.get_running_loop()
        if current is not None and current[0].is_open and loop.time() >= self._not_before:
            return current
        async with self._connecting:
            self._refuse_if_closed()
            pause = self._not_before - loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            if self._current is None or not self._current[0].is_open:
                self._current = await self._connect(loop)
            return self._current

    def heed_throttle(self, throttle_ms: int) -> None:
        """KIP-219: a broker answers at once and expects silence for this long."""
        if throttle_ms > 0:
            pause = min(throttle_ms / 1000, KAFKA_CLIENT_THROTTLE_MAX_S)
            self._not_before = asyncio.get_running_loop().time() + pause

    def close(self, error: ClientError) -> None:
        self._closed_by = error
        if self._current is not None:
            self._current[0].close(error)

    def _refuse_if_closed(self) -> None:
        if self._closed_by is not None:
            raise before_sending(self._closed_by)

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> tuple[Link, ServedVersions]:
        try:
            made = await self._dial(loop)
        except DragomanError as error:
            self._note_failure(loop)
            raise UnreachableError(f"cannot reach {self._address}: {error}") from error
        except TimeoutError:
            self._note_failure(loop)
            raise UnreachableError(
                f"cannot reach {self._address}: no answer within "
                f"{self._settings.connect_timeout_s:g} s"
            ) from None
        except OSError as error:
            self._note_failure(loop)
            raise no_connection(self._address, error) from error
        if self._closed_by is not None:
            made[0].close()
            self._refuse_if_closed()
        self._failures = 0
        return made

    def _note_failure(self, loop: asyncio.AbstractEventLoop) -> None:
        self._failures += 1
        self._not_before = loop.time() + self._settings.backoff_s(self._failures, self._random)

    async def _dial(self, loop: asyncio.AbstractEventLoop) -> tuple[Link, ServedVersions]:
        timeout_s = self._settings.connect_timeout_s
        async with asyncio.timeout(timeout_s):
            _, link = await loop.create_connection(lambda: self._link(loop), self._host, self._port)
            try:
                return link, await self._negotiate(link, timeout_s)
            except BaseException:
                link.close()
                raise

    def _link(self, loop: asyncio.AbstractEventLoop) -> Link:
        return Link(
            self._address,
            client_id=self._settings.client_id,
            in_flight_max=self._settings.in_flight_max,
            scratch=self._scratch,
            loop=loop,
        )

    async def _negotiate(self, link: Link, timeout_s: float) -> ServedVersions:
        request = m.ApiVersionsRequest(
            client_software_name=_SOFTWARE, client_software_version=__version__
        )
        version = ACCEPTED_VERSIONS[ApiKey.API_VERSIONS].high
        reply = await link.request(request, version, timeout_s)
        assert isinstance(reply, m.ApiVersionsResponse)
        if reply.error_code == ErrorCode.UNSUPPORTED_VERSION:
            reply = await link.request(request, newest_api_versions(reply), timeout_s)
            assert isinstance(reply, m.ApiVersionsResponse)
        if reply.error_code:
            raise kafka_error(reply.error_code)
        return ServedVersions(self._address, reply)


def unreachable(failures: list[ClientError]) -> UnreachableError:
    """One error for a list of brokers of which none could be reached."""
    texts = dict.fromkeys(str(failure) for failure in failures)
    return UnreachableError("; ".join(texts) or "no broker is known")
