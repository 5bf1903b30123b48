"""Many clients that log in over TLS, in a process of its own, so that they take no time of others.

    python -m attack.fleet CA USER PASSWORD_FILE CLIENTS ADDRESS ...

Prints a line when all are connected. For each line on its input it cuts all connections at once,
has all clients come back, and prints what that took as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import random
import socket
import ssl
import struct
import sys
import time
from functools import cache
from pathlib import Path

_HANDSHAKE, _AUTHENTICATE, _METADATA = 17, 36, 3
_MECHANISMS = ("SCRAM-SHA-256", "PLAIN")
_PATIENCE_S = 120.0
_RETRY_S = 0.25
#: Connections that are begun at the same time before the storm.
_AT_ONCE = 50


@cache
def _keys(password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """Client key and stored key: as real clients do, they are computed once."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    key = hmac.digest(salted, b"Client Key", "sha256")
    return key, hashlib.sha256(key).digest()


class FleetClient:
    """One client. It comes back until it is logged in and has been answered a request."""

    def __init__(
        self, number: int, address: str, user: str, password: str, tls: ssl.SSLContext
    ) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        # As many addresses as clients: all of 127.0.0.0/8 is this machine.
        self._source = (f"127.{number >> 16 & 255 | 1}.{number >> 8 & 255}.{number & 255 or 1}", 0)
        self._mechanism = _MECHANISMS[number // 3 % len(_MECHANISMS)]
        self._user, self._password = user, password
        self._tls = tls
        self._random = random.Random(number)
        self._writer: asyncio.StreamWriter | None = None
        self.attempts = 0

    def cut(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    async def come_back(self) -> float:
        """When it was back, in seconds."""
        began = time.monotonic()
        while True:
            self.attempts += 1
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._connect()
            except (OSError, EOFError, TimeoutError):
                self.cut()
                if time.monotonic() > began + _PATIENCE_S:
                    raise
                await asyncio.sleep(_RETRY_S * self._random.uniform(0.5, 1.5))
            else:
                return time.monotonic() - began

    async def _connect(self) -> None:
        reader, writer = await asyncio.open_connection(
            *self._address, ssl=self._tls, server_hostname="localhost", local_addr=self._source
        )
        self._writer = writer
        connected = writer.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await self._ask(reader, _HANDSHAKE, _string(self._mechanism))
        if self._mechanism == "PLAIN":
            await self._authenticate(reader, f"\0{self._user}\0{self._password}")
        else:
            await self._scram(reader)
        await self._ask(reader, _METADATA, struct.pack(">i", 0))

    async def _scram(self, reader: asyncio.StreamReader) -> None:
        nonce = os.urandom(12).hex()
        bare = f"n={self._user},r={nonce}"
        first = await self._authenticate(reader, f"n,,{bare}")
        fields = dict(each.split("=", 1) for each in first.split(","))
        salt = base64.b64decode(fields["s"])
        key, stored = _keys(self._password, salt, int(fields["i"]))
        final = f"c=biws,r={fields['r']}"
        signature = hmac.digest(stored, f"{bare},{first},{final}".encode(), "sha256")
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        await self._authenticate(reader, f"{final},p={base64.b64encode(proof).decode()}")

    async def _authenticate(self, reader: asyncio.StreamReader, text: str) -> str:
        data = text.encode()
        answer = await self._ask(reader, _AUTHENTICATE, struct.pack(">i", len(data)) + data)
        code, words = struct.unpack_from(">hh", answer)
        if code:
            raise ConnectionError(f"login refused: {answer!r}")
        return answer[4 + max(words, 0) + 4 :].decode()

    async def _ask(self, reader: asyncio.StreamReader, key: int, body: bytes) -> bytes:
        """The reply without its head; version 1 of Metadata and SaslHandshake, 0 of the other."""
        assert self._writer is not None
        head = struct.pack(">hhi", key, key != _AUTHENTICATE, 1) + _string("fleet")
        self._writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return (await reader.readexactly(size))[4:]


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


async def _arrive(clients: list[FleetClient]) -> None:
    """All of them, a few at a time."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def arrive(client: FleetClient) -> None:
        async with places:
            await client.come_back()

    await asyncio.gather(*map(arrive, clients))


async def _storm(clients: list[FleetClient]) -> dict[str, float]:
    for each in clients:
        each.cut()
        each.attempts = 0
    began, cpu = time.monotonic(), time.process_time()
    took = sorted(await asyncio.gather(*(each.come_back() for each in clients)))
    return {
        "clients": len(clients),
        "half_s": took[len(took) // 2],
        "all_s": time.monotonic() - began,
        "cpu_s": time.process_time() - cpu,
        "attempts": sum(each.attempts for each in clients),
    }


async def _run(ca: str, user: str, password: str, count: int, addresses: list[str]) -> None:
    tls = ssl.create_default_context(cafile=ca)
    clients = [
        FleetClient(number, addresses[number % len(addresses)], user, password, tls)
        for number in range(count)
    ]
    await _arrive(clients)
    print("connected", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await _storm(clients)), flush=True)


if __name__ == "__main__":
    ca_file, name, password_file, number_of_clients, *nodes = sys.argv[1:]
    secret = Path(password_file).read_text().strip()
    asyncio.run(_run(ca_file, name, secret, int(number_of_clients), nodes))
