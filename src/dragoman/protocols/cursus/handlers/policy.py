"""Policies of Cursus topics, stored as one entry of the topic's configuration.

`cleanup_policy`, `retention_hours` and `retention_bytes` are stored as the topic's
`cleanup.policy`, `retention.ms` and `retention.bytes`, so that they apply to every protocol. The
other settings are specific to Cursus.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

import msgspec

from dragoman.cluster.metadata import TopicMetadata
from dragoman.limits import TOPIC_NAME_BYTES_MAX
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.security.access import Operation
from dragoman.text_cache import cached_by_text

POLICY_KEY: Final = "dragoman.cursus.policy"
_HOUR_MS: Final = 3_600_000
_CONFIG_MAX: Final = (1 << 63) - 1
_NAME: Final = re.compile(r"[A-Za-z0-9._=-]{1,249}")
_CHOICES: Final = {
    "cleanup_policy": ("delete", "compact", "delete,compact", "compact,delete"),
    "partitioner": ("hash_key", "round_robin"),
    "auth_policy": ("open", "deny_write", "deny_read", "acl"),
    "idempotent": ("true", "false"),
    "event_sourcing": ("true", "false"),
}
_FLAGS: Final = ("idempotent", "event_sourcing")


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    idempotent: str = "false"
    event_sourcing: str = "false"
    partitioner: str = "hash_key"
    auth_policy: str = "open"
    read_acl: str = ""
    write_acl: str = ""

    @property
    def is_idempotent(self) -> bool:
        return self.idempotent == "true"

    @property
    def is_event_sourced(self) -> bool:
        return self.event_sourcing == "true"

    @property
    def is_hashed(self) -> bool:
        return self.partitioner == "hash_key"

    def allows(self, operation: Operation, principal: str) -> bool:
        match self.auth_policy:
            case "open":
                return True
            case "acl":
                names = self.read_acl if operation is Operation.READ else self.write_acl
                return principal in names.split(",")
            case denied:
                return denied != f"deny_{operation.value}"


_DEFAULT: Final = Policy()


@lru_cache(maxsize=1024)
def _read_policy(text: str) -> Policy:
    found = dict(each.partition("=")[::2] for each in text.split())
    return Policy(**{name: found[name] for name in Policy.__struct_fields__ if name in found})


def policy_of(topic: TopicMetadata) -> Policy:
    text = topic.config.get(POLICY_KEY)
    return _DEFAULT if text is None else _read_policy(text)


def no_access(operation: Operation, topic: str) -> Refusal:
    """The refusal of a client that may not read or write a topic."""
    return Refusal(f"NOT_AUTHORIZED_FOR_TOPIC operation={operation.value} topic={topic}")


# ---- names


@cached_by_text(1024)
def is_expressible(name: str) -> bool:
    """Whether clients of Cursus can name this topic."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def check_name(name: str) -> None:
    if not is_expressible(name):
        shown = quoted(name)
        reason = quoted(f"topic name {shown} contains unsupported characters")
        raise Refusal(f"invalid_topic_name topic={shown} reason={reason}")


def is_pattern(topic: str) -> bool:
    return "*" in topic or "?" in topic


def topics_named(topics: dict[str, TopicMetadata], name: str) -> list[TopicMetadata]:
    """The topic of that name, or the topics that a pattern matches, in order. Patterns do not match
    internal topics.
    """
    if not is_pattern(name):
        return [topics[name]] if name in topics and is_expressible(name) else []
    if len(name) > TOPIC_NAME_BYTES_MAX:
        return []
    # Brackets are special in the standard library's patterns, but not in Cursus's.
    pattern = name.replace("[", "[[]")
    return [
        topic
        for each, topic in sorted(topics.items())
        if not topic.is_internal and is_expressible(each) and fnmatchcase(each, pattern)
    ]


# ---- settings of a topic


def config_from(
    arguments: Mapping[str, str], hours: int, size: int, present: Mapping[str, str]
) -> dict[str, str]:
    """The topic's configuration after a CREATE. Raises `Refusal`."""
    config = dict(present)
    # As in the original, `true` and `false` are not case-sensitive: clients may send True.
    flags = {name: arguments[name].lower() for name in _FLAGS if name in arguments}
    arguments = {**arguments, **flags}
    for name, choices in _CHOICES.items():
        if name in arguments and arguments[name] not in choices:
            raise Refusal(f"invalid_{name} value={quoted(arguments[name])}")
    if "cleanup_policy" in arguments:
        config["cleanup.policy"] = arguments["cleanup_policy"]
    if hours:
        config["retention.ms"] = str(min(hours * _HOUR_MS, _CONFIG_MAX))
    if size:
        config["retention.bytes"] = str(min(size, _CONFIG_MAX))
    policy = msgspec.structs.asdict(_read_policy(config.pop(POLICY_KEY, "")))
    policy |= {name: arguments[name] for name in policy if name in arguments}
    default = msgspec.structs.asdict(_DEFAULT)
    words = [f"{name}={value}" for name, value in policy.items() if value != default[name]]
    if words:
        config[POLICY_KEY] = " ".join(words)
    return config


def policy_fields(topic: TopicMetadata) -> dict[str, str | int]:
    """The fields of replies, in their order."""
    policy, config = policy_of(topic), topic.config
    return {
        "cleanup_policy": config.get("cleanup.policy", "delete"),
        "partitioner": policy.partitioner,
        "auth_policy": policy.auth_policy,
        "read_acl": policy.read_acl,
        "write_acl": policy.write_acl,
        "retention_hours": max(0, int(config.get("retention.ms", "0"))) // _HOUR_MS,
        "retention_bytes": max(0, int(config.get("retention.bytes", "0"))),
    }


def policy_text(topic: TopicMetadata) -> str:
    return " ".join(f"{name}={value}" for name, value in policy_fields(topic).items())
