"""Goal: codes of errors, which programs match on, do not change when a class is renamed.

A code that is missing here was renamed or removed, which is a breaking change of the HTTP API; one
that is new is added here.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import dragoman
from dragoman.errors import DragomanError

CODES = {
    "dragoman.errors": """
        auth authentication_failed broker cdc cluster config corruption decode
        directory_in_use disk_full encode error format invalid_password local_protocol log
        log_stopped logins_overloaded not_controller not_sent offset_gap
        offset_out_of_range outcome_unknown oversized_batch protocol remote_protocol secret
        token_keys version_conflict
    """,
    "dragoman.broker.errors": """
        capture_exists capture_not_running capture_refused cluster_not_authorized
        concurrent_transactions coordinator_loading coordinator_not_available corrupt_message
        epochless_request fenced_instance fenced_member_epoch foreign_group group_max_size_reached
        group_not_authorized group_not_found group_request_too_large group_subscribed_to_topic
        illegal_generation inconsistent_protocol invalid_acks invalid_commit_offset invalid_config
        invalid_feature_level invalid_group_id invalid_group_request invalid_partitions
        invalid_producer_epoch invalid_producer_id_mapping invalid_publication invalid_quota
        invalid_record invalid_regular_expression invalid_replication_factor invalid_rule
        invalid_session_timeout invalid_timestamp invalid_topic_name invalid_transaction_state
        invalid_transactional_id invalid_user labels_differ log_directory_not_found
        member_id_required message_too_large non_empty_group not_authorized not_coordinator
        not_transaction_coordinator offset_metadata_too_large overtaken
        preferred_leader_not_available producer_fenced producer_ids_unavailable
        published_records_lost read_only_config rebalance_in_progress replica_damaged
        security_mode_refused shutting_down staged_records_gone stale_member_epoch
        throttling_quota_exceeded too_many_groups too_many_offsets too_many_partitions
        too_many_rules too_many_transactional_ids topic_deletion_disabled topic_exists transaction
        transaction_abortable transaction_coordinator_loading transaction_not_persisted
        transaction_timeout_invalid transactional_id_not_authorized transactional_id_not_found
        unknown_capture unknown_delayed_record unknown_member unknown_topic_id unknown_user
        unreleased_instance unsupported_assignor unsupported_compression unsupported_format
        user_exists writer_of_another_query
    """,
    "dragoman.replication.errors": """
        election_not_needed fenced_leader_epoch invalid_replica_assignment
        no_reassignment_in_progress not_enough_replicas not_leader overloaded
        records_not_deletable request_timed_out unknown_leader_epoch unknown_topic
    """,
    "dragoman.protocols.kafka.client.errors": """
        access_denied batch_too_large coordinator kafka leadership live_group login_failed
        offset_out_of_range producer_fenced record_refused sequence topic_exists unknown_group
        unknown_topic unsupported_request
    """,
    "dragoman.client_core.errors": """
        client client_closed connection_lost request_timeout unreachable
    """,
    "dragoman.protocols.minibroker.client.client": """
        already_subscribed not_leader refused
    """,
    "dragoman.log.producer": """
        coordinator_fenced duplicate_sequence invalid_producer_epoch out_of_order_sequence
        producer too_many_aborted too_many_producers transaction_expected
    """,
    "dragoman.api.declaration": "api",
    "dragoman.cdc.source.connection": "cdc",
    "dragoman.cdc.events.tables": "unknown_value",
    "dragoman.cdc.session": "taken_over",
    "dragoman.cdc.spool": "spool_full",
    "dragoman.cli.status": "command",
    "dragoman.cluster.etcd.calls": "call_failed",
    "dragoman.config.dynamic": "read_only_key",
    "dragoman.pipelines.jobs.changes": "envelope",
    "dragoman.pipelines.jobs.columns": "misfit",
    "dragoman.pipelines.jobs.delta": "table",
    "dragoman.pipelines.jobs.tier_manifest": "tier",
    "dragoman.pipelines.pipeline_file": "pipeline_file",
    "dragoman.pipelines.runner": "pipeline",
    "dragoman.pipelines.sinks.batches": "batch",
    "dragoman.pipelines.sinks.postgres": "postgres",
    "dragoman.pipelines.state": "already_running",
    "dragoman.protocols.cursus.client.connection": """
        cursus login_failed member_fenced not_authorized not_leader producer_fenced unknown_topic
        version_conflict
    """,
    "dragoman.protocols.cursus.codec": "unreadable_request",
    "dragoman.protocols.cursus.errors": "refusal",
    "dragoman.protocols.kafka.errors": "oversized_message unsupported_version",
    "dragoman.protocols.minibroker.handlers.session": "refused",
    "dragoman.protocols.minibroker.directory_import": "source",
    "dragoman.protocols.mlog.client.connection": """
        ack_mode catch_up_timeout commit_refused mlog no_data not_leader too_few_nodes
        topic_exists topic_not_found
    """,
    "dragoman.protocols.mlog.handlers.session": "refused",
    "dragoman.protocols.rocketmq.client.errors": """
        busy group_not_found group_offline invalid_parameter message_illegal no_permission
        not_found rocketmq subscription topic_not_found unsupported_request
    """,
    "dragoman.protocols.rocketmq.handlers.refusals": "refused",
    "dragoman.protocols.rocketmq.filters": "filter",
    "dragoman.spark.logs": "incomplete",
    "dragoman.spark.planner": "data_loss",
    "dragoman.net.listener": "address_taken",
    "dragoman.console.dead_letters.resend": "refused",
    "dragoman.console.errors": """
        console login_impossible login_needed node_unreachable overloaded read_only request_timeout
    """,
    "dragoman.console.kafka_access": "kafka_access",
    "dragoman.console.records.clients": "overloaded",
    "dragoman.console.records.decoding.forms": "schema",
    "dragoman.console.records.copies": "copy_target",
    "dragoman.console.records.failures": """
        access_denied kafka_failed kafka_unreachable topic_not_found
    """,
    "dragoman.console.records.filters.patterns": "pattern",
    "dragoman.console.records.filters.syntax": "filter",
    "dragoman.console.records.followed": "invalid_request too_many_topics topic_not_found",
    "dragoman.console.records.one": "record_not_found",
    "dragoman.console.records.places": "invalid_request",
    "dragoman.console.records.routes": "overloaded",
    "dragoman.console.sessions": "overloaded",
    "dragoman.console.sql.errors": "memory query",
    "dragoman.console.sql.service": "engine_missing overloaded",
    "dragoman.telemetry.catalogue": "stats",
}


@pytest.mark.parametrize("module", CODES)
def test_codes_are_what_they_were(module: str) -> None:
    defined = [
        value.code
        for value in vars(import_module(module)).values()
        if isinstance(value, type)
        and issubclass(value, DragomanError)
        and value.__module__ == module
    ]
    assert sorted(defined) == CODES[module].split()


def test_every_module_with_errors_is_here() -> None:
    root = Path(dragoman.__file__).parent
    bases: dict[str, set[str]] = {}
    modules: dict[str, set[str]] = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(map(_last_name, node.bases))
                modules.setdefault(node.name, set()).add(".".join(parts))
    errors = {"DragomanError"}
    while found := {name for name in bases if bases[name] & errors} - errors:
        errors |= found
    # Values of other kinds have the names of some errors, too.
    named = {module for name in errors for module in modules[name]}
    assert {module for module in named if _defines_errors(module)} == CODES.keys()


def _last_name(base: ast.expr) -> str:
    return ast.unparse(base).rpartition(".")[2]


def _defines_errors(module: str) -> bool:
    return any(
        isinstance(value, type) and issubclass(value, DragomanError) and value.__module__ == module
        for value in vars(import_module(module)).values()
    )


def test_class_may_state_another_code() -> None:
    class StatedError(DragomanError):
        code = "other"

    class InheritingError(StatedError):
        pass

    assert StatedError("x").code == "other"
    assert InheritingError("x").code == "inheriting"
