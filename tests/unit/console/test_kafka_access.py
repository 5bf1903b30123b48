"""Goal: users read records behind any listener that takes passwords, by the mechanism that it
offers.

Method: real listeners, over TLS and without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from dragoman.client.kafka import (
    BlockingKafkaClient,
    ClientClosedError,
    ClientSettings,
    NewRecord,
    NewTopic,
    SaslLogin,
    UnreachableError,
    offered_mechanisms,
)
from dragoman.client_core.addresses import parse_addresses
from dragoman.config.console import KafkaTarget
from dragoman.console.kafka_access import KafkaAccess, KafkaAccessError
from dragoman.console.sessions import Session
from dragoman.framing import Scratch
from dragoman.operating_system import system_random
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.broker import Broker
from dragoman.testing import EphemeralBroker
from worlds.console import console, found

_USERS = {"ann": "secret of ann"}
#: Kafka's number of SCRAM-SHA-512.
_SHA_512 = 2
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module", params=[*_MECHANISMS, ",".join(_MECHANISMS)])
def broker(request: pytest.FixtureRequest) -> Iterator[EphemeralBroker]:
    settings = {"super.users": "User:ann", "listener.kafka.sasl.enabled.mechanisms": request.param}
    with EphemeralBroker(users=_USERS, settings=settings, tls=True) as running:
        yield running


def _target(broker: EphemeralBroker) -> KafkaTarget:
    return KafkaTarget(
        bootstrap=broker.bootstrap_servers, is_encrypted=True, authorities=broker.ca_file
    )


def _ann() -> Session:
    return Session.of_password("ann", _USERS["ann"])


async def test_user_reads_by_the_mechanism_that_the_listener_offers(
    broker: EphemeralBroker,
) -> None:
    access = KafkaAccess(_target(broker))
    settings = await access.settings(_ann())
    assert settings.login is not None
    offered = await offered_mechanisms(broker.bootstrap_servers, settings)
    best = next(each for each in reversed(_MECHANISMS) if each in offered)
    assert settings.login.mechanism == best
    with BlockingKafkaClient(broker.bootstrap_servers, settings) as client:
        client.create_topic(NewTopic(name=f"of-{best}", partitions=1))
        client.produce_records(f"of-{best}", [NewRecord(value=b"x")])
    options = {"is_encrypted": True, "authorities": broker.ca_file}
    async with console(broker, **options) as running:
        browser = running.browser()
        await browser.log_in("ann", _USERS["ann"])
        assert found(await browser.search(f"of-{best}")) == [(0, 0)]
        body = {"query": f'select count(*) from "of-{best}"'}
        async with browser.ask("POST", "/sql", body) as answer:
            assert b'"rows":[[1]]' in await answer.body(1 << 20)


async def test_user_with_one_verifier_logs_in_by_its_mechanism() -> None:
    async with EphemeralBroker(users=_USERS, settings={"super.users": "User:ann"}) as broker:
        await _delete_verifier(broker, _SHA_512)
        session = _ann()
        access = KafkaAccess(KafkaTarget(bootstrap=broker.bootstrap_servers))
        settings = await access.settings(session)
        assert settings.login is not None
        assert settings.login.mechanism == session.mechanism == "SCRAM-SHA-256"
        with BlockingKafkaClient(broker.bootstrap_servers, settings) as client:
            assert client.cluster().topics == {}


async def _delete_verifier(broker: EphemeralBroker, mechanism: int) -> None:
    login = SaslLogin(name="ann", password=_USERS["ann"])
    (address,) = parse_addresses((broker.bootstrap_servers,), default_port=9092)
    connection = Broker(address, ClientSettings(login=login), Scratch(), system_random())
    deletion = m.AlterUserScramCredentialsRequestDeletion(name="ann", mechanism=mechanism)
    request = m.AlterUserScramCredentialsRequest(deletions=[deletion])
    reply = await connection.ask(m.AlterUserScramCredentialsResponse, request)
    assert [each.error_code for each in reply.results] == [0]
    connection.close(ClientClosedError("done"))


async def test_listener_without_logins_offers_none() -> None:
    async with EphemeralBroker() as broker:
        assert await offered_mechanisms(broker.bootstrap_servers, ClientSettings()) == ()
        target = KafkaTarget(bootstrap=broker.bootstrap_servers)
        assert (await KafkaAccess(target).settings(_ann())).login is None


async def test_certificate_of_the_console_lends_its_rights_to_nobody() -> None:
    async def none(*_: object) -> Sequence[str]:
        return ()

    target = KafkaTarget(bootstrap="127.0.0.1:1", is_encrypted=True, certificate="console.pem")
    for session in (None, _ann()):
        with pytest.raises(KafkaAccessError, match="owner of the console's certificate"):
            await KafkaAccess(target, none).settings(session)


async def test_first_address_that_answers_is_asked() -> None:
    async with EphemeralBroker(users=_USERS) as broker:
        addresses = f"127.0.0.1:1,{broker.bootstrap_servers}"
        assert "SCRAM-SHA-512" in await offered_mechanisms(addresses, ClientSettings())
    with pytest.raises(UnreachableError, match="cannot reach"):
        await offered_mechanisms("127.0.0.1:1", ClientSettings())
