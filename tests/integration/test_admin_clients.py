"""Goal: every call of the stock admin clients that this broker serves works as against Kafka.

Method: confluent-kafka, kafka-python and aiokafka against a broker in this process, one broker for
all; each test uses topics and groups of its own.
"""

from __future__ import annotations

import socket
import warnings
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future

import aiokafka
import aiokafka.admin as aio
import confluent_kafka as ck
import confluent_kafka.admin as cka
import pytest
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioType

from dragoman.testing.ephemeral import EphemeralBroker

# Its import reads resources in a way that Python 3.11 and 3.12 deprecate.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.admin as kp
    from kafka.errors import (
        GroupSubscribedToTopicError,
        InvalidReplicationAssignmentError,
        InvalidRequestError,
        LogDirNotFoundError,
        NoError,
        NoReassignmentInProgressError,
        TransactionalIdNotFoundError,
        UnknownMemberIdError,
    )

WAIT_S = 60
WAIT_MS = WAIT_S * 1000


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker() as broker:
        yield broker


# ---- confluent-kafka


@pytest.fixture(scope="module")
def confluent(broker: EphemeralBroker) -> cka.AdminClient:
    return cka.AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def results(futures: dict[object, Future[object]]) -> list[object]:
    return [future.result(WAIT_S) for future in futures.values()]


def error_of(futures: dict[object, Future[object]]) -> ck.KafkaError:
    (future,) = futures.values()
    with pytest.raises(ck.KafkaException) as refused:
        future.result(WAIT_S)
    error = refused.value.args[0]
    assert isinstance(error, ck.KafkaError)
    return error


def ck_topic(confluent: cka.AdminClient, name: str, partitions: int = 1) -> str:
    results(confluent.create_topics([cka.NewTopic(name, partitions)]))
    return name


def ck_produce(broker: EphemeralBroker, topic: str, count: int) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(count):
        producer.produce(topic, b"v", partition=0)
    assert producer.flush(WAIT_S) == 0


def ck_member(broker: EphemeralBroker, group: str, topic: str) -> ck.Consumer:
    """A consumer that has its partitions."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "client.id": "member",
        }
    )
    consumer.subscribe([topic])
    assert consumer.poll(WAIT_S) is not None
    return consumer


def ck_config(confluent: cka.AdminClient, kind: str, name: str) -> dict[str, cka.ConfigEntry]:
    (found,) = results(confluent.describe_configs([cka.ConfigResource(kind, name)]))
    assert isinstance(found, dict)
    return found


def ck_change(kind: str, name: str, key: str, value: str | None, how: str) -> cka.ConfigResource:
    operation = getattr(cka.AlterConfigOpType, how)
    entry = cka.ConfigEntry(key, value, incremental_operation=operation)
    return cka.ConfigResource(kind, name, incremental_configs=[entry])


def test_confluent_partitions(confluent: cka.AdminClient) -> None:
    name = ck_topic(confluent, "ck-grows", 2)
    results(confluent.create_partitions([cka.NewPartitions(name, 4)]))
    assert len(confluent.list_topics(name, WAIT_S).topics[name].partitions) == 4
    fewer = confluent.create_partitions([cka.NewPartitions(name, 3)])
    assert error_of(fewer).code() == ck.KafkaError.INVALID_PARTITIONS
    results(confluent.create_partitions([cka.NewPartitions(name, 9)], validate_only=True))
    assert len(confluent.list_topics(name, WAIT_S).topics[name].partitions) == 4


def test_confluent_topic_configs(confluent: cka.AdminClient) -> None:
    name = ck_topic(confluent, "ck-config")
    plain = ck_config(confluent, "topic", name)["cleanup.policy"]
    assert (plain.value, plain.source) == ("delete", cka.ConfigSource.DEFAULT_CONFIG.value)
    assert plain.is_default
    for how, value, after in (
        ("APPEND", "compact", "delete,compact"),
        ("SUBTRACT", "delete", "compact"),
        ("SET", "delete", "delete"),
    ):
        change = ck_change("topic", name, "cleanup.policy", value, how)
        results(confluent.incremental_alter_configs([change]))
        assert ck_config(confluent, "topic", name)["cleanup.policy"].value == after
    gone = ck_change("topic", name, "cleanup.policy", None, "DELETE")
    results(confluent.incremental_alter_configs([gone]))
    assert ck_config(confluent, "topic", name)["cleanup.policy"].is_default
    bad = ck_change("topic", name, "retention.ms", "soon", "SET")
    error = error_of(confluent.incremental_alter_configs([bad]))
    assert error.code() == ck.KafkaError.INVALID_CONFIG
    assert "retention.ms" in error.str()


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_confluent_old_alter_configs(confluent: cka.AdminClient) -> None:
    name = ck_topic(confluent, "ck-replaced")
    for config in ({"retention.ms": "1000"}, {"segment.ms": "2000"}):
        resource = cka.ConfigResource("topic", name, set_config=config)
        results(confluent.alter_configs([resource]))
    found = ck_config(confluent, "topic", name)
    assert (found["retention.ms"].value, found["segment.ms"].value) == ("604800000", "2000")


def test_confluent_broker_configs(confluent: cka.AdminClient) -> None:
    change = ck_change("broker", "1", "num.partitions", "3", "SET")
    results(confluent.incremental_alter_configs([change]))
    try:
        shown = ck_config(confluent, "broker", "1")["num.partitions"]
        assert shown.value == "3"
        assert shown.source == cka.ConfigSource.DYNAMIC_BROKER_CONFIG.value
        results(confluent.create_topics([cka.NewTopic("ck-three", -1)]))
        assert len(confluent.list_topics("ck-three", WAIT_S).topics["ck-three"].partitions) == 3
    finally:
        back = ck_change("broker", "1", "num.partitions", None, "DELETE")
        results(confluent.incremental_alter_configs([back]))
    assert ck_config(confluent, "broker", "1")["num.partitions"].value == "1"
    read_only = ck_change("broker", "1", "node.id", "2", "SET")
    error = error_of(confluent.incremental_alter_configs([read_only]))
    assert error.code() == ck.KafkaError.INVALID_REQUEST


def test_confluent_delete_records(confluent: cka.AdminClient, broker: EphemeralBroker) -> None:
    name = ck_topic(confluent, "ck-shrinks")
    ck_produce(broker, name, 10)
    partition = ck.TopicPartition(name, 0, 4)
    (found,) = results(confluent.delete_records([partition]))
    assert found.low_watermark == 4  # type: ignore[attr-defined]
    everything = ck.TopicPartition(name, 0, ck.OFFSET_END)
    (found,) = results(confluent.delete_records([everything]))
    assert found.low_watermark == 10  # type: ignore[attr-defined]
    beyond = ck.TopicPartition(name, 0, 11)
    assert error_of(confluent.delete_records([beyond])).code() == ck.KafkaError.OFFSET_OUT_OF_RANGE


def test_confluent_list_offsets(confluent: cka.AdminClient, broker: EphemeralBroker) -> None:
    name = ck_topic(confluent, "ck-offsets")
    ck_produce(broker, name, 3)
    for spec, offset in (
        (cka.OffsetSpec.earliest(), 0),
        (cka.OffsetSpec.latest(), 3),
        (cka.OffsetSpec.for_timestamp(0), 0),
    ):
        (found,) = results(confluent.list_offsets({ck.TopicPartition(name, 0): spec}))
        assert found.offset == offset  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:list_groups")
def test_confluent_groups(confluent: cka.AdminClient, broker: EphemeralBroker) -> None:
    name, group = ck_topic(confluent, "ck-read"), "ck-group"
    ck_produce(broker, name, 1)
    consumer = ck_member(broker, group, name)
    consumer.commit(offsets=[ck.TopicPartition(name, 0, 1)], asynchronous=False)
    listed = {each.group_id: each for each in _ck_listed(confluent)}
    assert listed[group].state is ck.ConsumerGroupState.STABLE
    assert listed[group].type is ck.ConsumerGroupType.CLASSIC
    assert group in {each.id for each in confluent.list_groups(timeout=WAIT_S)}
    assert group not in {
        each.group_id for each in _ck_listed(confluent, states={ck.ConsumerGroupState.EMPTY})
    }
    (found,) = results(
        confluent.describe_consumer_groups([group], include_authorized_operations=True)
    )
    assert isinstance(found, cka.ConsumerGroupDescription)
    assert found.state is ck.ConsumerGroupState.STABLE
    (member,) = found.members
    assert (member.client_id, member.host) == ("member", "/127.0.0.1")
    assert member.assignment.topic_partitions == [ck.TopicPartition(name, 0)]
    assert cka.AclOperation.READ in found.authorized_operations
    live = error_of(confluent.delete_consumer_groups([group]))
    assert live.code() == ck.KafkaError.NON_EMPTY_GROUP
    consumer.close()
    _ck_offsets(confluent, name, group)
    results(confluent.delete_consumer_groups([group]))
    gone = error_of(confluent.delete_consumer_groups([group]))
    assert gone.code() == ck.KafkaError.GROUP_ID_NOT_FOUND


def _ck_listed(confluent: cka.AdminClient, **filters: object) -> list[cka.ConsumerGroupListing]:
    found = confluent.list_consumer_groups(**filters).result(WAIT_S)
    assert found.errors == []
    return list(found.valid)


def _ck_offsets(confluent: cka.AdminClient, topic: str, group: str) -> None:
    wanted = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 0, 0)])
    (altered,) = results(confluent.alter_consumer_group_offsets([wanted]))
    assert altered.topic_partitions[0].error is None  # type: ignore[attr-defined]
    everything = ck.ConsumerGroupTopicPartitions(group)
    (found,) = results(confluent.list_consumer_group_offsets([everything]))
    (partition,) = found.topic_partitions  # type: ignore[attr-defined]
    assert (partition.topic, partition.offset) == (topic, 0)


def test_confluent_cluster_and_topics(confluent: cka.AdminClient) -> None:
    name = ck_topic(confluent, "ck-described", 2)
    cluster = confluent.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert (cluster.controller.id, [node.id for node in cluster.nodes]) == (1, [1])
    assert len(cluster.cluster_id) == 22
    assert cka.AclOperation.ALTER in cluster.authorized_operations
    names = ck.TopicCollection([name, "ck-nothing"])
    futures = confluent.describe_topics(names, include_authorized_operations=True)
    topic = futures[name].result(WAIT_S)
    assert (topic.name, topic.is_internal, len(topic.partitions)) == (name, False, 2)
    assert [each.leader.id for each in topic.partitions] == [1, 1]
    assert cka.AclOperation.WRITE in topic.authorized_operations
    with pytest.raises(ck.KafkaException) as unknown:
        futures["ck-nothing"].result(WAIT_S)
    assert unknown.value.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_confluent_elections(confluent: cka.AdminClient) -> None:
    partition = ck.TopicPartition(ck_topic(confluent, "ck-led"), 0)
    preferred = ck.ElectionType.PREFERRED
    found = confluent.elect_leaders(preferred, [partition]).result(WAIT_S)
    assert [each.code() for each in found.values()] == [ck.KafkaError.ELECTION_NOT_NEEDED]
    assert confluent.elect_leaders(preferred, None).result(WAIT_S) == {}


def ck_rule(name: str, pattern: str = "LITERAL", principal: str = "User:ann") -> cka.AclBinding:
    return cka.AclBinding(
        cka.ResourceType.TOPIC,
        name,
        cka.ResourcePatternType[pattern],
        principal,
        "*",
        cka.AclOperation.READ,
        cka.AclPermissionType.ALLOW,
    )


def ck_filter(name: str | None, pattern: str, principal: str = "User:ann") -> cka.AclBindingFilter:
    return cka.AclBindingFilter(
        cka.ResourceType.TOPIC,
        name,
        cka.ResourcePatternType[pattern],
        principal,
        None,
        cka.AclOperation.ANY,
        cka.AclPermissionType.ANY,
    )


def test_confluent_rules(confluent: cka.AdminClient) -> None:
    rules = [ck_rule("ck-rule"), ck_rule("ck-", "PREFIXED")]
    results(confluent.create_acls(rules))
    # As in Kafka, a rule that exists is created without effect.
    results(confluent.create_acls(rules[:1]))
    every = ck_filter(None, "ANY")
    assert set(confluent.describe_acls(every).result(WAIT_S)) == set(rules)
    match = ck_filter("ck-other", "MATCH")
    assert confluent.describe_acls(match).result(WAIT_S) == rules[1:]
    assert results(confluent.delete_acls([match])) == [rules[1:]]
    assert results(confluent.delete_acls([every])) == [rules[:1]]
    assert results(confluent.delete_acls([every])) == [[]]
    wrong = ck_rule("ck-wrong", principal="ann")
    assert error_of(confluent.create_acls([wrong])).code() == ck.KafkaError.INVALID_REQUEST


def test_confluent_scram_users(confluent: cka.AdminClient) -> None:
    unknown = error_of(confluent.describe_user_scram_credentials(["ann"]))
    assert unknown.code() == ck.KafkaError.RESOURCE_NOT_FOUND
    info = cka.ScramCredentialInfo(cka.ScramMechanism.SCRAM_SHA_256, 10_000)
    new = cka.UserScramCredentialUpsertion("ann", info, b"secret", b"salt")
    results(confluent.alter_user_scram_credentials([new]))
    found = confluent.describe_user_scram_credentials().result(WAIT_S)["ann"]
    (credential,) = found.scram_credential_infos
    assert credential.mechanism is cka.ScramMechanism.SCRAM_SHA_256
    assert credential.iterations == 10_000
    few = cka.ScramCredentialInfo(cka.ScramMechanism.SCRAM_SHA_512, 1000)
    weak = cka.UserScramCredentialUpsertion("ann", few, b"secret", b"salt")
    refused = error_of(confluent.alter_user_scram_credentials([weak]))
    assert refused.code() == ck.KafkaError.UNACCEPTABLE_CREDENTIAL
    gone = cka.UserScramCredentialDeletion("ann", cka.ScramMechanism.SCRAM_SHA_256)
    results(confluent.alter_user_scram_credentials([gone]))
    refused = error_of(confluent.alter_user_scram_credentials([gone]))
    assert refused.code() == ck.KafkaError.RESOURCE_NOT_FOUND


def test_confluent_with_a_password_says_what_is_wrong(broker: EphemeralBroker) -> None:
    """Instead of waiting for ever on a listener without SASL."""
    errors: list[ck.KafkaError] = []
    client = cka.AdminClient(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "secret",
            "log_level": 0,
            "error_cb": errors.append,
        }
    )
    while not errors:
        assert client.poll(WAIT_S) > 0
    assert errors[0].code() == ck.KafkaError._AUTHENTICATION
    assert "handshake failed" in errors[0].str()


# ---- kafka-python


@pytest.fixture(scope="module")
def python(broker: EphemeralBroker) -> Iterator[kp.KafkaAdminClient]:
    client = kp.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield client
    client.close()


def kp_topic(python: kp.KafkaAdminClient, name: str, partitions: int = 1) -> str:
    python.create_topics({name: {"num_partitions": partitions}})
    return name


def kp_produce(broker: EphemeralBroker, topic: str, count: int) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for _ in range(count):
        producer.send(topic, b"v", partition=0)
    producer.flush(WAIT_S)
    producer.close()


def test_kafka_python_topics_and_cluster(python: kp.KafkaAdminClient) -> None:
    name = kp_topic(python, "kp-topic", 2)
    python.create_partitions({name: 4})
    (topic,) = python.describe_topics([name])
    assert (topic["error_code"], len(topic["partitions"])) == (0, 4)
    assert name in python.list_topics()
    page = python.describe_topic_partitions([name], response_partition_limit=3)
    assert len(page["topics"][0]["partitions"]) == 3
    assert page["next_cursor"] == {"topic_name": name, "partition_index": 3}
    cluster = python.describe_cluster()
    assert (cluster["controller_id"], len(cluster["brokers"])) == (1, 1)
    assert "ALTER_CONFIGS" in cluster["authorized_operations"]
    assert name in python.list_config_resources()["topic"]


def test_kafka_python_configs(python: kp.KafkaAdminClient) -> None:
    name = kp_topic(python, "kp-config")
    of_topic, of_broker = kp.ConfigResourceType.TOPIC, kp.ConfigResourceType.BROKER

    def shown(kind: kp.ConfigResourceType, resource: str, key: str) -> str:
        found = python.describe_configs(
            [kp.ConfigResource(kind, resource)], include_synonyms=True, config_filter="all"
        )
        return str(found[kind.name.lower()][resource][key]["value"])

    python.alter_configs([kp.ConfigResource(of_topic, name, configs={"retention.ms": "1000"})])
    assert shown(of_topic, name, "retention.ms") == "1000"
    python.alter_configs(
        [kp.ConfigResource(of_topic, name, configs={"segment.ms": "5"})], incremental=False
    )
    # The old request replaces everything, so the client sends along what was set before.
    assert shown(of_topic, name, "retention.ms") == "1000"
    assert shown(of_topic, name, "segment.ms") == "5"
    python.reset_configs([kp.ConfigResource(of_topic, name, configs={"segment.ms": None})])
    assert shown(of_topic, name, "segment.ms") == "604800000"
    size = kp.ConfigResource(of_broker, "1", configs={"group.max.size": "500"})
    python.alter_configs([size])
    assert shown(of_broker, "1", "group.max.size") == "500"
    python.reset_configs([kp.ConfigResource(of_broker, "1", configs={"group.max.size": None})])
    assert shown(of_broker, "1", "group.max.size") == "2147483647"


def test_kafka_python_records(python: kp.KafkaAdminClient, broker: EphemeralBroker) -> None:
    name = kp_topic(python, "kp-records")
    kp_produce(broker, name, 10)
    partition = kafka.TopicPartition(name, 0)
    assert python.delete_records({partition: 3})[partition]["low_watermark"] == 3
    earliest = python.list_partition_offsets({partition: kp.OffsetSpec.EARLIEST})
    assert earliest[partition].offset == 3
    assert python.delete_records({partition: -1})[partition]["low_watermark"] == 10
    (directory,) = python.describe_log_dirs()
    assert directory["broker"] == 1
    topics = {each["name"]: each["partitions"] for each in directory["log_dirs"][0]["topics"]}
    assert topics[name][0]["partition_size"] > 0
    replica = kafka.TopicPartitionReplica(name, 0, 1)
    assert python.alter_replica_log_dirs({replica: "/elsewhere"}) == {replica: LogDirNotFoundError}


def test_kafka_python_groups(python: kp.KafkaAdminClient, broker: EphemeralBroker) -> None:
    name, group = kp_topic(python, "kp-read"), "kp-group"
    kp_produce(broker, name, 2)
    partition = kafka.TopicPartition(name, 0)
    consumer = kafka.KafkaConsumer(
        name,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
    )
    assert consumer.poll(WAIT_MS, max_records=1)
    consumer.commit()
    listed = python.list_groups(states_filter=["Stable"], types_filter=["classic"])
    assert group in {each["group_id"] for each in listed}
    described = python.describe_groups([group, "kp-none"], include_authorized_operations=True)
    assert described[group]["group_state"] == "Stable"
    assert len(described[group]["members"]) == 1
    assert described["kp-none"]["group_state"] == "Dead"
    assert python.delete_group_offsets(group, [partition]) == {
        partition: GroupSubscribedToTopicError
    }
    assert python.delete_groups([group]) == {group: "NonEmptyGroupError"}
    stranger = kp.MemberToRemove(member_id="stranger")
    removed = python.remove_group_members(group, [stranger])
    assert list(removed.values()) == [UnknownMemberIdError]
    consumer.close()
    _kp_offsets(python, group, partition)
    assert python.delete_groups([group]) == {group: "OK"}


def _kp_offsets(python: kp.KafkaAdminClient, group: str, partition: kafka.TopicPartition) -> None:
    wanted = kafka.structs.OffsetAndMetadata(1, "note", -1)
    assert python.alter_group_offsets(group, {partition: wanted}) == {partition: NoError}
    found = python.list_group_offsets({group: None})[group][partition]
    assert (found.offset, found.metadata) == (1, "note")
    reset = python.reset_group_offsets(group, {partition: kp.OffsetSpec.LATEST})
    assert reset[partition]["offset"] == 2
    assert python.delete_group_offsets(group, [partition]) == {partition: NoError}
    assert python.list_group_offsets({group: None})[group] == {}


def test_kafka_python_transactions(python: kp.KafkaAdminClient, broker: EphemeralBroker) -> None:
    name = kp_topic(python, "kp-transactions")
    partition = kafka.TopicPartition(name, 0)
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="kp-tx"
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(name, b"v", partition=0).get(WAIT_S)
    (open_,) = python.describe_producers([partition])[partition].active_producers
    assert open_.current_transaction_start_offset == 0
    (listed,) = python.list_transactions(
        state_filters=["Ongoing"], duration_filter_ms=0, transactional_id_pattern="kp-.*"
    )[1]
    assert (listed.transactional_id, listed.producer_id) == ("kp-tx", open_.producer_id)
    found = python.describe_transactions(["kp-tx"])["kp-tx"]
    assert found.topic_partitions == {partition}
    with pytest.raises(TransactionalIdNotFoundError):
        python.describe_transactions(["kp-none"])
    assert python.find_hanging_transactions() == []
    python.abort_transaction(
        kp.AbortTransactionSpec(partition, open_.producer_id, open_.producer_epoch)
    )
    (ended,) = python.describe_producers([partition])[partition].active_producers
    assert ended.current_transaction_start_offset == -1
    producer.abort_transaction()
    producer.close()


def test_kafka_python_leaders_and_replicas(python: kp.KafkaAdminClient) -> None:
    name = kp_topic(python, "kp-led")
    partition = kafka.TopicPartition(name, 0)
    response = python.elect_leaders(0, {name: [0]}, raise_errors=False)
    assert response.error_code == 0
    assert python.list_partition_reassignments() == {}
    assert python.alter_partition_reassignments({partition: [1]}) == {partition: None}
    elsewhere = python.alter_partition_reassignments({partition: [2]})
    assert elsewhere == {partition: InvalidReplicationAssignmentError}
    cancelled = python.alter_partition_reassignments({partition: None})
    assert cancelled == {partition: NoReassignmentInProgressError}


def test_kafka_python_features_and_quorum(python: kp.KafkaAdminClient) -> None:
    name = "transaction.version"
    assert python.describe_features()[name]["finalized"] == (2, 2)
    lower = (kp.UpdateFeatureType.SAFE_DOWNGRADE, 1)
    assert python.update_features({name: lower}, validate_only=True) == {name: "OK"}
    assert python.describe_features()[name]["finalized"] == (2, 2)
    assert python.update_features({name: lower}) == {name: "OK"}
    assert python.describe_features()[name]["finalized"] == (1, 1)
    assert python.update_features({name: 2}) == {name: "OK"}
    (partition,) = python.describe_metadata_quorum()["topics"][0]["partitions"]
    assert partition["leader_id"] == 1
    assert partition["current_voters"][0]["log_end_offset"] == partition["high_watermark"]


def kp_filter(name: str | None, pattern: kp.ACLResourcePatternType) -> kp.ACLFilter:
    return kp.ACLFilter(
        principal="User:bob",
        host=None,
        operation=kp.ACLOperation.ANY,
        permission_type=kp.ACLPermissionType.ANY,
        resource_pattern=kp.ResourcePatternFilter(kp.ResourceType.ANY, name, pattern),
    )


def kp_rule(name: str, pattern: kp.ACLResourcePatternType) -> kp.ACL:
    return kp.ACL(
        principal="User:bob",
        host="10.0.0.1",
        operation=kp.ACLOperation.WRITE,
        permission_type=kp.ACLPermissionType.DENY,
        resource_pattern=kp.ResourcePattern(kp.ResourceType.TOPIC, name, pattern),
    )


def test_kafka_python_rules(python: kp.KafkaAdminClient) -> None:
    literal, prefixed = kp.ACLResourcePatternType.LITERAL, kp.ACLResourcePatternType.PREFIXED
    rules = [kp_rule("kp-rule", literal), kp_rule("kp-", prefixed)]
    assert python.create_acls(rules) == {"succeeded": rules, "failed": []}
    wrong = kp_rule("", literal)
    assert python.create_acls([wrong])["failed"] == [InvalidRequestError]
    every = kp_filter(None, kp.ACLResourcePatternType.ANY)
    found, error = python.describe_acls(every)
    assert (found, error) == (rules, NoError)
    match = kp_filter("kp-other", kp.ACLResourcePatternType.MATCH)
    ((_, deleted, error),) = python.delete_acls([match])
    assert (deleted, error) == (rules[1:], NoError)
    ((_, deleted, error),) = python.delete_acls([every])
    assert (deleted, error) == (rules[:1], NoError)


def test_kafka_python_scram_users(python: kp.KafkaAdminClient) -> None:
    new = kp.UserScramCredentialUpsertion("bob", kp.ScramMechanism.SCRAM_SHA_512, "secret")
    assert python.alter_user_scram_credentials([new]) == {"bob": None}
    found = python.describe_user_scram_credentials(["bob", "nobody"])
    (credential,) = found["bob"]["credential_infos"]
    assert credential["mechanism"] == kp.ScramMechanism.SCRAM_SHA_512
    assert found["nobody"]["error"]
    gone = kp.UserScramCredentialDeletion("bob", kp.ScramMechanism.SCRAM_SHA_512)
    assert python.alter_user_scram_credentials([gone]) == {"bob": None}
    assert python.alter_user_scram_credentials([gone])["bob"]


# ---- aiokafka


@pytest.fixture
async def asynchronous(broker: EphemeralBroker) -> AsyncIterator[aio.AIOKafkaAdminClient]:
    client = aio.AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await client.start()
    yield client
    await client.close()


async def test_aiokafka_topics_and_configs(asynchronous: aio.AIOKafkaAdminClient) -> None:
    name = "aio-topic"
    await asynchronous.create_topics([aio.NewTopic(name, 1, 1)])
    await asynchronous.create_partitions({name: aio.NewPartitions(3)})
    (topic,) = await asynchronous.describe_topics([name])
    assert (topic["error_code"], len(topic["partitions"])) == (0, 3)
    assert name in await asynchronous.list_topics()
    assert (await asynchronous.describe_cluster())["controller_id"] == 1
    (altered,) = await asynchronous.alter_configs(
        [AioResource(AioType.TOPIC, name, configs={"retention.ms": "1000"})]
    )
    assert altered.resources[0][0] == 0
    (shown,) = await asynchronous.describe_configs(
        [AioResource(AioType.TOPIC, name)], include_synonyms=True
    )
    values = {entry[0]: entry[1] for entry in shown.resources[0][4]}
    assert values["retention.ms"] == "1000"
    (of_broker,) = await asynchronous.describe_configs([AioResource(AioType.BROKER, "1")])
    assert of_broker.resources[0][0] == 0
    await asynchronous.delete_topics([name])
    assert name not in await asynchronous.list_topics()


async def test_aiokafka_records_and_groups(
    asynchronous: aio.AIOKafkaAdminClient, broker: EphemeralBroker
) -> None:
    name, group = "aio-read", "aio-group"
    await asynchronous.create_topics([aio.NewTopic(name, 1, 1)])
    partition = aiokafka.TopicPartition(name, 0)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(5):
            await producer.send_and_wait(name, b"v")
    deleted = await asynchronous.delete_records({partition: aio.RecordsToDelete(3)})
    assert deleted == {partition: 3}
    async with aiokafka.AIOKafkaConsumer(
        name,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
    ) as consumer:
        assert (await consumer.getone()).offset == 3
        await consumer.commit()
        assert (group, "consumer") in await asynchronous.list_consumer_groups()
        (described,) = await asynchronous.describe_consumer_groups([group])
        assert described.groups[0][2] == "Stable"
    assert await asynchronous.find_coordinator(group) == 1
    offsets = await asynchronous.list_consumer_group_offsets(group)
    assert offsets[partition].offset == 4


# ---- idle connections


def test_idle_connections_are_closed_when_the_setting_says_so(
    broker: EphemeralBroker, confluent: cka.AdminClient
) -> None:
    host, _, port = broker.bootstrap_servers.rpartition(":")

    def sweep_two_hours_later(silent: socket.socket) -> None:
        """What the node does every few seconds, for one connection that says nothing."""
        loop, node = broker._loop, broker._node
        assert loop is not None
        assert node is not None

        def sweep() -> None:
            for channel in [
                each for group in node.listeners.channels.values() for each in group.open
            ]:
                if channel.peer_address == silent.getsockname():
                    channel.last_active -= 7200
            node.listeners.sweep()

        loop.call_soon_threadsafe(sweep)

    def set_idle(text: str | None) -> None:
        how = "DELETE" if text is None else "SET"
        change = ck_change("broker", "1", "connections.max.idle.ms", text, how)
        results(confluent.incremental_alter_configs([change]))

    with socket.create_connection((host, int(port)), WAIT_S) as idle:
        idle.settimeout(WAIT_S)
        set_idle("-1")
        sweep_two_hours_later(idle)
        idle.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
        assert len(idle.recv(4)) == 4
        set_idle("3600000")
        sweep_two_hours_later(idle)
        while idle.recv(65536):
            pass
        set_idle(None)
