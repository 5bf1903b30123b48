"""The mlog client: public names.

    from dragoman.client.mlog import MlogClient

`MlogClient` is for asyncio, `BlockingMlogClient` for blocking code. Both also work with the
original servers.
"""

from __future__ import annotations

from dragoman.client_core.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    UnreachableError,
)
from dragoman.client_core.tls import TlsSettings
from dragoman.protocols.mlog.client.client import (
    BlockingConsumer,
    BlockingMlogClient,
    Consumer,
    MlogClient,
)
from dragoman.protocols.mlog.client.connection import (
    AckModeError,
    CatchUpTimeoutError,
    ClientSettings,
    CommitRefusedError,
    MlogError,
    NoDataError,
    NotLeaderError,
    TooFewNodesError,
    TopicExistsError,
    TopicNotFoundError,
)
from dragoman.protocols.mlog.constants import AckMode, Encoding
from dragoman.protocols.mlog.messages import Entry, ReplicaInfo, TopicInfo

__all__ = [
    "AckMode",
    "AckModeError",
    "BlockingConsumer",
    "BlockingMlogClient",
    "CatchUpTimeoutError",
    "ClientClosedError",
    "ClientError",
    "ClientSettings",
    "CommitRefusedError",
    "ConnectionLostError",
    "Consumer",
    "Encoding",
    "Entry",
    "MlogClient",
    "MlogError",
    "NoDataError",
    "NotLeaderError",
    "ReplicaInfo",
    "RequestTimeoutError",
    "TlsSettings",
    "TooFewNodesError",
    "TopicExistsError",
    "TopicInfo",
    "TopicNotFoundError",
    "UnreachableError",
]
