"""The Cursus client: public names.

    from dragoman.client.cursus import BlockingCursusClient, CursusClient

`CursusClient` is for asyncio, `BlockingCursusClient` for blocking code. They also work with the
original broker.
"""

from __future__ import annotations

from dragoman.client_core.credentials import Login
from dragoman.client_core.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    UnreachableError,
)
from dragoman.client_core.tls import TlsSettings
from dragoman.protocols.cursus.client.client import (
    BlockingConsumer,
    BlockingCursusClient,
    BlockingProducer,
    CursusClient,
)
from dragoman.protocols.cursus.client.connection import (
    Appended,
    CursusError,
    CursusSettings,
    Event,
    EventStream,
    LoginFailedError,
    MemberFencedError,
    NotAuthorizedError,
    NotLeaderError,
    OffsetRange,
    ProducerFencedError,
    Record,
    Snapshot,
    TopicInfo,
    UnknownTopicError,
    VersionConflictError,
)
from dragoman.protocols.cursus.client.consumer import Consumer
from dragoman.protocols.cursus.client.producer import Producer, Transaction
from dragoman.protocols.cursus.compression import Compressor, register
from dragoman.protocols.cursus.messages import Message

__all__ = [
    "Appended",
    "BlockingConsumer",
    "BlockingCursusClient",
    "BlockingProducer",
    "ClientClosedError",
    "ClientError",
    "Compressor",
    "ConnectionLostError",
    "Consumer",
    "CursusClient",
    "CursusError",
    "CursusSettings",
    "Event",
    "EventStream",
    "Login",
    "LoginFailedError",
    "MemberFencedError",
    "Message",
    "NotAuthorizedError",
    "NotLeaderError",
    "OffsetRange",
    "Producer",
    "ProducerFencedError",
    "Record",
    "RequestTimeoutError",
    "Snapshot",
    "TlsSettings",
    "TopicInfo",
    "Transaction",
    "UnknownTopicError",
    "UnreachableError",
    "VersionConflictError",
    "register",
]
