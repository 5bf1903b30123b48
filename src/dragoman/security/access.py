"""Who asks, what is asked, and of which resource: the words of every decision about access."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec


class Operation(Enum):
    # Members are unique objects. The hash of `Enum` is a function in Python, and decisions are kept
    # by operation and resource.
    __hash__ = object.__hash__

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
    #: Only in rules: every operation.
    ALL = "all"

    @property
    def phrase(self) -> str:
        """What a sentence says before the resource: `describe the configuration of`."""
        return self.value.replace("_configs", " the configuration of").replace("_", " ")


class Resource(Enum):
    """The kinds of resources."""

    __hash__ = object.__hash__

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional_id"
    CLUSTER = "cluster"
    USER = "user"
    CAPTURE = "capture"
    PIPELINE = "pipeline"


#: The only name of a resource of the kind `CLUSTER`, in rules of any protocol.
CLUSTER_NAME: Final = "kafka-cluster"


class Principal(msgspec.Struct, frozen=True, cache_hash=True):
    """The identity that a request has been authenticated with."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class Caller(msgspec.Struct, frozen=True, cache_hash=True):
    """The origin of a request: a principal, and the address that it connects from.

    It belongs to the request, not to the connection: one connection may carry requests of several
    principals, and a request that another node executes is decided there for its original caller.
    """

    principal: Principal = ANONYMOUS
    #: The client's address; empty where there is none, which only rules for every host match.
    host: str = ""
    #: Whether a credential has shown who it is: a login, a token, a signature, a certificate, or
    #: the administrator's socket. The network that a client connects from shows nothing. Rules do
    #: not look at it.
    is_proven: bool = False

    @property
    def name(self) -> str:
        return self.principal.name
