"""The RocketMQ client: public names.

    from dragoman.client.rocketmq import Message, RocketmqClient

`RocketmqClient` is for asyncio, `BlockingRocketmqClient` for blocking code; `RocketmqAdmin` and
`BlockingRocketmqAdmin` administer. They also work with the original name servers and brokers.
"""

from __future__ import annotations

from dragoman.client_core.credentials import AccessKey
from dragoman.client_core.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    UnreachableError,
)
from dragoman.client_core.tls import TlsSettings
from dragoman.protocols.rocketmq.bodies import (
    AclEntry,
    AclInfo,
    AclPolicy,
    ConsumeFrom,
    MessageModel,
    MessageQueue,
    RequestMode,
    SubscriptionGroupConfig,
    TopicConfig,
    UserInfo,
)
from dragoman.protocols.rocketmq.client.admin import (
    LATEST,
    DeadLetter,
    GroupProgress,
    MessageTrack,
    RocketmqAdmin,
    TrackKind,
    lag_of,
)
from dragoman.protocols.rocketmq.client.client import (
    BlockingProducer,
    BlockingPullConsumer,
    BlockingPushConsumer,
    BlockingRocketmqAdmin,
    BlockingRocketmqClient,
    BlockingTransactionProducer,
    RocketmqClient,
)
from dragoman.protocols.rocketmq.client.consumption import Later
from dragoman.protocols.rocketmq.client.errors import (
    BusyError,
    GroupNotFoundError,
    GroupOfflineError,
    InvalidParameterError,
    MessageIllegalError,
    NoPermissionError,
    NotFoundError,
    RocketmqError,
    SubscriptionError,
    TopicNotFoundError,
    UnsupportedRequestError,
)
from dragoman.protocols.rocketmq.client.messages import Message, ReceivedMessage, SendStatus, Sent
from dragoman.protocols.rocketmq.client.operations import PlainAccess
from dragoman.protocols.rocketmq.client.producer import (
    Producer,
    TransactionProducer,
    TransactionState,
)
from dragoman.protocols.rocketmq.client.pull import SQL92, Filter, PullConsumer, Pulled, PullStatus
from dragoman.protocols.rocketmq.client.push_consumer import PushConsumer
from dragoman.protocols.rocketmq.client.remoting import ClientSettings
from dragoman.protocols.rocketmq.constants import Serialization

__all__ = [
    "LATEST",
    "SQL92",
    "AccessKey",
    "AclEntry",
    "AclInfo",
    "AclPolicy",
    "BlockingProducer",
    "BlockingPullConsumer",
    "BlockingPushConsumer",
    "BlockingRocketmqAdmin",
    "BlockingRocketmqClient",
    "BlockingTransactionProducer",
    "BusyError",
    "ClientClosedError",
    "ClientError",
    "ClientSettings",
    "ConnectionLostError",
    "ConsumeFrom",
    "DeadLetter",
    "Filter",
    "GroupNotFoundError",
    "GroupOfflineError",
    "GroupProgress",
    "InvalidParameterError",
    "Later",
    "Message",
    "MessageIllegalError",
    "MessageModel",
    "MessageQueue",
    "MessageTrack",
    "NoPermissionError",
    "NotFoundError",
    "PlainAccess",
    "Producer",
    "PullConsumer",
    "PullStatus",
    "Pulled",
    "PushConsumer",
    "ReceivedMessage",
    "RequestMode",
    "RequestTimeoutError",
    "RocketmqAdmin",
    "RocketmqClient",
    "RocketmqError",
    "SendStatus",
    "Sent",
    "Serialization",
    "SubscriptionError",
    "SubscriptionGroupConfig",
    "TlsSettings",
    "TopicConfig",
    "TopicNotFoundError",
    "TrackKind",
    "TransactionProducer",
    "TransactionState",
    "UnreachableError",
    "UnsupportedRequestError",
    "UserInfo",
    "lag_of",
]
