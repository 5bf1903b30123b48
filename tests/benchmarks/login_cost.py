"""What logins cost a node: logins a second by mechanism, and what a storm of them does to others.

    python tests/benchmarks/login_cost.py

Clients are bare sockets in two processes of their own. `cold` logins are those of users that the
node has not seen; `cached` ones repeat. With SCRAM the client computes the hash of the password, so
those figures are the clients'. The latency is that of producing one record with acks=all, by a
client that logged in before.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Callable

from scramp import ScramClient

from dragoman.client.kafka import ClientSettings, KafkaClient, NewRecord, SaslLogin
from dragoman.protocols.kafka import messages as m
from dragoman.testing import EphemeralBroker
from protocols.kafka_socket import KafkaSocket

USERS = 1000
STORM = 4


def log_in(address: str, mechanism: str, name: str) -> None:
    with KafkaSocket(address) as connected:
        connected.ask(m.SaslHandshakeRequest(mechanism=mechanism), 1, m.SaslHandshakeResponse)

        def send(token: bytes) -> bytes:
            request = m.SaslAuthenticateRequest(auth_bytes=token)
            reply = connected.ask(request, 2, m.SaslAuthenticateResponse)
            assert not reply.error_code, reply.error_message
            return bytes(reply.auth_bytes)

        if mechanism == "PLAIN":
            send(f"\0{name}\0{name}".encode())
            return
        client = ScramClient([mechanism], name, name)
        client.set_server_first(send(client.get_client_first().encode()).decode())
        send(client.get_client_final().encode())


def rate(address: str, mechanism: str, names: list[str]) -> float:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.starmap(log_in, [(address, mechanism, "user0")] * 2)
        begun = time.perf_counter()
        pool.starmap(log_in, [(address, mechanism, name) for name in names], chunksize=20)
        return len(names) / (time.perf_counter() - begun)


async def latencies(address: str, seconds: float) -> list[float]:
    login = SaslLogin(name="user0", password="user0")
    found = []
    async with KafkaClient(address, ClientSettings(login=login)) as client:
        await client.produce_records("t", [NewRecord(value=b"v")])
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            begun = time.perf_counter()
            await client.produce_records("t", [NewRecord(value=b"v")])
            found.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(0.01)
    return found


def storm(address: str, mechanism: str, names: list[str], stop: float) -> None:
    while time.time() < stop:
        for name in names:
            log_in(address, mechanism, name)
            if time.time() > stop:
                return


def during(address: str, work: Callable[[str, str, list[str], float], None] | None) -> str:
    names = [f"user{number}" for number in range(USERS)]
    stop = time.time() + 6
    processes = []
    if work is not None:
        for _ in range(STORM):
            processes.append(
                multiprocessing.get_context("spawn").Process(
                    target=work, args=(address, "PLAIN", names, stop)
                )
            )
            processes[-1].start()
        time.sleep(1.5)
    found = sorted(asyncio.run(latencies(address, 4)))
    for each in processes:
        each.join()
    return f"median {statistics.median(found):.1f} ms, p99 {found[int(len(found) * 0.99)]:.1f} ms"


def main() -> None:
    users = {f"user{number}": f"user{number}" for number in range(USERS)}
    names = list(users)
    # More logins in a second than one address may have by default.
    settings = {"max.connections.before.login.per.ip": "8192"}
    with EphemeralBroker(users=users, listeners=("kafka",), settings=settings) as broker:
        address = broker.bootstrap_servers
        print(f"PLAIN, cold: {rate(address, 'PLAIN', names):.0f} logins/s")
        print(f"PLAIN, cached: {rate(address, 'PLAIN', names):.0f} logins/s")
        print(f"SCRAM-SHA-256: {rate(address, 'SCRAM-SHA-256', names):.0f} logins/s")
        print(f"SCRAM-SHA-512: {rate(address, 'SCRAM-SHA-512', names):.0f} logins/s")
        print(f"produce, quiet: {during(address, None)}")
        print(f"produce, storm of {STORM} processes: {during(address, storm)}")


if __name__ == "__main__":
    main()
