"""The settings of a node: every key an operator may set, its default, bounds and meaning.

`Settings` holds types and defaults, `NODE_KEYS` the bounds and meanings; a field is named like its
key, with `_` for `.`. Keys that Kafka has keep Kafka's name, meaning and default. There is no key
without an effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from dragoman import limits
from dragoman.config.hosts import network_and_name, parse_nodes
from dragoman.config.keys import INT_MAX, Accepted, Key, Source, Value, table_rows
from dragoman.config.listeners import (
    Address,
    ClientCertificates,
    Listener,
    ListenerSecurity,
    Requirement,
    default_addresses,
    listener_key,
    split_listener_key,
)

Durability: TypeAlias = Literal["fsync", "os"]
LogFormat: TypeAlias = Literal["plain", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
Compression: TypeAlias = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
TimestampType: TypeAlias = Literal["CreateTime", "LogAppendTime"]
MetadataQuorumKind: TypeAlias = Literal["raft", "etcd"]
MigrationPolicy: TypeAlias = Literal["disabled", "upgrade", "downgrade", "bidirectional"]


def default_listeners() -> tuple[Listener, ...]:
    return tuple(Listener(name=name, bind=bind) for name, bind in default_addresses().items())


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a listener's TLS, in PEM, and its options."""

    certificate_file: str = ""
    #: Empty: the key is in the certificate's file.
    key_file: str = ""
    #: Empty: no client's certificate is asked for.
    ca_file: str = ""
    client_certificates: ClientCertificates = "none"
    cipher_suites: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.certificate_file, self.key_file, self.ca_file)))


class Overlay(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """A change at run time: the keys it set, its scope, and the settings below it."""

    source: Source
    keys: frozenset[str]
    below: Settings


class Settings(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """All settings of a node; `Settings()` has the defaults."""

    data: str = "dragoman-data"
    #: The listeners to open, in the order of the table of listeners.
    listeners: tuple[Listener, ...] = msgspec.field(default_factory=default_listeners)
    #: Keys that the operator set, whatever their value; Kafka's DescribeConfigs tells them from
    #: defaults.
    explicit: frozenset[str] = frozenset()
    #: The changes made since the node was started (`dynamic.py`), if there are any.
    overlay: Overlay | None = None
    #: Values that listeners have in place of the node's, by the key of the listener, in order.
    per_listener: tuple[tuple[str, Value], ...] = ()

    durability: Durability = "fsync"
    node_id: int = 1
    cluster: tuple[str, ...] = ()
    broker_rack: str = ""
    broker_session_timeout_ms: int = 1_000
    broker_heartbeat_interval_ms: int = 250
    replica_lag_time_max_ms: int = 10_000
    leader_replication_throttled_rate: int = 0
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 60
    log_format: LogFormat = "plain"
    log_level: LogLevel = "info"
    memory_budget_bytes: int = 256 << 20

    metadata_quorum: MetadataQuorumKind = "raft"
    metadata_etcd_endpoints: tuple[str, ...] = ("http://127.0.0.1:2379",)
    metadata_etcd_ca_file: str = ""
    metadata_etcd_certificate_file: str = ""
    metadata_etcd_key_file: str = ""
    metadata_etcd_user: str = ""
    metadata_etcd_password: str = ""
    metadata_etcd_prefix: str = "/dragoman"
    metadata_etcd_lease_seconds: int = 5
    metadata_etcd_allow_bad_version: bool = False

    tls: Requirement = "off"
    authentication: Requirement = "off"
    insecure: bool = False
    sasl_enabled_mechanisms: tuple[str, ...] = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
    sasl_insecure_clear_text: bool = False
    sasl_oauthbearer_jwks_endpoint_url: str = ""
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = 3_600_000
    sasl_oauthbearer_expected_issuer: str = ""
    sasl_oauthbearer_expected_audience: tuple[str, ...] = ()
    sasl_oauthbearer_clock_skew_seconds: int = 30
    sasl_oauthbearer_sub_claim_name: str = "sub"
    sasl_oauthbearer_scope_claim_name: str = "scope"
    sasl_oauthbearer_required_scope: tuple[str, ...] = ()
    sasl_oauthbearer_algorithms: tuple[str, ...] = (
        *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
        *("ES256", "ES384", "ES512", "EdDSA"),
    )
    sasl_oauthbearer_insecure_unsigned: bool = False
    sasl_oauthbearer_insecure_http: bool = False
    connections_max_reauth_ms: int = 0
    connection_failed_authentication_delay_ms: int = 100
    connections_max_login_ms: int = 10_000
    max_connections_before_login: int = 8_192
    max_connections_before_login_per_ip: int = 1_024
    ssl_certificate_file: str = ""
    ssl_key_file: str = ""
    ssl_ca_file: str = ""
    ssl_client_auth: ClientCertificates = "none"
    ssl_cipher_suites: tuple[str, ...] = ()
    ssl_principal_mapping_rules: str = "DEFAULT"
    principals: tuple[str, ...] = ()

    bootstrap_users_file: str = ""
    peer_secret_file: str = ""
    peer_certificate_names: tuple[str, ...] = ("URI:dragoman://node/{node}",)

    http_allowed_hosts: tuple[str, ...] = ()
    http_metrics_authentication: bool = True
    console_base_path: str = ""
    console_session_idle_ms: int = 1_800_000
    console_session_life_ms: int = 43_200_000
    metrics_aliases: tuple[str, ...] = ()
    capture_allowed_hosts: tuple[str, ...] = ()

    super_users: str = ""
    allow_everyone_if_no_acl_found: bool = False
    data_group: str = ""
    cluster_key_file: str = ""
    cluster_key_lost: bool = False
    audit_log_file: str = ""
    audit_log_bytes: int = 64 << 20
    audit_log_files: int = 8

    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    num_partitions: int = 1
    max_partitions_per_request: int = 10_000
    max_partitions_per_node: int = 50_000
    default_replication_factor: int = 0
    replication_factor_lenient: bool = False

    message_max_bytes: int = 1_048_588
    fetch_max_bytes: int = 57_671_680
    socket_request_max_bytes: int = 104_857_600
    connections_max_idle_ms: int = 600_000
    max_connections: int = 32_768
    max_connections_per_ip: int = 16_384
    max_connections_per_ip_overrides: tuple[str, ...] = ()
    max_incremental_fetch_session_cache_slots: int = 1_000
    any_detection_timeout_ms: int = 10_000
    mlog_connections_max_idle_ms: int = 300_000
    mlog_acks_all_timeout_ms: int = 5_000
    mlog_stream_wait_ms: int = 10_000

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = INT_MAX
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = INT_MAX
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: MigrationPolicy = "bidirectional"
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offset_metadata_max_bytes: int = 4_096

    cursus_num_partitions: int = 4
    cursus_idempotence_enable: bool = False
    cursus_session_timeout_ms: int = 10_000
    cursus_session_check_interval_ms: int = 5_000
    cursus_idle_timeout_ms: int = 60_000
    cursus_connections_max: int = 1_000
    cursus_streams_max: int = 1_000
    cursus_stream_timeout_ms: int = 1_800_000
    cursus_transaction_timeout_ms: int = 60_000

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    producer_id_expiration_ms: int = 86_400_000

    held_record_check_after_ms: int = 6_000
    held_record_check_interval_ms: int = 30_000
    held_record_check_max: int = 15

    log_retention_ms: int = 604_800_000
    log_retention_bytes: int = -1
    log_retention_segments: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_segment_bytes: int = 1 << 30
    log_roll_ms: int = 604_800_000
    log_cleanup_policy: tuple[str, ...] = ("delete",)
    log_cleaner_delete_retention_ms: int = 86_400_000
    log_cleaner_min_cleanable_ratio: float = 0.5
    log_cleaner_backoff_ms: int = 15_000
    min_insync_replicas: int = 1
    compression_type: Compression = "producer"
    log_message_timestamp_type: TimestampType = "CreateTime"

    minibroker_partitions: int = 4
    minibroker_heartbeat_timeout_ms: int = 15_000

    def listener(self, name: str) -> Listener | None:
        """The named listener, or None when it is off."""
        return next((each for each in self.listeners if each.name == name), None)

    @property
    def cluster_nodes(self) -> dict[int, Address]:
        """Addresses of the nodes that found the cluster; empty: there is one node."""
        return parse_nodes(self.cluster)

    @property
    def is_clustered(self) -> bool:
        """Whether there are, or may be, other nodes."""
        return bool(self.cluster) or self.metadata_quorum == "etcd"

    def value(self, key: str) -> Value:
        """The value of a key of `NODE_KEYS`, or of one listener, by its dotted name. A listener
        without a value of its own has the node's.
        """
        if key not in NODE_KEYS:
            for name, value in self.per_listener:
                if name == key:
                    return value
            key = node_wide(key)
        return _as_value(getattr(self, NODE_KEYS[key].attribute))

    def listener_security(self, listener: str) -> ListenerSecurity:
        """What a listener demands of its connections."""
        fields = {field: self.value(listener_key(listener, key)) for field, key in _SECURITY_FIELDS}
        networks = fields["principals"]
        assert isinstance(networks, tuple)
        principals = tuple(network_and_name(each) for each in networks)
        return msgspec.convert({**fields, "principals": principals}, ListenerSecurity)

    def listener_tls(self, listener: str) -> TlsOptions:
        """The files and options of a listener's TLS."""
        fields = {field: self.value(listener_key(listener, key)) for field, key in _TLS_FIELDS}
        return msgspec.convert(fields, TlsOptions)

    def files(self) -> list[str]:
        """Every file that is named by a setting."""
        given = [(key, self.value(key)) for key in NODE_KEYS]
        return [
            str(value)
            for key, value in (*given, *self.per_listener)
            if key.endswith(".file") and value
        ]

    def origins(self, key: str) -> list[tuple[Source, Value]]:
        """The origins of a key's value, from the one in effect down to the default."""
        found: list[tuple[Source, Value]] = []
        layer = self
        while layer.overlay is not None:
            if key in layer.overlay.keys:
                found.append((layer.overlay.source, layer.value(key)))
            layer = layer.overlay.below
        if key in layer.explicit:
            found.append((Source.NODE, layer.value(key)))
        if key not in NODE_KEYS:
            return found + self.origins(node_wide(key))
        found.append((Source.DEFAULT, _as_value(_DEFAULTS[NODE_KEYS[key].attribute])))
        return found


def _as_value(value: object) -> Value:
    assert isinstance(value, bool | int | float | str | tuple), type(value)
    return value


_DEFAULTS = msgspec.structs.asdict(Settings())

# The table is data, one key a line, and reads best unwrapped.
# ruff: noqa: E501

#: Key, what it accepts, and its meaning. Keys marked `live` may be changed while the node runs: code
#: that uses them reads the value each time or subscribes to changes. The others are read once, or
#: describe something on disk.
_ROWS = table_rows(f"""
data                                       | string       |      | Directory of everything the node stores.
durability                                 | string fsync,os |      | `fsync`: a write is acknowledged when it is on stable storage. `os`: when the operating system has it; a crash of the machine may lose it.
node.id                                    | int 0..      |      | Number of this node in its cluster; stays the same for the life of its data.
cluster                                    | list         |      | The nodes that found the cluster, as `NODE@HOST:PORT`, with their addresses for other nodes; none: this node alone.
broker.rack                                | string       |      | The rack of the node; replicas of a partition are spread over racks.
broker.session.timeout.ms                  | int 100..    |      | How long a node may be silent before other nodes take over its leaderships.
broker.heartbeat.interval.ms               | int 10..     |      | How often a node sends a heartbeat to the controller.
replica.lag.time.max.ms                    | long 100..   |      | How long a replica may lag before it leaves the in-sync set.
leader.replication.throttled.rate          | long 0..     | live | Bytes per second that the node sends to replicas added by a move; 0: no limit.
auto.leader.rebalance.enable               | boolean      |      | Periodically return partitions to their preferred leaders.
leader.imbalance.check.interval.seconds    | int 1..      |      | How often partitions return to their preferred leaders.
log.format                                 | string plain,json |      | Format of the node's own log.
log.level                                  | string debug,info,warning,error |      | Lowest level that the node logs.
memory.budget.bytes                        | long {limits.MEMORY_BUDGET_BYTES_MIN}.. |      | Memory for requests and replies in flight, over all connections. Past it, sockets are not read, and stalled peers that hold much of it are disconnected.
metadata.quorum                            | string raft,etcd |      | What stores the metadata: `raft`, a quorum of the nodes; `etcd`, an existing etcd.
metadata.etcd.endpoints                    | list         |      | Client addresses of the members of etcd, as `http://HOST:PORT`.
metadata.etcd.ca.file                      | string       |      | Authorities, in PEM, that sign the certificates of etcd's members; empty: those of the system. The files are read for each connection.
metadata.etcd.certificate.file             | string       |      | This node's certificate for etcd, in PEM; empty: none.
metadata.etcd.key.file                     | string       |      | The key of that certificate; empty: it is in the certificate's file.
metadata.etcd.user                         | string       |      | User of etcd to log in as; empty: without a login.
metadata.etcd.password                     | string       |      | Reference to that user's password: `file:/path` or `env:NAME`.
metadata.etcd.prefix                       | string       |      | Prefix of the keys in etcd; each cluster needs its own.
metadata.etcd.lease.seconds                | int 2..300   |      | Time-to-live of a node's lease in etcd. After the machine of the metadata leader is lost, there is no leader for this long.
metadata.etcd.allow.bad.version            | boolean      |      | For tests: accept a version of etcd that may lose metadata.
tls                                        | string off,optional,required | live | Whether connections of clients are TLS. With `optional`, the first bytes of each decide. With `required`, others are closed.
authentication                             | string off,optional,required | live | Whether clients log in, by SASL, a certificate, a token or the login of their protocol. With `required`, requests before the login are refused.
insecure                                   | boolean      |      | Open listeners without authentication to other machines. Without it, the node does not start with such a listener.
sasl.enabled.mechanisms                    | list ,PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER | live | The SASL mechanisms that Kafka clients may use.
sasl.insecure.clear.text                   | boolean      |      | Offer PLAIN and OAUTHBEARER, which send credentials in clear, to other machines on connections without TLS, too. HTTP accepts passwords there, too.
sasl.oauthbearer.jwks.endpoint.url         | string       |      | The keys that verify tokens of OAUTHBEARER, a JSON Web Key Set: `https://...` or `file:///...`.
sasl.oauthbearer.jwks.endpoint.refresh.ms  | long 1000..  |      | How old the keys may be before they are fetched again. A token with an unknown key has them fetched sooner.
sasl.oauthbearer.expected.issuer           | string       |      | The issuer (`iss`) that tokens must have; none: any.
sasl.oauthbearer.expected.audience         | list         |      | Audiences (`aud`), one of which tokens must have; none: any.
sasl.oauthbearer.clock.skew.seconds        | int 0..3600  |      | By how much the clocks of the issuer and of this node may differ.
sasl.oauthbearer.sub.claim.name            | string       |      | The claim of a token that names its user.
sasl.oauthbearer.scope.claim.name          | string       |      | The claim of a token that lists its scopes.
sasl.oauthbearer.required.scope            | list         |      | Scopes that tokens must have.
sasl.oauthbearer.algorithms                | list RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,ES512,EdDSA |      | Algorithms by which tokens may be signed.
sasl.oauthbearer.insecure.unsigned         | boolean      |      | For tests: accept tokens without a signature. A client can then log in as any user.
sasl.oauthbearer.insecure.http             | boolean      |      | For tests: fetch the keys without TLS.
connections.max.reauth.ms                  | long 0..     | live | How long a Kafka client may work after a login before it has to log in again; 0: no limit. A token's own lifetime is a limit, too.
connection.failed.authentication.delay.ms  | int 0..60000 | live | How long a refused Kafka login waits for its answer, and the connection for its end.
connections.max.login.ms                   | int 1..      | live | Close a connection that has to log in and has not within this time.
max.connections.before.login               | int 1..      | live | Most connections that have to log in and have not, and most new ones in a second; one more is closed at once. A quarter is for addresses that have logged in lately.
max.connections.before.login.per.ip        | int 1..      | live | The same for one address.
ssl.certificate.file                       | string       | live | The node's certificate in PEM, with those of intermediate authorities behind it. A file that changes is read again, for new connections. Kafka has keystores instead.
ssl.key.file                               | string       | live | The key of the certificate, in PEM and without a password; empty: it is in the certificate's file.
ssl.ca.file                                | string       | live | The authorities, in PEM, whose certificates clients may have.
ssl.client.auth                            | string none,requested,required | live | Whether clients are asked for a certificate. One that no authority of `ssl.ca.file` has signed is refused.
ssl.cipher.suites                          | list         | live | Cipher suites of TLS 1.2, in OpenSSL's names; none: OpenSSL's choice. Those of TLS 1.3 are fixed.
ssl.principal.mapping.rules                | string       | live | How the subject of a client's certificate becomes the name of a user: `DEFAULT`, the whole subject, or `RULE:pattern/replacement/` with `L` or `U`, separated by commas; the first that matches counts.
principals                                 | list         | live | Networks whose clients have a principal without a login, as `NETWORK=NAME`: `10.0.0.0/8=batch`. The first with the client's address counts.
bootstrap.users.file                       | string       |      | TOML file with users and rules that a new cluster begins with (`dragoman security` has the format). It counts once, while the cluster has neither users nor rules nor topics; then it may go. Only the node's user may have access to it.
peer.secret.file                           | string       |      | File with a secret that all nodes have, by which they recognise each other inside TLS where `listener.peer.authentication` is on. Of several lines, the first is proven and each is accepted; a line has at least {limits.PEER_SECRET_BYTES_MIN} characters. Empty: nodes are recognised by their certificates.
peer.certificate.names                     | list         |      | Names of which a node's certificate has one, with `{{node}}` for its number: `URI:`, `DNS:` or `IP Address:` with an alternative name, or `SUBJECT:` with the whole subject, as in `SUBJECT:CN=node-{{node}}`. Certificates of clients must not have such names.
http.allowed.hosts                         | list         |      | Names under which the HTTP API may be reached, beside `localhost`, the names that the node listens on or advertises and the machine's own; `*.NAME` matches names below it, `*` any. Pages of these hosts may use it, too. Addresses need not be listed.
http.metrics.authentication                | boolean      | live | Whether `/metrics` is for those only who may use the HTTP API and describe the cluster; otherwise for all.
console.base.path                          | string       |      | Path under which a proxy shows the console, such as `/dragoman`; empty: at the root of its own name.
console.session.idle.ms                    | long 60000.. |      | How long a login at the console lasts without a request of its pages.
console.session.life.ms                    | long 60000.. |      | How long a login at the console lasts in any case.
metrics.aliases                            | list ,kafka_exporter,minibroker |      | Programs under whose names `/metrics` shows metrics, too: `kafka_exporter`, and the original `minibroker`.
capture.allowed.hosts                      | list         |      | Hosts of databases that this node may capture or examine: names, `*.NAME` for names below it, addresses, networks such as `10.0.0.0/8`, and directories of sockets; none: any.
super.users                                | string       |      | Principals that may do everything, whatever the rules say, as `User:NAME`, separated by `;`. Give all nodes the same.
allow.everyone.if.no.acl.found             | boolean      |      | Whether a resource that no access rule matches is open to everyone, instead of to super users only. Give all nodes the same.
data.group                                 | string       |      | Group, by name or number, that may read the segments and manifests of topics in the data directory, such as that of Spark jobs, and pin them; none: only the user of the node. Topics whose names begin with `__` and all other files stay closed.
cluster.key.file                           | string       |      | File with the keys that encrypt secrets in the metadata, the same on every node; none: a node on its own makes `cluster.key` in its data directory, and a cluster stores no secrets.
cluster.key.lost                           | boolean      |      | Start without the cluster's key, when no copy of it is left. Secrets that it encrypts cannot be used until they are set again.
audit.log.file                             | string       |      | File of the audit log; none: `audit.log` in the data directory, written while a listener takes logins or the security mode is not `open`.
audit.log.bytes                            | long 65536.. |      | Size at which the audit log continues in a new file.
audit.log.files                            | int 1..1000  |      | Files of the audit log that are kept, the current one included.
auto.create.topics.enable                  | boolean      | live | Create a topic when a client first names it.
delete.topic.enable                        | boolean      | live | Allow clients to delete topics.
num.partitions                             | int 1..{limits.TOPIC_PARTITIONS_MAX} | live | Partitions of a topic created without a number.
max.partitions.per.request                 | int 1..      | live | Most partitions that one request may create, over all its topics.
max.partitions.per.node                    | int 1..      | live | Most replicas on a node, internal topics excepted; past it, new partitions are refused. Each takes about 4 kB of memory.
default.replication.factor                 | int 0..{limits.REPLICATION_FACTOR_MAX} | live | Replicas of a topic created without a number; 0: one for each node, up to three.
replication.factor.lenient                 | boolean      | live | Create a topic with as many replicas as there are nodes when a client requests more, instead of refusing.
message.max.bytes                          | int 0..      | live | Largest record batch. Default of the topics' `max.message.bytes`.
fetch.max.bytes                            | int 1024..   | live | Most bytes of records in one reply to a fetch.
socket.request.max.bytes                   | int 1024..   |      | Largest request; a connection that announces more is closed.
connections.max.idle.ms                    | long -1..    | live | Close a connection idle for longer; -1: never.
max.connections                            | int 1..      | live | Most client connections over all listeners except HTTP and `peer`; one more is closed at once.
max.connections.per.ip                     | int 0..      | live | Most client connections from one address; one more is closed at once.
max.connections.per.ip.overrides           | list         | live | Addresses with another bound of connections, such as a proxy's, as `ADDRESS:NUMBER`.
max.incremental.fetch.session.cache.slots  | int 0..      | live | Fetch sessions kept for Kafka consumers; 0: none, every request is a full one.
any.detection.timeout.ms                   | int 1..      | live | Close a connection to the listener `any` whose protocol is not detected within this time.
mlog.connections.max.idle.ms               | long -1..    | live | Close a connection to the listener `mlog` idle for longer; -1: never.
mlog.acks.all.timeout.ms                   | int 1..      | live | How long an mlog produce request with acks from all replicas waits for them.
mlog.stream.wait.ms                        | int 0..      | live | How long an mlog FetchStream waits for records.
group.min.session.timeout.ms               | int 0..      | live | Shortest session time-out that a group member may request.
group.max.session.timeout.ms               | int 1..      | live | Longest session time-out that a group member may request.
group.initial.rebalance.delay.ms           | int 0..      | live | How long an empty group waits for more members before its first rebalance.
group.max.size                             | int 1..      | live | Most members of a group.
group.consumer.session.timeout.ms          | int 1..      | live | How long a member of a consumer group (KIP-848) may be silent before it is removed.
group.consumer.min.session.timeout.ms      | int 1..      | live | Least that `group.consumer.session.timeout.ms` may be.
group.consumer.max.session.timeout.ms      | int 1..      | live | Most that `group.consumer.session.timeout.ms` may be.
group.consumer.heartbeat.interval.ms       | int 1..      | live | Interval of heartbeats that members of consumer groups get from the coordinator.
group.consumer.min.heartbeat.interval.ms   | int 1..      | live | Least that `group.consumer.heartbeat.interval.ms` may be.
group.consumer.max.heartbeat.interval.ms   | int 1..      | live | Most that `group.consumer.heartbeat.interval.ms` may be.
group.consumer.max.size                    | int 1..      | live | Most members of a consumer group.
group.consumer.assignors                   | list uniform,range | live | Assignors that consumer groups may use; the first is used when members request none.
group.consumer.migration.policy            | string disabled,upgrade,downgrade,bidirectional | live | How the protocol of a group with members may change: `upgrade` from classic to consumer, `downgrade` back, `bidirectional` or `disabled`.
offsets.retention.minutes                  | int 1..      | live | How long the committed offsets of a group without members are kept.
offsets.retention.check.interval.ms        | long 1..     | live | How often expired offsets are removed.
offsets.topic.num.partitions               | int 1..{limits.TOPIC_PARTITIONS_MAX} |      | Partitions of `__consumer_offsets`.
offsets.topic.replication.factor           | int 1..{limits.REPLICATION_FACTOR_MAX} |      | Replicas of `__consumer_offsets`; with fewer nodes, as many as there are.
offset.metadata.max.bytes                  | int 0..      | live | Longest metadata text of a committed offset.
cursus.num.partitions                      | int 1..{limits.TOPIC_PARTITIONS_MAX} | live | Partitions of a topic that a Cursus client creates without a number.
cursus.idempotence.enable                  | boolean      | live | Check the sequence numbers of all Cursus producers, not only where the producer or the topic enables it.
cursus.session.timeout.ms                  | int 1..      |      | How long a member of a Cursus group may be silent before it is removed.
cursus.session.check.interval.ms           | int 1..      |      | How often silent members of Cursus groups are removed.
cursus.idle.timeout.ms                     | int 1..      |      | Close a Cursus connection without a stream after it has sent nothing for this time.
cursus.connections.max                     | int 1..      | live | Most Cursus connections; one more is closed at once.
cursus.streams.max                         | int 1..      | live | Most Cursus streams; one more is refused.
cursus.stream.timeout.ms                   | long 1..     | live | End a Cursus stream that has had nothing to send for this time.
cursus.transaction.timeout.ms              | int 1..      | live | Abort a Cursus client's transaction that is open for longer; at most `transaction.max.timeout.ms`.
transaction.max.timeout.ms                 | int 1..      | live | Longest time-out that a transactional producer may request.
transactional.id.expiration.ms             | int 1..      | live | How long an idle transactional id is remembered.
transaction.abort.timed.out.transaction.cleanup.interval.ms | int 1..      | live | How often transactions past their time-out are aborted.
transaction.state.log.num.partitions       | int 1..{limits.TOPIC_PARTITIONS_MAX} |      | Partitions of `__transaction_state`.
transaction.state.log.replication.factor   | int 1..{limits.REPLICATION_FACTOR_MAX} |      | Replicas of `__transaction_state` and of the topics for exactly-once writes and deferred records; with fewer nodes, as many as there are.
producer.id.expiration.ms                  | int 1..      | live | How long an idle producer's sequence is remembered.
held.record.check.after.ms                 | int 1..      | live | How long a record that a client holds back (RocketMQ's half messages) may be undecided before its producer is asked, unless the client sets a time.
held.record.check.interval.ms              | int 1..      | live | Interval between further questions to the producer.
held.record.check.max                      | int 1..      | live | How many times the producer is asked before the record is dropped. A new leader counts from zero.
log.retention.ms                           | long -1..    | live | Default of the topics' `retention.ms`.
log.retention.bytes                        | long -1..    | live | Default of the topics' `retention.bytes`.
log.retention.segments                     | int -1..     | live | Default of the topics' `retention.segments`. Kafka has no such key; it is minibroker's `-retain`.
log.retention.check.interval.ms            | long 1..     | live | How often segments past retention are dropped.
log.segment.bytes                          | int 14..     | live | Default of the topics' `segment.bytes`.
log.roll.ms                                | long 1..     | live | Default of the topics' `segment.ms`.
log.cleanup.policy                         | list ,delete,compact | live | Default of the topics' `cleanup.policy`.
log.cleaner.delete.retention.ms            | long 0..     | live | Default of the topics' `delete.retention.ms`.
log.cleaner.min.cleanable.ratio            | double 0..1  | live | Default of the topics' `min.cleanable.dirty.ratio`.
log.cleaner.backoff.ms                     | long 0..     | live | How long the cleaner pauses when there is nothing to clean.
min.insync.replicas                        | int 1..      | live | Default of the topics' `min.insync.replicas`. With three or more replicas it is 2 unless the topic or the cluster says otherwise; a node's own value counts where it is higher.
compression.type                           | string producer,uncompressed,gzip,snappy,lz4,zstd | live | Default of the topics' `compression.type`.
log.message.timestamp.type                 | string CreateTime,LogAppendTime | live | Default of the topics' `message.timestamp.type`.
minibroker.partitions                      | int 1..{limits.TOPIC_PARTITIONS_MAX} | live | Partitions of a topic that a minibroker client creates by naming it.
minibroker.heartbeat.timeout.ms            | int 0..      |      | How long a member of a minibroker group may be silent before its connection is closed; 0: no limit.
""")


def _key(name: str, accepts: str, doc: str) -> Key:
    return Key(name=name, doc=doc, **Accepted.parse(accepts)._asdict())


NODE_KEYS = {name: _key(name, accepts, doc) for name, accepts, _, doc in _ROWS}
DYNAMIC_KEYS = frozenset(name for name, _, live, _ in _ROWS if live)

_SECURITY_FIELDS = (
    ("tls", "tls"),
    ("authentication", "authentication"),
    ("mechanisms", "sasl.enabled.mechanisms"),
    ("client_certificates", "ssl.client.auth"),
    ("principals", "principals"),
)
_TLS_FIELDS = (
    ("certificate_file", "ssl.certificate.file"),
    ("key_file", "ssl.key.file"),
    ("ca_file", "ssl.ca.file"),
    ("client_certificates", "ssl.client.auth"),
    ("cipher_suites", "ssl.cipher.suites"),
)
#: Keys that a listener may have a value of its own for, as `listener.NAME.KEY`.
LISTENER_KEYS = tuple(dict.fromkeys(key for _, key in (*_SECURITY_FIELDS, *_TLS_FIELDS)))


def node_key(name: str) -> Key | None:
    """The key of this name, the node's or one listener's; None when there is none."""
    if name in NODE_KEYS:
        return NODE_KEYS[name]
    parts = split_listener_key(name)
    if parts is None or parts[1] not in LISTENER_KEYS:
        return None
    return msgspec.structs.replace(NODE_KEYS[parts[1]], name=name)


def keys_of(settings: Settings) -> dict[str, Key]:
    """The keys of the node and of each of its listeners."""
    keys = dict(NODE_KEYS)
    for listener in settings.listeners:
        for each in LISTENER_KEYS:
            name = listener_key(listener.name, each)
            keys[name] = msgspec.structs.replace(NODE_KEYS[each], name=name)
    return keys


def is_dynamic(name: str) -> bool:
    """Whether a key that exists may change while the node runs."""
    return node_wide(name) in DYNAMIC_KEYS


def node_wide(name: str) -> str:
    """The key that a listener without a value of its own has the value of."""
    parts = None if name in NODE_KEYS else split_listener_key(name)
    return name if parts is None else parts[1]


def with_values(settings: Settings, values: Mapping[str, Value]) -> dict[str, object]:
    """Fields of settings with these values, by their dotted names, over the given ones."""
    fields: dict[str, object] = {}
    own = dict(settings.per_listener)
    for name, value in values.items():
        if name in NODE_KEYS:
            fields[NODE_KEYS[name].attribute] = value
        else:
            own[name] = value
    return {**fields, "per_listener": tuple(sorted(own.items()))}
