"""Goal: rules that a stock client administers hold for stock clients, on open connections, too.

Method: confluent-kafka and kafka-python with SCRAM against a broker that enforces its rules: a
super user changes them while another user produces.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import confluent_kafka as ck
import confluent_kafka.admin as cka
import pytest

from dragoman.testing.ephemeral import EphemeralBroker

# Its import reads resources in a way that Python 3.11 and 3.12 deprecate.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.admin as kp
    from kafka.errors import ClusterAuthorizationFailedError

WAIT_S = 60
USERS = {"root": "root's", "alice": "alice's"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(users=USERS, settings={"super.users": "User:root"}) as broker:
        yield broker


def login(broker: EphemeralBroker, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


@pytest.fixture
def root(broker: EphemeralBroker) -> cka.AdminClient:
    return cka.AdminClient(login(broker, "root"))


@pytest.fixture
def alice(broker: EphemeralBroker) -> cka.AdminClient:
    return cka.AdminClient(login(broker, "alice"))


def rule(
    name: str,
    operation: str,
    permission: str = "ALLOW",
    pattern: str = "LITERAL",
    kind: str = "TOPIC",
) -> cka.AclBinding:
    return cka.AclBinding(
        cka.ResourceType[kind],
        name,
        cka.ResourcePatternType[pattern],
        "User:alice",
        "*",
        cka.AclOperation[operation],
        cka.AclPermissionType[permission],
    )


def create(admin: cka.AdminClient, *rules: cka.AclBinding) -> None:
    for future in admin.create_acls(list(rules)).values():
        future.result(WAIT_S)


def delete(admin: cka.AdminClient, gone: cka.AclBinding) -> None:
    exactly = cka.AclBindingFilter(
        gone.restype,
        gone.name,
        gone.resource_pattern_type,
        gone.principal,
        gone.host,
        gone.operation,
        gone.permission_type,
    )
    (future,) = admin.delete_acls([exactly]).values()
    assert future.result(WAIT_S) == [gone]


def sent(producer: ck.Producer, topic: str) -> int:
    """The error code of one record, 0 if it was acknowledged."""
    codes: list[int] = []
    # librdkafka sends nothing to a topic after a refusal until it has read its metadata again.
    producer.list_topics(topic, timeout=WAIT_S)
    try:
        producer.produce(
            topic, b"v", on_delivery=lambda error, _: codes.append(error.code() if error else 0)
        )
    except ck.KafkaException as error:
        return int(error.args[0].code())
    assert producer.flush(WAIT_S) == 0
    (code,) = codes
    return code


def test_rules_hold_for_the_next_request_of_an_open_connection(
    broker: EphemeralBroker, root: cka.AdminClient
) -> None:
    producer = ck.Producer(login(broker, "alice") | {"message.timeout.ms": "60000"})
    create(root, rule("a-", "WRITE", pattern="PREFIXED"), rule("a-", "CREATE", pattern="PREFIXED"))
    for future in root.create_topics([cka.NewTopic("a-1", 1), cka.NewTopic("b-1", 1)]).values():
        future.result(WAIT_S)
    denied = rule("a-1", "WRITE", "DENY")
    refused = ck.KafkaError.TOPIC_AUTHORIZATION_FAILED
    for _ in range(3):
        assert sent(producer, "a-1") == 0
        create(root, denied)
        assert sent(producer, "a-1") == refused
        delete(root, denied)
    assert sent(producer, "a-1") == 0
    assert sent(producer, "b-1") == refused


def test_administration_needs_rights_on_the_cluster(
    broker: EphemeralBroker, root: cka.AdminClient, alice: cka.AdminClient
) -> None:
    refused = ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED
    everything = rule("kafka-cluster", "ALL", kind="BROKER")
    info = cka.ScramCredentialInfo(cka.ScramMechanism.SCRAM_SHA_256, 4096)
    mallory = cka.UserScramCredentialUpsertion("root", info, b"mallory's", b"salt")

    def codes() -> list[int]:
        futures = [
            *alice.create_acls([everything]).values(),
            *alice.alter_user_scram_credentials([mallory]).values(),
        ]
        found = []
        for future in futures:
            try:
                future.result(WAIT_S)
                found.append(0)
            except ck.KafkaException as error:
                found.append(error.args[0].code())
        return found

    assert codes() == [refused, refused]
    # kafka-python, because librdkafka crashes on any error of this whole request.
    python = kp.KafkaAdminClient(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="alice",
        sasl_plain_password=USERS["alice"],
    )
    with pytest.raises(ClusterAuthorizationFailedError):
        python.describe_user_scram_credentials()
    wanted = kp.ACLFilter(
        principal=None,
        host=None,
        operation=kp.ACLOperation.ANY,
        permission_type=kp.ACLPermissionType.ANY,
        resource_pattern=kp.ResourcePatternFilter(
            kp.ResourceType.ANY, None, kp.ACLResourcePatternType.ANY
        ),
    )
    with pytest.raises(ClusterAuthorizationFailedError):
        python.describe_acls(wanted)
    python.close()
    describes = rule("kafka-cluster", "DESCRIBE", kind="BROKER")
    create(root, describes)
    assert sorted(alice.describe_user_scram_credentials().result(WAIT_S)) == ["alice", "root"]
    assert codes() == [refused, refused]
    delete(root, describes)
