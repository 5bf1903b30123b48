"""Goal: Cursus clients use a broker that demands logins: ours by name and password, PyPI's, which
cannot log in, by its address.

Method: brokers in this process with users and rules, over loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cursus
import pytest

from dragoman.client.cursus import (
    BlockingCursusClient,
    CursusSettings,
    Login,
    LoginFailedError,
    NotAuthorizedError,
)
from dragoman.errors import ConfigError
from dragoman.security.access import Operation, Resource
from dragoman.security.rules import Pattern, Permission, Rule
from dragoman.testing import EphemeralBroker
from nodes.users import add_user, enforce

PASSWORD = "alice-12345678"
LISTENER = "listener.cursus."


def allow_all(principal: str, kind: Resource, name: str = "*") -> Rule:
    return Rule(
        principal=principal,
        host="*",
        operation=Operation.ALL,
        permission=Permission.ALLOW,
        resource=kind,
        pattern=Pattern.LITERAL,
        name=name,
    )


@pytest.fixture
def broker() -> Iterator[EphemeralBroker]:
    settings = {f"{LISTENER}authentication": "required"}
    with EphemeralBroker(settings=settings, listeners=("cursus",)) as started:
        add_user(started, "alice", password=PASSWORD)
        add_user(started, "bob", password="of-bob")
        kinds = (Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID)
        enforce(started, *(allow_all("User:alice", each) for each in kinds))
        yield started


def client_of(broker: EphemeralBroker, login: Login | None) -> BlockingCursusClient:
    settings = CursusSettings(login=login, operation_timeout_s=20.0)
    return BlockingCursusClient(broker.address("cursus"), settings)


def test_every_connection_of_our_client_logs_in(broker: EphemeralBroker, tmp_path: Path) -> None:
    """Commands, batches, reads, a group's streams, event streams."""
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    with client_of(broker, Login("alice", f"file:{file}")) as client:
        client.create_topic("orders", 2)
        assert client.publish("orders", b"first") == 0
        with client.producer() as producer:
            producer.send("orders", b"second")
        with client.consumer("orders", "g") as consumer:
            taken = {next(consumer).payload for _ in range(2)}
        assert taken == {b"first", b"second"}
        client.create_topic("events", 1, event_sourcing="true")
        assert client.read_events("events", "k").events == []


@pytest.mark.parametrize(
    "login", [Login("alice", "wrong"), Login("nobody", PASSWORD), Login("bob", PASSWORD)], ids=repr
)
def test_wrong_credentials_are_an_error(broker: EphemeralBroker, login: Login) -> None:
    with client_of(broker, login) as client, pytest.raises(LoginFailedError):
        client.topics()


def test_a_password_that_cannot_be_sent_is_not_shown(broker: EphemeralBroker) -> None:
    login = Login("alice", "two words")
    with client_of(broker, login) as client, pytest.raises(ConfigError) as caught:
        client.topics()
    assert "two words" not in str(caught.value)


def test_without_a_login_nothing_is_served(broker: EphemeralBroker) -> None:
    required = "authentication_required command=LIST"
    with client_of(broker, None) as client, pytest.raises(NotAuthorizedError, match=required):
        client.topics()


def test_a_user_without_the_right_is_refused(broker: EphemeralBroker) -> None:
    with client_of(broker, Login("alice", PASSWORD)) as client:
        client.create_topic("orders", 1)
    with client_of(broker, Login("bob", "of-bob")) as client:
        with pytest.raises(NotAuthorizedError, match="NOT_AUTHORIZED_FOR_TOPIC operation=write"):
            client.publish("orders", b"refused")
        with pytest.raises(NotAuthorizedError, match="permission=admin"):
            client.create_topic("more", 1)


def produce(broker: EphemeralBroker) -> int:
    """The number of acknowledged messages, of one."""
    config = cursus.ProducerConfig(
        topic="orders", brokers=[broker.address("cursus")], partitions=1, max_retries=1
    )
    with cursus.Producer(config) as producer:
        producer.send("a message")
        producer.flush()
        return int(producer.unique_ack_count)


def test_a_client_that_cannot_log_in_is_served_by_its_address() -> None:
    settings = {
        f"{LISTENER}authentication": "required",
        f"{LISTENER}principals": "127.0.0.0/8=batch",
    }
    with EphemeralBroker(settings=settings, listeners=("cursus",)) as broker:
        enforce(broker, allow_all("User:batch", Resource.TOPIC))
        assert produce(broker) == 1


def test_a_client_that_cannot_log_in_is_refused_elsewhere(broker: EphemeralBroker) -> None:
    store = cursus.EventStore(broker.address("cursus"), "events", "p")
    with pytest.raises(
        cursus.errors.ConnectionError, match="authentication_required command=CREATE"
    ):
        store.create_topic(1)
    store.close()
