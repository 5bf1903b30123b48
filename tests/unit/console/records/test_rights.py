"""Records are read with the rights of the user who is logged in, and with no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from dragoman.client.kafka import (
    ClientSettings,
    KafkaClient,
    NewRecord,
    NewTopic,
    SaslLogin,
)
from dragoman.config.console import KafkaTarget
from dragoman.console.kafka_access import KafkaAccess, KafkaAccessError
from dragoman.console.records.clients import IDLE_S, Clients
from dragoman.console.sessions import Session, Sessions
from dragoman.testing import EphemeralBroker
from worlds.console import console, found

_USERS = {"ann": "secret of ann", "bob": "secret of bob"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(users=_USERS, settings={"super.users": "User:ann"}) as running:
        yield running


async def _prepared(broker: EphemeralBroker, topic: str) -> None:
    login = SaslLogin(name="ann", password=_USERS["ann"])
    async with KafkaClient(broker.bootstrap_servers, ClientSettings(login=login)) as client:
        await client.create_topic(NewTopic(name=topic, partitions=1))
        await client.produce_records(topic, [NewRecord(value=b"secret")])


async def test_two_users_read_what_each_of_them_may(broker: EphemeralBroker) -> None:
    await _prepared(broker, "private")
    async with console(broker) as running:
        ann, bob, nobody = (running.browser() for _ in range(3))
        await ann.log_in("ann", _USERS["ann"])
        await bob.log_in("bob", _USERS["bob"])
        assert found(await ann.search("private")) == [(0, 0)]
        for browser in (bob, nobody):
            (refusal,) = await browser.search("private")
            assert refusal["type"] == "refusal"
            assert "secret" not in str(refusal)
            status, _ = await browser.json("GET", "/records/one?topic=private&partition=0&offset=0")
            assert status >= 400
        # The client of the one is not lent to the other.
        assert found(await ann.search("private")) == [(0, 0)]


async def test_log_out_ends_a_tail(broker: EphemeralBroker) -> None:
    await _prepared(broker, "tailed")
    async with console(broker) as running:
        ann = running.browser()
        await ann.log_in("ann", _USERS["ann"])
        async with ann.tail("tailed") as events:
            await anext(events)
            await ann.log_out()
            *_, (name, problem) = [each async for each in events]
        assert (name, problem["code"]) == ("problem", "login_needed")


async def _scram(*_: object) -> Sequence[str]:
    return ("SCRAM-SHA-256",)


async def _use(clients: Clients, session: Any) -> None:
    async with clients.use(session):
        pass


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_client_is_closed_with_its_session_and_when_it_is_idle() -> None:
    async with EphemeralBroker() as broker:
        clock = _Clock()
        sessions = Sessions(clock, 1800, 36_000)
        target = KafkaTarget(bootstrap=broker.bootstrap_servers)
        clients = Clients(KafkaAccess(target), sessions.is_open, clock)
        name = sessions.open(Session.of_password("ann", "x"))
        session = sessions.find(name)
        await _use(clients, session)
        await _use(clients, None)
        assert len(clients) == 2
        sessions.close(name)
        await clients.close_old()
        assert len(clients) == 1
        clock.now += IDLE_S
        await clients.close_old()
        assert len(clients) == 0
        await clients.close()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (KafkaTarget(), "no listener for Kafka"),
        (KafkaTarget(bootstrap="127.0.0.1:1"), "API token"),
        (
            KafkaTarget(bootstrap="127.0.0.1:1", obstacle="wants certificates"),
            "wants certificates",
        ),
    ],
)
async def test_why_records_cannot_be_read(target: KafkaTarget, words: str) -> None:
    sessions = Sessions(_Clock(), 1800, 36_000)
    session = sessions.find(sessions.open(Session.of_token("a-token")))
    clients = Clients(KafkaAccess(target, _scram), sessions.is_open, _Clock())
    with pytest.raises(KafkaAccessError, match=words):
        await _use(clients, session)


@pytest.mark.parametrize("password", ["file:/etc/hostname", "env:HOME"])
async def test_password_like_a_reference_is_not_replaced_by_what_is_there(password: str) -> None:
    sessions = Sessions(_Clock(), 1800, 36_000)
    session = sessions.find(sessions.open(Session.of_password("ann", password)))
    target = KafkaTarget(bootstrap="127.0.0.1:1")
    clients = Clients(KafkaAccess(target, _scram), sessions.is_open, _Clock())
    with pytest.raises(KafkaAccessError, match="begins with file: or env:"):
        await _use(clients, session)
