"""Kafka's API keys, and the versions that this broker serves and advertises.

The schema table may have further versions, which the codec can encode and decode: only versions
that the handlers implement are advertised.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from dragoman.protocols.kafka.notation import Versions, name_of, versions_of


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    # Requests of Dragoman; other brokers do not list them, and other clients do not use them.
    OPEN_STAGING = 32000
    PUBLISH_STAGED = 32001


def _valid(api_key: ApiKey) -> Versions:
    name = name_of(api_key, "Request")
    assert name is not None, api_key
    return versions_of(name)


#: Versions that are decoded and answered. The ranges are those of Kafka 4.3 except for
#: InitProducerId 6 (two-phase commit, unstable in Kafka), AddPartitionsToTxn 4 and 5 (between
#: brokers), and Fetch 18 (nothing new for consumers).
ACCEPTED_VERSIONS: Final[dict[ApiKey, Versions]] = {key: _valid(key) for key in ApiKey} | {
    ApiKey.INIT_PRODUCER_ID: Versions(0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: Versions(0, 3),
    ApiKey.FETCH: Versions(4, 17),
}

#: Versions in an ApiVersions reply. Produce is advertised from 0, as in Kafka 4: librdkafka before
#: 2.11.1 requires version 0 for compression, although it sends 3 or newer.
ADVERTISED_VERSIONS: Final[dict[ApiKey, Versions]] = ACCEPTED_VERSIONS | {
    ApiKey.PRODUCE: Versions(0, 13),
}


#: Served but not listed, as by a Kafka broker without a telemetry receiver: if these requests were
#: listed, clients would push metrics that are not collected.
UNLISTED_KEYS: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})


def is_accepted(api_key: int, version: int) -> bool:
    """Whether requests of this key and version are served."""
    versions = _ACCEPTED.get(api_key)
    return versions is not None and versions[0] <= version <= versions[1]


# Plain integers and tuples, because every request looks its version up.
_ACCEPTED: Final = {int(key): (value.low, value.high) for key, value in ACCEPTED_VERSIONS.items()}
