"""Distinct types for integers and strings that must not be confused, and shared values."""

from __future__ import annotations

from typing import NewType, TypeAlias

import msgspec

TopicName = NewType("TopicName", str)
#: Index of a partition inside its topic, from 0.
Partition = NewType("Partition", int)
#: Small integer that names one partition of the whole cluster; never reused.
PartitionId = NewType("PartitionId", int)
Offset = NewType("Offset", int)
#: Leader epoch of a partition, or term of the metadata quorum.
Epoch = NewType("Epoch", int)
NodeId = NewType("NodeId", int)
ProducerId = NewType("ProducerId", int)
GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
#: PostgreSQL log sequence number.
Lsn = NewType("Lsn", int)

Buffer: TypeAlias = bytes | bytearray | memoryview


class Certificate(msgspec.Struct, frozen=True):
    """The verified certificate of a peer."""

    #: The subject as text of RFC 2253: `CN=alice,OU=billing,O=Example`.
    subject: str
    #: Subject alternative names with their kind, such as `DNS:node1.example` or
    #: `URI:dragoman://node/1`.
    alternative_names: tuple[str, ...] = ()
    #: SHA-256 of the certificate.
    digest: bytes = b""
