"""Settings that change while a node runs: a layer of values over those it was started with.

A cluster has one layer for all of its nodes and one for each node; the node's own wins. A layer is
stored as text, like a topic's overrides, and only holds keys of `DYNAMIC_KEYS`.

Kafka accepts any key for a broker: its own, those of plug-ins, and unknown ones. Keys that have no
counterpart here are inert: they are stored with the layer and shown, and have no effect. The values
of Kafka's own keys are checked. What the value of another key means is not known, so it is never
shown: it may be a plug-in's password.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dragoman import limits
from dragoman.config.keys import Accepted, Key, Kind, Source, Value, near_match, table_rows
from dragoman.config.overrides import ConfigEntry, Synonym
from dragoman.config.settings import (
    DYNAMIC_KEYS,
    Overlay,
    Settings,
    is_dynamic,
    node_key,
    with_values,
)
from dragoman.errors import ConfigError


class ReadOnlyKeyError(ConfigError):
    """The key exists, but can be set only when the node is started."""


def with_changes(settings: Settings, source: Source, changes: Mapping[str, str]) -> Settings:
    """The settings with a layer over them; the same ones when the layer is empty. Whether the
    values are consistent is for `check_consistent` to say, once the last layer is there.

    Raises `ReadOnlyKeyError`, and `ConfigError` for unknown keys and bad values.
    """
    if not changes:
        return settings
    values = dict(_read_dynamic(name, text) for name, text in changes.items())
    overlay = Overlay(source=source, keys=frozenset(changes), below=settings)
    return msgspec.structs.replace(settings, **with_values(settings, values), overlay=overlay)


def require_dynamic(name: str) -> None:
    """Raises `ReadOnlyKeyError`, or `ConfigError` for a key that does not exist."""
    if is_started_with(name):
        raise ReadOnlyKeyError(f"{name} can only be set when the node is started")
    if node_key(name) is None:
        raise ConfigError(f"unknown key {name!r}{near_match(name, DYNAMIC_KEYS)}")
    if not is_dynamic(name):
        raise ReadOnlyKeyError(f"{name} can only be set when the node is started")


def _read_dynamic(name: str, text: str) -> tuple[str, Value]:
    require_dynamic(name)
    key = node_key(name)
    assert key is not None
    return name, key.read(text)


# The table is data, one key a line, and reads best unwrapped.
# ruff: noqa: E501

#: Key, what it accepts, and why it has no effect.
_ROWS = table_rows("""
background.threads                            | int 1..     | A node has no pools of threads.
follower.replication.throttled.rate           | long 0..    | Only what leaders send is throttled: `leader.replication.throttled.rate`.
log.cleaner.dedupe.buffer.size                | long 1..    | The cleaner's memory is fixed.
log.cleaner.io.buffer.load.factor             | double 0..  | The cleaner's memory is fixed.
log.cleaner.io.buffer.size                    | int 0..     | The cleaner's memory is fixed.
log.cleaner.io.max.bytes.per.second           | double 0..  | The cleaner works in slices between requests.
log.cleaner.max.compaction.lag.ms             | long 1..    | Set `max.compaction.lag.ms` for the topic.
log.cleaner.min.compaction.lag.ms             | long 0..    | Set `min.compaction.lag.ms` for the topic.
log.cleaner.threads                           | int 0..     | A node has no pools of threads.
log.flush.interval.messages                   | long 1..    | The node's `durability` decides when writes are durable.
log.flush.interval.ms                         | long 0..    | The node's `durability` decides when writes are durable.
log.index.interval.bytes                      | int 0..     | Set `index.interval.bytes` for the topic.
log.index.size.max.bytes                      | int 4..     | An index grows with its segment.
log.message.timestamp.after.max.ms            | long 0..    | Set `message.timestamp.after.max.ms` for the topic.
log.message.timestamp.before.max.ms           | long 0..    | Set `message.timestamp.before.max.ms` for the topic.
log.preallocate                               | boolean     | Segments are never preallocated.
log.roll.jitter.ms                            | long 0..    | Segments roll when their age says so.
log.segment.delete.delay.ms                   | long 0..    | The file of a dropped segment goes when no manifest lists it any more.
num.io.threads                                | int 1..     | A node has no pools of threads.
num.network.threads                           | int 1..     | A node has no pools of threads.
num.recovery.threads.per.data.dir             | int 1..     | A node has no pools of threads.
num.replica.fetchers                          | int 1..     | One connection to each leader fetches all partitions.
replica.alter.log.dirs.io.max.bytes.per.second | long 0..   | A node has one directory.
transaction.partition.verification.enable     | boolean     | The first write of a transaction is always verified.
unclean.leader.election.enable                | boolean     | A replica outside the in-sync set never becomes leader.
""")

#: Keys that Kafka, too, reads only when a broker starts, or that a node has under another name.
_STARTED_WITH = frozenset(
    (
        *("advertised.listeners", "broker.id", "controller.listener.names"),
        *("controller.quorum.bootstrap.servers", "controller.quorum.voters"),
        *("inter.broker.listener.name", "listener.security.protocol.map", "listeners"),
        *("log.dir", "log.dirs", "metadata.log.dir", "process.roles"),
    )
)

#: From this feature level on nodes store keys that they do not know. A node of an earlier level
#: rejects such a key, and with it every change that was made at run time.
UNKNOWN_KEYS_LEVEL = 4
#: Settings that nodes below `UNKNOWN_KEYS_LEVEL` know and can change while they run. It is those
#: that are listed, so that a new setting is never taken for one of them.
_OLD_KEYS = frozenset(
    """
    any.detection.timeout.ms auto.create.topics.enable compression.type connections.max.idle.ms
    cursus.connections.max cursus.idempotence.enable cursus.num.partitions
    cursus.stream.timeout.ms cursus.streams.max cursus.transaction.timeout.ms
    default.replication.factor delete.topic.enable fetch.max.bytes group.consumer.assignors
    group.consumer.heartbeat.interval.ms group.consumer.max.heartbeat.interval.ms
    group.consumer.max.session.timeout.ms group.consumer.max.size
    group.consumer.migration.policy group.consumer.min.heartbeat.interval.ms
    group.consumer.min.session.timeout.ms group.consumer.session.timeout.ms
    group.initial.rebalance.delay.ms group.max.session.timeout.ms group.max.size
    group.min.session.timeout.ms held.record.check.after.ms held.record.check.interval.ms
    held.record.check.max leader.replication.throttled.rate log.cleaner.backoff.ms
    log.cleaner.delete.retention.ms log.cleaner.min.cleanable.ratio log.cleanup.policy
    log.message.timestamp.type log.retention.bytes log.retention.check.interval.ms
    log.retention.ms log.roll.ms log.segment.bytes max.incremental.fetch.session.cache.slots
    message.max.bytes min.insync.replicas minibroker.partitions mlog.acks.all.timeout.ms
    mlog.connections.max.idle.ms mlog.stream.wait.ms num.partitions offset.metadata.max.bytes
    offsets.retention.check.interval.ms offsets.retention.minutes producer.id.expiration.ms
    replication.factor.lenient transaction.abort.timed.out.transaction.cleanup.interval.ms
    transaction.max.timeout.ms transactional.id.expiration.ms
    """.split()  # noqa: SIM905
)


def _key(name: str, accepts: str, doc: str) -> Key:
    return Key(name=name, doc=doc, **Accepted.parse(accepts)._asdict())


#: Kafka's own keys, whose values are checked and shown.
INERT_KEYS = {name: _key(name, accepts, doc) for name, accepts, doc in _ROWS}
_UNKNOWN_DOC = "Not known here; stored, and without effect."


def is_inert(name: str) -> bool:
    """Whether a key that a client sets for a broker has no effect here."""
    return node_key(name) is None and name not in _STARTED_WITH


def is_shown(name: str) -> bool:
    """Whether the value of a key of a node may be shown: what it means is known."""
    return not is_inert(name) or name in INERT_KEYS


def is_started_with(name: str) -> bool:
    """Whether an inert key corresponds to a setting that is fixed at the start."""
    return name in _STARTED_WITH


def first_unknown(changes: Mapping[str, str]) -> str | None:
    """The first key that nodes below `UNKNOWN_KEYS_LEVEL` do not know, if any."""
    return next((each for each in changes if each not in _OLD_KEYS), None)


def inert_part(changes: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in changes.items() if is_inert(name)}


def check_inert(changes: Mapping[str, str]) -> None:
    """Raises `ConfigError` for a bad value of one of Kafka's keys, and past the limits."""
    inert = inert_part(changes)
    if len(inert) > limits.INERT_CONFIG_KEYS_MAX:
        raise ConfigError(
            f"{len(inert)} keys without effect; at most {limits.INERT_CONFIG_KEYS_MAX} are kept"
        )
    size = sum(len(name.encode()) + len(text.encode()) for name, text in inert.items())
    if size > limits.INERT_CONFIG_BYTES_MAX:
        raise ConfigError(
            f"keys without effect have {size} bytes with their values; "
            f"at most {limits.INERT_CONFIG_BYTES_MAX} are kept"
        )
    for name, text in inert.items():
        if not name or not name.isprintable() or name != name.strip():
            raise ConfigError(f"{name[:100]!r} cannot be the name of a key")
        if name in INERT_KEYS:
            INERT_KEYS[name].read(text)


def describe_inert(layers: Sequence[tuple[Source, Mapping[str, str]]]) -> list[ConfigEntry]:
    """Inert keys in layers of changes, in order of name. The strongest layer comes first."""
    names = sorted({name for _, changes in layers for name in inert_part(changes)})
    return [_entry(name, layers) for name in names]


def _entry(name: str, layers: Sequence[tuple[Source, Mapping[str, str]]]) -> ConfigEntry:
    key = INERT_KEYS.get(name)
    synonyms = tuple(
        Synonym(name, changes[name] if key is not None else "", source)
        for source, changes in layers
        if name in changes
    )
    return ConfigEntry(
        key=key or Key(name=name, kind=Kind.STRING, doc=_UNKNOWN_DOC),
        text=synonyms[0].text,
        source=synonyms[0].source,
        synonyms=synonyms,
        is_secret=key is None,
    )
