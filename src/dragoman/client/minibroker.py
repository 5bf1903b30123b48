"""The minibroker client: public names.

    from dragoman.client.minibroker import MinibrokerClient

`MinibrokerClient` is for asyncio, `BlockingMinibrokerClient` for blocking code.
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
from dragoman.protocols.minibroker.client.client import (
    AlreadySubscribedError,
    BlockingGroupSubscription,
    BlockingMinibrokerClient,
    BlockingSubscription,
    ClientSettings,
    MinibrokerClient,
    NotLeaderError,
    RefusedError,
)
from dragoman.protocols.minibroker.client.subscription import GroupSubscription, Subscription
from dragoman.protocols.minibroker.messages import Delivered, Published

__all__ = [
    "AlreadySubscribedError",
    "BlockingGroupSubscription",
    "BlockingMinibrokerClient",
    "BlockingSubscription",
    "ClientClosedError",
    "ClientError",
    "ClientSettings",
    "ConnectionLostError",
    "Delivered",
    "GroupSubscription",
    "MinibrokerClient",
    "NotLeaderError",
    "Published",
    "RefusedError",
    "RequestTimeoutError",
    "Subscription",
    "TlsSettings",
    "UnreachableError",
]
