"""Settings of groups and committed offsets, under Kafka's names and with Kafka's defaults."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

#: Which way a group with members may change between Kafka's two protocols.
MigrationPolicy: TypeAlias = Literal["disabled", "upgrade", "downgrade", "bidirectional"]


class GroupSettings(msgspec.Struct, kw_only=True):
    """One object that all groups share; a change of it counts from the next request on."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    #: How long the first rebalance of an empty group waits for more members; 0 in tests.
    group_initial_rebalance_delay_ms: int = 3_000
    #: `limits.GROUP_MEMBERS_MAX` holds in any case.
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    #: Counted from the moment the group became empty.
    offsets_retention_minutes: int = 10_080
    #: The broker dictates both to members of consumer groups (KIP-848).
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    #: `limits.GROUP_MEMBERS_MAX` holds in any case.
    group_consumer_max_size: int = 2_147_483_647
    #: The first is used when the members do not ask for one.
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: MigrationPolicy = "bidirectional"
