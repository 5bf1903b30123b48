"""Who a connection speaks for, and the one question the broker asks about it.

Everything is allowed until rules are configured; the question is asked from the first day so that
rules have a place to act.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

import msgspec


class Operation(Enum):
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    DESCRIBE_CONFIGS = "describe_configs"
    ALTER_CONFIGS = "alter_configs"
    #: What nodes do among themselves.
    CLUSTER_ACTION = "cluster_action"
    #: What Kafka asked of idempotent producers before version 3; WRITE implies it since.
    IDEMPOTENT_WRITE = "idempotent_write"


class Resource(Enum):
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional_id"
    CLUSTER = "cluster"


#: The only name of a resource of the kind `CLUSTER`, in rules of any protocol.
CLUSTER_NAME: Final = "kafka-cluster"


class Principal(msgspec.Struct, frozen=True):
    """Whom a connection authenticated as."""

    kind: str
    name: str


ANONYMOUS = Principal("User", "ANONYMOUS")


class Authorizer(Protocol):
    def is_allowed(
        self, principal: Principal, operation: Operation, resource: Resource, name: str
    ) -> bool: ...


class AllowAll:
    """The authorizer of a node without rules."""

    def is_allowed(
        self,
        principal: Principal,  # noqa: ARG002
        operation: Operation,  # noqa: ARG002
        resource: Resource,  # noqa: ARG002
        name: str,  # noqa: ARG002
    ) -> bool:
        return True
