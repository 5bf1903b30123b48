"""The configuration of single groups, under Kafka's names: what lies over the node's settings."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.config.keys import Key, Kind, Source, near_match
from dragoman.config.settings import Settings
from dragoman.config.topics import ConfigEntry, Synonym, config_entry, node_synonyms
from dragoman.errors import ConfigError

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"


class GroupKey(Key, frozen=True, kw_only=True):
    #: Settings of the node: the default, and what bounds the group's own value.
    node_key: str
    default: str = ""
    lower_key: str
    upper_key: str


GROUP_CONFIG: dict[str, GroupKey] = {
    name: GroupKey(
        name=name,
        kind=Kind.INT,
        minimum=1,
        doc=doc,
        node_key=f"group.{name}",
        lower_key=f"group.consumer.min.{what}",
        upper_key=f"group.consumer.max.{what}",
    )
    for name, what, doc in (
        (
            HEARTBEAT_INTERVAL,
            "heartbeat.interval.ms",
            "How often members of the consumer group (KIP-848) are told to show that they live.",
        ),
        (
            SESSION_TIMEOUT,
            "session.timeout.ms",
            "How long a member of the consumer group may be silent before it is thrown out.",
        ),
    )
}


def check_group_config(settings: Settings, overrides: Mapping[str, str]) -> None:
    """Raises `ConfigError` unless a group may have these."""
    values: dict[str, int] = {}
    for name, text in overrides.items():
        key = GROUP_CONFIG.get(name)
        if key is None:
            raise ConfigError(
                f"unknown group configuration {name!r}{near_match(name, GROUP_CONFIG)}"
            )
        values[name] = _number(key.read(text))
        low, high = (_number(settings.value(each)) for each in (key.lower_key, key.upper_key))
        if not low <= values[name] <= high:
            raise ConfigError(f"{name}: expected {low} to {high}, got {text}")
    heartbeat, session = (
        values.get(name, _number(settings.value(GROUP_CONFIG[name].node_key)))
        for name in (HEARTBEAT_INTERVAL, SESSION_TIMEOUT)
    )
    if heartbeat >= session:
        raise ConfigError(f"{HEARTBEAT_INTERVAL} ({heartbeat}) must be below {session}")


def describe_group_config(settings: Settings, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every key of a group with its value and where that comes from, in order of name."""
    entries = []
    for name, key in GROUP_CONFIG.items():
        own = [Synonym(name, overrides[name], Source.GROUP)] if name in overrides else []
        entries.append(config_entry(key, own + node_synonyms(settings, key.node_key)))
    return entries


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
