"""Goal: every documented key that the core obeys changes something observable.

Method: one small broker per key. A key that is in none of the lists fails the test, so that a new
one cannot come without an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman.config.overrides import TOPIC_CONFIG, TopicKey
from dragoman.config.settings import NODE_KEYS
from dragoman.errors import ConfigError
from dragoman.protocols.kafka import messages as m
from dragoman.testing import EphemeralBroker
from protocols.kafka_socket import KafkaSocket
from worlds.broker import batch_of, values_in


@contextmanager
def client(**settings: str) -> Iterator[KafkaSocket]:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    with (
        EphemeralBroker(settings=given, listeners=("kafka",)) as broker,
        KafkaSocket(broker.bootstrap_servers) as connected,
    ):
        yield connected


def code_of_create(connected: KafkaSocket, factor: int) -> int:
    topic = m.CreateTopicsRequestTopic(name="t", num_partitions=-1, replication_factor=factor)
    response = connected.ask(m.CreateTopicsRequest(topics=[topic]), 7, m.CreateTopicsResponse)
    return response.topics[0].error_code


def shown(connected: KafkaSocket, key: str, name: str = "shown") -> str | None:
    topic = m.CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
    request = m.CreateTopicsRequest(topics=[topic], validate_only=True)
    (found,) = connected.ask(request, 7, m.CreateTopicsResponse).topics
    return {each.name: each.value for each in found.configs or []}[key]


def data(tmp_path: Path) -> None:
    directory = str(tmp_path / "here")
    with EphemeralBroker(storage="directory", directory=directory):
        assert (tmp_path / "here" / "node.json").exists()


def durability(tmp_path: Path) -> None:
    for mode, journalled in (("fsync", True), ("os", False)):
        directory = tmp_path / mode
        broker = EphemeralBroker(
            storage="directory", directory=str(directory), settings={"durability": mode}
        )
        with broker, KafkaSocket(broker.bootstrap_servers) as connected:
            connected.metadata("t")
            marker = b"to be found in the journal"
            connected.produce("t", batch_of(marker))
            journals = [path.read_bytes() for path in (directory / "journal").glob("*")]
            assert any(marker in each for each in journals) == journalled


def node_id(_: Path) -> None:
    with client(node_id="7") as connected:
        assert connected.metadata().brokers[0].node_id == 7


def auto_create_topics_enable(_: Path) -> None:
    with client(auto_create_topics_enable="false") as connected:
        assert connected.metadata("t").topics[0].error_code == 3


def delete_topic_enable(_: Path) -> None:
    with client(delete_topic_enable="false") as connected:
        connected.metadata("t")
        response = connected.ask(
            m.DeleteTopicsRequest(topic_names=["t"]), 5, m.DeleteTopicsResponse
        )
        assert response.responses[0].error_code == 73


def num_partitions(_: Path) -> None:
    with client(num_partitions="5") as connected:
        assert len(connected.metadata("t").topics[0].partitions) == 5


def max_partitions_per_request(_: Path) -> None:
    with client(num_partitions="5", max_partitions_per_request="4") as connected:
        assert code_of_create(connected, -1) == 44


def max_partitions_per_node(_: Path) -> None:
    with client(num_partitions="5", max_partitions_per_node="4") as connected:
        assert code_of_create(connected, -1) == 44


def default_replication_factor(_: Path) -> None:
    with client(default_replication_factor="2") as connected:
        assert code_of_create(connected, -1) == 38


def replication_factor_lenient(_: Path) -> None:
    with client() as connected:
        assert code_of_create(connected, 3) == 38
    with client(replication_factor_lenient="true") as connected:
        assert code_of_create(connected, 3) == 0


def message_max_bytes(_: Path) -> None:
    with client(message_max_bytes="500") as connected:
        connected.metadata("t")
        assert connected.produce("t", batch_of(b"x" * 600)).error_code == 10
        assert connected.produce("t", batch_of(b"x" * 100)).error_code == 0


def fetch_max_bytes(_: Path) -> None:
    with client(fetch_max_bytes="2048") as connected:
        connected.metadata("t")
        for _each in range(4):
            connected.produce("t", batch_of(b"x" * 900))
        assert len(values_in(connected.fetch("t", 0).records)) == 2


def socket_request_max_bytes(_: Path) -> None:
    with client(socket_request_max_bytes="5000", message_max_bytes="5000") as connected:
        connected.metadata("t")
        with pytest.raises(ConnectionError):
            connected.produce("t", batch_of(b"x" * 6000))


def log_message_timestamp_type(_: Path) -> None:
    with client(log_message_timestamp_type="LogAppendTime") as connected:
        connected.metadata("t")
        assert connected.produce("t", batch_of(b"x", timestamp=5)).log_append_time_ms > 5


def log_segment_bytes(tmp_path: Path) -> None:
    broker = EphemeralBroker(
        storage="directory",
        directory=str(tmp_path),
        settings={"log.segment.bytes": "2000"},
        listeners=("kafka",),
    )
    with broker, KafkaSocket(broker.bootstrap_servers) as connected:
        connected.metadata("t")
        for _each in range(10):
            connected.produce("t", batch_of(b"x" * 900))
        broker.restart()
    assert len(list(tmp_path.glob("partitions/*-t-0/*.log"))) == 5


def log_cleanup_policy(_: Path) -> None:
    with client(log_cleanup_policy="compact") as connected:
        connected.metadata("t")
        assert connected.produce("t", batch_of(b"x", key=None)).error_code == 87


def min_insync_replicas(_: Path) -> None:
    with client(min_insync_replicas="2") as connected:
        connected.metadata("t")
        assert connected.produce("t", batch_of(b"x")).error_code == 19


#: Keys of a node whose effect is seen here.
EFFECTS: dict[str, Callable[[Path], None]] = {
    "data": data,
    "durability": durability,
    "node.id": node_id,
    "auto.create.topics.enable": auto_create_topics_enable,
    "delete.topic.enable": delete_topic_enable,
    "num.partitions": num_partitions,
    "max.partitions.per.request": max_partitions_per_request,
    "max.partitions.per.node": max_partitions_per_node,
    "default.replication.factor": default_replication_factor,
    "replication.factor.lenient": replication_factor_lenient,
    "message.max.bytes": message_max_bytes,
    "fetch.max.bytes": fetch_max_bytes,
    "socket.request.max.bytes": socket_request_max_bytes,
    "log.message.timestamp.type": log_message_timestamp_type,
    "log.segment.bytes": log_segment_bytes,
    "log.cleanup.policy": log_cleanup_policy,
    "min.insync.replicas": min_insync_replicas,
}

#: Keys whose effect other modules see, named here so that the list is complete.
SEEN_ELSEWHERE = {
    "cluster": "test_nodes",
    "broker.rack": "test_cluster.test_node_registers_with_its_rack",
    "broker.session.timeout.ms": "test_cluster.test_a_node_that_is_silent_for_its_session",
    "broker.heartbeat.interval.ms": "test_cluster.test_the_node_itself_is_heard",
    "replica.lag.time.max.ms": "test_cluster.test_a_follower_that_does_not_come",
    "auto.leader.rebalance.enable": "test_cluster.test_partitions_go_back",
    "leader.imbalance.check.interval.seconds": "test_cluster.test_partitions_go_back",
    "leader.replication.throttled.rate": "test_cluster_operations.test_a_throttled_move_waits",
    "offsets.topic.replication.factor": "test_cluster.test_internal_topics_have_their_copies",
    "transaction.state.log.replication.factor": "test_cluster.test_internal_topics_have",
    "log.format": "test_serve_process.test_log_lines_are_json_when_asked",
    "log.level": "test_serve_process.test_log_level_hides_what_is_less_important",
    "metadata.quorum": "test_etcd_cluster",
    "metadata.etcd.endpoints": "test_settings.test_endpoints_of_etcd",
    "metadata.etcd.prefix": "test_etcd.test_clusters_under_different_prefixes_do_not_meet",
    "metadata.etcd.lease.seconds": "test_etcd_cluster.test_the_lease_is_as_long_as_asked",
    "metadata.etcd.allow.bad.version": "test_etcd.test_etcd_of_the_test_wheel_is_refused",
    "memory.budget.bytes": "test_session.test_fetches_shrink_as_the_budget_fills",
    "connections.max.idle.ms": "test_server.test_idle_connections",
    "max.connections": "test_server.test_connections_past_a_cap_are_closed_at_once",
    "max.connections.per.ip": "the same",
    "max.connections.per.ip.overrides": "the same",
    "http.allowed.hosts": "test_hosts.test_own_hosts_are_served",
    "console.base.path": "test_app.test_base_path_is_part_of_every_address",
    "console.session.idle.ms": "test_sessions.test_unused_session_ends",
    "console.session.life.ms": "test_sessions.test_used_session_ends_in_the_end",
    "capture.allowed.hosts": "test_capturing.test_an_address_that_must_not_be_used",
    "any.detection.timeout.ms": "test_server.test_connection_to_any_that_says_nothing_is_closed",
    "cursus.connections.max": "test_session.test_one_connection_too_many_is_closed_at_once",
    "cursus.idempotence.enable": "test_producers.test_the_flag_of_a_batch_and_the_nodes_setting",
    "cursus.idle.timeout.ms": "test_session.test_the_time_of_silence_is_a_setting",
    "cursus.num.partitions": "test_commands.test_create_without_a_number",
    "cursus.session.check.interval.ms": "test_commands.test_times_of_members_are_settings",
    "cursus.session.timeout.ms": "test_commands.test_times_of_members_are_settings",
    "cursus.stream.timeout.ms": "test_streams.test_a_stream_without_data_ends_after_its_time",
    "cursus.streams.max": "test_streams.test_too_many_streams_are_refused",
    "cursus.transaction.timeout.ms": "test_transactions.test_the_time_is_a_setting",
    "minibroker.heartbeat.timeout.ms": "test_heartbeat_timeout_of_nothing_means_never",
    "minibroker.partitions": "test_minibroker_vectors.test_partition_count_is_configurable",
    "mlog.connections.max.idle.ms": "test_server.test_idle_connections_of_mlog_have_their_own_time",
    "mlog.acks.all.timeout.ms": "test_mlog_server.test_ack_all_gives_up_after_its_time",
    "mlog.stream.wait.ms": "test_mlog_server.test_stream_ends_empty_when_its_time_is_up",
    "group.consumer.assignors": "test_consumer_groups_handler and script/groups/consumer.txt",
    "group.consumer.heartbeat.interval.ms": "test_consumer_parts",
    "group.consumer.max.heartbeat.interval.ms": "test_bounds_of_dictated_times",
    "group.consumer.max.session.timeout.ms": "test_bounds_of_dictated_times",
    "group.consumer.max.size": "test_consumer_parts and script/groups/consumer.txt",
    "group.consumer.migration.policy": "script/groups/conversion.txt",
    "group.consumer.min.heartbeat.interval.ms": "test_bounds_of_dictated_times",
    "group.consumer.min.session.timeout.ms": "test_bounds_of_dictated_times",
    "group.consumer.session.timeout.ms": "test_consumer_groups_handler",
    "held.record.check.after.ms": "test_holding.test_the_owner_is_asked_at_the_times_that_are_set",
    "held.record.check.interval.ms": "the same",
    "held.record.check.max": "the same",
    "metrics.aliases": "test_metrics.test_metrics_have_the_names_of_other_programs",
    "http.metrics.authentication": "test_authentication.test_health_is_open_and_metrics_are",
    "bootstrap.users.file": "test_foundation",
    "peer.secret.file": "test_peer_authentication",
    "peer.certificate.names": "test_peer_handshake and test_peer_authentication",
    "metadata.etcd.ca.file": "test_etcd_security",
    "metadata.etcd.certificate.file": "test_etcd_security",
    "metadata.etcd.key.file": "test_settings.test_contradiction_is_refused",
    "metadata.etcd.user": "test_etcd_security",
    "metadata.etcd.password": "test_etcd_security",
    "allow.everyone.if.no.acl.found": "test_authorizer",
    "super.users": "test_authorizer and test_enforced_rules",
    "tls": "test_tls_clients.test_listeners_follow_their_settings",
    "authentication": "test_sasl_handlers.test_only_three_requests_are_served_before_the_login",
    "insecure": "test_serve_process.test_wildcard_is_announced_as_such",
    "sasl.enabled.mechanisms": "test_sasl_handlers.test_unknown_mechanism_is_refused",
    "sasl.insecure.clear.text": "test_sasl_handlers.test_clear_text_mechanisms_need_tls",
    "sasl.oauthbearer.jwks.endpoint.url": "test_token_key_source",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "test_bearer_tokens.test_keys_are_fetched_once",
    "sasl.oauthbearer.expected.issuer": "test_bearer_tokens.test_issuer_audience_and_scopes",
    "sasl.oauthbearer.expected.audience": "the same",
    "sasl.oauthbearer.required.scope": "the same",
    "sasl.oauthbearer.clock.skew.seconds": "test_bearer_tokens.test_leeway_is_a_setting",
    "sasl.oauthbearer.sub.claim.name": "test_bearer_tokens.test_claims_of_name_and_scope",
    "sasl.oauthbearer.scope.claim.name": "the same",
    "sasl.oauthbearer.algorithms": "test_bearer_tokens.test_algorithms_are_a_setting",
    "sasl.oauthbearer.insecure.unsigned": "test_bearer_tokens.test_unsigned_tokens_need",
    "sasl.oauthbearer.insecure.http": "test_settings.test_keys_of_tokens_come_by_tls",
    "connections.max.reauth.ms": "test_sasl_handlers.test_session_ends_unless_the_client_logs_in",
    "connection.failed.authentication.delay.ms": "test_sasl_handlers.test_delay_of_refusals",
    "connections.max.login.ms": "test_sasl_handlers.test_connection_that_does_not_log_in",
    "max.connections.before.login": "test_sasl_handlers.test_connections_of_all_addresses",
    "max.connections.before.login.per.ip": "test_sasl_handlers.test_connections_before_the_login",
    "cluster.key.file": "test_planted_secrets",
    "cluster.key.lost": "test_cluster_key.test_a_lost_key_is_replaced",
    "audit.log.file": "test_planted_secrets",
    "audit.log.bytes": "test_audit.test_files_are_bounded_in_size_and_number",
    "audit.log.files": "the same",
    "data.group": "test_shared_directory",
    "ssl.certificate.file": "test_contexts and test_tls_clients",
    "ssl.key.file": "test_contexts and test_tls_clients",
    "ssl.ca.file": "test_contexts and test_tls_clients",
    "ssl.client.auth": "test_contexts and test_tls_clients",
    "ssl.cipher.suites": "test_tls_listeners",
    "ssl.principal.mapping.rules": "test_tls_listeners",
    "principals": "test_tls_listeners",
    "max.incremental.fetch.session.cache.slots": "test_fetch_sessions.test_cache_is_bounded",
}

#: Keys that work in virtual time: `tests/unit/broker/test_settings.py` has a test of each.
SEEN_IN_TIME = {
    "group.min.session.timeout.ms",
    "group.max.session.timeout.ms",
    "group.initial.rebalance.delay.ms",
    "group.max.size",
    "offsets.retention.minutes",
    "offsets.retention.check.interval.ms",
    "offsets.topic.num.partitions",
    "offset.metadata.max.bytes",
    "transaction.max.timeout.ms",
    "transactional.id.expiration.ms",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.state.log.num.partitions",
    "producer.id.expiration.ms",
    "log.retention.ms",
    "log.retention.bytes",
    "log.retention.segments",
    "log.retention.check.interval.ms",
    "log.roll.ms",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.backoff.ms",
    "compression.type",
}
TOPIC_EFFECTS = {
    "cleanup.policy": "test_produce.test_compacted_topic_names_the_records_without_a_key",
    "index.interval.bytes": "test_index_interval_decides_how_many_entries_there_are",
    "max.message.bytes": "test_produce.test_batch_above_the_topics_limit_is_refused",
    "message.timestamp.after.max.ms": "test_produce.test_time_outside_the_topics_bounds_is_refused",
    "message.timestamp.before.max.ms": "the same",
    "message.timestamp.type": "test_produce.test_append_time_topic_stamps_the_batch",
    "min.insync.replicas": "test_produce_handler.test_acks_all_needs_enough_replicas_in_sync",
    "segment.bytes": "test_segment_bytes_of_a_topic",
    "compression.type": "test_settings.test_compression_type",
    "delete.retention.ms": "test_maintenance.test_tombstones_are_removed_after_their_time",
    "max.compaction.lag.ms": "test_maintenance.test_max_compaction_lag_ms",
    "min.cleanable.dirty.ratio": "test_settings.test_log_cleaner_min_cleanable_ratio",
    "min.compaction.lag.ms": "test_cleaner.test_active_unstable_and_young_segments_are_left_alone",
    "retention.bytes": "test_maintenance.test_size_and_segment_limits_hold_after_the_interval",
    "retention.ms": "test_maintenance.test_old_records_go_after_the_interval_and_not_before",
    "retention.segments": "test_maintenance.test_segments_past_the_limit_go_when_a_new_one_begins",
    "segment.ms": "test_maintenance.test_active_segment_is_rolled_when_it_is_old_enough",
}


def test_every_key_of_a_node_is_accounted_for() -> None:
    named = [*EFFECTS, *SEEN_ELSEWHERE, *SEEN_IN_TIME]
    assert sorted(named) == sorted(NODE_KEYS)


@pytest.mark.parametrize(
    "settings",
    [
        {"group.consumer.session.timeout.ms": "70000"},
        {"group.consumer.session.timeout.ms": "6000"},
        {"group.consumer.heartbeat.interval.ms": "20000"},
        {"group.consumer.heartbeat.interval.ms": "1000"},
    ],
)
def test_bounds_of_dictated_times(settings: dict[str, str]) -> None:
    """What the broker dictates to members has to lie within the bounds that it allows."""
    with pytest.raises(ConfigError):
        EphemeralBroker(settings=settings).start()
    wider = {
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.max.session.timeout.ms": "100000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.max.heartbeat.interval.ms": "30000",
    }
    with EphemeralBroker(settings={**wider, **settings}):
        pass


def test_every_key_of_a_topic_is_accounted_for() -> None:
    obeyed = [key.name for key in TOPIC_CONFIG.values() if key.effective]
    assert sorted(TOPIC_EFFECTS) == sorted(obeyed)


@pytest.mark.parametrize("key", EFFECTS)
def test_key_of_a_node_has_an_effect(key: str, tmp_path: Path) -> None:
    EFFECTS[key](tmp_path)


@pytest.mark.parametrize(
    "key", [key for key in TOPIC_CONFIG.values() if key.node_key], ids=lambda key: key.name
)
def test_node_key_is_shown_as_the_default_of_its_topic_key(key: TopicKey) -> None:
    """What clients are shown is what was set."""
    value = {
        "cleanup.policy": "compact",
        "compression.type": "lz4",
        "message.timestamp.type": "LogAppendTime",
        "min.cleanable.dirty.ratio": "0.25",
    }.get(key.name, "4321")
    with client(**{key.node_key.replace(".", "_"): value}) as connected:
        assert shown(connected, key.name) == value


def files_of(tmp_path: Path, kind: str, **configs: str) -> list[Path]:
    """Files of a topic with these settings and ten batches of a kilobyte, after a clean stop."""
    broker = EphemeralBroker(
        storage="directory", directory=str(tmp_path / "data"), listeners=("kafka",)
    )
    with broker, KafkaSocket(broker.bootstrap_servers) as connected:
        connected.create_topic("t", **configs)
        for _each in range(10):
            connected.produce("t", batch_of(b"x" * 900))
    return sorted((tmp_path / "data").glob(f"partitions/*-t-0/*.{kind}"))


def test_segment_bytes_of_a_topic(tmp_path: Path) -> None:
    assert len(files_of(tmp_path / "one", "log")) == 1
    assert len(files_of(tmp_path / "five", "log", segment_bytes="2000")) == 5


def test_index_interval_decides_how_many_entries_there_are(tmp_path: Path) -> None:
    (dense,) = files_of(tmp_path / "dense", "idx", index_interval_bytes="0")
    (sparse,) = files_of(tmp_path / "sparse", "idx", index_interval_bytes="100000")
    assert dense.stat().st_size > sparse.stat().st_size
