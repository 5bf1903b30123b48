"""The principal of a connection, and the question that the broker asks an authorizer about it."""

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
    #: Requests of one node to another.
    CLUSTER_ACTION = "cluster_action"
    #: Kafka required it of idempotent producers before version 3; since then WRITE implies it.
    IDEMPOTENT_WRITE = "idempotent_write"


class Resource(Enum):
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional_id"
    CLUSTER = "cluster"


#: The only name of a resource of the kind `CLUSTER`, in rules of any protocol.
CLUSTER_NAME: Final = "kafka-cluster"


class Principal(msgspec.Struct, frozen=True):
    """The identity with which a connection has authenticated."""

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
