"""What a Cursus topic has beside a log: kept as one entry of the topic's configuration.

`cleanup_policy`, `retention_hours` and `retention_bytes` are the topic's own `cleanup.policy`,
`retention.ms` and `retention.bytes`, so that they hold for every protocol; the rest is Cursus's.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from dragoman.cluster.metadata import TopicMetadata
from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource

POLICY_KEY: Final = "dragoman.cursus.policy"
_HOUR_MS: Final = 3_600_000
_NAME: Final = re.compile(r"[A-Za-z0-9._=-]{1,249}")
_CHOICES: Final = {
    "cleanup_policy": ("delete", "compact", "delete,compact", "compact,delete"),
    "partitioner": ("hash_key", "round_robin"),
    "auth_policy": ("open", "deny_write", "deny_read", "acl"),
    "idempotent": ("true", "false"),
    "event_sourcing": ("true", "false"),
}


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


@lru_cache(maxsize=1024)
def _read_policy(text: str) -> Policy:
    found = dict(each.partition("=")[::2] for each in text.split())
    return Policy(**{name: found[name] for name in Policy.__struct_fields__ if name in found})


def policy_of(topic: TopicMetadata) -> Policy:
    return _read_policy(topic.config.get(POLICY_KEY, ""))


def check_access(call: Call, operation: Operation, topic: TopicMetadata) -> None:
    """May this client read or write the topic? Raises `Refusal`."""
    principal = call.session.principal
    if not policy_of(topic).allows(operation, principal.name) or not (
        call.service.broker.authorizer.is_allowed(principal, operation, Resource.TOPIC, topic.name)
    ):
        raise Refusal(f"NOT_AUTHORIZED_FOR_TOPIC operation={operation.value} topic={topic.name}")


@lru_cache(maxsize=1024)
def is_expressible(name: str) -> bool:
    """Can Cursus name this topic?"""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def check_name(name: str) -> None:
    if not is_expressible(name):
        shown = quoted(name)
        reason = quoted(f"topic name {shown} contains unsupported characters")
        raise Refusal(f"invalid_topic_name topic={shown} reason={reason}")


def config_from(call: Call, present: dict[str, str]) -> dict[str, str]:
    """The topic's configuration after a CREATE. Raises `Refusal`."""
    config = dict(present)
    for name, choices in _CHOICES.items():
        if name in call.command.arguments and call.get(name) not in choices:
            raise Refusal(f"invalid_{name} value={quoted(call.get(name))}")
    if call.get("cleanup_policy"):
        config["cleanup.policy"] = call.get("cleanup_policy")
    hours = call.number("retention_hours", 0)
    if hours:
        config["retention.ms"] = str(min(hours * _HOUR_MS, (1 << 63) - 1))
    size = call.number("retention_bytes", 0)
    if size:
        config["retention.bytes"] = str(min(size, (1 << 63) - 1))
    policy = msgspec.structs.asdict(_read_policy(config.get(POLICY_KEY, "")))
    policy |= {name: call.get(name) for name in policy if name in call.command.arguments}
    default = msgspec.structs.asdict(Policy())
    words = [f"{name}={value}" for name, value in policy.items() if value != default[name]]
    if words:
        config[POLICY_KEY] = " ".join(words)
    else:
        config.pop(POLICY_KEY, None)
    return config


def policy_fields(topic: TopicMetadata) -> dict[str, str | int]:
    """The fields that replies show, in their order."""
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
